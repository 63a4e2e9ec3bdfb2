"""The log: one line per event, as text or as JSON, in which no URL is longer than its host."""

import json
import logging
import re
import sys
import time
from datetime import datetime
from math import inf, isfinite
from typing import Literal
from urllib.parse import urlsplit

from starlette.requests import ClientDisconnect

from campus.errors import StorageUnavailable

STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""The attributes of every record; all others are an event's data."""
LIBRARIES = ("asyncio", "httpx", "httpx2", "httpcore", "mcp", "fastmcp", "alembic", "aiosqlite", "stripe", "x402", "web3")
LIBRARY_LEVELS = dict.fromkeys(LIBRARIES, logging.WARNING) | {"stamina": logging.ERROR}
LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["text", "json"]
TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"  # RFC 3339, in UTC and whole seconds.
REPEATED_SECONDS = 60.0
MOST_OF_A_KIND = 20
MOST_TRACEBACKS = 2
MOST_OF_A_COMMAND = 100
OF_COMMANDS = "campus.commands"  # The logger of what the commands of buildings write to stderr, a line each.
Causes = dict[tuple[object, ...], tuple[float, int]]
"""When each of the latest was first logged in its minute, the oldest first, and how often it was to be logged since."""
MOST_REMEMBERED = 1_000
WORD = re.compile(r'[^\s"=]+')
URL = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s'\"<>\\]+", re.IGNORECASE)


class OneLine(logging.Formatter):
    """`2026-11-20T12:00:00Z INFO campus.jobs: job finished job=cve.refresh seconds=2.1`; a value that is not one word is in quotes."""

    converter = staticmethod(time.gmtime)
    default_time_format = TIME_FORMAT
    default_msec_format = ""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The line, with the event's data as name=value. A text from outside can neither begin another line nor colour a terminal."""
        data = " ".join(f"{name}={_shown(value)}" for name, value in vars(record).items() if name not in STANDARD)
        line = f"{super().formatMessage(record)} {data}".rstrip()
        return line if line.isprintable() else "".join(letter if letter.isprintable() else " " for letter in line)

    def format(self, record: logging.LogRecord) -> str:
        return redacted(super().format(record))


