"""KEV and EPSS files: their quirks, what is refused as no such file, and the thresholds for well-formed ones."""

import gzip
import json
import tarfile
from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from random import Random

import pytest
from cve.conftest import FEEDS
from cve.thinned import thinned
from hypothesis import given
from hypothesis import strategies as st

from buildings.cve.arguments import number_of, spelled
from buildings.cve.feeds.acceptance import EPSS, KEV, Thresholds, check, check_epss, check_kev, check_time
from buildings.cve.feeds.epss import EpssDay, check_scores, parse_epss
from buildings.cve.feeds.errors import FeedDoubted, FeedRefused
from buildings.cve.feeds.issue import Issue
from buildings.cve.feeds.kev import KevEntry, parse_kev
from buildings.cve.ranking.formula import Scores, picked, sorted_scores

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


HELD = {"dueDate": "2026-09-01", "knownRansomwareCampaignUse": "Known", "requiredAction": "The product is end of life."}
ODD = [
    ({"dueDate": "N/A"}, "CVE-2026-1001: dueDate 'N/A'"),
    ({"dueDate": 1785542400.0}, "CVE-2026-1001: dueDate 1785542400.0"),
    ({"knownRansomwareCampaignUse": None}, "CVE-2026-1001: knownRansomwareCampaignUse None"),
    ({"requiredAction": None}, "CVE-2026-1001: requiredAction None"),
    ({"product": None, "vendorProject": 7}, "CVE-2026-1001: vendorProject 7, product None"),
    ({"dateAdded": "yesterday"}, "CVE-2026-1001: dateAdded 'yesterday'"),
    ({"dateAdded": 1785542400}, "CVE-2026-1001: dateAdded 1785542400"),
    ({"cveID": "CVE-26-1"}, "entry 2: cveID 'CVE-26-1'"),
]


@pytest.mark.parametrize(("members", "named"), ODD, ids=lambda value: value if isinstance(value, str) else "")
def test_of_an_odd_entry_the_rest_is_taken_and_what_it_said_before_is_kept(make, members, named: str) -> None:
    def release(**odd):
        return parse_kev(make.kev_catalog([make.kev_entry("CVE-2026-1000", ADDED), make.kev_entry("CVE-2026-1001", ADDED, **HELD | odd)]))

    used, read = release().entries, release(**members)
    assert read.issue.unreadable == (named,)
    assert read.completed(used).entries == used
    assert read.completed({}).entries["CVE-2026-1000"] == used["CVE-2026-1000"], "in a first list it stays open"


def test_a_release_without_entries_is_refused(make) -> None:
    with pytest.raises(FeedRefused, match="a catalog without any entries"):
        parse_kev(make.kev_catalog([]))


def test_a_release_that_lost_listings_on_its_way_is_refused(make) -> None:
    with pytest.raises(FeedRefused, match="announces 3 entries and holds 1"):
        parse_kev(make.kev_catalog([make.kev_entry("CVE-2026-1000", ADDED)], count=3))


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
        (HEAD + b"CVE-1999-0001,0.5,1\nCVE-1999-00", "the file ends within a line: 'CVE-1999-00'"),
        (
            HEAD + b"CVE-1999-0001,0.5,1\n" + b"\n" * 21,
            "lines are not of the form 'CVE-…,number,number'; the first: a blank line",
        ),
        (HEAD + b"".join(b"CVE-1999-%04d,1.5,1\n" % n for n in range(21)), "more than 20 lines"),
        (HEAD.replace(b"2026-08-15T12:55:00Z", b"2026-13-15T12:55:00Z") + b"CVE-1999-0001,0.5,1\n", "is not a date"),
        (HEAD.replace(b"12:55:00Z", b"12:55:00") + b"CVE-1999-0001,0.5,1\n", "no time zone"),
    ],
)
def test_what_is_no_day_of_scores_is_refused_with_what_was_seen(body: bytes, reason: str) -> None:
    with pytest.raises(FeedRefused) as refusal:
        parse_epss(body)
    assert reason in str(refusal.value)


