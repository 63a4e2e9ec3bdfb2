"""The counters of events that /metrics shows in Prometheus' format, one registry per campus."""

from collections.abc import Mapping
from functools import cached_property
from threading import Lock
from typing import Any


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
