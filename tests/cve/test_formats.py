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
    "/v1/brief/changes": ["entered", "left", "moved", "edited"],
}


async def test_a_list_is_csv_or_markdown_if_the_caller_prefers_it(publisher, open_test_campus, make) -> None:
    clock = Clock(datetime(2026, 8, 21, 14, tzinfo=UTC))
    outside = {f"CVE-2025-{20_000 + 10 * n}": round(0.9 * n / 120, 5) for n in range(120)}
    publisher.put(EPSS, make.epss_file(make.many_scores(1200) | outside | {"CVE-2026-6001": 0.9}))
    async with open_test_campus(publisher.url, clock=clock) as campus:
        await campus.run("refresh", accept=True)
        clock.move(timedelta(days=1))
        newest = make.kev_entry("CVE-2026-6001", date(2026, 8, 22), vendorProject=HOSTILE, product="Rocket, fast")
        publisher.put(KEV, make.kev_catalog([*make.listings(1200), newest], released="2026-08-22T13:00:00.000Z"))
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
            assert as_json["notices"][0] in as_markdown
            if named := [row for row in rows if row["cve_id"] == "CVE-2026-6001"]:
                assert named[0]["vendor"] == f"'{HOSTILE}", "no spreadsheet runs a cell"
                assert "Acme\\|\\<b\\>" in as_markdown, "a name of others breaks no table"
            assert (await answered(path, "*/*")).headers["content-type"] == "application/json"