@pytest.mark.parametrize(
    ("lines", "named"),
    [
        (b"\n", "a blank line"),
        (b"# end of file\n", "'# end of file'"),
        (b"# end of file", "'# end of file'"),
        (b"CVE-1999-0002,nan,1\n", "'CVE-1999-0002,nan,1'"),
        (b"CVE-1999-0002,1-1,1\n", "'CVE-1999-0002,1-1,1'"),
        (b"CVE-1999-0002,0.5\n", "'CVE-1999-0002,0.5'"),
        (b"CVE-1999-0002,1.5,1\n", "CVE-1999-0002,1.5,1.0"),
        (b"CVE-1999-0002,0.5,-0.1\n", "'CVE-1999-0002,0.5,-0.1'"),
        (b"CVE-1999-0001,0.7,1\n", "CVE-1999-0001,0.7,1.0"),
    ],
)
def test_an_odd_line_is_named_and_the_rest_is_taken(lines: bytes, named: str) -> None:
    day = parse_epss(HEAD + b"CVE-1999-0001,0.5,1\nCVE-1999-0003,0.25,.5\n" + lines)
    assert [spelled(number) for number in day.scores.numbers] == ["CVE-1999-0001", "CVE-1999-0003"]
    assert (list(day.scores.epss), day.issue.unreadable) == ([0.5, 0.25], (named,))
    used = parse_epss(HEAD + b"CVE-1999-0001,0.4,1\nCVE-1999-0002,0.3,.5\n")
    held = [0.3] if b"0002" in lines else []
    assert list(day.completed(used).scores.epss) == [0.5, *held, 0.25], "a CVE whose line is odd keeps its score"


def test_columns_that_are_not_known_are_ignored_and_named() -> None:
    day = parse_epss(HEAD.replace(b"percentile", b"percentile,lev") + b"CVE-1999-0001,0.5,1,0.7\nCVE-1999-0003,0.25,.5,\n")
    assert (list(day.scores.epss), day.issue.unreadable) == ([0.5, 0.25], ())
    assert list(day.words.counts) == [("column", "lev", "ignored")]


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


def test_real_scores_pass_and_with_swapped_columns_do_not(epss_week) -> None:
    for day in (epss_week[0], epss_week[2]):
        check_scores(day)
        scores = day.scores
        swapped = Scores(scores.numbers, scores.percentiles, scores.epss)
        with pytest.raises(FeedRefused, match="columns are swapped"):
            check_scores(EpssDay(day.model_version, day.scored_at, swapped))


def test_a_date_of_release_that_is_a_number_is_refused(make) -> None:
    with pytest.raises(FeedRefused, match="dateReleased: a date is text"):
        parse_kev(make.kev_catalog([make.kev_entry("CVE-2026-1000", ADDED)], dateReleased=1785542400))


NOON = datetime(2026, 8, 21, 12, tzinfo=UTC)


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


def releases(folder: Path, weeks: Collection[str]) -> Iterator[tuple[str, bytes]]:
    """Every fortieth of the real releases, and those of some weeks, with their days."""
    with tarfile.open(folder / "kev_releases_2023-04-10_2026-08-21.tar.xz") as archive:
        for place, member in enumerate(archive):
            if place % 40 == 0 or member.name[4:13] in weeks:
                yield member.name[4:14], archive.extractfile(member).read()


def test_real_releases_of_kev_are_read_and_believed_but_the_first_with_ransomware(real_feeds: Path) -> None:
    used, doubted, unreadable = None, {}, {}
    weeks = ("2023-10-1", "2025-10-1", "2026-05-2")
    for day, body in releases(real_feeds, weeks):
        catalog = parse_kev(body)
        assert catalog.released_at.date().isoformat() == day
        assert len(catalog.entries) == len({one["cveID"] for one in json.loads(body)["vulnerabilities"]})
        if day[:9] not in weeks:
            continue
        try:
            check_kev(catalog, used)
        except FeedDoubted as doubt:
            doubted[day] = doubt.reason
        used = catalog.completed(used.entries if used else {})
        unreadable |= dict.fromkeys(used.unreadable)
    assert list(doubted) == ["2023-10-12"]
    assert list(unreadable) == ["CVE-2010-0249: dateAdded '2026-06-03'"], "two weeks after its release"
    assert "changes the use in ransomware campaigns of 184 entries, where 100 are accepted" in doubted["2023-10-12"]


def today(entry: KevEntry) -> KevEntry:
    return replace(entry, date_added=date(2026, 8, 21))


FALSE = {
    "ransomware lost": (lambda entry: replace(entry, ransomware=False), "takes the use in ransomware campaigns from 352 entries"),
    "due dates lost": (lambda entry: replace(entry, due_date=None), "takes the due date from 1,674 entries"),
    "actions lost": (lambda entry: replace(entry, end_of_life=False), "takes the end of life from 67 entries"),
    "all ransomware": (lambda entry: replace(entry, ransomware=True), "changes the use in ransomware campaigns of 1,322 entries"),
    "all of today": (today, "1,674 entries were added in its last 7 days, where 28 are accepted"),
    "a day later": (lambda entry: replace(entry, date_added=entry.date_added - timedelta(days=9)), "changes the day of listing of 1,674"),
    "renumbered": (
        lambda entry: replace(entry, cve_id=entry.cve_id.replace("CVE-2026-", "CVE-2026-9")),
        "lacks 118 of the 1,674 entries",
    ),
}


