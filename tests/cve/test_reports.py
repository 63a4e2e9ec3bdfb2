"""Verdicts on many CVEs, of lists and of reports: every finding in one bucket, in the order in which to fix; the formats; the refusals."""

import csv
import gzip
import io
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import date
from typing import Any

import pytest
from cve.conftest import EPSS, KEV, NVD, Make, OpenTestCampus, open_publisher

from buildings.cve.reports.identifiers import listed_ids
from buildings.cve.reports.reader import read_report
from campus import Problem
from campus.caller import Frame
from campus.testing import TestCampus

pytestmark = pytest.mark.anyio

PATH = "/v1/cve/verdicts"
FOUND, ALSO, SETTLED, OTHER = "CVE-2026-7001", "CVE-2025-5555", "CVE-2026-7002", "CVE-2026-7003"
GHSA, LONE = "GHSA-jfh8-c2jp-5v3q", "GHSA-vv2x-vrpj-qqpq"
PROSE = f"An incomplete fix of {OTHER}; see also {SETTLED}."


@pytest.fixture(scope="module")
async def listed(make: Make, open_test_campus: OpenTestCampus) -> AsyncIterator[TestCampus]:
    async with open_publisher() as publisher, open_test_campus(publisher.url) as campus:
        known = make.kev_entry(FOUND, date(2026, 8, 1), vendorProject="=Acme|", product="Rocket", knownRansomwareCampaignUse="Known")
        publisher.put(KEV, make.kev_catalog([known, *make.listings(40)]))
        publisher.put(EPSS, make.epss_file(make.many_scores(1000) | {FOUND: 0.9, ALSO: 0.42, SETTLED: 0.3, OTHER: 0.2}))
        publisher.put(NVD, make.nvd_page([make.nvd_record("CVE-2026-9001", vulnStatus="Rejected")]))
        await campus.run("refresh", accept=True)
        yield campus


@pytest.fixture
def campus(listed: TestCampus, frame: Frame) -> TestCampus:
    return replace(listed, frame=frame)


@pytest.fixture
async def bearer(listed: TestCampus) -> dict[str, str]:
    return {"Authorization": f"Bearer {await listed.key('cve')}"}


async def test_many_cves_are_answered_in_rank_order(campus: TestCampus) -> None:
    assert (await campus.call("cve_verdicts", cve_ids=["CVE-2026-7001"])).status == 402
    key = await campus.key("cve")
    asked = ["CVE-2025-5555", "cve-2026-9001", "CVE-2026-7001", "CVE-2026-1003", "CVE-2026-7001", "CVE-1999-0001"]
    found = (await campus.call("cve_verdicts", key=key, cve_ids=asked)).data
    assert (found["count"], found["found"], found["overdue"], found["malformed_count"]) == (5, 3, 2, 0)
    assert [one["cve_id"] for one in found["verdicts"]] == ["CVE-2026-7001", "CVE-2026-1003", "CVE-2025-5555"]
    assert found["misses"] == [
        {"cve_id": "CVE-2026-9001", "reason": "rejected"},
        {"cve_id": "CVE-1999-0001", "reason": "unknown"},
    ]
    first = found["verdicts"][0]
    assert (first["kev_due_date"], first["ransomware"]) == ("2026-08-15", True)
    assert (first["deadlines"]["if_exposed"]["due"], first["deadlines"]["unknown"]) == (
        "2026-08-04",
        ["automatable", "technical_impact"],
    )
    assert found["verdicts"][2]["deadlines"]["if_not_exposed"]["due"] is None, "only the caller knows when it was found"
    assert [one["when"] for one in found["verdicts"]] == ["today", "today", "this_week"]
    for one in found["verdicts"]:
        alone = (await campus.call("cve_verdict", key=key, cve_id=one["cve_id"])).data
        del alone["deadlines"]["in_words"]
        assert one == {name: alone[name] for name in one}
    as_text = (await campus.call("cve_verdicts", key=key, cve_ids="CVE-2025-5555, CVE-2026-9001;CVE-2026-7001\nCVE-2026-1003")).data
    assert as_text["verdicts"] == found["verdicts"]


