"""The metrics of one process: requests by route, events that are counted, how late the event loop is, and readings of the moment."""

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from itertools import accumulate
from math import inf
from threading import Lock
from typing import Any

import anyio
import anyio.to_thread

LAG_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
LAG_INTERVAL = 0.02  # Fifty wake-ups a second take less than a thousandth of a CPU, and no stall of more than 20 ms is missed.
DURATION_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 90.0)
"""Up to the 90 seconds that a paid call may take."""
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
OTHER_METHOD = "other"
NO_ROUTE = "none"
MILLION = 1_000_000


class Histogram:
    """How often a value was at most each of some bounds."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    @property
    def count(self) -> int:
        return sum(self._counts)

    def take(self, other: "Histogram") -> None:
        self._counts = [own + its for own, its in zip(self._counts, other._counts, strict=True)]
        self._sum += other._sum

    def quantile(self, share: float) -> float | None:
        """The bound that this share of the values did not exceed: infinite above the last; None before the first value."""
        total = self.count
        reached = (bound for bound, count in zip((*self._bounds, inf), accumulate(self._counts), strict=True) if count >= share * total)
        return next(reached) if total else None

    def add_to(self, family: Any, labels: Sequence[str] = ()) -> None:
        bounds = [*(str(bound) for bound in self._bounds), "+Inf"]
        family.add_metric(labels, list(zip(bounds, accumulate(self._counts), strict=True)), self._sum)


def counter(name: str, text: str, labels: Sequence[str], counts: Mapping[Any, float]) -> Any:
    """A family of the Prometheus library; `counts` has the number for each tuple of the labels' values."""
    from prometheus_client.core import CounterMetricFamily

    family = CounterMetricFamily(name, text, labels=labels)
    for values, count in counts.items():
        family.add_metric(values, count)
    return family


class EventLoopLag(Histogram):
    """How much later than asked the event loop woke a task, in seconds: the time by which every other call was delayed too."""

    def __init__(self) -> None:
        super().__init__(LAG_BOUNDS)

    async def measure(self) -> None:
        while True:
            due = time.perf_counter() + LAG_INTERVAL
            await anyio.sleep(LAG_INTERVAL)
            self.add(max(0.0, time.perf_counter() - due))

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import HistogramMetricFamily

        family = HistogramMetricFamily("campus_event_loop_lag_seconds", "how much later than asked the event loop wakes a task")
        self.add_to(family)
        yield family


class RequestMetrics:
    """The requests of one listener: how many run, how many there were, and how long each took until its response was complete.

    Routes are templates, which are few; so are methods, because all that are not usual count as one. So no caller can make a new
    time series. Counting takes a third of a microsecond.
    """

    def __init__(self) -> None:
        self.running = 0
        self._durations: dict[tuple[str | None, str, int], Histogram] = {}
        self._refused: Counter[tuple[str]] = Counter()

    def add(self, route: str | None, method: str, status: int, seconds: float) -> None:
        durations = self._durations.get((route, method, status))
        if durations is None:
            key = (route, method if method in METHODS else OTHER_METHOD, status)
            durations = self._durations.setdefault(key, Histogram(DURATION_BOUNDS))
        durations.add(seconds)

    def total(self, *, from_status: int = 0) -> int:
        return sum(durations.count for (_, _, status), durations in self._durations.items() if status >= from_status)

    def refused(self, code: str) -> None:
        """Count a connection that was closed, or answered with a problem of this code, because no request could be read from it."""
        self._refused[(code,)] += 1

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily

        yield GaugeMetricFamily("campus_requests_running", "requests that are being answered", value=self.running)
        counts: Counter[tuple[str, str, str]] = Counter()
        by_route: dict[str, Histogram] = {}
        for (found, method, status), durations in self._durations.items():
            route = found or NO_ROUTE
            counts[route, method, str(status)] += durations.count
            by_route.setdefault(route, Histogram(DURATION_BOUNDS)).take(durations)
        about = "requests that were answered; over MCP the status of a tool's refusal"
        yield counter("campus_requests", about, ("route", "method", "status"), counts)
        family = HistogramMetricFamily("campus_request_duration_seconds", "until the response was complete", labels=("route",))
        for route, durations in by_route.items():
            durations.add_to(family, (route,))
        yield family
        yield counter("campus_connections_refused", "connections from which no request could be read", ("code",), self._refused)


