"""Deaths among a million monitors: how soon they are found while beats come in, how many a second, and what the monitors take of memory."""

import random
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import anyio

from benchmarks.beats import beats
from benchmarks.figures import Line, Measured, line_of_costs, line_of_speeds
from benchmarks.load import Target, measure
from benchmarks.monitors import CONFIG, Book, fill, opened
from benchmarks.processes import LAST, Server, campus, on_cpu, running
from tests.recorder.receivers import make_authority

MANY, FEW = 1_000_000, 1_000
STORM = 50_000
STORMS = 5
BEATS_A_SECOND = 3_000
GOAL_SECONDS = 2.0
GOAL_FLIPS = 20_000
AHEAD = timedelta(seconds=3)
"""Between the moment that a storm is made and its deadline."""
AWAKE_SECONDS = 3.0
LATEST_SECONDS = 60.0
PATIENCE = 0.01


@dataclass(frozen=True)
class Storm:
    """How many were found dead, and when, in seconds since their common deadline; a reading is late by as long as it takes."""

    readings: Sequence[tuple[float, int]]

    def seconds_to(self, share: float) -> float:
        """Until this share of all was found."""
        wanted = share * self.readings[-1][1]
        return next(at for at, found in self.readings if found >= wanted)

    @property
    def speed(self) -> float:
        """Deaths a second, from the first to the last."""
        begun = next(position for position, (_, found) in enumerate(self.readings) if found)
        (first, some), (last, all_of_them) = self.readings[begun], self.readings[-1]
        return (all_of_them - some) / (last - first)


def death_lines(folder: Path) -> Iterator[Line]:
    """Storms under beats, storms alone, and the memory of a process that serves a few monitors and a million."""
    folder.mkdir()
    few, _, _ = in_storms(folder / "few", FEW, storms=0)
    memory, under_beats, alone = in_storms(folder / "many", MANY, storms=STORMS)
    what = f"a storm of {STORM:,} among {MANY:,} monitors, {BEATS_A_SECOND:,} beats/s: detected"
    for name, share, goal in (("p50", 0.5, None), ("p99", 0.99, GOAL_SECONDS), ("max", 1.0, None)):
        yield line_of_costs(f"{what}, {name}", unit="s", costs=[storm.seconds_to(share) for storm in under_beats], goal=goal)
    yield line_of_speeds("deaths found, without beats", unit="flips/s", speeds=[storm.speed for storm in alone], goal=GOAL_FLIPS)
    yield line_of_costs("memory per 100,000 monitors", unit="MB", costs=[(memory - few) * 100_000 / (MANY - FEW)])


def in_storms(folder: Path, count: int, *, storms: int) -> tuple[float, list[Storm], list[Storm]]:
    """Memory under beats in MB, and the storms under beats and without."""
    folder.mkdir()
    authority = make_authority(folder)
    with ExitStack() as stack, on_cpu(LAST):
        _, port = stack.enter_context(running("hook", str(authority.file), cpu=LAST))
        fill(folder, count, hook=f"https://localhost:{port}/")
        server, _ = stack.enter_context(campus(folder, CONFIG, environ={"SSL_CERT_FILE": str(authority.file)}))
        book = stack.enter_context(opened(folder))
        work = partial(_measured, server, book, count, storms=storms)
        return anyio.run(work, backend_options={"use_uvloop": True})


async def _measured(server: Server, book: Book, count: int, *, storms: int) -> tuple[float, list[Storm], list[Storm]]:
    at_storms = count // 2  # the first half beats, the second dies
    living = beats(server, count - at_storms, step=max(1, count // 50_000))
    firsts = range(at_storms, count, STORM)
    under_beats, alone = [], []
    await measure(living, seconds=AWAKE_SECONDS, rate=BEATS_A_SECOND)
    memory = server.memory()
    for first in firsts[:storms]:
        under_beats.append(await _beaten(living, book, first))
    for first in firsts[storms : 2 * storms]:
        alone.append(await anyio.to_thread.run_sync(weather, book, first))
    return memory, under_beats, alone


async def _beaten(living: Target, book: Book, first: int) -> Storm:
    """A storm under beats, which begin before it and end after it."""
    storms: list[Storm] = []

    async def blow() -> None:
        storms.append(await anyio.to_thread.run_sync(weather, book, first))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(blow)
        loads = [await measure(living, seconds=5.0, rate=BEATS_A_SECOND)]
        while not storms:
            loads.append(await measure(living, seconds=1.0, rate=BEATS_A_SECOND))
    _tell(loads)
    return storms[0]


def _tell(loads: Sequence[Measured]) -> None:
    slowest = min(load.rate for load in loads)
    print(f"a storm passed; at its worst {slowest:,.0f} beats/s were taken", file=sys.stderr)


def weather(book: Book, first: int) -> Storm:
    """Let a storm rise at a moment that no clock knows, and look on until the last of it is found."""
    deadline = datetime.now(UTC) + AHEAD + timedelta(seconds=random.random())
    book.arm(first, STORM, deadline=deadline)
    while (passed := _since(deadline)) < 0:
        time.sleep(min(-passed, PATIENCE))
    readings: list[tuple[float, int]] = []
    while not readings or readings[-1][1] < STORM:
        found = STORM - book.due(deadline)
        readings.append((_since(deadline), found))
        if readings[-1][0] > LATEST_SECONDS:
            raise RuntimeError(f"after {LATEST_SECONDS:g} s only {found:,} of {STORM:,} were found dead")
        time.sleep(PATIENCE)
    return Storm(readings)


def _since(deadline: datetime) -> float:
    return (datetime.now(UTC) - deadline).total_seconds()
