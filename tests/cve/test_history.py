"""The history of one CVE: every order in which days of EPSS can come, its windows and formats, and archives of before."""

import csv
import io
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree as Xml

import pytest

from campus.testing import Clock

pytestmark = pytest.mark.anyio

KEV, EPSS = "/kev.json", "/epss.csv.gz"
OLD, NEW = "v2025.03.14", "v2026.06.15"
STAYS, MOVES, COMES, GOES = (f"CVE-2025-{number}" for number in (50_001, 50_002, 50_003, 50_004))
ASKED = (STAYS, MOVES, COMES, GOES)


class Days:
    """The days of EPSS as they are published, each with its model and what it says of four CVEs."""

    def __init__(self, campus: Any, publisher: Any, make: Any, clock: Clock) -> None:
        self.campus, self.publisher, self.make, self.clock = campus, publisher, make, clock
        self.known: dict[date, tuple[str, dict[str, float]]] = {}
        self.rest = make.many_scores(30)

    async def read(self, day: str, moves: float, *, model: str = NEW, on: str | None = None, counts: bool = True, **scores: float) -> None:
        said = {STAYS: 0.4, MOVES: moves, **{{"comes": COMES, "goes": GOES}[name]: score for name, score in scores.items()}}
        if counts:
            self.known[date.fromisoformat(day)] = model, said
        self.publisher.put(EPSS, self.make.epss_file(self.rest | said, scored=f"{day}T12:00:00Z", model=model))
        today, made = self.clock().date(), date.fromisoformat(on or day)
        if made > today:
            self.clock.move(made - today)
        await self.campus.run("refresh", accept=True, **({"day": made} if made < today else {}))

    async def check(self) -> None:
        days = sorted(self.known)
        for cve_id in ASKED:
            answer = await self.campus.call("cve_history", key="cve", cve_id=cve_id)
            if not any(cve_id in said for _, said in self.known.values()):
                assert answer.code == "no_history"
                continue
            found = answer.data
            daily = [(str(day), self.known[day][1].get(cve_id), self.known[day][0]) for day in days]
            changed = [daily[0], *(after for before, after in pairwise(daily) if before[1:] != after[1:])]
            assert [(one["day"], one["epss"], one["model"]) for one in found["epss"]] == changed, cve_id
            assert (found["from"], found["to"], found["days"]) == (daily[0][0], daily[-1][0], len(daily))
            one_day = timedelta(days=1)
            gaps = [{"from": str(a + one_day), "to": str(b - one_day)} for a, b in pairwise(days) if b - a > one_day]
            assert found["gaps"] == gaps


async def test_the_history_is_what_was_published_in_whatever_order_it_came(publisher, open_test_campus, make) -> None:
    clock = Clock(datetime(2026, 8, 1, 21, tzinfo=UTC))
    publisher.put(KEV, make.kev_catalog(make.listings(30), released="2026-08-01T17:00:00Z"))
    async with open_test_campus(publisher.url, clock=clock) as campus:
        days = Days(campus, publisher, make, clock)
        await days.read("2026-08-01", 0.1, model=OLD, goes=0.7)
        await days.check()
        await days.read("2026-08-02", 0.2, model=OLD, goes=0.7)
        await days.read("2026-08-03", 0.2, goes=0.6)  # another model
        await days.read("2026-08-06", 0.3, comes=0.05, goes=0.6)  # two days are missing
        await days.read("2026-08-07", 0.25, comes=0.05)  # one vanishes
        await days.check()
        await days.read("2026-08-07", 0.26, comes=0.06)  # issued again with other scores
        await days.read("2026-08-07", 0.26, comes=0.06)  # and once more the same
        await days.check()
        await days.read("2026-08-05", 0.28, on="2026-08-05", comes=0.04, goes=0.6)  # a missing day is read later
        await days.check()
        await days.read("2026-08-05", 0.99, on="2026-08-05", counts=False)  # a correction of a past list is not its EPSS of that day
        await days.check()
        await days.read("2026-08-08", 0.31, comes=0.07)
        await days.read("2026-08-06", 0.3, on="2026-08-09", comes=0.05, goes=0.6)  # the operator goes back to older scores
        await days.check()
        await days.read("2026-08-10", 0.123456789, comes=0.08, goes=0.5)  # it is scored again, and with more decimals
        await days.check()
        await days.read("2026-08-02", 0.21, on="2026-08-11", model=OLD, goes=0.7)  # back to other scores of a known day
        await days.read("2026-08-12", 0.4, comes=0.09, goes=0.5)
        await days.check()
        listed = (await campus.call("cve_history", key="cve", cve_id="CVE-2026-1000")).data
        assert listed["kev"] == [{"day": "2026-07-01", "event": "listed"}]


