"""Plain beats, as nearly all are: entered by the database alone, those of a group in one statement.

A beat is plain when it says ok and brings nothing, and its monitor is up, times no run, and has not beaten too often: then
nothing happens but what state_machine.TRANSITIONS says of `up` and `ok`, the deadline moves. Whatever the statement leaves over is
looked at one by one, in Python, and comes to the same for a beat that could have been entered here.
"""

from collections.abc import Sequence
from functools import cache
from itertools import chain
from typing import Any

from sqlalchemy import Connection

from buildings.recorder.beat import OLDER_BYTES, Beat, entry_of
from buildings.recorder.moments import EPOCH, MICROSECOND
from buildings.recorder.sql import is_postgres

PLAIN = frozenset(("ok", 0))
BEATS_PER_STATEMENT = 64
"""Beats per statement: on SQLite each number of them is a text of its own, which stays prepared."""
MICROSECONDS_A_MINUTE = 60_000_000
COLUMNS = {"id": "text", "digest": "bytea", "at": "bigint", "next_in": "bigint", "entry": "bytea", "minute": "integer"}
ENTER = """
WITH beat (id, digest, at, next_in, entry, minute) AS ({beats})
UPDATE monitor SET
    alive_at = beat.at,
    expected_at = beat.at + coalesce(beat.next_in, period),
    deadline_at = beat.at + coalesce(beat.next_in, period) + grace,
    failures = 0,
    unverified = false,
    last_beat_at = beat.at,
    beats = beats + 1,
    history = {history},
    minute = beat.minute,
    minute_beats = CASE WHEN monitor.minute = beat.minute THEN minute_beats + 1 ELSE 1 END
FROM beat
WHERE monitor.id = beat.id{named} AND secret_digest = beat.digest AND mode = 'up' AND run_since IS NULL
    AND (monitor.minute <> beat.minute OR minute_beats < {most})
RETURNING monitor.id, monitor.deadline_at
"""

Row = tuple[str, bytes, int, int | None, bytes, int]


def record_plain_beats(connection: Connection, beats: Sequence[Beat], *, most: int) -> dict[str, int]:
    """Enter what is plain, `most` beats per monitor and minute; gives the new deadline of each monitor that was beaten for.

    A monitor's later beats are left over, so that they come after its first.
    """
    first = {beat.monitor_id: beat for beat in reversed(beats)}
    rows = [_row(beat) for beat in first.values() if beat.status in PLAIN and beat.capsule is None]
    groups = [rows[start : start + BEATS_PER_STATEMENT] for start in range(0, len(rows), BEATS_PER_STATEMENT)]
    return {name: deadline for group in groups for name, deadline in _entered(connection, group, most=most)}


def _row(beat: Beat) -> Row:
    at = (beat.at - EPOCH) // MICROSECOND
    next_in = None if beat.next_in is None else beat.next_in // MICROSECOND
    return beat.monitor_id, beat.secret_digest, at, next_in, entry_of(at, beat.status), at // MICROSECONDS_A_MINUTE


def _entered(connection: Connection, rows: Sequence[Row], *, most: int) -> Sequence[Any]:
    if is_postgres(connection):
        return connection.exec_driver_sql(_in_postgres(most), tuple(map(list, zip(*rows, strict=True)))).fetchall()
    cursor = connection.connection.cursor()  # the driver's own: SQLAlchemy's around it is a tenth of the time
    cursor.execute(_in_sqlite(most, len(rows)), tuple(chain.from_iterable(rows)))
    return cursor.fetchall()


@cache
def _in_postgres(most: int) -> str:
    columns = ", ".join(f"${place}::{kind}[]" for place, kind in enumerate(COLUMNS.values(), start=1))
    history = f"substr(history, greatest(length(history) - {OLDER_BYTES - 1}, 1)) || beat.entry"
    named = " AND monitor.id = ANY($1::text[])"  # else the planner looks through all that are up, in a table it knows nothing of
    return ENTER.format(beats=f"SELECT * FROM unnest({columns})", history=history, named=named, most=most)  # noqa: S608  # our own texts


@cache
def _in_sqlite(most: int, count: int) -> str:
    row = f"({', '.join('?' * len(COLUMNS))})"
    history = f"CAST(coalesce(substr(history, -{OLDER_BYTES}), '') || beat.entry AS BLOB)"  # of no bytes it makes NULL
    return ENTER.format(beats=f"VALUES {', '.join([row] * count)}", history=history, named="", most=most)
