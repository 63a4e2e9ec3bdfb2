"""What CISA lists is listed, whatever else of its entry cannot be read: that is unknown, and said to readers and operators."""

import gzip
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from cve.conftest import EPSS, KEV, NOON, NVD

from buildings.cve.feeds.acceptance import check_kev
from buildings.cve.feeds.epss import parse_epss
from buildings.cve.feeds.errors import FeedDoubted, FeedRefused
from buildings.cve.feeds.kev import parse_kev
from buildings.cve.forecast.grading import listing_events
from buildings.cve.forecast.store import flips
from buildings.cve.ranking.edition import NO_RECORDS, make_edition
from campus.testing import Clock

pytestmark = pytest.mark.anyio
TODAY = date(2026, 8, 21)
UNKNOWN_DATES: list[dict[str, Any]] = [
    *({"dateAdded": written} for written in ("08/21/2026", "2026-8-21", "TBD", "", None, 1787270400, "2062-08-21", "2016-08-21")),
    {"dateAdded": ...},
]
"""Members of new listings; `...` leaves one out."""
KNOWN_DATES: list[dict[str, Any]] = [
    {"dateAdded": "2026-08-21T14:30:00Z"},
    {"dateAdded": " 2026-08-21 "},
    *({"cveID": written} for written in (" cve-2026-{} ", "CVE\u20112026\u2011{}", "CVE\u2013 2026 \u2013{}\u200b", "CVE 2026 {}")),
    *({"cveID": written, "notes": "https://nvd.nist.gov/vuln/detail/CVE-2026-{}"} for written in ("TBD", None, ...)),
    {"dueDate": "24 August"},
    *({"knownRansomwareCampaignUse": word} for word in ("Yes", "Suspected", None)),
    {"vendorProject": None, "product": ["Anvil"]},
]
ODD = dict(enumerate([*UNKNOWN_DATES, *KNOWN_DATES], 7001))
"""By the number of the CVE."""


@pytest.fixture
def listed(make):
    def entry(number: int, odd: dict[str, Any]) -> dict[str, Any]:
        whole = make.kev_entry(f"CVE-2026-{number}", TODAY)
        spelled = {name: value.format(number) if isinstance(value, str) else value for name, value in odd.items()}
        return {name: value for name, value in (whole | spelled).items() if value is not ...}

    return entry


@pytest.fixture
def feeds(publisher, make):
    """Good feeds; KEV has 40 entries."""
    publisher.put(KEV, make.kev_catalog(make.listings(40), released="2026-08-20T17:00:00.000Z"))
    publisher.put(EPSS, make.epss_file(make.many_scores(100), scored="2026-08-20T12:00:00Z"))
    publisher.put(NVD, make.nvd_page([make.nvd_record("CVE-2026-1000"), make.nvd_record("CVE-2026-7100")]))
    return publisher


async def test_new_listings_that_cannot_be_read_in_full_are_listed_ranked_and_told(feeds, open_test_campus, make, listed) -> None:
    clock = Clock(NOON - timedelta(days=1))
    async with open_test_campus(feeds.url, clock=clock) as campus:
        await campus.run("refresh", accept=True)
        clock.move(timedelta(days=1))
        new = [listed(number, odd) for number, odd in ODD.items()]
        feeds.put(KEV, make.kev_catalog([*new, *make.listings(40)]))
        await campus.run("refresh")
        key = await campus.key("cve")
        verdicts = {n: (await campus.call("cve_verdict", cve_id=f"CVE-2026-{n}", key=key)).data for n in ODD}
        fresh = (await campus.call("kev_fresh", key=key)).data
        assert {one["cve_id"] for one in fresh["entries"]} == {f"CVE-2026-{n}" for n in ODD}
        for number, odd in ODD.items():
            verdict = verdicts[number]
            assert (verdict["kev"], verdict["factors"]["recency"], verdict["rank"] <= len(ODD)) == (True, 50.0, True), odd
            assert verdict["kev_date_added"] == (None if odd in UNKNOWN_DATES else "2026-08-21"), odd
            assert verdict.get("kev_first_release") == ("2026-08-21" if odd in UNKNOWN_DATES else None), odd
            unread = set(odd) - {"cveID", "notes"} if odd not in KNOWN_DATES[:2] else set()
            assert set(verdict.get("kev_unreadable", ())) == unread, odd
            assert verdict["ransomware"] is None, "never false"
        brief = (await campus.call("top_cves_today", key=key)).data
        assert len(brief["feeds"]["kev"]["unreadable"]) == len(UNKNOWN_DATES) + 5
        assert any("CVE-2026-7001: dateAdded '08/21/2026'" in notice for notice in brief["notices"])
        findings = (await campus.service.ask("ready"))["cve"]
        assert any("CVE-2026-7001: dateAdded '08/21/2026'" in finding for finding in findings)
        assert await campus.service.ask("audit") == {} or not (await campus.service.ask("audit")).get("cve")
        for path in ("/cve", "/cve/CVE-2026-7001", "/cve/CVE-1999-0001"):
            page = (await campus.http.get(path, headers={"Accept": "text/html"})).text
            assert "dateAdded &#39;08/21/2026&#39;" in page, path
        page = (await campus.http.get("/cve/CVE-2026-7001", headers={"Accept": "text/html"})).text
        assert "ranked from 2026-08-21" in page
        assert "CVE-2026-7001" in (await campus.http.get("/v1/feeds/kev.json")).text
        counts = (await campus.call("brief_changes", key=key)).data
        assert {one["cve_id"] for one in counts["entered"] if one["reasons"] == ["listed"]} == {f"CVE-2026-{n}" for n in ODD}

        clock.move(timedelta(days=1))  # the whole catalog in another spelling, and then in the first again
        rows = [*new, *make.listings(40)]
        american = [
            row | {"dateAdded": f"{row['dateAdded']:.10}"[5:] + "/2026"} if str(row.get("dateAdded")).startswith("2026") else row
            for row in rows
        ]
        feeds.put(KEV, make.kev_catalog([listed(7050, {"dateAdded": "08/22/2026"}), *american], released="2026-08-22T17:00:00.000Z"))
        await campus.run("refresh")
        old = (await campus.call("cve_verdict", cve_id="CVE-2026-1000", key=key)).data
        first = (await campus.call("cve_verdict", cve_id="CVE-2026-7001", key=key)).data
        latest = (await campus.call("cve_verdict", cve_id="CVE-2026-7050", key=key)).data
        assert (old["kev_date_added"], old["kev"]) == ("2026-07-01", True)
        assert (first["kev_first_release"], latest["kev_first_release"]) == ("2026-08-21", "2026-08-22")
        unreadable = (await campus.call("top_cves_today", key=key)).data["feeds"]["kev"]["unreadable"]
        assert (unreadable[0], unreadable[-1][:4], len(unreadable)) == ("CVE-2026-7050: dateAdded '08/22/2026'", "and ", 21)

        clock.move(timedelta(days=1))
        whole = [make.kev_entry(f"CVE-2026-{n}", TODAY) for n in ODD]
        feeds.put(KEV, make.kev_catalog([*whole, *make.listings(40)], released="2026-08-23T17:00:00.000Z"))
        await campus.run("refresh")
        first = (await campus.call("cve_verdict", cve_id="CVE-2026-7001", key=key)).data
        assert (first["kev_date_added"], "kev_first_release" in first, "kev_unreadable" in first) == ("2026-08-21", False, False)