class OneObject(OneLine):
    """`{"time": "2026-11-20T12:00:00Z", "level": "info", "logger": "campus.jobs", "event": "job finished", "job": "cve.refresh"}`.

    A line per event in ASCII, whatever it contains; a traceback is its member `exception`. For collectors of logs.
    """

    def format(self, record: logging.LogRecord) -> str:
        event = {
            "time": self.formatTime(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **{name: value for name, value in vars(record).items() if name not in STANDARD},
        }
        if record.exc_info:
            event["exception"] = self.formatException(record.exc_info)
        return json.dumps({name: _member(value) for name, value in event.items()})


def _member(value: object) -> object:
    """A value of an event as JSON has it: NaN and the infinities, which JSON has not, as text like everything else."""
    is_of_json = value is None or isinstance(value, int) or (isinstance(value, float) and isfinite(value))
    return value if is_of_json else redacted(str(value))


def _shown(value: object) -> str:
    """A value of an event: as it is if it is one word, else in quotes, so that it cannot look like another value."""
    text = str(value)
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return text if WORD.fullmatch(text) else f'"{escaped}"'


class Budget(logging.Filter):
    """Limits what one cause may write within a minute, of whichever request, so that a fault does not fill the disk or hide another.

    A warning that says what another said is dropped, and after the first twenty one that the same line of code logs. Of an error with a
    traceback, which is the same cause if it was raised at the same place, the first two are whole. Of what the command of a building
    writes to stderr, the first hundred lines. The next one after the minute says how many were dropped.
    """

    def __init__(self) -> None:
        super().__init__()
        self._said: Causes = {}
        self._kinds: Causes = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name == OF_COMMANDS:
            command = (record.name, getattr(record, "building", None))
            return bool(_place_of(command, self._kinds, MOST_OF_A_COMMAND, record))
        if record.levelno < logging.WARNING:
            return True
        error = record.exc_info[1] if record.exc_info else None
        kind = (record.name, record.pathname, record.lineno, error and _raised_at(error))  # libraries write callers' data into the message
        if error is None:
            data = ((name, str(value)) for name, value in vars(record).items() if name not in STANDARD and name != "request_id")
            said = (*kind, record.getMessage(), *data)
            return bool(_place_of(said, self._said, 1, record) and _place_of(kind, self._kinds, MOST_OF_A_KIND, record))
        place = _place_of(kind, self._kinds, MOST_OF_A_KIND, record)
        if place > MOST_TRACEBACKS:
            record.exc_info = record.exc_text = None
            record.error = _raised_at(error)
        return bool(place)


def _place_of(cause: tuple[object, ...], causes: Causes, most: int, record: logging.LogRecord) -> int:
    """Which of the causes of its minute a record is, beginning with 1; 0 beyond `most`."""
    began_at, count = causes.get(cause, (-inf, 0))
    if 0 <= record.created - began_at < REPEATED_SECONDS:
        causes[cause] = began_at, count + 1
        return count + 1 if count < most else 0
    causes.pop(cause, None)
    causes[cause] = record.created, 1
    if len(causes) > MOST_REMEMBERED:
        del causes[next(iter(causes))]
    if count > most:
        record.repeated = count - most
    return 1


def _raised_at(error: BaseException) -> str:
    while error.__cause__:
        error = error.__cause__
    at = error.__traceback__
    while at and at.tb_next:
        at = at.tb_next
    return f"{type(error).__name__} at {at.tb_frame.f_code.co_filename}:{at.tb_lineno}" if at else type(error).__name__


def is_wanted(record: logging.LogRecord) -> bool:
    """False for the traceback that mcp logs for each caller that disconnects before its request is complete.

    And for those of a tool that failed, by FastMCP, and of one whose database cannot be used: campus logs them with the request id. What
    mcp says of another server's faults is one line.
    """
    if record.name.startswith("mcp.client."):
        record.exc_info = None
    if record.name == "fastmcp.server.server" and str(record.msg).startswith("Error calling tool"):
        return False
    if record.name == "twins.tool.errors" and record.exc_info and isinstance(record.exc_info[1], StorageUnavailable):
        return False
    hung_up = record.exc_info and isinstance(record.exc_info[1], ClientDisconnect)  # False as well as None where there is no error
    return not (hung_up and record.name.startswith("mcp."))


def log_to_stderr(level: LogLevel, *, log_format: LogFormat = "text", requests: bool = False) -> None:
    """Log to standard error, Python's warnings too. Libraries log warnings only; there is a line per request only if `requests`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneObject() if log_format == "json" else OneLine())
    handler.addFilter(is_wanted)
    handler.addFilter(Budget())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(True)  # Python's own, such as that of a coroutine that was never awaited
    for name, lowest in LIBRARY_LEVELS.items():
        logging.getLogger(name).setLevel(lowest)
    logging.getLogger("campus.access").setLevel(logging.INFO if requests else logging.WARNING)
    fastmcp = logging.getLogger("fastmcp")  # it has a handler that wraps lines to a terminal's width
    fastmcp.handlers.clear()
    fastmcp.propagate = True


def utc_text(moment: datetime) -> str:
    """A time in UTC as operators and callers read it: RFC 3339, in whole seconds."""
    return moment.strftime(TIME_FORMAT)


def origin_of(url: str) -> str:
    """Scheme and host of a URL: user, path and query may hold a password or a token. Of a file's URL also the path.

    `https://jane:secret@feeds.example/token?key=x` becomes `https://feeds.example`.
    """
    try:
        parts = urlsplit(url)
        host = parts.hostname
        port = parts.port
    except ValueError:
        return "an address that cannot be read"
    if parts.scheme == "file":
        return f"file://{host or ''}{parts.path}"
    if not host:
        return "an address without a host"
    name = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{name}" + (f":{port}" if port is not None else "")


def redacted(text: str) -> str:
    """The text with every URL in it cut after its host; `/…` shows where something was cut."""
    return URL.sub(_cut, text) if "://" in text else text


def _cut(found: re.Match[str]) -> str:
    url = found[0]
    origin = origin_of(url)
    # punctuation after a URL is not part of it
    return url if url.rstrip(".,;:)]/") in (origin, origin.rstrip("]")) else f"{origin}/…"
