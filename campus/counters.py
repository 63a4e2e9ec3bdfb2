"""Counters of what happens, one registry per campus, shown at /metrics in Prometheus' format."""

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, generate_latest


class Counters:
    """Counts events by building and labels; a counter appears with its first event."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._counters: dict[str, Counter] = {}

    def add(self, building: str, event: str, labels: Mapping[str, str]) -> None:
        """One more of `event`; the same event always carries the same label names."""
        name = f"campus_{building}_{event}"
        counter = self._counters.get(name)
        if counter is None:
            counter = self._counters[name] = Counter(name, f"{event} in {building}", sorted(labels), registry=self._registry)
        (counter.labels(**labels) if labels else counter).inc()

    def page(self) -> bytes:
        """All counters in Prometheus' text format."""
        return generate_latest(self._registry)
