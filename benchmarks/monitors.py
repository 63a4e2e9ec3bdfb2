"""The recorder's SQLite database, filled with as many monitors as asked, 20 to a target, each with a full history of beats."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio

from buildings.recorder.beats.rules import BEATS_IN_HISTORY, ENTRY
from buildings.recorder.tables import Tables
from campus.secrets import digest_of
from campus.storage import EPOCH, MICROSECOND
from campus.storage.databases import Databases
from campus.storage.tables import CoreTables

MONITORS = 5_000
"""Beats go round them: each accepts 120 a minute, so that these are enough for 10,000 a second."""
PER_TARGET = 20
SECRET = "s" * 32
PERIOD, GRACE = timedelta(hours=1), timedelta(minutes=5)
ROWS_PER_TRANSACTION = 5_000
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
SELECT 'tgt_' || n, 'webhook', :receiver_url || n, CAST('identity ' || n AS BLOB), randomblob(32), :now, 0, 'localhost', 'net:' || n
    FROM numbers
"""
FILL = f"""
{NUMBERS} INSERT INTO monitor (id, secret_digest, badge_id, name, period, grace, registered_at, mode, since, alive_at,
    expected_at, deadline_at, due_at, epoch, failures, down, still, unverified, first_beat_at, last_beat_at, beats, history, minute,
    minute_beats, capsules, fence, plain, ping_digest, tags, runs, unchanged, followed_up)
SELECT printf('mon_%016d', n), :digest, 'badge_' || n, 'agent ' || n, :period, :grace, :now, 'up', :now, :now,
    :now + :period, :now + :period + :grace + n, :now + :period + :grace + n, 0, 0, 0, 0, 0, :now, :now, 20,
    zeroblob({ENTRY.size * BEATS_IN_HISTORY}), 0, 0, 0, 0, 1, CAST('ping ' || n AS BLOB), '', 0, 0, 0
    FROM numbers
"""
LINKS = f"""
{NUMBERS} INSERT INTO monitor_target (monitor_id, target_id, place)
SELECT printf('mon_%016d', n), 'tgt_' || (n / :per_target), 0 FROM numbers
"""
N = "CAST(substr(id, 5) AS INTEGER)"
ONE_IN = 200
WITH_CALENDARS = (
    f"'schedule', printf('%d * * * *', {N} / {ONE_IN} % 60), 'timezone', 'Europe/Berlin'",
    f"'schedule', printf('Mon..Fri *:%02d', {N} / {ONE_IN} % 60), 'timezone', 'America/New_York'",
    f"'hours', printf('Mon..Fri 0%d:00-18:00', {N} / {ONE_IN} % 10), 'timezone', 'Asia/Tokyo'",
    f"'due_at', printf('2099-01-01T00:%02d:00Z', {N} / {ONE_IN} % 60)",
)
MIX = (
    *(
        f"UPDATE monitor SET options = CAST(json_object({options}) AS BLOB), plain = 0 WHERE {N} % {ONE_IN} = {place}"
        for place, options in enumerate(WITH_CALENDARS)
    ),
    f"UPDATE monitor SET options = CAST('{{\"remind_minutes\":60.0}}' AS BLOB), followed_up = 1 WHERE {N} % {ONE_IN} = 4",
    f"UPDATE monitor_target SET after = 600000000, told = 0 WHERE CAST(substr(monitor_id, 5) AS INTEGER) % {2 * ONE_IN} = 4",
    f"UPDATE monitor SET run_since = alive_at, runs = 1 WHERE {N} % {ONE_IN} = 5",
    "INSERT INTO run (monitor_id, slot, number, started_at, limit_at)"
    " SELECT id, 0, 0, run_since, deadline_at FROM monitor WHERE run_since IS NOT NULL",
)
"""Gives 3% of monitors what one statement does not evaluate: cron, OnCalendar, hours, a one-off deadline, reminders, half of them with an
escalation, and an open run. All are due as before."""
DUE = "SELECT count(*) FROM monitor WHERE mode = 'up' AND deadline_at <= ?"
SET_DEADLINES = "UPDATE monitor SET deadline_at = ?1, due_at = ?1 WHERE id BETWEEN ?2 AND ?3"


def monitor_id(number: int) -> str:
    """The id of monitor `number`."""
    return f"mon_{number:016}"


def beat_path(number: int) -> str:
    """The path of the beats of monitor `number`."""
    return f"/v1/recorder/beat/{monitor_id(number)}/{SECRET}"


@dataclass(frozen=True)
class MonitorDatabase:
    """The recorder's database, read and changed while a campus serves it. For one thread at a time."""

    connection: sqlite3.Connection

    def set_deadlines(self, first: int, count: int, *, deadline: datetime) -> None:
        """Set the deadline of `count` monitors, in transactions short enough for a beat to wait for."""
        for number in range(first, first + count, ROWS_PER_TRANSACTION):
            last = min(number + ROWS_PER_TRANSACTION, first + count) - 1
            self.connection.execute(SET_DEADLINES, (microseconds(deadline), monitor_id(number), monitor_id(last)))

    def waiting(self) -> int:
        """How many alerts are not delivered."""
        return int(self.connection.execute("SELECT count(*) FROM alert").fetchone()[0])

    def due(self, deadline: datetime) -> int:
        """How many monitors with a deadline up to `deadline` are still up."""
        return int(self.connection.execute(DUE, (microseconds(deadline),)).fetchone()[0])


@contextmanager
def opened(folder: Path) -> Iterator[MonitorDatabase]:
    """Open the database that `fill` made below a folder."""
    with closing(sqlite3.connect(database_file(folder), isolation_level=None, timeout=30, check_same_thread=False)) as connection:
        yield MonitorDatabase(connection)


def fill(
    folder: Path, count: int, *, receiver_url: str = "https://localhost:1/", per_target: int = PER_TARGET, mixed: bool = False
) -> None:
    """Make the recorder's database below a folder and fill it. The targets' webhook URLs begin with `receiver_url`. `mixed`: see MIX."""
    anyio.run(_make, folder)
    now = microseconds(datetime.now(UTC))
    terms = {"period": PERIOD // MICROSECOND, "grace": GRACE // MICROSECOND}
    with closing(sqlite3.connect(database_file(folder), isolation_level=None)) as connection:
        for pragma in ("synchronous = OFF", "cache_size = -1000000"):
            connection.execute(f"PRAGMA {pragma}")
        connection.execute("BEGIN")
        connection.execute(TARGETS, {"count": -(-count // per_target), "receiver_url": receiver_url, "now": now})
        connection.execute(FILL, {"count": count, "now": now, "digest": digest_of(SECRET), **terms})
        connection.execute(LINKS, {"count": count, "per_target": per_target})
        for statement in MIX if mixed else ():
            connection.execute(statement)
        connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


async def _make(folder: Path) -> None:
    async with Databases.open("sqlite:data", folder=folder) as databases:
        await databases.storage_of("campus", CoreTables)  # a recorder's data without it would be taken for a lost database
        await databases.storage_of("recorder", Tables)


def database_file(folder: Path) -> Path:
    """The recorder's database below a folder."""
    return folder / "data" / "recorder.db"


def microseconds(at: datetime) -> int:
    """A time as the recorder stores it."""
    return (at - EPOCH) // MICROSECOND
