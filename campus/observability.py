"""What operators see of a running campus: its log, one line per event, and the counters that /metrics shows."""

import logging
import re
import sys
import time
from collections.abc import Mapping
from functools import cached_property
from threading import Lock
from typing import Any
from urllib.parse import urlsplit

from starlette.requests import ClientDisconnect

STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""The attributes of every record; all others are an event's data."""
LIBRARIES = ("httpx", "httpx2", "httpcore", "mcp", "fastmcp", "alembic", "aiosqlite", "x402", "web3")
LIBRARY_LEVELS = dict.fromkeys(LIBRARIES, logging.WARNING) | {"stamina": logging.ERROR}
URL = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s'\"<>\\]+", re.IGNORECASE)


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
        """The whole entry with its traceback, every URL in it cut after its host."""
        return redacted(super().format(record))


def is_wanted(record: logging.LogRecord) -> bool:
    """False for the traceback that mcp logs for each caller that disconnects before its request is complete."""
    hung_up = record.exc_info and isinstance(record.exc_info[1], ClientDisconnect)  # False as well as None where there is no error
    return not (hung_up and record.name.startswith("mcp."))


def log_to_stderr(level: int, *, requests: bool = False) -> None:
    """Log to standard error. Libraries log warnings only; there is a line per request only if `requests`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLine())
    handler.addFilter(is_wanted)
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for name, lowest in LIBRARY_LEVELS.items():
        logging.getLogger(name).setLevel(lowest)
    logging.getLogger("campus.access").setLevel(logging.INFO if requests else logging.WARNING)
    fastmcp = logging.getLogger("fastmcp")  # it has a handler that wraps lines to a terminal's width
    fastmcp.handlers.clear()
    fastmcp.propagate = True


def origin_of(url: str) -> str:
    """Scheme and host of a URL: user, path and query may hold a password or a token. A file's URL is returned whole.

    `https://jane:secret@feeds.example/token?key=x` becomes `https://feeds.example`.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return "an address that cannot be read"
    if parts.scheme == "file":
        return url
    if not host:
        return "an address without a host"
    name = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{name}" + (f":{port}" if port is not None else "")


def redacted(text: str) -> str:
    """The text with every URL in it cut after its host; `/…` shows where something was cut."""
    return URL.sub(_cut, text) if "://" in text else text


def _cut(found: re.Match[str]) -> str:
    url, origin = found[0], origin_of(found[0])
    # punctuation after a URL is not part of it
    return url if url.rstrip(".,;:)]/") in (origin, origin.rstrip("]")) else f"{origin}/…"


class Counters:
    """Counts events by building and labels; a counter appears with its first event. For any thread.

    The Prometheus library is imported by the first event or request for /metrics, so that it does not slow the start.
    """

    def __init__(self) -> None:
        self._counters: dict[str, Any] = {}
        self._creating = Lock()

    def add(self, building: str, event: str, labels: Mapping[str, str], *, times: int = 1) -> None:
        """Count `event` so many times; the same event always has the same label names."""
        name = f"campus_{building}_{event}"
        counter = self._counters.get(name) or self._created(name, f"{event} in {building}", sorted(labels))
        (counter.labels(**labels) if labels else counter).inc(times)

    def page(self) -> bytes:
        """All counters in Prometheus' text format."""
        from prometheus_client import generate_latest

        with self._creating:
            registry = self._registry
        return generate_latest(registry)

    def _created(self, name: str, text: str, labels: list[str]) -> Any:
        from prometheus_client import Counter

        with self._creating:
            if name not in self._counters:
                self._counters[name] = Counter(name, text, labels, registry=self._registry)
            return self._counters[name]

    @cached_property
    def _registry(self) -> Any:
        from prometheus_client import CollectorRegistry

        return CollectorRegistry()
