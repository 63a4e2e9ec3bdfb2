"""Counters of what happens, shown at /metrics in Prometheus' format."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

LabelNames = tuple[str, ...]


class Counters:
    """Counts events by building and labels; a counter appears with its first event."""

    def __init__(self) -> None:
        self._counted: dict[tuple[str, str], tuple[LabelNames, Counter[tuple[str, ...]]]] = {}

    def add(self, building: str, event: str, labels: Mapping[str, str]) -> None:
        """One more of `event`. ValueError when it was counted with labels of other names before."""
        names = tuple(sorted(labels))
        known, counts = self._counted.setdefault((building, event), (names, Counter()))
        if known != names:
            raise ValueError(f"{event} of {building} is counted with the labels {', '.join(known) or 'none'}, always the same")
        counts[tuple(str(labels[name]) for name in names)] += 1

    def page(self) -> bytes:
        """All counters in Prometheus' text format."""
        from prometheus_client import CollectorRegistry, generate_latest  # loaded when somebody looks

        registry = CollectorRegistry()
        registry.register(self)
        return generate_latest(registry)

    def collect(self) -> Iterator[Any]:
        """What prometheus_client asks for: a family of metrics per event."""
        from prometheus_client.metrics_core import CounterMetricFamily

        for (building, event), (names, counts) in self._counted.items():
            family = CounterMetricFamily(f"campus_{building}_{event}", f"{event} in {building}", labels=names)
            for values, count in counts.items():
                family.add_metric(values, count)
            yield family
