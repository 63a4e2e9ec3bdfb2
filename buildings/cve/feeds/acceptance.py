"""Decides whether a downloaded feed is used: its release, the thresholds, and the errors that say why not.

FeedError
├── FeedUnavailable   it cannot be read: no connection, an error status, too slow
└── FeedRefused       it was read and is not used: malformed, too large, suspiciously smaller, older
"""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta

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
    """The fewest entries of a first issue, and how many of the entries in use a later one may lack: a number and a share."""

    first_entries: int
    lost: int = 0
    lost_share: float = 0.0

    def may_lack(self, entries: int) -> int:
        """How many of so many entries may be missing."""
        return self.lost + int(entries * self.lost_share)


KEV = Thresholds(first_entries=1_000, lost=10)
"""515 releases lost at most 5 entries at once."""
EPSS = Thresholds(first_entries=200_000, lost_share=0.01)
"""The number of scored CVEs fell in no week."""

AHEAD = timedelta(days=1)
"""How far in the future a feed may be dated: clocks and time zones differ."""


def check(feed: str, issue: Issue, *, used: Issue | None, lost: int, thresholds: Thresholds) -> None:
    """Raise FeedRefused when an issue should not replace the one `used` for the last list (None for the first list).

    `lost` is how many of the entries in use it lacks. Age alone is not a reason: the list is still made, and shows how
    old each feed is.
    """
    if used is None:
        if issue.entries < thresholds.first_entries:
            raise FeedRefused(feed, f"{issue} has {issue.entries:,} entries, the first should have {thresholds.first_entries:,}; {REMEDY}")
        return
    if issue.issued < used.issued:
        raise FeedRefused(feed, f"{issue} is older than {used}, which the last list was made from; {REMEDY}")
    if lost > (most := thresholds.may_lack(used.entries)):
        raise FeedRefused(feed, f"{issue} lacks {lost:,} of the {used.entries:,} entries of {used}, where {most:,} are accepted; {REMEDY}")


def check_time(feed: str, issue: Issue, *, now: datetime) -> None:
    """Raise FeedRefused for an issue from the future: with it in use, every later one would be refused as older."""
    if issue.issued > now + AHEAD:
        raise FeedRefused(feed, f"{issue} is dated in the future; it is {now:%Y-%m-%d} here")
