"""Reports through the two front doors: every finding in one bucket, rows in the order in which to fix, counts of all."""

import gzip
import json
from datetime import date
from typing import Any

import pytest

pytestmark = pytest.mark.anyio

KEV, EPSS = "/kev.json", "/epss.csv.gz"
PATH = "/v1/cve/verdicts"
FOUND, ALSO, SETTLED, OTHER = "CVE-2026-7001", "CVE-2025-5555", "CVE-2026-7002", "CVE-2026-7003"
GHSA, LONE = "GHSA-jfh8-c2jp-5v3q", "GHSA-vv2x-vrpj-qqpq"
PROSE = f"An incomplete fix of {OTHER}; see also {SETTLED}."


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


def sarif_result(rule: int, **more: Any) -> dict[str, Any]:
    return {"ruleId": ["one", f"{ALSO}-tps", SETTLED, LONE][rule], "ruleIndex": rule, "message": {"text": "found"}, **more}


SARIF = {
    "version": "2.1.0",
    "runs": [
        {
            "tool": {
                "driver": {
                    "name": "scanner",
                    "rules": [
                        {"id": "one", "fullDescription": {"text": f"({FOUND}) log4j-core"}, "help": {"text": PROSE}},
                        {"id": f"{ALSO}-tps", "fullDescription": {"text": PROSE}},
                        {"id": SETTLED, "helpUri": f"https://example.org/{SETTLED}"},
                        {"id": LONE},
                        {"id": OTHER, "shortDescription": {"text": "a rule without a result"}},
                    ],
                }
            },
            "results": [
                sarif_result(0, suppressions=[{"kind": "external", "status": "rejected"}]),
                sarif_result(1),
                sarif_result(2, suppressions=[{"kind": "inSource"}]),
                sarif_result(2, suppressions=[{"kind": "external", "status": "accepted", "justification": PROSE}]),
                sarif_result(2, baselineState="absent"),
                sarif_result(3),
            ],
        }
    ],
}
CYCLONEDX = {
    "bomFormat": "CycloneDX",
    "specVersion": "1.6",
    "components": [
        {"name": "log4j-core", "pedigree": {"patches": [{"type": "backport", "resolves": [{"type": "security", "id": SETTLED}]}]}}
    ],
    "vulnerabilities": [
        {"id": GHSA, "references": [{"id": FOUND, "source": {"name": "NVD"}}], "analysis": {"state": "in_triage"}},
        {"id": ALSO, "references": [{"id": OTHER}], "detail": PROSE, "analysis": {"state": "exploitable"}},
        {"id": LONE, "advisories": [{"url": f"https://example.org/{OTHER}"}]},
        *({"id": SETTLED, "analysis": {"state": state}} for state in ("not_affected", "false_positive", "resolved")),
    ],
}
OPENVEX = {
    "@context": "https://openvex.dev/ns/v0.2.0",
    "statements": [
        {"vulnerability": {"name": FOUND, "aliases": [GHSA]}, "status": "affected", "action_statement": "Update."},
        {"vulnerability": {"name": GHSA, "aliases": [ALSO]}, "status": "under_investigation"},
        {"vulnerability": {"name": LONE}, "status": "affected"},
        {"vulnerability": {"name": SETTLED}, "status": "not_affected", "justification": "component_not_present", "impact_statement": PROSE},
        {"vulnerability": OTHER, "status": "fixed"},
    ],
}
CSAF = {
    "document": {"category": "csaf_vex", "csaf_version": "2.0", "references": [{"url": f"https://example.org/{OTHER}"}]},
    "vulnerabilities": [
        {"cve": FOUND, "product_status": {"known_affected": ["A"], "fixed": ["B"]}, "notes": [{"text": PROSE}]},
        {"cve": ALSO, "product_status": {"under_investigation": ["A"]}},
        {"ids": [{"system_name": "GitHub", "text": LONE}], "product_status": {"known_affected": ["A"]}},
        {"cve": SETTLED, "product_status": {"known_not_affected": ["A"]}},
    ],
}
OSV = {
    "results": [
        {
            "packages": [
                {
                    "package": {"name": "log4j-core", "version": "2.14.1", "ecosystem": "Maven"},
                    "vulnerabilities": [
                        {
                            "id": GHSA,
                            "aliases": [FOUND],
                            "related": [OTHER],
                            "details": PROSE,
                            "references": [{"url": f"https://x.org/{OTHER}"}],
                        },
                        {"id": "PYSEC-2021-5", "aliases": [ALSO]},
                        {"id": LONE, "summary": PROSE},
                    ],
                    "groups": [{"ids": [GHSA], "aliases": [GHSA, FOUND]}],
                }
            ]
        }
    ]
}
DOCUMENTS = {"Grype": GRYPE, "Trivy": TRIVY, "SARIF": SARIF, "CycloneDX": CYCLONEDX, "OpenVEX": OPENVEX, "CSAF": CSAF, "OSV-Scanner": OSV}
UNSETTLED = ("today", "this_week", "later", "state_unknown", "not_ranked", "not_looked_up", "unreadable")


@pytest.fixture
def feeds(publisher, make):
    publisher.put(EPSS, make.epss_file(make.many_scores(1200) | {FOUND: 0.9, ALSO: 0.42, SETTLED: 0.3, OTHER: 0.2}))
    publisher.put(KEV, make.kev_catalog([make.kev_entry(FOUND, date(2026, 8, 1)), *make.listings(1200)]))
    return publisher


