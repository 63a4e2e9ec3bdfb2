"""The lists as tables: who prefers CSV or Markdown by Accept gets the same list in it, and JSON stays the default."""

import csv
import io
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from campus.testing import Clock

pytestmark = pytest.mark.anyio

KEV, EPSS = "/kev.json", "/epss.csv.gz"
HOSTILE = "=Acme|<b>"


LISTS = {
    "/v1/brief/today": ["entries"],
    "/v1/archive/2026-08-22": ["entries"],
    "/v1/next": ["entries"],
    "/v1/next?limit=100": ["entries"],
    "/v1/brief/today?limit=3&methodology=false": ["entries"],
    "/v1/kev/fresh": ["entries"],
    "/v1/brief/changes": ["entered", "left", "moved", "edited"],
}


async def test_a_list_is_csv_or_markdown_if_the_caller_prefers_it(publisher, open_test_campus, make) -> None:
    clock = Clock(datetime(2026, 8, 21, 14, tzinfo=UTC))
    outside = {f"CVE-2025-{20_000 + 10 * n}": round(0.9 * n / 120, 5) for n in range(120)}
    publisher.put(EPSS, make.epss_file(make.many_scores(100) | outside | {"CVE-2026-6001": 0.9}))
    async with open_test_campus(publisher.url, clock=clock) as campus:
        await campus.run("refresh", accept=True)
        clock.move(timedelta(days=1))
        newest = make.kev_entry("CVE-2026-6001", date(2026, 8, 22), vendorProject=HOSTILE, product="Rocket, fast")
        publisher.put(KEV, make.kev_catalog([*make.listings(40), newest], released="2026-08-22T13:00:00.000Z"))
        await campus.run("refresh")
        bearer = {"Authorization": f"Bearer {await campus.key('cve')}"}

        async def answered(path: str, accept: str) -> Any:
            answer = await campus.http.get(path, headers=bearer | {"Accept": accept})
            assert (answer.status_code, answer.headers["vary"]) == (200, "Accept")
            return answer

        for path, members in LISTS.items():
            as_json = (await answered(path, "application/json, text/csv;q=0.5")).json()
            entries = [entry for member in members for entry in as_json[member]]
            assert entries
            as_csv = await answered(path, "text/csv")
            assert as_csv.headers["content-type"] == "text/csv; charset=utf-8"
            rows = list(csv.DictReader(io.StringIO(as_csv.text, newline="")))
            assert [row["cve_id"] for row in rows] == [entry["cve_id"] for entry in entries]
            as_markdown = (await answered(path, "text/markdown")).text
            assert [line.split("|")[2].strip() for line in as_markdown.splitlines() if "CVE-20" in line and line.startswith("|")] == [
                row["cve_id"] for row in rows
            ]
            assert as_json.get("notices", [""])[0] in as_markdown
            if named := [row for row in rows if row["cve_id"] == "CVE-2026-6001"]:
                assert named[0]["vendor"] == f"'{HOSTILE}", "no spreadsheet runs a cell"
                assert "Acme\\|\\<b\\>" in as_markdown, "a name of others breaks no table"
            assert (await answered(path, "*/*")).headers["content-type"] == "application/json"


async def test_what_is_no_list_of_cves_is_a_table_too(publisher, open_test_campus, make) -> None:
    publisher.put(EPSS, make.epss_file(make.many_scores(100) | {f"CVE-2025-{20_000 + 10 * n}": 0.001 * n for n in range(1, 120)}))
    clock = Clock(datetime(2026, 8, 21, 14, tzinfo=UTC))
    async with open_test_campus(publisher.url, clock=clock) as campus:
        await campus.run("refresh", accept=True)
        key = await campus.key("cve")
        await campus.call("create_watch", key=key, name=HOSTILE, vendors=["Acme"])
        clock.move(timedelta(days=1))
        newest = make.kev_entry("CVE-2026-6001", date(2026, 8, 22))
        publisher.put(KEV, make.kev_catalog([*make.listings(40), newest], released="2026-08-22T13:00:00.000Z"))
        await campus.run("refresh", accept=True)

        async def table(path: str) -> tuple[Any, list[dict[str, str]], str]:
            said = []
            for accept in ("application/json", "text/csv", "text/markdown"):
                answer = await campus.http.get(path, headers={"Authorization": f"Bearer {key}", "Accept": accept})
                assert (answer.status_code, answer.headers["content-type"].partition(";")[0]) == (200, accept), answer.text
                said.append(answer)
            rows = list(csv.DictReader(io.StringIO(said[1].text, newline="")))
            return said[0].json(), rows, said[2].text

        news, rows, text = await table("/v1/watches/news")
        assert [(row["cve_id"], row["name"], row["fits"]) for row in rows] == [("CVE-2026-6001", f"'{HOSTILE}", "vendor Acme")]
        assert ("=Acme\\|\\<b\\>" in text, f"send since={news['next']}." in text) == (True, True)

        record, rows, text = await table("/v1/next/record")
        depths = [(one["ranking"], str(depth["first"])) for one in record["rankings"] for depth in one["depths"]]
        assert [(row["ranking"], row["first"]) for row in rows] == depths
        assert [f"| {one['list_day']} |" in text for one in record["lists"]] == [True, True]

        history, rows, text = await table("/v1/cve/CVE-2026-1000/history")
        assert [row["day"] for row in rows] == ["2026-08-21"], "EPSS of the second day is that of the first"
        assert ("| 2026-08-21 | 0.0 |" in text, "- 2026-07-01: listed in KEV" in text, history["count"]) == (True, True, 1)


