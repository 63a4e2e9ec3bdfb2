"""EPSS of every CVE over all days, stored backwards: of each past day only the scores that are others on a later one. Pure.

The latest list holds the newest scores whole. The day before it is stored as what differs from it, and so on back to the
first day of the same model. The last day of an earlier model is stored whole, and so is a day that is newer than what the
latest list was made from. So the history of a model can be read without any other.

A day's scores are split into 8 blocks by CVE number: the history of one CVE takes one of them per day.
"""

import zlib
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import accumulate, chain, pairwise
from typing import Any

from buildings.cve.ranking.formula import UNSCORED, RankedSet, little_endian, row_of

BLOCKS = 8
WHOLE_DECIMALS = 100_000
"""EPSS has five decimals, so that scores are stored as whole numbers; a feed with more is stored as it is."""
AS_INTEGERS, AS_FLOATS = 0, 1
TYPES = {AS_INTEGERS: "I", AS_FLOATS: "d"}
RAW_DEFLATE = -zlib.MAX_WBITS
LEVEL = 6


@dataclass(frozen=True)
class Scores:
    """CVE numbers in ascending order, each with its EPSS; UNSCORED where a CVE had none."""

    numbers: "array[int]"
    epss: "array[float]"

    def get(self, number: int) -> float | None:
        """The value of a CVE, which may be UNSCORED; None if it is not among these."""
        row = row_of(number, self.numbers)
        return None if row is None else self.epss[row]


@dataclass(frozen=True)
class StoredDay:
    """How the scores of a past day are stored: as their differences from those of `next_day`, or in full if that is None."""

    day: date
    model: str
    next_day: date | None


@dataclass(frozen=True, slots=True)
class Point:
    """The EPSS of one CVE on one day; None if it was not scored."""

    day: date
    model: str
    epss: float | None


def scores_of(ranked: RankedSet) -> Scores:
    """The scores of a ranked set; KEV's CVEs that EPSS has not scored are UNSCORED."""
    return Scores(ranked.numbers, ranked.epss)


def scored(scores: Scores) -> Scores:
    """Only the CVEs that have a score."""
    found = Scores(array("q"), array("d"))
    for number, epss in zip(scores.numbers, scores.epss, strict=True):
        if epss != UNSCORED:
            found.numbers.append(number)
            found.epss.append(epss)
    return found


def difference(before: Scores, after: Scores) -> Scores:
    """The scores before of all CVEs whose score is another after, UNSCORED for those that had none.

    One pass over both, because a mapping of 360,000 scores takes 50 MB.
    """
    found = Scores(array("q"), array("d"))
    later_numbers = after.numbers
    later = after.epss
    row = 0
    rows = len(after.numbers)
    for number, epss in chain(zip(before.numbers, before.epss, strict=True), [(1 << 63, UNSCORED)]):
        while row < rows and later_numbers[row] < number:
            if later[row] != UNSCORED:
                found.numbers.append(later_numbers[row])
                found.epss.append(UNSCORED)
            row += 1
        if row < rows and later_numbers[row] == number:
            now, row = later[row], row + 1
        else:
            now = UNSCORED
        if now != epss:
            found.numbers.append(number)
            found.epss.append(epss)
    return found


def undone(after: Scores, changes: Scores) -> Scores:
    """The scores before, from those after and the difference."""
    before = dict(zip(after.numbers, after.epss, strict=True))
    before.update(zip(changes.numbers, changes.epss, strict=True))
    numbers = array("q", sorted(number for number, epss in before.items() if epss != UNSCORED))
    return Scores(numbers, array("d", map(before.__getitem__, numbers)))


def block_of(number: int) -> int:
    """The block of a CVE: 0 to 7."""
    return number % BLOCKS


def packed(scores: Scores) -> list[bytes]:
    """The blocks of a day, in order: numbers as distances, both columns byte by byte, compressed without a header."""
    numbers: list[list[int]] = [[] for _ in range(BLOCKS)]
    epss: list[list[float]] = [[] for _ in range(BLOCKS)]
    for number, score in zip(scores.numbers, scores.epss, strict=True):
        block = number % BLOCKS
        numbers[block].append(number)
        epss[block].append(score)
    return [_packed_block(*columns) for columns in zip(numbers, epss, strict=True)]


