"""The errors of a feed, each with one clear sentence for the operator.

FeedError
├── FeedUnavailable   it cannot be read: no connection, an error status, too slow
└── FeedRefused       it was read and is not used: malformed, too large, suspiciously smaller, older
"""

import re

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