async def test_the_answer_is_csv_or_markdown_if_the_caller_prefers_it(listed: TestCampus, bearer: dict[str, str]) -> None:
    asked = {"cve_ids": "CVE-2025-5555,CVE-2026-7001,CVE-1999-0001,CVE-2021"}

    async def answered(accept: str) -> Any:
        answer = await listed.http.get(PATH, params=asked, headers=bearer | {"Accept": accept})
        assert (answer.status_code, answer.headers["vary"]) == (200, "Accept")
        return answer

    as_csv = await answered("text/csv")
    assert as_csv.headers["content-type"] == "text/csv; charset=utf-8"
    rows = list(csv.DictReader(io.StringIO(as_csv.text, newline="")))
    assert [(row["rank"] != "", row["cve_id"], row["missing"]) for row in rows] == [
        (True, "CVE-2026-7001", ""),
        (True, "CVE-2025-5555", ""),
        (False, "CVE-1999-0001", "unknown"),
        (False, "CVE-2021", "malformed"),
    ]
    assert (rows[0]["vendor"], rows[0]["kev"], rows[0]["if_exposed"]) == ("'=Acme|", "yes", "3 to 14 days"), "no spreadsheet runs a cell"
    as_markdown = await answered("text/markdown, */*;q=0.1")
    assert as_markdown.headers["content-type"] == "text/markdown; charset=utf-8"
    assert "\\|" in as_markdown.text, "a name of others breaks no table"
    assert "- CVE-1999-0001: unknown" in as_markdown.text
    assert "\n3 identifiers: 2 of " in as_markdown.text
    alone = await listed.http.get(PATH, params={"cve_ids": "CVE-2025-5555"}, headers=bearer | {"Accept": "text/markdown"})
    assert "\n1 identifier: 1 of " in alone.text
    for accept in ("*/*", "application/json", "application/json, text/csv;q=0.9", "text/csv;q=0", "image/png", "text/csv;q=x", ""):
        assert (await answered(accept)).headers["content-type"] == "application/json", accept
    refused = await listed.http.get(PATH, headers=bearer | {"Accept": "text/csv"})
    assert (refused.status_code, refused.json()["code"]) == (422, "no_cve_ids")


ODD = ["CVE\u20112021\u201144228", "\uff23\uff36\uff25-2021-44228", "CVE-２０２１-44228", "CVE-2021-4422\uff18", "\u0421VE-2021-44228"]


@pytest.mark.parametrize("odd", ODD)
def test_an_identifier_in_other_characters_is_refused_in_a_list_and_shown_in_a_report(odd: str) -> None:
    with pytest.raises(Problem) as refused:
        listed_ids(["CVE-2021-44228", odd])
    assert (refused.value.code, "item 2" in refused.value.detail) == ("invalid_cve_ids", True)
    report = read_report(f"see {odd} and CVE-2024-3094")
    assert ([each.ids for each in report.findings], [odd in each.why for each in report.unreadable]) == ([("CVE-2024-3094",)], [True])


async def test_more_than_a_call_takes_is_refused(campus: TestCampus, bearer: dict[str, str], frame: Frame) -> None:
    ids = [f"CVE-2026-{1000 + n}" for n in range(1001)]
    key = await campus.key("cve")
    sent: list[tuple[dict[str, Any], str]] = [
        ({"cve_ids": ids}, "too_many_ids"),
        ({"report": "x" * 1_000_001}, "unreadable_report"),
        ({"cve_ids": []}, "no_cve_ids"),
        ({"report": "{" * 20_000}, "unreadable_report"),
        ({}, "no_cve_ids" if frame == "mcp" else "unreadable_report"),  # a body without arguments is a report
    ]
    for arguments, code in sent:
        if frame == "mcp":
            assert (await campus.call("cve_verdicts", key=key, **arguments)).code == code
        else:
            assert (await campus.http.post(PATH, json=arguments, headers=bearer)).json()["code"] == code


async def test_a_thousand_cves_are_answered_in_rank_order(listed: TestCampus, bearer: dict[str, str]) -> None:
    asked = ",".join(f"CVE-2026-{1000 + n}" for n in range(1000))
    ranked = (await listed.http.post(PATH, json={"cve_ids": asked}, headers=bearer)).json()
    ranks = [one["rank"] for one in ranked["verdicts"]]
    assert (ranked["found"], ranks) == (1000, sorted(ranks))


