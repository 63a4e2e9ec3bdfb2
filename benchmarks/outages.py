"""Outages among a million monitors of mixed schedules: how soon they are detected beside beats, and the memory of a monitor."""

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

import anyio

from benchmarks.beats import beats
from benchmarks.figures import Line, line_of_costs, line_of_speeds
from benchmarks.load import Target, measure
from benchmarks.monitors import CONFIG, MonitorDatabase, fill, opened
from benchmarks.processes import LAST, Server, campus, on_cpu, running
from tests.recorder.receivers import make_authority

MANY, FEW = 1_000_000, 1_000
OUTAGE_SIZE = 50_000
OUTAGES = 5
BEATS_PER_SECOND = 3_000
CONNECTIONS = 512
"""Each waits for its answer before it sends the next beat: over few, an answer that is late by 20 ms would already lower the rate."""
ACCURACY = 0.98
"""The share of the wanted rate that the load generator's own timers reach."""
GOAL_SECONDS = 1.0
GOAL_PER_SECOND = 20_000
LEAD_TIME = timedelta(seconds=3)
"""From setting the deadlines of an outage to the deadline itself."""
WARM_UP_SECONDS = 3.0
GIVE_UP_SECONDS = 60.0
POLL_SECONDS = 0.01


@dataclass(frozen=True)
class Outage:
    """How many monitors were found down, and when, in seconds since their common deadline; a reading is late by its own duration.

    `beats_per_second` is how many beats were accepted meanwhile, in its slowest second or, at its beginning, five seconds.
    """

    readings: Sequence[tuple[float, int]]
    beats_per_second: float = 0.0

    def seconds_to(self, share: float) -> float:
        """Seconds until this share of all monitors was found down."""
        wanted = share * self.readings[-1][1]
        return next(at for at, found in self.readings if found >= wanted)

    @property
    def speed(self) -> float:
        """Monitors found down per second, from the first to the last."""
        begun = next(position for position, (_, found) in enumerate(self.readings) if found)
        (first, some), (last, all_of_them) = self.readings[begun], self.readings[-1]
        return (all_of_them - some) / (last - first)


class Outages(NamedTuple):
    """Memory under beats in MB, and the outages with and without beats."""

    memory: float
    under_beats: Sequence[Outage]
    alone: Sequence[Outage]


def outage_lines(folder: Path) -> Iterator[Line]:
    """Outages under beats, outages without beats, and memory per monitor."""
    folder.mkdir()
    few = measure_outages(folder / "few", FEW, outages=0)
    many = measure_outages(folder / "many", MANY, outages=OUTAGES)
    taken = [outage.beats_per_second for outage in many.under_beats]
    yield line_of_speeds("beats taken during an outage", unit="beats/s", speeds=taken, goal=BEATS_PER_SECOND * ACCURACY)
    what = f"an outage of {OUTAGE_SIZE:,} among {MANY:,} monitors, {median(taken):,.0f} beats/s taken: detected"
    for name, share, goal in (("p50", 0.5, None), ("p99", 0.99, GOAL_SECONDS), ("max", 1.0, None)):
        yield line_of_costs(f"{what}, {name}", unit="s", costs=[outage.seconds_to(share) for outage in many.under_beats], goal=goal)
    yield line_of_speeds(
        "monitors found down, without beats", unit="monitors/s", speeds=[outage.speed for outage in many.alone], goal=GOAL_PER_SECOND
    )
    yield line_of_costs("memory per 100,000 monitors", unit="MB", costs=[(many.memory - few.memory) * 100_000 / (MANY - FEW)])


def measure_outages(folder: Path, count: int, *, outages: int) -> Outages:
    """Cause so many outages under beats, and as many without."""
    folder.mkdir()
    authority = make_authority(folder)
    with ExitStack() as stack, on_cpu(LAST):
        _, port = stack.enter_context(running("webhook_receiver", str(authority.file), cpu=LAST))
        fill(folder, count, receiver_url=f"https://localhost:{port}/", mixed=True)
        server, _ = stack.enter_context(campus(folder, CONFIG, environ={"SSL_CERT_FILE": str(authority.file)}))
        database = stack.enter_context(opened(folder))
        work = partial(_measured, server, database, count, outages=outages)
        return anyio.run(work, backend_options={"use_uvloop": True})


async def _measured(server: Server, database: MonitorDatabase, count: int, *, outages: int) -> Outages:
    first_lost = count // 2  # the first half keeps beating, the second goes down
    living = replace(beats(server, count - first_lost, step=max(1, count // 50_000)), connections=CONNECTIONS)
    firsts = range(first_lost, count, OUTAGE_SIZE)
    under_beats = []
    alone = []
    await measure(living, seconds=WARM_UP_SECONDS, rate=BEATS_PER_SECOND)
    memory = server.memory()
    for first in firsts[:outages]:
        under_beats.append(await _outage_under_beats(living, database, first))
    for first in firsts[outages : 2 * outages]:
        alone.append(await anyio.to_thread.run_sync(cause_outage, database, first))
    return Outages(memory, under_beats, alone)


async def _outage_under_beats(living: Target, database: MonitorDatabase, first: int) -> Outage:
    """An outage under beats, which begin before it and end after it."""
    outages: list[Outage] = []

    async def cause() -> None:
        outages.append(await anyio.to_thread.run_sync(cause_outage, database, first))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(cause)
        loads = [await measure(living, seconds=5.0, rate=BEATS_PER_SECOND)]
        while not outages:
            loads.append(await measure(living, seconds=1.0, rate=BEATS_PER_SECOND))
    return replace(outages[0], beats_per_second=min(load.rate for load in loads))


def cause_outage(database: MonitorDatabase, first: int, *, size: int = OUTAGE_SIZE) -> Outage:
    """Give monitors one deadline at a random fraction of a second, and count until the last is found down."""
    deadline = datetime.now(UTC) + LEAD_TIME + timedelta(seconds=random.random())
    database.set_deadlines(first, size, deadline=deadline)
    while (passed := _since(deadline)) < 0:
        time.sleep(min(-passed, POLL_SECONDS))
    readings: list[tuple[float, int]] = []
    while not readings or readings[-1][1] < size:
        found = size - database.due(deadline)
        readings.append((_since(deadline), found))
        if readings[-1][0] > GIVE_UP_SECONDS:
            raise RuntimeError(f"after {GIVE_UP_SECONDS:g} s only {found:,} of {size:,} were found down")
        time.sleep(POLL_SECONDS)
    return Outage(readings)


def _since(deadline: datetime) -> float:
    return (datetime.now(UTC) - deadline).total_seconds()
