"""The metrics of all workers on one page: each counts for itself, and hands its numbers over on a socket in a folder of the supervisor.

What a worker counts has the label `worker`: a sum over workers would fall when one is replaced, which Prometheus takes for a restart
of all. What all of them read from the same database is shown once. Prometheus' own multiprocess mode keeps counters in files that
every process maps, and knows no collectors, such as those of requests and of the event loop.
"""

import json
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import SocketStream

from campus.observability.metrics import Metrics, Reading

log = logging.getLogger(__name__)

Readings = Callable[[], Awaitable[Sequence[Reading]]]

ANSWER_SECONDS = 5.0  # How long a worker may take to tell its numbers; the page is without those that it does not tell.


class WorkerMetrics(Metrics):
    def __init__(self, folder: Path, number: int) -> None:
        super().__init__()
        self._folder = folder
        self._number = str(number)

    async def run(self, readings: Readings) -> None:
        """Measure the event loop, and tell this worker's numbers to whoever connects, until cancelled; its predecessor is asked no more."""
        path = self._folder / f"{self._number}.{os.getpid()}"
        async with await anyio.create_unix_listener(path) as listener, anyio.create_task_group() as tasks:
            path.rename(self._folder / self._number)
            tasks.start_soon(super().run, readings)
            await listener.serve(partial(self._tell, readings))

    async def page(self, readings: Sequence[Reading] = ()) -> bytes:
        found: dict[str, Any] = {self._number: self._numbers(readings)}
        async with anyio.create_task_group() as tasks:
            for path in self._folder.iterdir():
                if path.name.isdigit() and path.name != self._number:
                    tasks.start_soon(self._ask, path, found)
        return page_of(dict(sorted(found.items())))

    async def _tell(self, readings: Readings, stream: SocketStream) -> None:
        async with stream:
            try:
                await stream.send(json.dumps(self._numbers(await readings())).encode())
            except Exception:  # what a page would answer with 500 must not end the worker
                log.exception("metrics were not handed over")

    async def _ask(self, path: Path, found: dict[str, Any]) -> None:
        with suppress(OSError, ValueError, anyio.BrokenResourceError), anyio.move_on_after(ANSWER_SECONDS):  # it has ended, or is ending
            async with await anyio.connect_unix(path) as stream:
                found[path.name] = json.loads(b"".join([part async for part in stream]))

    def _numbers(self, readings: Sequence[Reading]) -> dict[str, Any]:
        families = self.registry().collect()
        return {
            "counted": [(one.name, one.documentation, one.type, [each[:3] for each in one.samples]) for one in families],
            "readings": [(one.name, one.text, one.label, dict(one.values)) for one in readings],
        }


@dataclass(frozen=True)
class _Collected:
    collect: Callable[[], Iterable[Any]]


def page_of(workers: dict[str, Any]) -> bytes:
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.core import Metric

    families: dict[str, Any] = {}
    highest: dict[tuple[str, str, str], dict[str, float]] = {}
    for worker, numbers in workers.items():
        for name, text, kind, samples in numbers["counted"]:
            family = families.setdefault(name, Metric(name, text, kind))
            for sample, labels, value in samples:
                family.add_sample(sample, {**labels, "worker": worker}, value)
        for *reading, values in numbers["readings"]:
            found = highest.setdefault(tuple(reading), {})
            found |= {value: max(number, found.get(value, number)) for value, number in values.items()}
    registry: Any = CollectorRegistry()
    registry.register(_Collected(families.values))
    for reading, values in highest.items():
        registry.register(Reading(*reading, values))
    return bytes(generate_latest(registry))
