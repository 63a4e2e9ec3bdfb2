"""What operators see of a running campus: its log, one line per event, the counters that /metrics shows, and the event loop's lag."""

import logging
import re
import sys
import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import cached_property
from itertools import accumulate
from math import inf
from threading import Lock
from typing import Any
from urllib.parse import urlsplit

import anyio
from starlette.requests import ClientDisconnect

STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""The attributes of every record; all others are an event's data."""
LIBRARIES = ("httpx", "httpx2", "httpcore", "mcp", "fastmcp", "alembic", "aiosqlite", "x402", "web3")
LIBRARY_LEVELS = dict.fromkeys(LIBRARIES, logging.WARNING) | {"stamina": logging.ERROR}
TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"
"""RFC 3339, in UTC and whole seconds."""
URL = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s'\"<>\\]+", re.IGNORECASE)
LAG = "campus_event_loop_lag_seconds"
LAG_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
LAG_INTERVAL = 0.02
"""Fifty wake-ups a second take less than a thousandth of a CPU, and no stall of more than 20 ms is missed."""


class OneLine(logging.Formatter):
    """`2026-11-20T12:00:00Z INFO campus.jobs: job finished job=cve.refresh seconds=2.1`."""

    converter = staticmethod(time.gmtime)
    default_time_format = TIME_FORMAT
    default_msec_format = ""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The line, with the event's data as name=value. A text from outside can neither begin another line nor colour a terminal."""
        data = " ".join(f"{name}={value}" for name, value in vars(record).items() if name not in STANDARD)
        line = f"{super().formatMessage(record)} {data}".rstrip()
        return line if line.isprintable() else "".join(letter if letter.isprintable() else " " for letter in line)

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


def utc_text(moment: datetime) -> str:
    """A time in UTC as operators and callers read it: RFC 3339, in whole seconds."""
    return moment.strftime(TIME_FORMAT)


def origin_of(url: str) -> str:
    """Scheme and host of a URL: user, path and query may hold a password or a token. A file's URL is returned whole.

    `https://jane:secret@feeds.example/token?key=x` becomes `https://feeds.example`.
    """
    try:
        parts = urlsplit(url)
        host = parts.hostname
        port = parts.port
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
    url = found[0]
    origin = origin_of(url)
    # punctuation after a URL is not part of it
    return url if url.rstrip(".,;:)]/") in (origin, origin.rstrip("]")) else f"{origin}/…"


class EventLoopLag:
    """A histogram of how much later than asked the event loop woke a task: the time by which every other call was delayed too."""

    def __init__(self) -> None:
        self._counts = [0] * (len(LAG_BOUNDS) + 1)
        self._sum = 0.0

    async def measure(self) -> None:
        """Measure until cancelled."""
        while True:
            due = time.perf_counter() + LAG_INTERVAL
            await anyio.sleep(LAG_INTERVAL)
            self.add(max(0.0, time.perf_counter() - due))

    def add(self, seconds: float) -> None:
        """Count one wake-up."""
        self._counts[bisect_left(LAG_BOUNDS, seconds)] += 1
        self._sum += seconds

    def quantile(self, share: float) -> float | None:
        """The bound, in seconds, below which this share of the wake-ups was late: infinite above the last; None before the first."""
        total = sum(self._counts)
        reached = (bound for bound, count in zip((*LAG_BOUNDS, inf), accumulate(self._counts), strict=True) if count >= share * total)
        return next(reached) if total else None

    def collect(self) -> Iterator[Any]:
        """Called by the Prometheus library."""
        from prometheus_client.core import HistogramMetricFamily

        bounds = [*(str(bound) for bound in LAG_BOUNDS), "+Inf"]
        histogram = HistogramMetricFamily(LAG, "how much later than asked the event loop wakes a task")
        histogram.add_metric([], list(zip(bounds, accumulate(self._counts), strict=True)), self._sum)
        yield histogram


class Counters:
    """Counts events by building and labels; a counter appears with its first event. For any thread.

    The Prometheus library is imported by the first event or request for /metrics, so that it does not slow the start.
    """

    def __init__(self) -> None:
        self.event_loop_lag = EventLoopLag()
        self._counters: dict[str, Any] = {}
        self._creating = Lock()

    def add(self, building: str, event: str, labels: Mapping[str, str], *, times: int = 1) -> None:
        """Count `event` so many times; the same event always has the same label names."""
        name = f"campus_{building}_{event}"
        counter = self._counters.get(name) or self._created(name, f"{event} in {building}", sorted(labels))
        (counter.labels(**labels) if labels else counter).inc(times)

    def page(self) -> bytes:
        """Everything in Prometheus' text format."""
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

        registry = CollectorRegistry()
        registry.register(self.event_loop_lag)
        return registry
