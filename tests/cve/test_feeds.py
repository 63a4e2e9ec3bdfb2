"""KEV and EPSS files: their quirks, what is refused as no such file, and the thresholds for well-formed ones."""

import gzip
import json
import tarfile
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buildings.cve.arguments import spelled
from buildings.cve.feeds.acceptance import EPSS, KEV, FeedRefused, Issue, Thresholds, check, check_time
from buildings.cve.feeds.epss import EpssDay, check_scores, parse_epss
from buildings.cve.feeds.kev import check_listing_days, parse_kev
from buildings.cve.ranking import Scores

ADDED = date(2026, 8, 1)


def test_a_listing_is_read_with_its_blanks_stripped(make) -> None:
    entry = make.kev_entry("CVE-2026-1000", ADDED, vendorProject=" Acme ", product="\tAnvil\n", knownRansomwareCampaignUse="Known")
    catalog = parse_kev(make.kev_catalog([entry]))
    read = catalog.entries["CVE-2026-1000"]
    assert (read.vendor, read.product, read.date_added, read.due_date) == ("Acme", "Anvil", ADDED, date(2026, 8, 15))
    assert read.ransomware
    assert not read.end_of_life
    assert str(catalog.issue) == "2026.08.21 of 2026-08-21"


def test_members_that_old_releases_lack_are_not_asked_for(make) -> None:
    entry = make.kev_entry("CVE-2026-1000", ADDED)
    del entry["knownRansomwareCampaignUse"], entry["cwes"], entry["notes"]
    assert not parse_kev(make.kev_catalog([entry])).entries["CVE-2026-1000"].ransomware


def test_of_a_cve_that_is_listed_twice_the_earlier_listing_counts(make) -> None:
    twice = [make.kev_entry("CVE-2019-1069", date(2022, 3, 15)), make.kev_entry("CVE-2019-1069", date(2024, 9, 18))]
    for entries in (twice, twice[::-1]):
        assert parse_kev(make.kev_catalog(entries)).entries["CVE-2019-1069"].date_added == date(2022, 3, 15)


@pytest.mark.parametrize(
    ("body", "seen"),
    [
        (b"", "an empty answer"),
        (b"<!DOCTYPE html><html><title>Access Denied</title>", "an HTML page of 49 bytes"),
        (b'{"title": "Catalog", "vulnerab', 'an answer of 30 bytes that begins with \'{"title"'),
        (b"[]", "an answer of 2 bytes"),
        (b"\xff\xfe\x00garbage", "an answer of 10 bytes"),
    ],
)
def test_what_is_no_catalog_is_refused_with_what_was_seen(body: bytes, seen: str) -> None:
    with pytest.raises(FeedRefused) as refusal:
        parse_kev(body)
    assert seen in str(refusal.value)


@pytest.mark.parametrize("member", [{"cveID": "CVE-26-1"}, {"dateAdded": "yesterday"}, {"dateAdded": ""}, {"product": None}])
def test_a_release_with_one_bad_listing_is_refused_whole(make, member) -> None:
    with pytest.raises(FeedRefused, match=r"vulnerabilities\.1\."):
        parse_kev(make.kev_catalog([make.kev_entry("CVE-2026-1000", ADDED), make.kev_entry("CVE-2026-1001", ADDED, **member)]))


def test_a_release_that_lost_listings_on_its_way_is_refused(make) -> None:
    with pytest.raises(FeedRefused, match="announces 3 entries and holds 1"):
        parse_kev(make.kev_catalog([make.kev_entry("CVE-2026-1000", ADDED)], count=3))


def test_every_tenth_of_the_real_releases_is_read(real_feeds: Path) -> None:
    with tarfile.open(real_feeds / "kev_releases_2023-04-10_2026-08-21.tar.xz") as releases:
        for place, member in enumerate(releases):
            if place % 10:
                continue
            body = releases.extractfile(member).read()
            catalog = parse_kev(body)
            assert catalog.released_at.date().isoformat() == member.name[4:14]
            assert len(catalog.entries) == len({one["cveID"] for one in json.loads(body)["vulnerabilities"]})


HEAD = b"#model_version:v2026.06.15,score_date:2026-08-15T12:55:00Z\ncve,epss,percentile\n"


def test_rows_may_be_unsorted_and_numbers_trimmed_or_scientific() -> None:
    day = parse_epss(HEAD + b"CVE-2026-10000,2e-05,0.1\nCVE-1999-0001,0.5,1\nCVE-2026-9999,1,.25\n")
    assert [spelled(number) for number in day.scores.numbers] == ["CVE-1999-0001", "CVE-2026-9999", "CVE-2026-10000"]
    assert list(day.scores.epss) == [0.5, 1.0, 2e-05]
    assert list(day.scores.percentiles) == [1.0, 0.25, 0.1]
    assert (day.model_version, day.scored_at) == ("v2026.06.15", datetime(2026, 8, 15, 12, 55, tzinfo=UTC))


