"""What can be wrong with a feed, one clear sentence each for the operator.

FeedError
├── FeedUnavailable   it cannot be had: no connection, an error status, too slow
└── FeedRefused       it was had and is not taken: not what it should be, too large, suspiciously smaller, older
"""

import re

from pydantic import ValidationError

from campus import JobFailed

GLIMPSE = 60
PRINTABLE = re.compile(r"[^ -~]+")


class FeedError(JobFailed):
    """A feed gave nothing that a list can be made from."""

    def __init__(self, feed: str, reason: str) -> None:
        super().__init__(f"{feed}: {reason}")
        self.feed = feed
        self.reason = reason


class FeedUnavailable(FeedError):
    """It cannot be had."""


class FeedRefused(FeedError):
    """It was had, and is not taken."""


def glimpse(body: bytes | bytearray) -> str:
    """What a body looks like, in a few words: for the sentence that refuses it."""
    if not body.strip():
        return "an empty answer"
    start = PRINTABLE.sub(" ", body[: 4 * GLIMPSE].decode("ascii", errors="replace")).strip()[:GLIMPSE]
    kind = "an HTML page" if start.lower().startswith(("<!doctype html", "<html")) else "an answer"
    return f"{kind} of {len(body):,} bytes that begins with {start!r}"


def first_fault(error: ValidationError) -> str:
    """Where the first thing stands that a format does not allow, and what is wrong with it."""
    found = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in found["loc"])
    what = found["msg"].removeprefix("Value error, ")
    return f"{where}: {what}" if where else what
