"""Decides whether a well-formed feed is believed: compares it with the one in use, by thresholds that were measured. Pure.

Measured on 515 releases of KEV (2023-04 to 2026-08), and on 121 stored days of EPSS, mostly a week apart (2024-03 to 2026-08).
What is refused here is not used until a person accepts it. Age alone is no reason: a list shows how old its feeds are.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import attrgetter
from statistics import StatisticsError, correlation, median

from buildings.cve.arguments import SEQUENCES
from buildings.cve.feeds.epss import FEED as EPSS_FEED
from buildings.cve.feeds.epss import EpssDay
from buildings.cve.feeds.errors import FeedDoubted, FeedRefused
from buildings.cve.feeds.issue import Issue
from buildings.cve.feeds.kev import FEED as KEV_FEED
from buildings.cve.feeds.kev import KevCatalog, KevEntry
from buildings.cve.ranking.formula import Scores, logit, picked

AHEAD = timedelta(days=1)  # How far in the future a feed may be dated: clocks and time zones differ.
WEEK = timedelta(days=7)


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """The fewest entries of a first issue, and how many of the entries in use a later one may lack: a number and a share."""

    first_entries: int
    lost: int = 0
    lost_share: float = 0.0

    def may_lack(self, entries: int) -> int:
        return self.lost + int(entries * self.lost_share)


KEV = Thresholds(first_entries=1_000, lost=10)  # 515 releases lost at most 5 entries at once.
EPSS = Thresholds(first_entries=200_000, lost_share=0.01)
"""In a week at most 301 of 304,000 CVEs were gone, and 0.3 % with the model of 2026; with that of 2025, 4 %, which a person accepts."""

LISTED_IN_A_WEEK = 28
"""Twice the record of 14 in 7 days. The last larger day was 2022-03-03 with 95; CISA's first one, 2021-11-03, had 287."""
FIRST_GAPS = 10
LOST_MEMBERS = 10  # No release took a member from an entry that had it, nor withdrew a use in ransomware campaigns.
EDITED_MEMBERS = {"date_added": 10, "due_date": 50, "ransomware": 100}
"""How many entries may have another value at once. The records: 1, 15 and 27; 184 when CISA began to report ransomware, in 2023."""

WORDS = {
    "vendor": "the vendor",
    "product": "the product",
    "date_added": "the day of listing",
    "due_date": "the due date",
    "ransomware": "the use in ransomware campaigns",
    "end_of_life": "the end of life",
}

STRONG_MOVE = 0.5  # A change of the logit of EPSS: from 1 % to 1.6 %, or to half of it and less.
LARGEST_MEDIAN = 0.1
"""Of all changes of the logit. It was 0.000 in every week of one model but the first two of 2025's, with 0.4 there and back."""
STRONGLY_MOVED = 0.3
"""The share of strong moves among the CVEs of one year. Mostly below 10 %, at most 25 %; 51 to 64 % in three weeks of spring 2025, when
a new model was corrected. Halved scores have 99 %, shuffled ones 75 %, a year whose numbers are shifted by one 34 %."""
LEAST_AGREEMENT = 0.4  # The correlation of percentiles between two models. It was 0.74 and 0.85; shuffled scores have 0.
COMPARED_YEAR = 1_000  # Years with fewer CVEs are not compared alone.


def check_time(feed: str, issue: Issue, *, now: datetime) -> None:
    """Raise FeedRefused for an issue from the future: with it in use, every later one would be refused as older."""
    if issue.issued > now + AHEAD:
        reason = f"{issue} is dated in the future"
        raise FeedRefused(feed, f"{reason}; it is {now:%Y-%m-%d} here", public=reason)


def check(feed: str, issue: Issue, *, used: Issue | None, lost: int, thresholds: Thresholds) -> None:
    """Raise FeedDoubted for an issue that is too small, older than the `used` one (None for the first), or lacks too many entries.

    `lost` is how many of the entries in use it lacks.
    """
    if used is None:
        if issue.entries < thresholds.first_entries:
            raise FeedDoubted(feed, f"{issue} has {issue.entries:,} entries, the first should have {thresholds.first_entries:,}")
        return
    if issue.issued < used.issued:
        raise FeedDoubted(feed, f"{issue} is older than {used}, which is in use")
    if lost > (most := thresholds.may_lack(used.entries)):
        raise FeedDoubted(feed, f"{issue} lacks {lost:,} of the {used.entries:,} entries of {used}, where {most:,} are accepted")


def check_kev(catalog: KevCatalog, used: KevCatalog | None) -> None:
    """Raise FeedDoubted for a release that looks false by itself, or beside the one in use.

    That parts of it cannot be read makes it no less true, where the release in use has them; a first one has nothing else.
    """
    before = used.entries if used else {}
    lost = len(before.keys() - catalog.entries.keys())
    check(KEV_FEED, catalog.issue, used=used.issue if used else None, lost=lost, thresholds=KEV)
    if used is None and len(catalog.gaps) > FIRST_GAPS:
        counted = f"of {catalog.issue} {len(catalog.gaps):,} entries cannot be read in full, where a first one may have {FIRST_GAPS}"
        raise FeedDoubted(KEV_FEED, f"{counted}; the first: {catalog.gaps[0].text}")
    entries = catalog.completed(before).entries
    _check_listing_days(catalog.issue, entries)
    if used:
        _check_additions(catalog, used)
        _check_members(catalog, [(entry, entries[cve_id]) for cve_id, entry in before.items() if cve_id in entries])


