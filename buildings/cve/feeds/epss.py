"""Parses FIRST's CSV file with the EPSS scores of one day; a malformed file is refused as a whole."""

import re
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from buildings.cve.arguments import SEQUENCES, spelled
from buildings.cve.feeds.acceptance import GLIMPSE, FeedRefused, Issue, glimpse
from buildings.cve.feeds.download import MAX_UNPACKED_BYTES, unpacked
from buildings.cve.ranking import Scores, sorted_scores

FEED = "EPSS"
ABOUT = re.compile(rb"#\s*model_version:\s*([\w.-]+)\s*,\s*score_date:\s*([0-9T:+.Z-]+)\s*")
COLUMNS = b"cve,epss,percentile"
LONGEST_LINE = 4096
ROW = re.compile(rb"^CVE-([0-9]{4})-([0-9]{4}|[1-9][0-9]{4,11}),([0-9.eE+-]+),([0-9.eE+-]+)\r?$", re.MULTILINE)


@dataclass(frozen=True)
class EpssDay:
    """The scores of one day by one version of the model."""

    model_version: str
    scored_at: datetime
    scores: Scores

    @property
    def issue(self) -> Issue:
        """Its version, time and size, to compare with another day."""
        return Issue(version=self.model_version, issued=self.scored_at, entries=len(self.scores.numbers))


def parse_epss(sent: bytes, max_bytes: int = MAX_UNPACKED_BYTES) -> EpssDay:
    """Read the file, packed or not, block by block. Raises FeedRefused with what was seen.

    Its first line names the model and the day; rows may stand in any order, and numbers may be written as `2e-05`.
    """
    blocks = _whole_lines(unpacked(sent, feed=FEED, max_bytes=max_bytes))
    first = next(blocks, b"")
    about, _, rest = first.partition(b"\n")
    header, _, rows = rest.partition(b"\n")
    found = ABOUT.fullmatch(about.rstrip(b"\r"))
    if not found or header.rstrip(b"\r") != COLUMNS:
        wanted = f"'#model_version:…,score_date:…' and '{COLUMNS.decode()}'"
        raise FeedRefused(FEED, f"not EPSS scores: the file should begin with {wanted}, and begins with {glimpse(first)}")
    return EpssDay(found[1].decode(), _instant(found[2]), _scores(rows, blocks))


def _instant(text: bytes) -> datetime:
    try:
        instant = datetime.fromisoformat(text.decode())
    except ValueError:
        raise FeedRefused(FEED, f"the score date {text.decode()!r} is not a date") from None
    if instant.tzinfo is None:
        raise FeedRefused(FEED, f"the score date {text.decode()!r} names no time zone")
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


def _scores(rows: bytes, blocks: Iterator[bytes]) -> Scores:
    numbers = array("q")
    epss = array("d")
    percentiles = array("d")
    block: bytes | None = rows
    while block is not None:
        found = ROW.findall(block)
        if len(found) != block.count(b"\n") + (not block.endswith(b"\n") and block != b""):
            raise FeedRefused(FEED, f"a line is not of the form 'CVE-…,number,number': {_odd_row(block)[:GLIMPSE]!r}")
        numbers.extend(int(year) * SEQUENCES + int(sequence) for year, sequence, _, _ in found)
        try:
            epss.extend(float(likely) for _, _, likely, _ in found)
            percentiles.extend(float(share) for _, _, _, share in found)
        except ValueError as error:
            raise FeedRefused(FEED, f"a row has a value that is not a number: {error}") from None
        block = next(blocks, None)
    return _checked(sorted_scores(numbers, epss, percentiles))


def _odd_row(block: bytes) -> bytes:
    return next(line for line in block.split(b"\n") if not ROW.fullmatch(line))


def _checked(scores: Scores) -> Scores:
    if not scores.numbers:
        raise FeedRefused(FEED, "the file has no rows")
    for name, column in (("score", scores.epss), ("percentile", scores.percentiles)):
        if min(column) < 0 or max(column) > 1:
            raise FeedRefused(FEED, f"a {name} is not between 0 and 1")
    if twice := next((one for one, next_one in pairwise(scores.numbers) if one == next_one), None):
        raise FeedRefused(FEED, f"{spelled(twice)} has two rows")
    return scores


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
