"""Refuses a well-formed feed that shrank, is suspiciously small, or is older than the one in use."""

from dataclasses import dataclass
from datetime import datetime

from buildings.cve.feeds.errors import FeedRefused

REMEDY = "run the job cve.refresh with --accept if that is right"


@dataclass(frozen=True, slots=True, kw_only=True)
class Issue:
    """One issue of a feed: its version as the publisher names it, its time, and how many CVEs it holds."""

    version: str
    issued: datetime
    entries: int

    def __str__(self) -> str:
        return f"{self.version} of {self.issued:%Y-%m-%d}"


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """How much smaller than the last an issue may be, as a share, and the fewest entries of a first one."""

    shrinkage: float
    first_entries: int


KEV = Thresholds(shrinkage=0.02, first_entries=1_000)
EPSS = Thresholds(shrinkage=0.10, first_entries=1)


def check(feed: str, issue: Issue, *, used: Issue | None, thresholds: Thresholds) -> None:
    """Raise FeedRefused when an issue should not replace the one `used` for the last list (None for the first list).

    Age alone is not a reason: the list is still made, and shows how old each feed is.
    """
    if used is None:
        if issue.entries < thresholds.first_entries:
            raise FeedRefused(feed, f"{issue} has {issue.entries:,} entries, the first should have {thresholds.first_entries:,}; {REMEDY}")
        return
    if issue.issued < used.issued:
        raise FeedRefused(feed, f"{issue} is older than {used}, which the last list was made from; {REMEDY}")
    if issue.entries < used.entries * (1 - thresholds.shrinkage):
        lost = 1 - issue.entries / used.entries
        raise FeedRefused(
            feed,
            f"{issue} has {issue.entries:,} entries, {lost:.1%} fewer than the {used.entries:,} of {used},"
            f" where {thresholds.shrinkage:.0%} are accepted; {REMEDY}",
        )
