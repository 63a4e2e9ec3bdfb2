"""`make soak`: half of the peak load for an hour, calls and beats at once, and whether the server's memory stays flat. Linux only."""

import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import linear_regression, median
from tempfile import TemporaryDirectory
from time import monotonic

import anyio
import cyclopts

from benchmarks.beats import beats
from benchmarks.figures import Measured
from benchmarks.load import Target, ask, measure
from benchmarks.monitors import CONFIG, MONITORS, fill
from benchmarks.processes import LAST, Server, campus, on_cpu
from benchmarks.wire import get

CVE = "[buildings.cve]\nsample = true\n"
PEAK_SECONDS = 10.0
SAMPLE_SECONDS = 2.0
WARM_UP = 4
"""The first of so many parts of the run is not judged: caches fill."""
FLAT = 0.03
"""Memory is flat if its slope over the run, from which the first part is left out, is at most this share of its median."""


def main(*, minutes: float = 60.0) -> None:
    """Load a campus at half of what it takes, sample its memory, and end with exit code 1 if it grew."""
    with TemporaryDirectory(prefix="campus-soak-") as folder:
        fill(Path(folder), MONITORS)
        with campus(Path(folder), CONFIG + CVE) as (server, _), on_cpu(LAST):
            grown = anyio.run(soak, server, 60 * minutes, backend_options={"use_uvloop": True})
    sys.exit(grown > FLAT)


async def soak(server: Server, seconds: float) -> float:
    """The growth of memory over the run, as a share of its median, which is printed with the rates."""
    calls = Target(server, ask(server, [get("/v1/brief/teaser", port=server.port)]))
    targets = (calls, beats(server, MONITORS))
    peaks = await loaded(targets, seconds=PEAK_SECONDS, rates=(None, None))
    halves = [one.rate / 2 for one in peaks]
    samples: list[tuple[float, float]] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sample, server, samples)
        taken = await loaded(targets, seconds=seconds, rates=halves)
        tasks.cancel_scope.cancel()
    judged = samples[len(samples) // WARM_UP :]
    middle = median(memory for _, memory in judged)
    slope = linear_regression(*zip(*judged, strict=True)).slope
    grown = slope * (judged[-1][0] - judged[0][0]) / middle
    print(
        f"{seconds / 60:g} minutes: {taken[0].answered:,} calls ({halves[0]:,.0f}/s) and {taken[1].answered:,} beats ({halves[1]:,.0f}/s)"
        f" answered, none wrong; memory {middle:.0f} MB, slope {slope * 3600:+.1f} MB an hour, {grown:+.1%} over the run:"
        f" {'flat' if grown <= FLAT else 'it grows'}"
    )
    return grown


async def loaded(targets: Sequence[Target], *, seconds: float, rates: Sequence[float | None]) -> Sequence[Measured]:
    """Load a server with all targets at once; each has its own rate."""
    found: dict[int, Measured] = {}

    async def load(number: int, target: Target, rate: float | None) -> None:
        found[number] = await measure(target, seconds=seconds, rate=rate)

    async with anyio.create_task_group() as tasks:
        for number, (target, rate) in enumerate(zip(targets, rates, strict=True)):
            tasks.start_soon(load, number, target, rate)
    return [found[number] for number in range(len(targets))]


async def sample(server: Server, samples: list[tuple[float, float]]) -> None:
    """Note the time and the server's memory in MB, again and again."""
    while True:
        samples.append((monotonic(), server.memory()))
        await anyio.sleep(SAMPLE_SECONDS)


if __name__ == "__main__":
    cyclopts.run(main)