@pytest.mark.parametrize("written", [b"2024-10-20T00:00:00+0000", b"2024-10-20T00:00:00Z", b"2024-10-20T02:00:00+02:00"])
def test_a_score_date_may_be_written_as_in_any_year(written: bytes) -> None:
    day = parse_epss(b"#model_version:v2023.03.01,score_date:" + written + b"\ncve,epss,percentile\nCVE-1999-0001,0.5,1\n")
    assert day.scored_at == datetime(2024, 10, 20, tzinfo=UTC)


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_line_ends_do_not_matter(end: bytes) -> None:
    body = (HEAD + b"CVE-1999-0001,0.5,1\nCVE-1999-0002,0.25,0.5").replace(b"\n", b"\r\n" if end == b"\r\n" else b"\n") + end
    assert list(parse_epss(body).scores.epss) == [0.5, 0.25]


@given(st.integers(1, 30_000), st.booleans())
def test_no_row_is_lost_where_blocks_meet(rows: int, packed: bool) -> None:
    body = HEAD + b"".join(b"CVE-2026-%d,0.5,0.5\n" % number for number in range(1000, 1000 + rows))
    assert len(parse_epss(gzip.compress(body, 1) if packed else body).scores.numbers) == rows


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "an empty answer"),
        (b"<html>busy</html>", "an HTML page"),
        (b"cve,epss,percentile\nCVE-1999-0001,0.5,1\n", "not EPSS scores"),
        (HEAD.replace(b"percentile", b"centile") + b"CVE-1999-0001,0.5,1\n", "not EPSS scores"),
        (HEAD, "no rows"),
        (HEAD + b"CVE-1999-0001,0.5,1\nCVE-1999-00", "not of the form 'CVE-…,number,number': b'CVE-1999-00'"),
        (HEAD + b"CVE-1999-0001,0.5\n", "not of the form 'CVE-…,number,number': b'CVE-1999-0001,0.5'"),
        (HEAD + b"CVE-1999-0001,0.5,1\n\nCVE-1999-0002,0.5,1\n", "not of the form 'CVE-"),
        (HEAD + b"CVE-1999-0001,nan,1\n", "not of the form 'CVE-"),
        (HEAD + b"CVE-1999-0001,1-1,1\n", "not a number"),
        (HEAD + b"CVE-1999-0001,1.5,1\n", "a score is not between 0 and 1"),
        (HEAD + b"CVE-1999-0001,0.5,-0.1\n", "a percentile is not between 0 and 1"),
        (HEAD + b"CVE-1999-0001,0.5,1\nCVE-1999-0001,0.5,1\n", "CVE-1999-0001 has two rows"),
        (HEAD.replace(b"2026-08-15T12:55:00Z", b"2026-13-15T12:55:00Z") + b"CVE-1999-0001,0.5,1\n", "is not a date"),
        (HEAD.replace(b"12:55:00Z", b"12:55:00") + b"CVE-1999-0001,0.5,1\n", "no time zone"),
    ],
)
def test_what_is_no_day_of_scores_is_refused_with_what_was_seen(body: bytes, reason: str) -> None:
    with pytest.raises(FeedRefused) as refusal:
        parse_epss(body)
    assert reason in str(refusal.value)


def test_a_line_without_end_is_refused_as_soon_as_it_is_too_long() -> None:
    read = []

    class Counted(bytes):
        def __getitem__(self, part):
            read.append(part)
            return bytes(self)[part]

    for body in (Counted(HEAD + b"C" * (8 << 20)), Counted(b"C" * (8 << 20)), Counted(HEAD + bytes(8 << 20))):
        with pytest.raises(FeedRefused, match="a line is longer than 4,096 bytes"):
            parse_epss(body)
    assert len(read) <= 6, "blocks after the first are not read"


ROWS = b"CVE-1999-0001,0.5,1\nCVE-1999-0002,0.25,0.75\nCVE-1999-0003,0.01,0.5\n"


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (b"CVE-1999-0001,0.5,1\nCVE-1999-0002,0.5,0.9\n", "are the same"),
        (b"CVE-1999-0001,0.5,1\nCVE-1999-0002,0.4,1\n", "are the same"),
        (b"CVE-1999-0001,1,0.5\nCVE-1999-0002,0.75,0.25\nCVE-1999-0003,0.5,0.01\n", "columns are swapped"),
        (b"CVE-1999-0001,0.5,0.75\nCVE-1999-0002,0.25,1\nCVE-1999-0003,0.01,0.5\n", "a higher score than another one and a lower"),
    ],
)
def test_scores_that_cannot_be_a_days_are_refused(rows: bytes, reason: str) -> None:
    check_scores(parse_epss(HEAD + ROWS))
    with pytest.raises(FeedRefused, match=reason):
        check_scores(parse_epss(HEAD + rows))