def test_a_false_release_of_kev_is_doubted(real_feeds: Path) -> None:
    used = parse_kev((real_feeds / "known_exploited_vulnerabilities-2026.08.21.json").read_bytes())
    check_kev(used, used)
    for change, reason in FALSE.values():
        changed = [change(entry) for entry in used.entries.values()]
        with pytest.raises(FeedDoubted, match=f"{reason}.*--accept"):
            check_kev(replace(used, entries={entry.cve_id: entry for entry in changed}), used)


def test_listings_are_counted_by_the_weeks_since_the_release_in_use(real_feeds: Path) -> None:
    used = parse_kev((real_feeds / "known_exploited_vulnerabilities-2026.08.21.json").read_bytes())
    [entry, *_] = used.entries.values()
    new = {f"CVE-2026-{90000 + n}": replace(entry, date_added=date(2026, 7, 1)) for n in range(29)}
    later = replace(used, entries={**used.entries, **new}, released_at=used.released_at + timedelta(days=6))
    with pytest.raises(FeedDoubted, match=r"has 29 entries that .* lacks, where 28 are accepted"):
        check_kev(later, used)
    later = replace(later, released_at=used.released_at + timedelta(days=7))
    check_kev(later, used)


WEEK = ("epss_scores-2026-08-08.reconstructed.csv.gz", "epss_scores-2026-08-15.reconstructed.csv.gz")


@pytest.fixture(scope="module")
def epss_week() -> tuple[EpssDay, EpssDay, EpssDay]:
    """Real scores of an earlier model, and of two days a week apart: a tenth of them, in runs of a thousand numbers."""
    if not FEEDS.is_dir():
        pytest.skip(f"the real feed files are not at hand: there is no {FEEDS}")
    names = ("epss_scores-2026-01-30.ORIGINAL.csv.gz", *WEEK)
    earlier, before, after = (parse_epss(thinned(FEEDS / name, lambda cve_id: cve_id[-4] == "8")) for name in names)
    return earlier, before, after


def renumbered(scores: Scores, step: int) -> Scores:
    first = number_of("CVE-2026-0000")
    return sorted_scores(array("q", (n + step if n >= first else n for n in scores.numbers)), scores.epss, scores.percentiles)


def moved_by_one(scores: Scores) -> Scores:
    """Each CVE of 2026 with the score of the one before it."""
    first = bisect_left(scores.numbers, number_of("CVE-2026-0000"))
    rows = [row - (row > first) for row in range(len(scores.numbers))]
    return Scores(scores.numbers, picked(scores.epss, rows), picked(scores.percentiles, rows))


def shuffled(scores: Scores) -> Scores:
    rows = list(range(len(scores.numbers)))
    Random(1).shuffle(rows)
    return Scores(scores.numbers, picked(scores.epss, rows), picked(scores.percentiles, rows))


FALSE_SCORES = {
    "halved": (lambda it: Scores(it.numbers, array("d", (score / 2 for score in it.epss)), it.percentiles), r"the logit is -0\.70"),
    "shuffled": (shuffled, r"of the CVEs of \d+ strongly, where 30% are accepted"),
    "moved by one": (moved_by_one, "moves the scores of 3[0-9]% of the CVEs of 2026 strongly"),
    "moved far": (lambda it: renumbered(it, 100_000), "lacks 2,956 of the 24,156 entries"),
}


def test_a_real_week_of_scores_is_believed_and_so_is_a_new_model(epss_week) -> None:
    earlier, before, after = epss_week
    check_epss(after, before)
    check_epss(before, earlier)


@pytest.mark.parametrize(("change", "reason"), FALSE_SCORES.values(), ids=FALSE_SCORES)
def test_false_scores_are_doubted(epss_week, change, reason: str) -> None:
    _, before, after = epss_week
    with pytest.raises(FeedDoubted, match=f"{reason}.*--accept"):
        check_epss(replace(after, scores=change(after.scores)), before)


def test_shuffled_scores_of_a_new_model_are_doubted(epss_week) -> None:
    earlier, _, after = epss_week
    with pytest.raises(FeedDoubted, match=r"a correlation of -?0\.0.*, where 0\.4 is accepted between models"):
        check_epss(replace(after, scores=shuffled(after.scores)), earlier)
