"""A recorder's database on disk, filled by a statement: as many monitors as asked, 20 to a target, each with a whole history."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio

from buildings.recorder.beat import BEATS_IN_HISTORY, ENTRY, EPOCH, MICROSECOND
from buildings.recorder.secrets import digest_of
from buildings.recorder.tables import Tables
from campus.storage import Databases

MONITORS = 5_000
"""Beats go round them: of each 120 a minute are taken, so that this is enough for 10,000 a second."""
PER_TARGET = 20
SECRET = "s" * 32
PERIOD, GRACE = timedelta(hours=1), timedelta(minutes=5)
AT_ONCE = 5_000
CONFIG = """
openapi = "recorder"

[storage]
url = "sqlite:data"

[web]
allowed_hosts = ["localhost"]

[buildings.recorder]
shared_hosts = ["localhost"]
"""
NUMBERS = "WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < :count)"
TARGETS = f"""
{NUMBERS} INSERT INTO target (id, kind, address, identity, secret, verified_at, attempts, host, sender)
SELECT 'tgt_' || n, 'webhook', :hook || n, CAST('identity ' || n AS BLOB), randomblob(32), :now, 0, 'localhost', 'net:' || n FROM numbers
"""
FILL = f"""
{NUMBERS} INSERT INTO monitor (id, secret_digest, badge_id, name, period, grace, registered_at, mode, since, alive_at,
    expected_at, deadline_at, epoch, failures, down, still, unverified, last_beat_at, beats, history, minute, minute_beats, capsules, fence)
SELECT printf('mon_%016d', n), :digest, 'badge_' || n, 'agent ' || n, :period, :grace, :now, 'up', :now, :now,
    :now + :period, :now + :period + :grace + n, 0, 0, 0, 0, 0, :now, 20, zeroblob({ENTRY.size * BEATS_IN_HISTORY}), 0, 0, 0, 0 FROM numbers
"""
LINKS = f"""
{NUMBERS} INSERT INTO monitor_target (monitor_id, target_id, place)
SELECT printf('mon_%016d', n), 'tgt_' || (n / {PER_TARGET}), 0 FROM numbers
"""
DUE = "SELECT count(*) FROM monitor WHERE mode = 'up' AND deadline_at <= ?"
ARM = "UPDATE monitor SET deadline_at = ? WHERE id BETWEEN ? AND ?"


def monitor_id(number: int) -> str:
    """The id of one of them."""
    return f"mon_{number:016}"


def beat_path(number: int) -> str:
    """Where one of them is beaten for."""
    return f"/v1/recorder/beat/{monitor_id(number)}/{SECRET}"


@dataclass(frozen=True)
class Book:
    """The recorder's database, read and changed beside the process that serves it."""

    connection: sqlite3.Connection

    def arm(self, first: int, count: int, *, deadline: datetime) -> None:
        """Let monitors fall due at a moment, in transactions that a beat can wait for."""
        for number in range(first, first + count, AT_ONCE):
            last = min(number + AT_ONCE, first + count) - 1
            self.connection.execute(ARM, (microseconds(deadline), monitor_id(number), monitor_id(last)))

    def due(self, deadline: datetime) -> int:
        """How many have a deadline that is no later, and are not yet dead."""
        return int(self.connection.execute(DUE, (microseconds(deadline),)).fetchone()[0])


@contextmanager
def opened(folder: Path) -> Iterator[Book]:
    """The database that was filled below a folder; a book is for one thread at a time."""
    with closing(sqlite3.connect(_file(folder), isolation_level=None, timeout=30, check_same_thread=False)) as connection:
        yield Book(connection)


def fill(folder: Path, count: int, *, hook: str = "https://localhost:1/") -> None:
    """Make the database below a folder as the recorder makes it, then its rows. `hook` is where the targets' addresses begin."""
    anyio.run(_make, folder)
    now = microseconds(datetime.now(UTC))
    terms = {"period": PERIOD // MICROSECOND, "grace": GRACE // MICROSECOND}
    with closing(sqlite3.connect(_file(folder), isolation_level=None)) as connection:
        for pragma in ("synchronous = OFF", "cache_size = -1000000"):
            connection.execute(f"PRAGMA {pragma}")
        connection.execute("BEGIN")
        connection.execute(TARGETS, {"count": -(-count // PER_TARGET), "hook": hook, "now": now})
        connection.execute(FILL, {"count": count, "now": now, "digest": digest_of(SECRET), **terms})
        connection.execute(LINKS, {"count": count})
        connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


async def _make(folder: Path) -> None:
    async with Databases.open("sqlite:data", folder=folder) as databases:
        await databases.storage_of("recorder", Tables)


def _file(folder: Path) -> Path:
    return folder / "data" / "recorder.db"


def microseconds(at: datetime) -> int:
    """As the recorder stores a moment."""
    return (at - EPOCH) // MICROSECOND