def _check_listing_days(issue: Issue, entries: Mapping[str, KevEntry]) -> None:
    released = issue.issued.date()
    if (listed := sum(1 for entry in entries.values() if released - WEEK < entry.listed_by)) > LISTED_IN_A_WEEK:
        reason = f"{issue} says that {listed:,} entries were added in its last 7 days, where {LISTED_IN_A_WEEK} are accepted"
        raise FeedDoubted(KEV_FEED, reason)


def _check_additions(catalog: KevCatalog, used: KevCatalog) -> None:
    added = len(catalog.entries.keys() - used.entries.keys())
    weeks = max((catalog.released_at - used.released_at) // WEEK, 0) + 1
    if added > (most := weeks * LISTED_IN_A_WEEK):
        raise FeedDoubted(KEV_FEED, f"{catalog.issue} has {added:,} entries that {used.issue} lacks, where {most:,} are accepted")


def _check_members(catalog: KevCatalog, pairs: Sequence[tuple[KevEntry, KevEntry]]) -> None:
    for name in ("vendor", "product", "due_date", "ransomware", "end_of_life"):
        member = attrgetter(name)
        if (lost := sum(1 for before, now in pairs if member(before) and not member(now))) > LOST_MEMBERS:
            raise FeedDoubted(KEV_FEED, f"{catalog.issue} takes {WORDS[name]} from {lost:,} entries, where {LOST_MEMBERS} are accepted")
    for name, most in EDITED_MEMBERS.items():
        member = attrgetter(name)
        if (edited := sum(1 for before, now in pairs if member(before) != member(now) and name not in before.unknown)) > most:
            raise FeedDoubted(KEV_FEED, f"{catalog.issue} changes {WORDS[name]} of {edited:,} entries, where {most} are accepted")


def check_epss(day: EpssDay, used: EpssDay | None) -> None:
    """Raise FeedDoubted for scores that look false beside those in use: other CVEs, or other scores than a real day brings."""
    if used is None:
        return check(EPSS_FEED, day.issue, used=None, lost=0, thresholds=EPSS)
    rows = _common_rows(used.scores, day.scores)
    lost = len(used.scores.numbers) - len(rows)
    check(EPSS_FEED, day.issue, used=used.issue, lost=lost, thresholds=EPSS)
    compare = _check_moves if day.model_version == used.model_version else _check_agreement
    return compare(day, used, rows, {year: part for year, part in _by_year(rows, day.scores).items() if len(part) >= COMPARED_YEAR})


@dataclass(frozen=True)
class Rows:
    """The rows of CVEs that two days have, in each of them, in columns: as pairs they would take 60 MB."""

    before: "array[int]"
    now: "array[int]"

    def __len__(self) -> int:
        return len(self.now)


def _by_year(rows: Rows, scores: Scores) -> dict[int, Rows]:
    found, start = {}, 0
    while start < len(rows):
        year = scores.numbers[rows.now[start]] // SEQUENCES
        end = bisect_left(rows.now, (year + 1) * SEQUENCES, start, key=scores.numbers.__getitem__)
        found[year] = Rows(rows.before[start:end], rows.now[start:end])
        start = end
    return found


def _check_moves(day: EpssDay, used: EpssDay, rows: Rows, by_year: Mapping[int, Rows]) -> None:
    middle = median(_moves(used, day, rows)) if rows else 0.0
    if abs(middle) > LARGEST_MEDIAN:
        reason = f"{day.issue} moves the scores of all CVEs: the median change of the logit is {middle:+.2f}"
        raise FeedDoubted(EPSS_FEED, f"{reason}, where ±{LARGEST_MEDIAN} is accepted")
    for year, part in by_year.items():
        share = sum(abs(move) > STRONG_MOVE for move in _moves(used, day, part)) / len(part)
        if share > STRONGLY_MOVED:
            reason = f"{day.issue} moves the scores of {share:.0%} of the CVEs of {year} strongly, where {STRONGLY_MOVED:.0%} are accepted"
            raise FeedDoubted(EPSS_FEED, reason)


def _check_agreement(day: EpssDay, used: EpssDay, rows: Rows, by_year: Mapping[int, Rows]) -> None:
    for part in (rows, *by_year.values()):
        try:
            agreement = correlation(picked(used.scores.percentiles, part.before), picked(day.scores.percentiles, part.now))
        except StatisticsError:  # fewer than two CVEs, or all with one score: nothing to compare
            continue
        if agreement < LEAST_AGREEMENT:
            reason = f"{day.issue} orders CVEs differently from {used.issue}: a correlation of {agreement:.2f}"
            raise FeedDoubted(EPSS_FEED, f"{reason}, where {LEAST_AGREEMENT} is accepted between models")


def _moves(used: EpssDay, day: EpssDay, rows: Rows) -> Iterator[float]:
    for before, now in zip(rows.before, rows.now, strict=True):
        old, new = used.scores.epss[before], day.scores.epss[now]
        yield 0.0 if old == new else logit(new) - logit(old)


def _common_rows(before: Scores, now: Scores) -> Rows:
    rows = Rows(array("I"), array("I"))
    place = 0
    numbers = before.numbers
    for row, number in enumerate(now.numbers):
        while place < len(numbers) and numbers[place] < number:
            place += 1
        if place == len(numbers):
            break
        if numbers[place] == number:
            rows.before.append(place)
            rows.now.append(row)
    return rows