async def test_a_list_is_as_long_as_its_caller_asks_and_says_how_long_it_is(publisher, open_test_campus, make) -> None:
    outside = {f"CVE-2025-{20_000 + 10 * n}": round(0.9 * n / 120, 5) for n in range(1, 120)}
    async with open_test_campus(publisher.url, frame="mcp", clock=(clock := Clock(datetime(2026, 8, 21, 14, tzinfo=UTC)))) as campus:
        key = await campus.key("cve")

        async def said(tool: str, **arguments: Any) -> Any:
            reply = await campus.call(tool, key=key, **arguments)
            assert reply.status == 200, reply.data
            return reply.data

        scores = make.many_scores(100) | outside | {f"CVE-2026-{7000 + n}": 0.99 for n in range(4)}
        for step in range(4):
            clock.move(timedelta(days=step > 0))
            scores["CVE-2026-1000"] = 0.1 + step / 100
            publisher.put(EPSS, make.epss_file(scores, scored=f"{clock():%Y-%m-%d}T12:00:00Z"))
            fresh = [make.kev_entry(f"CVE-2026-{7000 + n}", date(2026, 8, 21) + timedelta(days=n)) for n in range(step + 1)]
            publisher.put(KEV, make.kev_catalog([*make.listings(40), *fresh], released=f"{clock():%Y-%m-%d}T13:00:00.000Z"))
            await campus.run("refresh", accept=True)

        for tool, usual, about in (
            ("top_cves_today", 25, {}),
            ("archived_brief", 25, {"date": "2026-08-23"}),
            ("next_in_kev", 25, {}),
            ("next_in_kev", 25, {"date": "2026-08-23"}),
        ):
            whole = await said(tool, **about)
            assert (len(whole["entries"]), whole["methodology"] is None) == (usual, tool == "next_in_kev")
            short = await said(tool, limit=2, methodology=tool == "next_in_kev", **about)
            assert (short["entries"], short["count"]) == (whole["entries"][:2], whole["count"])
            assert (short["methodology"] is None) is not (whole["methodology"] is None)
            assert (await campus.call(tool, key=key, limit=0, **about)).code == "invalid_request"
        assert len((await said("next_in_kev", limit=100))["entries"]) == whole["count"] == 100

        fresh, short = await said("kev_fresh"), await said("kev_fresh", limit=1)
        assert (fresh["count"], short["count"], short["entries"]) == (len(fresh["entries"]), fresh["count"], fresh["entries"][:1])
        window = {"from_day": "2026-08-21", "to_day": "2026-08-24"}
        changes, short = await said("brief_changes", **window), await said("brief_changes", limit=1, **window)
        kinds = ("entered", "left", "moved", "edited")
        assert [changes[f"{kind}_count"] for kind in kinds] == [len(changes[kind]) for kind in kinds]
        assert short == changes | {kind: changes[kind][:1] for kind in kinds}
        assert changes["entered_count"] > 1
        record, short = await said("next_record"), await said("next_record", limit=1)
        assert (record["list_count"], short["list_count"], short["lists"]) == (4, 4, record["lists"][:1])
        history, short = await said("cve_history", cve_id="CVE-2026-1000"), await said("cve_history", cve_id="CVE-2026-1000", limit=2)
        assert (history["count"], short["count"], short["epss"], short["days"]) == (4, 4, history["epss"][-2:], 2)
        assert (short["from"], short["kev"]) == ("2026-08-23", history["kev"])
