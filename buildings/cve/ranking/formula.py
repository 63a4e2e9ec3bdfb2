"""The ranking: how CVEs are scored and ordered, and the ranked set of a day. Pure: no clock, no network, no database.

    score = 25·KEV + 25·EPSS + 50·KEV·2^(−d/30)        d = days since the listing in KEV, never below 0

The order is total: score, then EPSS, then the day of listing, then the identifier, each descending and what is
unknown last. It is that of the unrounded scores. The ranked set keeps every CVE in four compact columns, 28 bytes
each, found by binary search.
"""

import math
import sys
from array import array
from bisect import bisect_left
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cached_property
from typing import Any

from buildings.cve.arguments import number_of

KEV_POINTS = 25.0
EPSS_POINTS = 25.0
RECENCY_POINTS = 50.0
HALF_LIFE_DAYS = 30
FRESH_DAYS = 7
BRIEF_LENGTH = 25
LEAST_EPSS = 0.00001  # EPSS has five decimals. A score of 0 or 1 is moved by this much, because its logit is infinite.

UNSCORED = -1.0  # The value in a column for a CVE that EPSS has not scored: below every score, and worth no points.


@dataclass(frozen=True, slots=True)
class Factors:
    kev: float
    epss: float
    recency: float

    @property
    def score(self) -> float:
        """0 to 100, unrounded."""
        return self.kev + self.epss + self.recency


def factors_of(*, epss: float | None, added: date | None, day: date) -> Factors:
    """The points of a CVE in the list of `day`; `added` is its day of listing in KEV, None when it is not in KEV."""
    likely = 0.0 if epss is None else EPSS_POINTS * epss
    if added is None:
        return Factors(0.0, likely, 0.0)
    age = max((day - added).days, 0)
    return Factors(KEV_POINTS, likely, RECENCY_POINTS * 2 ** (-age / HALF_LIFE_DAYS))


def order(numbers: Sequence[int], epss: Sequence[float], added: Mapping[int, date], *, day: date) -> list[int]:
    """The positions of the columns' rows, first rank first.

    `numbers` are the CVEs' numbers, each once; `epss` their scores or UNSCORED; `added` maps the numbers of those in
    KEV to their day of listing. Four stable sorts, the weightiest last, take half the time and a fifth of the memory
    of one sort by tuples.
    """
    scores = scores_of(numbers, epss, added, day=day)
    listed = array("l", bytes(array("l").itemsize * len(numbers)))
    for position in _positions(numbers, added):
        listed[position] = added[numbers[position]].toordinal()
    ranking = sorted(range(len(numbers)), key=numbers.__getitem__, reverse=True)
    for column in (listed, epss, scores):
        ranking.sort(key=column.__getitem__, reverse=True)
    return ranking


def scores_of(numbers: Sequence[int], epss: Sequence[float], added: Mapping[int, date], *, day: date) -> "array[float]":
    """The scores of the columns' rows, see `order`: only CVEs in KEV may be UNSCORED."""
    scores = array("d", map(EPSS_POINTS.__mul__, epss))
    for position in _positions(numbers, added):
        likely = epss[position]
        scores[position] = factors_of(epss=None if likely == UNSCORED else likely, added=added[numbers[position]], day=day).score
    return scores


def _positions(numbers: Sequence[int], among: Container[int]) -> list[int]:
    return [position for position, number in enumerate(numbers) if number in among]


def logit(epss: float) -> float:
    bounded = min(max(epss, LEAST_EPSS), 1 - LEAST_EPSS)
    return math.log(bounded / (1 - bounded))


def fresh_window(day: date) -> tuple[date, date]:
    return day - timedelta(days=FRESH_DAYS - 1), day


@dataclass(frozen=True, slots=True)
class RankedCve:
    """The rank and EPSS of one CVE; EPSS and its percentile are 0 to 1, None when not yet scored. The archive keeps no percentiles."""

    rank: int
    epss: float | None
    percentile: float | None


@dataclass(frozen=True)
class Scores:
    numbers: "array[int]"
    epss: "array[float]"
    percentiles: "array[float]"


