"""Verdicts on many CVEs: lists and scanners' reports, the formats of the answer, and hostile input."""

import csv
import io
from datetime import date
from typing import Any

import pytest

from buildings.cve.reports.identifiers import listed_ids
from buildings.cve.reports.reader import read_report
from campus import Problem

pytestmark = pytest.mark.anyio

KEV, EPSS, NVD = "/kev.json", "/epss.csv.gz", "/rest/json/cves/2.0"
PATH = "/v1/cve/verdicts"


@pytest.fixture(params=["http", "mcp"])
def frame(request) -> str:
    return request.param


@pytest.fixture
def feeds(publisher, make):
    fresh = make.kev_entry("CVE-2026-7001", date(2026, 8, 1), vendorProject="=Acme|", product="Rocket", knownRansomwareCampaignUse="Known")
    publisher.put(KEV, make.kev_catalog([fresh, *make.listings(1200)]))
    publisher.put(EPSS, make.epss_file(make.many_scores(2000) | {"CVE-2026-7001": 0.9, "CVE-2025-5555": 0.42}))
    publisher.put(NVD, make.nvd_page([make.nvd_record("CVE-2026-9001", vulnStatus="Rejected")]))
    return publisher


async def test_many_cves_are_answered_in_rank_order(feeds, open_test_campus, frame) -> None:
    async with open_test_campus(feeds.url, frame=frame) as campus:
        await campus.run("refresh", accept=True)
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


async def test_the_answer_is_csv_or_markdown_if_the_caller_prefers_it(feeds, open_test_campus) -> None:
    async with open_test_campus(feeds.url) as campus:
        await campus.run("refresh", accept=True)
        bearer = {"Authorization": f"Bearer {await campus.key('cve')}"}
        asked = {"cve_ids": "CVE-2025-5555,CVE-2026-7001,CVE-1999-0001,CVE-2021"}

        async def answered(accept: str) -> Any:
            answer = await campus.http.get(PATH, params=asked, headers=bearer | {"Accept": accept})
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
        assert (rows[0]["vendor"], rows[0]["kev"], rows[0]["if_exposed"]) == ("'=Acme|", "yes", "3 to 14 days"), (
            "no spreadsheet runs a cell"
        )
        as_markdown = await answered("text/markdown, */*;q=0.1")
        assert as_markdown.headers["content-type"] == "text/markdown; charset=utf-8"
        assert "\\|" in as_markdown.text, "a name of others breaks no table"
        assert "- CVE-1999-0001: unknown" in as_markdown.text
        assert "\n3 identifiers: 2 of " in as_markdown.text
        alone = await campus.http.get(PATH, params={"cve_ids": "CVE-2025-5555"}, headers=bearer | {"Accept": "text/markdown"})
        assert "\n1 identifier: 1 of " in alone.text
        for accept in ("*/*", "application/json", "application/json, text/csv;q=0.9", "text/csv;q=0", "image/png", "text/csv;q=x", ""):
            assert (await answered(accept)).headers["content-type"] == "application/json", accept
        refused = await campus.http.get(PATH, headers=bearer | {"Accept": "text/csv"})
        assert (refused.status_code, refused.json()["code"]) == (422, "no_cve_ids")


ODD = ["CVE\u20112021\u201144228", "\uff23\uff36\uff25-2021-44228", "CVE-２０２１-44228", "CVE-2021-4422\uff18", "\u0421VE-2021-44228"]


@pytest.mark.parametrize("odd", ODD)
def test_an_identifier_in_other_characters_is_refused_in_a_list_and_shown_in_a_report(odd: str) -> None:
    with pytest.raises(Problem) as refused:
        listed_ids(["CVE-2021-44228", odd])
    assert (refused.value.code, "item 2" in refused.value.detail) == ("invalid_cve_ids", True)
    report = read_report(f"see {odd} and CVE-2024-3094")
    assert ([each.ids for each in report.findings], [odd in each.why for each in report.unreadable]) == ([("CVE-2024-3094",)], [True])


async def test_more_than_a_call_takes_is_refused(feeds, open_test_campus, frame) -> None:
    ids = [f"CVE-2026-{1000 + n}" for n in range(1001)]
    async with open_test_campus(feeds.url, frame=frame) as campus:
        await campus.run("refresh", accept=True)
        key = await campus.key("cve")
        for arguments, code in [
            ({"cve_ids": ids}, "too_many_ids"),
            ({"report": "x" * 1_000_001}, "unreadable_report"),
            ({"cve_ids": []}, "no_cve_ids"),
            ({"report": "{" * 20_000}, "unreadable_report"),
            ({}, "no_cve_ids"),  # a body without arguments is a report
        ]:
            if arguments.get("cve_ids") == [] and frame == "http":
                continue  # a query cannot hold an empty list
            if frame == "mcp" or len(str(arguments)) < 30_000:
                assert (await campus.call("cve_verdicts", key=key, **arguments)).code == code
            if frame == "http":
                bearer = {"Authorization": f"Bearer {key}"}
                answer = await campus.http.post(PATH, json=arguments, headers=bearer)
                assert answer.json()["code"] == (code if arguments else "unreadable_report")
        all_ranked = (await campus.call("cve_verdicts", key=key, cve_ids=",".join(ids[:1000]))).data
        assert (all_ranked["found"], [one["rank"] for one in all_ranked["verdicts"]]) == (
            1000,
            sorted(one["rank"] for one in all_ranked["verdicts"]),
        )
        if frame == "http":
            for body, headers, status in [
                (b"CVE-2021-44228 " * 1_500_000, {}, 413),
                (b"\xff\xfeC\0V\0E\0", {}, 422),
                (b"\x1f\x8b" + b"\0" * 100, {"Content-Encoding": "gzip"}, 415),
                (b"[" * 500_000, {"Content-Type": "application/json"}, 422),
            ]:
                refused = await campus.http.post(PATH, content=body, headers=bearer | headers)
                assert refused.status_code == status, body[:20]
