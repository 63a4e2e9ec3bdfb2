"""`make soak`: half of the peak load for an hour, calls and beats at once, and by how much the server's memory grows. Linux only."""

import sys
from collections.abc import Sequence
from math import inf
from pathlib import Path
from statistics import fmean, linear_regression, median
from tempfile import TemporaryDirectory
from time import monotonic
from typing import NamedTuple

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
BLOCKS = 20
STUDENT = 2.101
"""The slope is fitted to the means of so many blocks, whose deviations depend little on each other, as those of samples do; and how many
of its standard errors are 95 % of what it may be, by Student's distribution with BLOCKS - 2."""
LEAST_SECONDS = 600.0
"""What is judged lasts at least so long: of less, the blocks are not independent, and nothing is said."""
TOLERATED = 5.0
"""MB an hour; a server is restarted for an upgrade before that fills a machine."""


class Growth(NamedTuple):
    """By how many MB an hour memory grows, and how far off that may be with a probability of 95 %."""

    slope: float
    margin: float

    @property
    def verdict(self) -> str:
        """`flat` or `it grows` where all of the interval says so."""
        if self.slope + self.margin <= TOLERATED:
            return "flat"
        return "it grows" if self.slope - self.margin > TOLERATED else "undecided: run it for longer"


def growth_of(samples: Sequence[tuple[float, float]]) -> Growth:
    """The growth in samples of seconds and MB, without the first part."""
    judged = samples[len(samples) // WARM_UP :]
    if not judged or judged[-1][0] - judged[0][0] < LEAST_SECONDS:
        return Growth(0.0, inf)
    size = len(judged) / BLOCKS
    blocks = [judged[round(number * size) : round((number + 1) * size)] for number in range(BLOCKS)]
    times = [fmean(hour / 3600 for hour, _ in block) for block in blocks]
    means = [fmean(memory for _, memory in block) for block in blocks]
    slope, intercept = linear_regression(times, means)
    left = sum((mean - intercept - slope * time) ** 2 for time, mean in zip(times, means, strict=True))
    spread = sum((time - fmean(times)) ** 2 for time in times)
    return Growth(slope, STUDENT * (left / (BLOCKS - 2) / spread) ** 0.5)


def main(*, minutes: float = 60.0) -> None:
    """Load a campus at half of what it takes, sample its memory, and end with exit code 1 unless it is flat; 2 if that is undecided."""
    with TemporaryDirectory(prefix="campus-soak-") as folder:
        fill(Path(folder), MONITORS)
        with campus(Path(folder), CONFIG + CVE) as (server, _), on_cpu(LAST):
            verdict = anyio.run(soak, server, 60 * minutes, backend_options={"use_uvloop": True}).verdict
    sys.exit({"flat": 0, "it grows": 1}.get(verdict, 2))


async def soak(server: Server, seconds: float) -> Growth:
    """The growth of memory, which is printed with the rates."""
    calls = Target(server, ask(server, [get("/v1/brief/teaser", port=server.port)]))
    targets = (calls, beats(server, MONITORS))
    peaks = await loaded(targets, seconds=PEAK_SECONDS, rates=(None, None))
    halves = [one.rate / 2 for one in peaks]
    samples: list[tuple[float, float]] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sample, server, samples)
        taken = await loaded(targets, seconds=seconds, rates=halves)
        tasks.cancel_scope.cancel()
    grown = growth_of(samples)
    print(
        f"{seconds / 60:g} minutes: {taken[0].answered:,} calls ({halves[0]:,.0f}/s) and {taken[1].answered:,} beats ({halves[1]:,.0f}/s)"
        f" answered, none wrong; memory {median(memory for _, memory in samples):.0f} MB, after the first quarter"
        f" {grown.slope:+.1f} ± {grown.margin:.1f} MB an hour, of which {TOLERATED:g} are tolerated: {grown.verdict}"
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