@dataclass(frozen=True)
class RankedSet:
    """The columns, in ascending order of CVE number. Those that are left out of the ranking have the rank 0."""

    numbers: "array[int]"
    epss: "array[float]"
    percentiles: "array[float]"
    ranks: "array[int]"

    def __len__(self) -> int:
        return self._ranked_count

    @cached_property
    def _ranked_count(self) -> int:
        return max(self.ranks, default=0)

    def find(self, cve_id: str) -> RankedCve | None:
        row = row_of(number_of(cve_id), self.numbers)
        return self._cve_at(row) if row is not None and self.ranks[row] else None

    def leaves_out(self, cve_id: str) -> bool:
        row = row_of(number_of(cve_id), self.numbers)
        return row is not None and not self.ranks[row]

    def left_out(self) -> frozenset[int]:
        return frozenset(number for number, rank in zip(self.numbers, self.ranks, strict=True) if not rank)

    def first(self, count: int) -> list[tuple[int, RankedCve]]:
        leading = sorted((rank, row) for row, rank in enumerate(self.ranks) if 0 < rank <= count)
        return [(self.numbers[row], self._cve_at(row)) for _, row in leading]

    def scores(self) -> Scores:
        rows = [row for row, likely in enumerate(self.epss) if likely != UNSCORED]
        return Scores(*(picked(column, rows) for column in (self.numbers, self.epss, self.percentiles)))

    def only(self, listed: Iterable[int]) -> "RankedSet":
        rows = [row for number in sorted(listed) if (row := row_of(number, self.numbers)) is not None]
        return RankedSet(*(picked(column, rows) for column in (self.numbers, self.epss, self.percentiles, self.ranks)))

    def shown(self, column: "array[float]") -> list[float | None]:
        """A column of EPSS or percentiles with None in place of UNSCORED."""
        values: list[float | None] = [*column]
        for row in unscored_rows(self.epss):
            values[row] = None
        return values

    def _cve_at(self, row: int) -> RankedCve:
        if self.epss[row] == UNSCORED:
            return RankedCve(self.ranks[row], None, None)
        return RankedCve(self.ranks[row], self.epss[row], self.percentiles[row])


def ranked(scores: Scores, added: Mapping[int, date], *, day: date, left_out: Container[int] = ()) -> RankedSet:
    columns = _with_unscored(scores, added)
    ranks = array("I", bytes(array("I").itemsize * len(columns.numbers)))
    in_order = order(columns.numbers, columns.epss, added, day=day)
    for rank, row in enumerate((row for row in in_order if columns.numbers[row] not in left_out), start=1):
        ranks[row] = rank
    return RankedSet(columns.numbers, columns.epss, columns.percentiles, ranks)


def sorted_scores(numbers: "array[int]", epss: "array[float]", percentiles: "array[float]") -> Scores:
    rows = sorted(range(len(numbers)), key=numbers.__getitem__)
    return Scores(*(picked(column, rows) for column in (numbers, epss, percentiles)))


def _with_unscored(scores: Scores, added: Mapping[int, date]) -> Scores:
    unscored = array("q", sorted(number for number in added if row_of(number, scores.numbers) is None))
    if not unscored:
        return scores
    missing = array("d", [UNSCORED]) * len(unscored)
    return sorted_scores(scores.numbers + unscored, scores.epss + missing, scores.percentiles + missing)


def unscored_rows(epss: "array[float]") -> list[int]:
    return [row for row, likely in enumerate(epss) if likely == UNSCORED] if UNSCORED in epss else []


def row_of(number: int, numbers: "array[int]") -> int | None:
    row = bisect_left(numbers, number)
    return row if row < len(numbers) and numbers[row] == number else None


def picked(column: "array[int] | array[float]", rows: Sequence[int]) -> "array[Any]":
    return array(column.typecode, map(column.__getitem__, rows))


def little_endian(column: "array[Any]") -> "array[Any]":
    if sys.byteorder == "little":
        return column
    swapped = column[:]
    swapped.byteswap()
    return swapped