async def test_windows_formats_and_refusals(publisher, open_test_campus, make) -> None:
    clock = Clock(datetime(2026, 8, 1, 21, tzinfo=UTC))
    listings = make.listings(30)
    publisher.put(KEV, make.kev_catalog(listings, released="2026-08-01T17:00:00Z"))
    async with open_test_campus(publisher.url, clock=clock, frame="mcp") as campus:
        days = Days(campus, publisher, make, clock)
        await days.read("2026-08-01", 0.1)
        await days.read("2026-08-02", 0.2)
        listings[1]["knownRansomwareCampaignUse"] = "Known"
        publisher.put(KEV, make.kev_catalog(listings[1:], released="2026-08-05T17:00:00Z"))
        await days.read("2026-08-05", 0.2, model="v2026.08.05")
        assert (await campus.call("cve_history", cve_id=MOVES)).status == 402
        key = await campus.key("cve")

        async def asked(cve_id: str = MOVES, **window: str) -> Any:
            return await campus.call("cve_history", key=key, cve_id=cve_id, **window)

        whole = (await asked()).data
        cut = (await asked(from_day="2026-08-02", to_day="2026-08-04")).data
        assert (cut["from"], cut["to"], cut["days"], cut["gaps"]) == ("2026-08-02", "2026-08-02", 1, [])
        assert cut["epss"] == whole["epss"][1:2]
        assert (await asked(from_day="0001-01-01", to_day="9999-12-31")).data == whole
        for window, code, detail in [
            ({"from_day": "2026-08-03", "to_day": "2026-08-02"}, "invalid_window", "from must not be after to"),
            ({"from_day": "2026-08-03", "to_day": "2026-08-04"}, "no_data_for_date", "from 2026-08-01 to 2026-08-05"),
            ({"to_day": "2026-07-31"}, "no_data_for_date", "from 2026-08-01 to 2026-08-05"),
            ({"from_day": "2026-08-06"}, "no_data_for_date", "from 2026-08-01 to 2026-08-05"),
            ({"from_day": "yesterday"}, "invalid_date", "the day 'from' is not a calendar date"),
        ]:
            refused = await asked(**window)
            assert (refused.code, detail in refused.data["detail"]) == (code, True), window
        assert (await asked("CVE-1999-0001")).code == "no_history"
        assert (await asked("CVE\u20112021-1")).code == "invalid_cve_id"
        removed, tied = (await asked("CVE-2026-1000")).data, (await asked("CVE-2026-1001")).data
        assert [(one["day"], one["event"]) for one in removed["kev"]] == [("2026-07-01", "listed"), ("2026-08-05", "removed")]
        assert [(one["day"], one["event"]) for one in tied["kev"]] == [("2026-07-01", "listed"), ("2026-08-05", "ransomware_reported")]
        path, bearer = f"/v1/cve/{MOVES}/history", {"Authorization": f"Bearer {key}"}
        over_http = await campus.http.get(f"{path}?from=2026-08-02&to=2026-08-04", headers=bearer)
        assert over_http.json() == cut
        as_csv = await campus.http.get(path, headers=bearer | {"Accept": "text/csv"})
        rows = [tuple(row) for row in csv.reader(io.StringIO(as_csv.text, newline=""))]
        assert rows == [
            ("day", "cve_id", "epss", "model"),
            ("2026-08-01", MOVES, "0.1", NEW),
            ("2026-08-02", MOVES, "0.2", NEW),
            ("2026-08-05", MOVES, "0.2", "v2026.08.05"),
        ]
        drawn = await campus.http.get(path, headers=bearer | {"Accept": "image/avif,image/webp,image/svg+xml,image/*,*/*;q=0.8"})
        assert drawn.headers["content-type"].startswith("image/svg+xml")
        lines = Xml.fromstring(drawn.content).findall(".//{http://www.w3.org/2000/svg}polyline")
        assert [len(line.attrib["points"].split()) for line in lines] == [4, 2], "the line ends before the gap and the other model"
        listed = Xml.fromstring(
            (await campus.http.get("/v1/cve/CVE-2026-1000/history", headers=bearer | {"Accept": "image/svg+xml"})).content
        )
        (marks,) = [one.attrib["d"] for one in listed.iter("{http://www.w3.org/2000/svg}path") if one.attrib.get("class") == "kev"]
        assert marks.count("M") == 1, "it was removed on a day of the chart, and listed before the first"
