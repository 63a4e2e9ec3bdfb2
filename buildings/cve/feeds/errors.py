"""Why a feed, or the newest issue of one, is not used.

FeedError
├── FeedUnavailable   it cannot be read: no connection, an error status, too slow
└── FeedRefused       it was read and is not used: malformed or too large
    └── FeedDoubted   it is well-formed and looks false: suspiciously smaller, older, changed; a person may accept it
"""

import re

from pydantic import ValidationError

from campus.errors import JobFailed

GLIMPSE = 60
PRINTABLE = re.compile(r"[^ -~]+")
REMEDY = "run the job {job} with --accept if that is right"


class FeedError(JobFailed):
    """A feed cannot be used for a list. `reason` is for the operator, `public` for those who read the list."""

    public = "its newest issue cannot be used"

    def __init__(self, feed: str, reason: str, *, public: str | None = None) -> None:
        super().__init__(f"{feed}: {reason}")
        self.feed = feed
        self.reason = reason
        self.public = public or self.public


class FeedUnavailable(FeedError):
    public = "its publisher does not answer, or answers with an error"


class FeedRefused(FeedError):
    public = "its newest issue is malformed"


class FeedDoubted(FeedRefused):
    """The feed is well-formed and looks false. Its reason names only the feed's contents, and is public."""

    def __init__(self, feed: str, reason: str) -> None:
        remedy = REMEDY.format(job="cve.names" if feed.startswith("OSV") else "cve.refresh")
        super().__init__(feed, f"{reason}; {remedy}", public=reason)


def glimpse(body: bytes | bytearray) -> str:
    if not body.strip():
        return "an empty answer"
    start = PRINTABLE.sub(" ", body[: 4 * GLIMPSE].decode("ascii", errors="replace")).strip()[:GLIMPSE]
    kind = "an HTML page" if start.lower().startswith(("<!doctype html", "<html")) else "an answer"
    return f"{kind} of {len(body):,} bytes that begins with {start!r}"


def first_fault(error: ValidationError) -> str:
    found = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in found["loc"])
    what = found["msg"].removeprefix("Value error, ")
    return f"{where}: {what}" if where else what
