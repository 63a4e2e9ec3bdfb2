"""Parses FIRST's CSV file with the EPSS scores of one day. A few lines that are odd are left out."""

import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain, pairwise
from operator import add

from buildings.cve.arguments import SEQUENCES, spelled
from buildings.cve.feeds.download import MAX_UNPACKED_BYTES, unpacked
from buildings.cve.feeds.errors import GLIMPSE, FeedRefused, glimpse
from buildings.cve.feeds.issue import Issue
from buildings.cve.feeds.vocabulary import Words
from buildings.cve.ranking.formula import Scores, picked, row_of, sorted_scores

FEED = "EPSS"
ABOUT = re.compile(rb"\s*([\w.-]+)\s*:\s*([^,]*?)\s*")
"""A field of the first line, which names the model and the day, and may name more."""
MODEL, DATE = re.compile(r"[\w.-]+"), re.compile(r"[0-9T:+.Z-]+")
COLUMNS = b"cve,epss,percentile"
LONGEST_LINE = 4096
MOST_UNREADABLE = 20  # Lines that cannot be read; a file with more is refused.
NUMBER = rb"([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)"
CVE = rb"^CVE-([0-9]{4})-([0-9]{4}|[1-9][0-9]{4,11}),"
ROW = re.compile(CVE + NUMBER + b"," + NUMBER + rb"\r?$", re.MULTILINE)
LONGER_ROW = re.compile(CVE + NUMBER + b"," + NUMBER + rb",[^\r\n]*\r?$", re.MULTILINE)
"""A row of a file that has more columns, which are ignored."""
CVES = re.compile(r"CVE-([0-9]{4})-([0-9]{4}|[1-9][0-9]{4,11})\b")


@dataclass(frozen=True)
class EpssDay:
    """The scores of one day by one version of the model. `unreadable` are the lines that were left out."""

    model_version: str
    scored_at: datetime
    scores: Scores
    unreadable: tuple[str, ...] = ()
    words: Words = field(default_factory=Words, compare=False)

    @property
    def issue(self) -> Issue:
        entries = len(self.scores.numbers)
        return Issue(version=self.model_version, issued=self.scored_at, entries=entries, unreadable=self.unreadable)

    def completed(self, used: "EpssDay") -> "EpssDay":
        """The day with the scores in use of CVEs whose line cannot be read, where they are of the same model."""
        now, before = self.scores, used.scores
        held = [
            row
            for one in numbers_in(self.unreadable)
            if row_of(one, now.numbers) is None and (row := row_of(one, before.numbers)) is not None
        ]
        if not held or used.model_version != self.model_version:
            return self
        numbers, epss = now.numbers + picked(before.numbers, held), now.epss + picked(before.epss, held)
        percentiles = now.percentiles + picked(before.percentiles, held)
        return replace(self, scores=sorted_scores(numbers, epss, percentiles))


def numbers_in(lines: Iterable[str]) -> set[int]:
    return {int(year) * SEQUENCES + int(sequence) for year, sequence in CVES.findall("\n".join(lines))}


def parse_epss(sent: bytes, max_bytes: int = MAX_UNPACKED_BYTES) -> EpssDay:
    """Read the file, packed or not, block by block. Raises FeedRefused with what was seen.

    Its first line names the model and the day; rows may stand in any order, and numbers may be written as `2e-05`.
    """
    blocks = _whole_lines(unpacked(sent, feed=FEED, max_bytes=max_bytes))
    first = next(blocks, b"")
    about, _, rest = first.partition(b"\n")
    header, _, rows = rest.partition(b"\n")
    fields = _fields(about.rstrip(b"\r"))
    model, scored = fields.pop("model_version", ""), fields.pop("score_date", "")
    more = header.rstrip(b"\r").removeprefix(COLUMNS)
    if not MODEL.fullmatch(model) or not DATE.fullmatch(scored) or not header.startswith(COLUMNS) or (more and not more.startswith(b",")):
        wanted = f"'#model_version:…,score_date:…' and '{COLUMNS.decode()}'"
        raise FeedRefused(FEED, f"not EPSS scores: the file should begin with {wanted}, and begins with {glimpse(first)}")
    instant = _instant(scored)
    words = Words()
    for name in fields:  # not its value, which may be another one each day
        words.add("field of the first line", name, taken_as="ignored")
    for column in filter(None, more.decode("utf-8", "replace").split(",")):
        words.add("column", column, taken_as="ignored")
    unreadable: list[str] = []
    scores = _scores(chain((rows,), blocks), LONGER_ROW if more else ROW, unreadable)
    return EpssDay(model, instant, scores, tuple(unreadable), words)


def _fields(about: bytes) -> dict[str, str]:
    """The fields of the first line; what is no `name:value` is a name without one."""
    if not about.startswith(b"#"):
        return {}
    found = ((ABOUT.fullmatch(part), part) for part in about[1:].split(b","))
    pairs = (match.groups() if match else (part.strip(), b"") for match, part in found)
    return {name.decode("utf-8", "replace"): value.decode("utf-8", "replace") for name, value in pairs if name}