def test_real_scores_pass_and_with_swapped_columns_do_not(real_feeds: Path) -> None:
    for name in ("epss_scores-2026-01-30.ORIGINAL.csv.gz", "epss_scores-2026-08-15.reconstructed.csv.gz"):
        day = parse_epss((real_feeds / name).read_bytes())
        check_scores(day)
        scores = day.scores
        swapped = Scores(scores.numbers, scores.percentiles, scores.epss)
        with pytest.raises(FeedRefused, match="columns are swapped"):
            check_scores(EpssDay(day.model_version, day.scored_at, swapped))


@pytest.mark.parametrize("member", [{"dateAdded": 1785542400}, {"dateAdded": "1785542400"}, {"dueDate": 1785542400.0}])
def test_a_date_that_is_a_number_is_refused(make, member) -> None:
    with pytest.raises(FeedRefused, match="a date is text that begins with YYYY-MM-DD"):
        parse_kev(make.kev_catalog([make.kev_entry("CVE-2026-1000", ADDED, **member)]))
    with pytest.raises(FeedRefused, match="dateReleased: a date is text"):
        parse_kev(make.kev_catalog([make.kev_entry("CVE-2026-1000", ADDED)], dateReleased=1785542400))


NOON = datetime(2026, 8, 21, 12, tzinfo=UTC)


def test_a_listing_in_the_future_is_refused_beyond_a_day(make) -> None:
    check_listing_days(parse_kev(make.kev_catalog([make.kev_entry("CVE-2026-1000", date(2026, 8, 22))])), now=NOON)
    with pytest.raises(FeedRefused, match=r"says that CVE-2026-1000 was added on 2026-08-23, in the future; .* --accept"):
        check_listing_days(parse_kev(make.kev_catalog([make.kev_entry("CVE-2026-1000", date(2026, 8, 23))])), now=NOON)


def issue(entries: int, *, hours: int = 24) -> Issue:
    return Issue(version=f"v{hours}", issued=NOON + timedelta(hours=hours - 24), entries=entries)


def test_an_issue_from_the_future_is_refused_beyond_a_day() -> None:
    check_time("KEV", issue(9, hours=48), now=NOON)
    with pytest.raises(FeedRefused, match="is dated in the future"):
        check_time("KEV", issue(9, hours=49), now=NOON)


@pytest.mark.parametrize(("thresholds", "before", "lost"), [(KEV, 1674, 10), (KEV, 1_000, 10), (EPSS, 360_142, 3_601), (EPSS, 1_000, 10)])
def test_a_feed_may_lose_entries_up_to_its_threshold(thresholds: Thresholds, before: int, lost: int) -> None:
    used = issue(before, hours=0)
    check("FEED", issue(before), used=used, lost=lost, thresholds=thresholds)
    with pytest.raises(FeedRefused, match=f"lacks {lost + 1:,} of the {before:,} entries of v0 of 2026-08-20"):
        check("FEED", issue(before), used=used, lost=lost + 1, thresholds=thresholds)


@pytest.mark.parametrize(("thresholds", "least"), [(KEV, 1_000), (EPSS, 200_000)])
def test_a_first_issue_has_a_least_number_of_entries(thresholds: Thresholds, least: int) -> None:
    check("FEED", issue(least), used=None, lost=0, thresholds=thresholds)
    with pytest.raises(FeedRefused, match=f"has {least - 1:,} entries, the first should have {least:,}; .* --accept"):
        check("FEED", issue(least - 1), used=None, lost=0, thresholds=thresholds)


def test_an_older_issue_is_refused_and_the_same_one_is_not() -> None:
    check("KEV", issue(1674, hours=0), used=issue(1674, hours=0), lost=0, thresholds=KEV)
    with pytest.raises(FeedRefused, match=r"v-1 of 2026-08-20 is older than v0 of 2026-08-20.* --accept"):
        check("KEV", issue(1674, hours=-1), used=issue(1674, hours=0), lost=0, thresholds=KEV)


def test_every_real_release_of_kev_follows_the_one_before_and_the_mistaken_one_is_refused(real_feeds: Path) -> None:
    used, refused = None, []
    with tarfile.open(real_feeds / "kev_releases_2023-04-10_2026-08-21.tar.xz") as releases:
        for member in releases:
            if member.name[4:11] not in ("2023-10", "2025-10", "2026-05"):
                continue
            catalog = parse_kev(releases.extractfile(member).read())
            try:
                check_listing_days(catalog, now=catalog.released_at)
            except FeedRefused:
                refused.append(catalog.released_at.date())
                continue
            lost = len(used.entries.keys() - catalog.entries.keys()) if used else 0
            check("KEV", catalog.issue, used=used and used.issue, lost=lost, thresholds=KEV)
            used = catalog
    assert refused == [date(2026, 5, 20)], "a listing 14 days ahead"