def _packed_block(numbers: Sequence[int], epss: Sequence[float]) -> bytes:
    distances = array("q", (number // BLOCKS - before // BLOCKS for before, number in pairwise(chain((0,), numbers))))
    whole = [round(score * WHOLE_DECIMALS) + 1 if score != UNSCORED else 0 for score in epss]
    exact = all((number - 1) / WHOLE_DECIMALS == score for number, score in zip(whole, epss, strict=True) if number)
    form, values = (AS_INTEGERS, array(TYPES[AS_INTEGERS], whole)) if exact else (AS_FLOATS, array(TYPES[AS_FLOATS], epss))
    stream = zlib.compressobj(LEVEL, wbits=RAW_DEFLATE)
    return bytes((form,)) + stream.compress(_planes(distances)) + stream.compress(_planes(values)) + stream.flush()


def unpacked(block: bytes, place: int) -> Scores:
    """The scores in a block that `packed` returned in this place."""
    content = zlib.decompress(block[1:], RAW_DEFLATE)
    code = TYPES[block[0]]
    count = len(content) // (array("q").itemsize + array(code).itemsize)
    cut = count * array("q").itemsize
    numbers = array("q", (number * BLOCKS + place for number in accumulate(_from_planes(content[:cut], "q"))))
    values = _from_planes(content[cut:], code)
    if code == TYPES[AS_INTEGERS]:
        values = array("d", ((value - 1) / WHOLE_DECIMALS if value else UNSCORED for value in values))
    return Scores(numbers, values)


def path_back(stored: Iterable[StoredDay], *, newest: date, to: date) -> list[date]:
    """The days from before `newest` back to `to` whose differences lead from one to the other; none if they do not."""
    by_day = {one.day: one for one in stored}
    days = []
    day = to
    while day != newest:
        one = by_day.get(day)
        if one is None or one.next_day is None:
            return []
        days.append(day)
        day = one.next_day
    return days[::-1]


def points_of(stored: Iterable[StoredDay], values: Mapping[date, float], latest: Point) -> list[Point]:
    """The EPSS of one CVE on every stored day and the latest, the oldest first; `values` are those in its blocks, by day."""
    points = {latest.day: latest}
    for one in sorted(stored, key=lambda one: one.day, reverse=True):
        if one.day in points:
            continue
        if one.day in values:
            epss = None if values[one.day] == UNSCORED else values[one.day]
        elif one.next_day is None:
            epss = None
        elif one.next_day in points:
            epss = points[one.next_day].epss
        else:
            continue
        points[one.day] = Point(one.day, one.model, epss)
    return [points[day] for day in sorted(points)]


def changes_of(points: Sequence[Point]) -> list[Point]:
    """The first point, and every one with another EPSS or model than the one before."""
    befores: Sequence[Point | None] = [None, *points]
    return [
        one for before, one in zip(befores, points, strict=False) if before is None or (before.epss, before.model) != (one.epss, one.model)
    ]


def gaps_between(days: Sequence[date]) -> list[tuple[date, date]]:
    """The first and last day of every stretch of missing days."""
    one_day = timedelta(days=1)
    return [(before + one_day, day - one_day) for before, day in pairwise(days) if day - before > one_day]


def joined(blocks: Iterable[Scores]) -> Scores:
    """The scores of several blocks as one column."""
    pairs = sorted(pair for block in blocks for pair in zip(block.numbers, block.epss, strict=True))
    return Scores(array("q", (number for number, _ in pairs)), array("d", (epss for _, epss in pairs)))


def _planes(column: "array[int] | array[float]") -> bytes:
    """The first bytes of all values, then the second ones, and so on: most of them are alike."""
    content = little_endian(column).tobytes()
    return b"".join(content[place :: column.itemsize] for place in range(column.itemsize))


def _from_planes(content: bytes, code: str) -> "array[Any]":
    column: array[Any] = array(code)
    count = len(content) // column.itemsize
    values = bytearray(len(content))
    for place in range(column.itemsize):
        values[place :: column.itemsize] = content[place * count : (place + 1) * count]
    column.frombytes(values)
    return little_endian(column)


def found_in(block: bytes, place: int, numbers: Iterable[int]) -> dict[int, float]:
    """The values in a block of those CVEs that are in it, without the others'; a CVE that had no score is UNSCORED."""
    if not block:
        return {}
    content = zlib.decompress(block[1:], RAW_DEFLATE)
    code = TYPES[block[0]]
    count = len(content) // (array("q").itemsize + array(code).itemsize)
    cut = count * array("q").itemsize
    found = {}
    present = array("q", accumulate(_from_planes(content[:cut], "q")))
    for number in numbers:
        row = bisect_left(present, number // BLOCKS)
        if row < count and present[row] * BLOCKS + place == number:
            found[number] = _value(content[cut + row :: count], code)
    return found


def _value(content: bytes, code: str) -> float:
    column: array[Any] = array(code)
    column.frombytes(content)
    value: float = little_endian(column)[0]
    return value if code == TYPES[AS_FLOATS] else (value - 1) / WHOLE_DECIMALS if value else UNSCORED