async def test_every_finding_of_a_report_stands_in_one_bucket_and_both_front_doors_say_the_same(feeds, open_test_campus) -> None:
    async with open_test_campus(feeds.url, frame="mcp") as campus:
        await campus.run("refresh", accept=True)
        key = await campus.key("cve")
        bearer = {"Authorization": f"Bearer {key}"}
        for name, document in DOCUMENTS.items():
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


async def test_a_row_says_what_the_report_says_and_what_is_known_of_its_cve(feeds, open_test_campus) -> None:
    async with open_test_campus(feeds.url, frame="mcp") as campus:
        await campus.run("refresh", accept=True)
        key = await campus.key("cve")
        answer = (await campus.call("cve_verdicts", key=key, report=json.dumps(GRYPE), limit=1)).data
        (first,) = answer["findings"]
        assert {name: first[name] for name in ("bucket", "cve_id", "id", "package", "installed_version", "fixed_version")} == {
            **{"bucket": first["bucket"], "cve_id": FOUND, "id": GHSA},
            **{"package": "log4j-core", "installed_version": "2.14.1", "fixed_version": "2.15.0"},
        }
        assert (first["tool_severity"], first["kev"], first["epss"], "state" in first) == ("Critical", True, 0.9, False)
        assert (answer["accounting"]["findings"], [one["cve_id"] for one in answer["verdicts"]]) == (4, [FOUND]), "the counts are of all"
        everything = {"Authorization": f"Bearer {key}"}
        for accept, rows in (("text/csv", 4 + 1), ("text/markdown", 4 + 2)):
            text = (await campus.http.post(PATH, json=GRYPE, params={"limit": 1}, headers=everything | {"Accept": accept})).text
            table = [line for line in text.splitlines() if accept == "text/csv" or line.startswith("|")]
            assert (len(table), SETTLED in text, LONE in text) == (rows, True, True), "a file has all findings"
        with_list = (await campus.call("cve_verdicts", key=key, report=json.dumps(GRYPE), cve_ids=[SETTLED, GHSA])).data
        assert [one["cve_id"] for one in with_list["verdicts"]] == [FOUND, ALSO, SETTLED], "what is asked for by name is answered"
        assert with_list["resolved"] == {GHSA: [FOUND]}, "by the report's own word"
        inside = (await campus.call("cve_verdicts", key=key, report=json.dumps(TRIVY), exposed="no", exposed_places=["shop*"])).data
        assert [("when_if_exposed" in row) for row in inside["findings"]] == [False] * 4


async def test_what_was_read_without_a_cve_is_an_answer_and_what_cannot_be_read_is_refused(feeds, open_test_campus) -> None:
    async with open_test_campus(feeds.url, frame="http") as campus:
        await campus.run("refresh", accept=True)
        bearer = {"Authorization": f"Bearer {await campus.key('cve')}"}

        async def answered(report: bytes) -> tuple[int, Any]:
            answer = await campus.http.post(PATH, content=report, headers=bearer)
            return answer.status_code, answer.json()

        status, empty = await answered(json.dumps({"SchemaVersion": 2, "ArtifactName": "shop", "Results": []}).encode())
        assert (status, empty["accounting"]["findings"], empty["verdicts"]) == (200, 0, [])
        status, lone = await answered(json.dumps({"matches": [grype_match(LONE)], "descriptor": {}}).encode())
        assert (status, lone["accounting"]["counts"]["not_looked_up"], lone["findings"][0]["id"]) == (200, 1, LONE)
        for report, code in [
            (b'{"error": "the scan failed"}', "unreadable_report"),
            (b"nothing of note", "unreadable_report"),
            (b"{" * 20_000, "unreadable_report"),
            (b"PK\x03\x04 is no archive", "unreadable_report"),
            (b"CVE-2021-44228 " * 1_500_000, "body_too_large"),
        ]:
            status, problem = await answered(report)
            assert (status in (413, 422), problem["code"]) == (True, code), report[:20]
            assert {"lang", "Traceback"}.isdisjoint(problem["detail"].split())


async def test_only_a_key_that_opens_the_tool_may_send_a_large_report(feeds, open_test_campus) -> None:
    match = grype_match(ALSO)
    large = json.dumps({"matches": [grype_match(FOUND), *[match] * 1_700], "descriptor": {}}).encode()
    assert len(large) > 1 << 20
    async with open_test_campus(feeds.url, frame="http") as campus:
        await campus.run("refresh", accept=True)
        bearer = {"Authorization": f"Bearer {await campus.key('cve')}"}
        answer = await campus.http.post(PATH, content=large, headers=bearer)
        assert (answer.status_code, answer.json()["accounting"]["findings"], answer.json()["count"]) == (200, 1_701, 2)
        as_csv = await campus.http.post(PATH, content=large, headers=bearer | {"Accept": "text/csv"})
        assert as_csv.text.count("\n") == 1_702
        packed = await campus.http.post(PATH, content=gzip.compress(large), headers=bearer | {"Content-Type": "application/gzip"})
        assert packed.json()["accounting"]["counts"] == answer.json()["accounting"]["counts"]
        as_argument = await campus.http.post(PATH, content=b'{"report": "%b"}' % (b"x" * (1 << 20)), headers=bearer)
        assert as_argument.status_code == 413, "an argument stays small"
        for headers in ({}, {"Authorization": "Bearer nobody"}, {"Idempotency-Key": "a-stranger-may-not-have-it-read-1"}):
            refused = await campus.http.post(PATH, content=large, headers=headers)
            assert refused.status_code in (402, 413), "its body is not read"