def grype_match(own: str, *related: str) -> dict[str, Any]:
    return {
        "vulnerability": {
            "id": own,
            "dataSource": f"https://github.com/advisories/{own}",
            "namespace": "github:language:java",
            "severity": "Critical",
            "urls": [f"https://nvd.nist.gov/vuln/detail/{OTHER}"],
            "description": PROSE,
            "fix": {"versions": ["2.15.0"], "state": "fixed"},
            "advisories": [],
        },
        "relatedVulnerabilities": [{"id": one, "namespace": "nvd:cpe", "description": PROSE} for one in related],
        "matchDetails": [{"type": "exact-direct-match", "found": {"vulnerabilityID": own, "versionConstraint": "<2.15.0"}}],
        "artifact": {"name": "log4j-core", "version": "2.14.1", "purl": "pkg:maven/org.apache.logging.log4j/log4j-core@2.14.1"},
    }


GRYPE = {
    "matches": [grype_match(GHSA, FOUND), grype_match(ALSO, ALSO, OTHER), grype_match(LONE)],
    "ignoredMatches": [grype_match(SETTLED, SETTLED) | {"appliedIgnoreRules": [{"vulnerability": SETTLED}]}],
    "descriptor": {"name": "grype", "configuration": {"ignore": [{"vulnerability": SETTLED}]}},
}
TRIVY = {
    "SchemaVersion": 2,
    "Results": [
        {
            "Target": "shop (debian 12.5)",
            "Vulnerabilities": [
                {"VulnerabilityID": FOUND, "VendorIDs": ["DSA-5678-1"], "Status": "fixed", "Title": PROSE, "Description": PROSE},
                {"VulnerabilityID": ALSO, "Status": "affected", "References": [f"https://nvd.nist.gov/vuln/detail/{OTHER}"]},
                {"VulnerabilityID": LONE, "Status": "fixed", "References": [f"https://example.org/{OTHER}"]},
            ],
            "ExperimentalModifiedFindings": [
                {"Type": "vulnerability", "Status": "ignored", "Source": ".trivyignore", "Finding": {"VulnerabilityID": SETTLED}}
            ],
        }
    ],
}
UNSETTLED = ("today", "this_week", "later", "state_unknown", "not_ranked", "not_looked_up", "unreadable")


async def test_every_finding_of_a_report_stands_in_one_bucket_and_both_front_doors_say_the_same(
    campus: TestCampus, bearer: dict[str, str]
) -> None:
    key = await campus.key("cve")
    for name, document in (("Grype", GRYPE), ("Trivy", TRIVY)):
        report = json.dumps(document)
        answer = (await campus.call("cve_verdicts", key=key, report=report, limit=100)).data
        accounting, rows = answer["accounting"], answer["findings"]
        assert accounting["form"].startswith(name), accounting["form"]
        assert (accounting["findings"], sum(accounting["counts"].values())) == (len(rows), len(rows)), name
        assert {each: sum(row["bucket"] == each for row in rows) for each in accounting["counts"]} == accounting["counts"], name
        unsettled = [row for row in rows if row["bucket"] in UNSETTLED]
        assert [row.get("cve_id") for row in unsettled[:2]] == [FOUND, ALSO], name
        assert {row["bucket"] for row in unsettled if row["id"] == LONE} == {"not_looked_up"}, name
        assert {row["bucket"] for row in rows if row.get("cve_id") == SETTLED} <= {"suppressed", "not_affected", "fixed"}, name
        assert [one["cve_id"] for one in answer["verdicts"]] == [FOUND, ALSO], name
        for content_type in ("application/json", "application/json; charset=utf-8", "text/plain"):
            as_body = await campus.http.post(
                PATH, params={"limit": 100}, content=report.encode(), headers=bearer | {"Content-Type": content_type}
            )
            assert (as_body.status_code, as_body.json()) == (200, answer), (name, content_type)


