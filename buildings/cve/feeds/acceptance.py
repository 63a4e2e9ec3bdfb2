"""Whether a feed is used: its issue, the thresholds that it must meet, and the errors that say why it is not used.

FeedError
├── FeedUnavailable   it cannot be read: no connection, an error status, too slow
└── FeedRefused       it was read and is not used: malformed, too large, suspiciously smaller, older
"""

import re
from dataclasses import dataclass
from datetime import datetime

from pydantic import ValidationError

from campus import JobFailed

GLIMPSE = 60
PRINTABLE = re.compile(r"[^ -~]+")


class FeedError(JobFailed):
    """A feed cannot be used for a list."""

    def __init__(self, feed: str, reason: str) -> None:
        super().__init__(f"{feed}: {reason}")
        self.feed = feed
        self.reason = reason


class FeedUnavailable(FeedError):
    """The feed cannot be read."""


class FeedRefused(FeedError):
    """The feed was read and is not used."""


def glimpse(body: bytes | bytearray) -> str:
    """What a body looks like, in a few words, for an error."""
    if not body.strip():
        return "an empty answer"
    start = PRINTABLE.sub(" ", body[: 4 * GLIMPSE].decode("ascii", errors="replace")).strip()[:GLIMPSE]
    kind = "an HTML page" if start.lower().startswith(("<!doctype html", "<html")) else "an answer"
    return f"{kind} of {len(body):,} bytes that begins with {start!r}"


def first_fault(error: ValidationError) -> str:
    """The place and the reason of the first validation error."""
    found = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in found["loc"])
    what = found["msg"].removeprefix("Value error, ")
    return f"{where}: {what}" if where else what


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
