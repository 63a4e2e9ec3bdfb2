"""How the log reads: one line per event, the event first, its data behind it."""

import logging
import sys
import time

from starlette.requests import ClientDisconnect

from campus.observability.redaction import redacted

STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
QUIET = dict.fromkeys(("httpx", "httpx2", "httpcore", "mcp", "fastmcp", "alembic", "aiosqlite", "x402", "web3"), logging.WARNING) | {
    "stamina": logging.ERROR
}


class OneLine(logging.Formatter):
    """`2026-11-20T12:00:00Z INFO campus.jobs: job finished job=cve.refresh seconds=2.1`."""

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%SZ"
    default_msec_format = ""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The line, with the event's data as name=value."""
        data = " ".join(f"{name}={value}" for name, value in vars(record).items() if name not in STANDARD)
        return f"{super().formatMessage(record)} {data}".rstrip()

    def format(self, record: logging.LogRecord) -> str:
        """The whole entry, its traceback too, without what addresses hide."""
        return redacted(super().format(record))


def is_news(record: logging.LogRecord) -> bool:
    """Whether a record is to be read: mcp logs a traceback of each caller that hangs up before its request is whole."""
    hung_up = record.exc_info and isinstance(record.exc_info[1], ClientDisconnect)  # False as well as None where there is no error
    return not (hung_up and record.name.startswith("mcp."))


def log_to_stderr(level: int, *, requests: bool = False) -> None:
    """Log to standard error; libraries only what they warn of, and a line per request only where it is asked for."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLine())
    handler.addFilter(is_news)
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for name, least in QUIET.items():
        logging.getLogger(name).setLevel(least)
    logging.getLogger("campus.access").setLevel(logging.INFO if requests else logging.WARNING)
    fastmcp = logging.getLogger("fastmcp")  # it brings a handler of its own, which wraps lines to a terminal's width
    fastmcp.handlers.clear()
    fastmcp.propagate = True