async def test_a_row_says_what_the_report_says_and_what_is_known_of_its_cve(listed: TestCampus, bearer: dict[str, str]) -> None:
    key = await listed.key("cve")
    answer = (await listed.call("cve_verdicts", key=key, report=json.dumps(GRYPE), limit=1)).data
    (first,) = answer["findings"]
    assert {name: first[name] for name in ("bucket", "cve_id", "id", "package", "installed_version", "fixed_version")} == {
        **{"bucket": first["bucket"], "cve_id": FOUND, "id": GHSA},
        **{"package": "log4j-core", "installed_version": "2.14.1", "fixed_version": "2.15.0"},
    }
    assert (first["tool_severity"], first["kev"], first["epss"], "state" in first) == ("Critical", True, 0.9, False)
    assert (answer["accounting"]["findings"], [one["cve_id"] for one in answer["verdicts"]]) == (4, [FOUND]), "the counts are of all"
    for accept, rows in (("text/csv", 4 + 1), ("text/markdown", 4 + 2)):
        text = (await listed.http.post(PATH, json=GRYPE, params={"limit": 1}, headers=bearer | {"Accept": accept})).text
        table = [line for line in text.splitlines() if accept == "text/csv" or line.startswith("|")]
        assert (len(table), SETTLED in text, LONE in text) == (rows, True, True), "a file has all findings"
    with_list = (await listed.call("cve_verdicts", key=key, report=json.dumps(GRYPE), cve_ids=[SETTLED, GHSA])).data
    assert [one["cve_id"] for one in with_list["verdicts"]] == [FOUND, ALSO, SETTLED], "what is asked for by name is answered"
    assert with_list["resolved"] == {GHSA: [FOUND]}, "by the report's own word"
    inside = (await listed.call("cve_verdicts", key=key, report=json.dumps(TRIVY), exposed="no", exposed_places=["shop*"])).data
    assert [("when_if_exposed" in row) for row in inside["findings"]] == [False] * 4


async def test_what_was_read_without_a_cve_is_an_answer_and_what_cannot_be_read_is_refused(
    listed: TestCampus, bearer: dict[str, str]
) -> None:
    async def answered(report: bytes, **headers: str) -> tuple[int, Any]:
        answer = await listed.http.post(PATH, content=report, headers=bearer | headers)
        return answer.status_code, answer.json()

    status, empty = await answered(json.dumps({"SchemaVersion": 2, "ArtifactName": "shop", "Results": []}).encode())
    assert (status, empty["accounting"]["findings"], empty["verdicts"]) == (200, 0, [])
    status, lone = await answered(json.dumps({"matches": [grype_match(LONE)], "descriptor": {}}).encode())
    assert (status, lone["accounting"]["counts"]["not_looked_up"], lone["findings"][0]["id"]) == (200, 1, LONE)
    for report, code in [
        (b'{"error": "the scan failed"}', "unreadable_report"),
        (b"nothing of note", "unreadable_report"),
        (b"PK\x03\x04 is no archive", "unreadable_report"),
        (b"\xff\xfeC\0V\0E\0", "unreadable_report"),
        (b"CVE-2021-44228 " * 1_500_000, "body_too_large"),
    ]:
        status, problem = await answered(report)
        assert (status, problem["code"]) == (413 if code == "body_too_large" else 422, code), report[:20]
        assert {"lang", "Traceback"}.isdisjoint(problem["detail"].split())
    assert (await answered(b"\x1f\x8b" + b"\0" * 100, **{"Content-Encoding": "gzip"}))[0] == 415
    assert (await answered(b"[" * 500_000, **{"Content-Type": "application/json"}))[0] == 422


async def test_only_a_key_that_opens_the_tool_may_send_a_large_report(listed: TestCampus, bearer: dict[str, str]) -> None:
    match = grype_match(ALSO)
    large = json.dumps({"matches": [grype_match(FOUND), *[match] * 1_700], "descriptor": {}}).encode()
    assert len(large) > 1 << 20
    answer = await listed.http.post(PATH, content=large, headers=bearer)
    assert (answer.status_code, answer.json()["accounting"]["findings"], answer.json()["count"]) == (200, 1_701, 2)
    as_csv = await listed.http.post(PATH, content=large, headers=bearer | {"Accept": "text/csv"})
    assert as_csv.text.count("\n") == 1_702
    packed = await listed.http.post(PATH, content=gzip.compress(large), headers=bearer | {"Content-Type": "application/gzip"})
    assert packed.json()["accounting"]["counts"] == answer.json()["accounting"]["counts"]
    as_argument = await listed.http.post(PATH, content=b'{"report": "%b"}' % (b"x" * (1 << 20)), headers=bearer)
    assert as_argument.status_code == 413, "an argument stays small"
    for headers in ({}, {"Authorization": "Bearer nobody"}, {"Idempotency-Key": "a-stranger-may-not-have-it-read-1"}):
        refused = await listed.http.post(PATH, content=large, headers=headers)
        assert refused.status_code in (402, 413), "its body is not read"