async def test_a_score_that_cannot_be_read_is_unknown_and_neither_zero_nor_not_yet_scored(feeds, open_test_campus, make) -> None:
    lines = b"CVE-2026-7100,N/A,0.9\nCVE-2026-71000,,\nCVE-2026-7101,1.5,0.9\n"
    feeds.put(EPSS, gzip.compress(gzip.decompress(make.epss_file(make.many_scores(100))) + lines))
    async with open_test_campus(feeds.url) as campus:
        await campus.run("refresh", accept=True)
        for cve_id in ("CVE-2026-7100", "CVE-2026-71000", "CVE-2026-7101"):
            verdict = (await campus.call("cve_verdict", cve_id=cve_id, key="cve")).data
            assert (verdict["found"], verdict["miss"]["reason"]) == (False, "unreadable"), cve_id
            assert (await campus.call("cve_facts", cve_id=cve_id)).data["epss"] is None
        other = (await campus.call("cve_verdict", cve_id="CVE-2026-7102", key="cve")).data
        assert other["miss"]["reason"] == "unknown"
        assert any("7100,N/A" in notice for notice in (await campus.call("top_cves_today", key="cve")).data["notices"])


def test_what_has_no_day_or_word_is_no_event_for_the_record(make, listed) -> None:
    catalog = parse_kev(make.kev_catalog([listed(7001, {"dateAdded": "TBD"}), listed(7002, {"knownRansomwareCampaignUse": "Yes"})]))
    scores = parse_epss(make.epss_file({"CVE-2026-7001": 0.5, "CVE-2026-7002": 0.4}))
    edition = make_edition(day=TODAY, made_at=datetime(2026, 8, 21, 20, tzinfo=UTC), kev=catalog, epss=scores, nvd=NO_RECORDS)
    assert [event.day for event in listing_events(edition)] == [TODAY], "the listing without a day is none"
    tied = {cve_id: replace(entry, ransomware=True) for cve_id, entry in catalog.entries.items()}
    assert [row.cve_id for row in flips(tied, catalog.entries, day=TODAY)] == ["CVE-2026-7001"]


def test_entries_whose_cve_cannot_be_read_are_few_and_a_first_release_can_be_read(make, listed) -> None:
    nameless = [listed(7001 + n, {"cveID": "CVE-26-1"}) for n in range(11)]
    with pytest.raises(FeedRefused, match=r"of 11 of 12 entries the CVE cannot be read, where 10 are accepted; the first: entry 1"):
        parse_kev(make.kev_catalog([*nameless, listed(8000, {})]))
    assert parse_kev(make.kev_catalog([*nameless[:10], listed(8000, {})])).unreadable[0] == "entry 1: cveID 'CVE-26-1'"
    rows = make.listings(1200)
    odd = [row | ({"dueDate": "N/A"} if place < 11 else {}) for place, row in enumerate(rows)]
    with pytest.raises(FeedDoubted, match=r"11 entries cannot be read in full, where a first one may have 10; .*--accept"):
        check_kev(parse_kev(make.kev_catalog(odd)), None)
    check_kev(parse_kev(make.kev_catalog(odd)), parse_kev(make.kev_catalog(rows)))
    assert parse_kev(make.kev_catalog([rows[0], rows[0]])).unreadable == ("CVE-2026-1000: 2 entries have this cveID",)