class CallMetrics:
    """The tools' calls by what opened them, what they earned, and those that a limit refused. Every label has few values."""

    def __init__(self) -> None:
        self._opened: Counter[tuple[str, str]] = Counter()
        self._earned: Counter[tuple[str, str]] = Counter()
        self._refused: Counter[tuple[str]] = Counter()

    def opened(self, building: str, tier: str) -> None:
        """Count a call that was admitted: `free`, by a `key`, or `paid`."""
        self._opened[building, tier] += 1

    def earned(self, building: str, tool: str, amount: int) -> None:
        """Add what a call was charged, in millionths of a US dollar."""
        self._earned[building, tool] += amount

    def refused(self, limit: str) -> None:
        self._refused[(limit,)] += 1

    def collect(self) -> Iterator[Any]:
        earned = {labels: amount / MILLION for labels, amount in self._earned.items()}
        yield counter("campus_calls_opened", "calls of tools by what opened them", ("building", "tier"), self._opened)
        yield counter("campus_income_usd", "what calls were charged, in US dollars", ("building", "tool"), earned)
        yield counter("campus_limits_reached", "calls that a limit refused", ("limit",), self._refused)


@dataclass(frozen=True, eq=False)
class Reading:
    """Numbers that are read when /metrics is asked for, by the value of one label."""

    name: str
    text: str
    label: str
    values: Mapping[str, float]

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import GaugeMetricFamily

        family = GaugeMetricFamily(self.name, self.text, labels=(self.label,))
        for value, number in self.values.items():
            family.add_metric((value,), number)
        yield family


class Metrics:
    """The metrics of this process; a counter of events, by building and labels, appears with its first event.

    Events may be counted in any thread. The Prometheus library is not needed to start: `warm`, the first event or the first page
    imports it.
    """

    def __init__(self) -> None:
        self.event_loop_lag = EventLoopLag()
        self.requests = RequestMetrics()
        self.calls = CallMetrics()
        self._counters: dict[str, Any] = {}
        self._creating = Lock()

    async def warm(self) -> None:
        """Import the Prometheus library, in a thread: it takes longer than any call should wait."""
        await anyio.to_thread.run_sync(self.registry)

    def add(self, building: str, event: str, labels: Mapping[str, str], *, times: int = 1) -> None:
        """Count `event` so many times; the same event always has the same label names."""
        name = f"campus_{building}_{event}"
        counter = self._counters.get(name) or self._created(name, f"{event} in {building}", sorted(labels))
        (counter.labels(**labels) if labels else counter).inc(times)

    async def run(self, readings: Callable[[], Awaitable[Sequence[Reading]]]) -> None:
        """Measure the event loop until cancelled; `readings` are those of each page."""
        await self.event_loop_lag.measure()

    async def page(self, readings: Sequence[Reading] = ()) -> bytes:
        from prometheus_client import CollectorRegistry, generate_latest

        moment: Any = CollectorRegistry()
        for reading in readings:
            moment.register(reading)
        return generate_latest(self.registry()) + generate_latest(moment)

    def registry(self) -> Any:
        with self._creating:
            return self._registry

    def _created(self, name: str, text: str, labels: list[str]) -> Any:
        from prometheus_client import Counter as PrometheusCounter

        with self._creating:
            if name not in self._counters:
                self._counters[name] = PrometheusCounter(name, text, labels, registry=self._registry)
            return self._counters[name]

    @cached_property
    def _registry(self) -> Any:
        from prometheus_client import CollectorRegistry, ProcessCollector

        registry: Any = CollectorRegistry()
        registry.register(Reading("campus_build_info", "always 1", "version", {version("mcp-campus"): 1}))
        registry.register(self.event_loop_lag)
        registry.register(self.requests)
        registry.register(self.calls)
        ProcessCollector(registry=registry)  # CPU, memory and files, on Linux
        return registry
