"""The lists as tables: who prefers CSV or Markdown by Accept gets the same list in it, as long as asked for; JSON stays the default."""

import csv
import io
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import date, timedelta
from typing import Any

import pytest
from cve.conftest import EPSS, KEV, NOON, Make, OpenTestCampus, open_publisher

from campus.testing import Clock, TestCampus

pytestmark = pytest.mark.anyio

HOSTILE = "=Acme|<b>"
NAMED = "CVE-2026-7002"
NEWEST = "CVE-2026-7003"
LISTS = {
    "/v1/brief/today": ["entries"],
    "/v1/archive/2026-08-24": ["entries"],
    "/v1/next": ["entries"],
    "/v1/next?limit=100": ["entries"],
    "/v1/brief/today?limit=3&methodology=false": ["entries"],
    "/v1/kev/fresh": ["entries"],
    "/v1/brief/changes": ["entered", "left", "moved", "edited"],
}


@pytest.fixture(scope="module")
async def campus(make: Make, open_test_campus: OpenTestCampus) -> AsyncIterator[TestCampus]:
    """Four lists, a day each, with one more CVE in KEV every day; one has a vendor whose name would run, or break a table."""
    clock = Clock(NOON)
    outside = {f"CVE-2025-{20_000 + 10 * n}": round(0.9 * n / 120, 5) for n in range(1, 120)}
    scores = make.many_scores(100) | outside | {f"CVE-2026-{7000 + n}": 0.99 for n in range(4)}
    names = {NAMED: {"vendorProject": HOSTILE, "product": "Rocket, fast"}}
    async with open_publisher() as publisher, open_test_campus(publisher.url, clock=clock) as opened:
        for step in range(4):
            clock.move(timedelta(days=step > 0))
            scores["CVE-2026-1000"] = 0.1 + step / 100
            publisher.put(EPSS, make.epss_file(scores, scored=f"{clock():%Y-%m-%d}T12:00:00Z"))
            ids = [f"CVE-2026-{7000 + n}" for n in range(step + 1)]
            fresh = [make.kev_entry(cve_id, date(2026, 8, 21) + timedelta(days=n), **names.get(cve_id, {})) for n, cve_id in enumerate(ids)]
            publisher.put(KEV, make.kev_catalog([*make.listings(40), *fresh], released=f"{clock():%Y-%m-%d}T13:00:00.000Z"))
            await opened.run("refresh", accept=True)
            if step == 2:
                await opened.call("create_watch", key=(key := await opened.key("cve")), name=HOSTILE, vendors=["Acme"])
        opened.http.headers["Authorization"] = f"Bearer {key}"
        yield opened


async def table(campus: TestCampus, path: str) -> tuple[Any, list[dict[str, str]], str]:
    """The same answer as JSON, as rows of CSV, and as Markdown."""
    said = []
    for accept in ("application/json, text/csv;q=0.5", "text/csv", "text/markdown"):
        answer = await campus.http.get(path, headers={"Accept": accept})
        assert (answer.status_code, answer.headers["vary"].partition(",")[0]) == (200, "Accept"), answer.text
        assert answer.headers["content-type"].partition(";")[0] == accept.partition(",")[0]
        said.append(answer)
    return said[0].json(), list(csv.DictReader(io.StringIO(said[1].text, newline=""))), said[2].text


async def test_a_list_is_csv_or_markdown_if_the_caller_prefers_it(campus: TestCampus) -> None:
    for path, members in LISTS.items():
        as_json, rows, as_markdown = await table(campus, path)
        entries = [entry for member in members for entry in as_json[member]]
        assert entries
        assert [row["cve_id"] for row in rows] == [entry["cve_id"] for entry in entries]
        lines = [line.split("|")[2].strip() for line in as_markdown.splitlines() if "CVE-20" in line and line.startswith("|")]
        assert lines == [row["cve_id"] for row in rows]
        assert as_json.get("notices", [""])[0] in as_markdown
        if named := [row for row in rows if row["cve_id"] == NAMED]:
            assert named[0]["vendor"] == f"'{HOSTILE}", "no spreadsheet runs a cell"
            assert "Acme\\|\\<b\\>" in as_markdown, "a name of others breaks no table"
        assert (await campus.http.get(path)).headers["content-type"] == "application/json"


async def test_what_is_no_list_of_cves_is_a_table_too(campus: TestCampus) -> None:
    news, rows, text = await table(campus, "/v1/watches/news")
    assert [(row["cve_id"], row["name"], row["fits"]) for row in rows] == [(NEWEST, f"'{HOSTILE}", "vendor Acme")]
    assert ("=Acme\\|\\<b\\>" in text, f"send since={news['next']}." in text) == (True, True)

    record, rows, text = await table(campus, "/v1/next/record")
    depths = [(one["ranking"], str(depth["first"])) for one in record["rankings"] for depth in one["depths"]]
    assert [(row["ranking"], row["first"]) for row in rows] == depths
    assert [f"| {one['list_day']} |" in text for one in record["lists"]] == [True] * 4

    history, rows, text = await table(campus, "/v1/cve/CVE-2026-1001/history")
    assert [(row["day"], row["epss"]) for row in rows] == [(f"2026-08-{day}", "0.01") for day in range(21, 25)], "it never changed"
    assert ("| 2026-08-21 | 0.01 |" in text, "- 2026-07-01: listed in KEV" in text, history["count"]) == (True, True, 1)


async def test_a_list_is_as_long_as_its_caller_asks_and_says_how_long_it_is(campus: TestCampus) -> None:
    key, over_mcp = await campus.key("cve"), replace(campus, frame="mcp")

    async def said(tool: str, **arguments: Any) -> Any:
        reply = await over_mcp.call(tool, key=key, **arguments)
        assert reply.status == 200, reply.data
        return reply.data

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
        assert (await over_mcp.call(tool, key=key, limit=0, **about)).code == "invalid_request"
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