def _instant(text: str) -> datetime:
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise FeedRefused(FEED, f"the score date {text!r} is not a date") from None
    if instant.tzinfo is None:
        raise FeedRefused(FEED, f"the score date {text!r} names no time zone")
    return instant


def _whole_lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes cut at line ends; the first block has at least two lines if the file has two."""
    pending = b""
    started = False
    for chunk in chunks:
        pending += chunk
        end = pending.rfind(b"\n") + 1
        if len(pending) - end > LONGEST_LINE:
            raise FeedRefused(FEED, f"a line is longer than {LONGEST_LINE:,} bytes and begins with {bytes(pending[end : end + GLIMPSE])!r}")
        if end and (started or pending.count(b"\n") > 1):
            yield pending[:end]
            pending = pending[end:]
            started = True
    if pending:
        yield pending


def _scores(blocks: Iterable[bytes], row: re.Pattern[bytes], unreadable: list[str]) -> Scores:
    numbers = array("q")
    epss = array("d")
    percentiles = array("d")
    for block in blocks:
        parts = row.split(block)  # what is between the rows, and their columns: in one list, which is no work for the garbage collector
        years, sequences, scores, shares = (parts[place::5] for place in range(1, 5))
        if len(years) != block.count(b"\n") + (not block.endswith(b"\n") and block != b""):
            _name(block, row, unreadable)
        numbers.extend(map(add, map(SEQUENCES.__mul__, map(int, years)), map(int, sequences)))
        epss.extend(map(float, scores))
        percentiles.extend(map(float, shares))
    if not numbers:
        raise FeedRefused(FEED, "the file has no rows")
    return _plausible(sorted_scores(numbers, epss, percentiles), unreadable)


def _name(block: bytes, row: re.Pattern[bytes], unreadable: list[str]) -> None:
    """Add the lines of a block that are no rows. Raises FeedRefused if the file ends within one."""
    lines = block.removesuffix(b"\n").split(b"\n")
    odd = [line.rstrip(b"\r") for line in lines if not row.fullmatch(line)]
    if not block.endswith(b"\n") and odd[-1] == lines[-1] and not odd[-1].startswith(b"#"):
        raise FeedRefused(FEED, f"the file ends within a line: {_seen(odd[-1])}")
    unreadable += [_seen(line) if line.strip() else "a blank line" for line in odd]
    _check_count(unreadable)


def _seen(line: bytes) -> str:
    return repr(line[:GLIMPSE].decode("ascii", errors="replace"))


def _check_count(unreadable: Sequence[str]) -> None:
    if len(unreadable) > MOST_UNREADABLE:
        counted = f"more than {MOST_UNREADABLE} lines are not of the form 'CVE-…,number,number'"
        raise FeedRefused(FEED, f"{counted}; the first: {unreadable[0]}", public=counted)


def _plausible(scores: Scores, unreadable: list[str]) -> Scores:
    numbers, epss, percentiles = scores.numbers, scores.epss, scores.percentiles
    odd = {row for row, (before, number) in enumerate(pairwise(numbers), 1) if before == number}
    if max(epss) > 1 or max(percentiles) > 1:
        odd |= {row for row in range(len(numbers)) if epss[row] > 1 or percentiles[row] > 1}
    if not odd:
        return scores
    unreadable += [f"{spelled(numbers[row])},{epss[row]},{percentiles[row]}" for row in sorted(odd)[: MOST_UNREADABLE + 1]]
    _check_count(unreadable)
    kept = [row for row in range(len(numbers)) if row not in odd]
    return Scores(*(picked(column, kept) for column in (numbers, epss, percentiles)))


def check_scores(day: EpssDay) -> None:
    """Raise FeedRefused for scores that cannot be a day's: all the same, not in the order of their percentiles, or swapped with them.

    A percentile is the share of scored CVEs with the same or a lower score, so it is above the score on average.
    """
    scores = day.scores
    if min(scores.epss) == max(scores.epss) or min(scores.percentiles) == max(scores.percentiles):
        raise FeedRefused(FEED, f"all {len(scores.epss):,} scores or percentiles are the same")
    if sum(scores.percentiles) < sum(scores.epss):
        raise FeedRefused(FEED, "its percentiles are lower than its scores: the two columns are swapped")
    # Only the first and the last row of each score are compared, because comparing all rows takes half a second.
    for step in (1, -1):
        pairs = sorted(dict(zip(scores.epss[::step], scores.percentiles[::step], strict=True)).items())
        if any(lower[1] > higher[1] for lower, higher in pairwise(pairs)):
            raise FeedRefused(FEED, "a CVE has a higher score than another one and a lower percentile")
