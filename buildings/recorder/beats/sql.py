"""Stores all waiting beats in one transaction; for plain beats one statement repeats the deadline rule of the state machine.

A beat is plain if its status is ok, it has no capsule and names no run, its monitor is up, no run is open, it is not the first beat
and the rate limit is not reached. Nearly all are. Then only times and counters change, as state_machine.apply_event does for `up` and `ok`:
RECORD_BEATS does that for many monitors at once, and changes no row that is not up. Every other beat is loaded, applied in
Python by beats.apply_beat, and stored. For a plain beat both ways store the same row: tests/recorder/test_bulk_beats.py
compares them.

On PostgreSQL plain beats of several processes are recorded at once: RECORD_BEATS decides by each row as it finds it. A beat
rarely changes an indexed column, `due_at`: without that PostgreSQL writes one page per beat instead of six.

The SQL is literal and its values are integers, because every beat pays for each microsecond spent here. On SQLite this runs
in a thread and uses nothing but its arguments.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache
from itertools import chain
from operator import attrgetter
from typing import Any

from sqlalchemy import Connection, select

from buildings.recorder.alerts.raising import raise_alerts
from buildings.recorder.beats.beat import Beat, BeatOutcome
from buildings.recorder.beats.rules import (
    BEATS_IN_HISTORY,
    BEATS_PER_MINUTE,
    NULL,
    OLDER_BYTES,
    LoadedMonitor,
    apply_beat,
    entry_of,
    may_be_plain,
    page_slot,
    repeats_seq,
)
from buildings.recorder.beats.runs import RunRow, Runs
from buildings.recorder.beats.sessions import read_session
from buildings.recorder.monitors.options import read_options
from buildings.recorder.monitors.state_machine import MonitorState, due_at
from buildings.recorder.problems import TAKEN_OVER, fixed_problem
from buildings.recorder.tables import RETIRED_SECRETS
from campus.storage import EPOCH, MICROSECOND, among, is_postgres

BEATS_PER_STATEMENT = 64
"""On SQLite the SQL text depends on the number of beats; each text stays prepared. On PostgreSQL one statement takes all."""
MICROSECONDS_A_MINUTE = 60_000_000
BEAT_COLUMNS = {"id": "text", "digest": "bytea", "at": "bigint", "next_in": "bigint", "entry": "bytea", "minute": "integer"}
RECORD_BEATS = """
WITH beat (id, digest, at, next_in, entry, minute) AS ({beats})
UPDATE monitor SET
    alive_at = beat.at,
    expected_at = beat.at + coalesce(beat.next_in, period),
    deadline_at = beat.at + coalesce(beat.next_in, period) + grace,
    due_at = CASE
        WHEN due_at BETWEEN beat.at + coalesce(beat.next_in, period) / 2 AND beat.at + coalesce(beat.next_in, period) + grace THEN due_at
        ELSE beat.at + coalesce(beat.next_in, period) + grace
    END,
    failures = 0,
    unverified = false,
    last_beat_at = beat.at,
    beats = beats + 1,
    history = {history},
    minute = beat.minute,
    minute_beats = CASE WHEN monitor.minute = beat.minute THEN minute_beats + 1 ELSE 1 END
FROM beat
WHERE monitor.id = beat.id{named} AND secret_digest = beat.digest AND plain AND mode = 'up' AND held IS NULL
    AND run_since IS NULL AND first_beat_at IS NOT NULL
    AND (monitor.minute <> beat.minute OR minute_beats < {limit})
RETURNING monitor.id, monitor.deadline_at, monitor.fence, monitor.beats, CASE WHEN beats % {of_page} = 0 THEN history END
"""

BeatRow = tuple[str, bytes, int, int | None, bytes, int]


def record_beats(connection: Connection, beats: Sequence[Beat]) -> list[BeatOutcome | Exception]:
    """Record beats, those of one monitor in their order of arrival; returns what each did, or the problem it is refused with."""
    results: list[BeatOutcome | Exception | None] = [*record_by_row(connection, beats)]
    if others := [index for index, result in enumerate(results) if result is None]:
        for index, result in zip(others, record_one_by_one(connection, [beats[index] for index in others]), strict=True):
            results[index] = result
    return [result for result in results if result is not None]


def record_by_row(connection: Connection, beats: Sequence[Beat]) -> list[BeatOutcome | None]:
    """Record the plain ones among beats, for a transaction beside others; None for a beat that is left."""
    plain = record_plain_beats(connection, beats, limit=BEATS_PER_MINUTE)
    # of several beats of one monitor only the first can have been recorded as plain
    return [_plain_outcome(plain.pop(beat.monitor_id, None)) for beat in beats]


def _plain_outcome(recorded: tuple[int, int] | None) -> BeatOutcome | None:
    if recorded is None:
        return None
    deadline, fence = recorded
    return BeatOutcome("alive", EPOCH + deadline * MICROSECOND, fence)


def record_one_by_one(connection: Connection, beats: Sequence[Beat]) -> list[BeatOutcome | Exception]:
    """Record beats of any kind: load their monitors, apply one beat after the other, store the monitors."""
    ids = {beat.monitor_id for beat in beats}
    monitors = load_monitors(connection, ids)
    for monitor, body in _bodies(
        connection, WITH_SEQ, monitors, [beat for beat in beats if repeats_seq(beat, monitors.get(beat.monitor_id))]
    ):
        monitor.last_capsule = body
    for monitor, body in _bodies(connection, NULLS, monitors, [beat for beat in beats if beat.capsule == NULL]):
        monitor.last_is_null = body == NULL
    for monitor, body in _bodies(connection, NEWEST, monitors, [beat for beat in beats if beat.replaces is not None]):
        monitor.newest = body
    _load_open_runs(connection, monitors, {beat.monitor_id for beat in beats if beat.rid is not None})
    results = [apply_beat(monitors.get(beat.monitor_id), beat) for beat in beats]
    unauthorized = [index for index, result in enumerate(results) if result is None]
    if unauthorized:
        _refuse(connection, beats, results, unauthorized)
    if changed := [monitor for monitor in monitors.values() if monitor.changed]:
        store_monitors(connection, changed)
        raise_alerts(connection, [notice for monitor in changed for notice in monitor.notices], now=beats[-1].at)
    return [result for result in results if result is not None]


def record_plain_beats(connection: Connection, beats: Sequence[Beat], *, limit: int) -> dict[str, tuple[int, int]]:
    """Record the plain beats, at most `limit` per monitor and minute; returns the new deadline and the fence of each changed monitor.

    Only the first beat of each monitor is looked at here; the others must come after it.
    """
    first = {beat.monitor_id: beat for beat in reversed(beats)}
    plain = [beat for beat in first.values() if may_be_plain(beat)]
    rows = [beat_row(beat) for beat in sorted(plain, key=attrgetter("monitor_id"))]  # in one order, so that processes rarely deadlock
    size = len(beats) if is_postgres(connection) else BEATS_PER_STATEMENT
    groups = [rows[start : start + size] for start in range(0, len(rows), size)]
    recorded = [row for group in groups for row in _record(connection, group, limit=limit)]
    if pages := [(name, page_slot(beats), history) for name, _, _, beats, history in recorded if history is not None]:
        _upsert(connection, *PAGE, pages)
    return {name: (deadline, fence) for name, deadline, fence, _, _ in recorded}


def beat_row(beat: Beat) -> BeatRow:
    at = (beat.at - EPOCH) // MICROSECOND
    next_in = None if beat.next_in is None else beat.next_in // MICROSECOND
    return beat.monitor_id, beat.secret_digest, at, next_in, entry_of(at, beat.status), at // MICROSECONDS_A_MINUTE


def _record(connection: Connection, rows: Sequence[BeatRow], *, limit: int) -> Sequence[Any]:
    if is_postgres(connection):
        return connection.exec_driver_sql(_in_postgres(limit), tuple(map(list, zip(*rows, strict=True)))).fetchall()
    cursor = connection.connection.cursor()  # the driver's own cursor: SQLAlchemy's adds a tenth of the time
    cursor.execute(_in_sqlite(limit, len(rows)), tuple(chain.from_iterable(rows)))
    return cursor.fetchall()


@cache
def _in_postgres(limit: int) -> str:
    columns = ", ".join(f"${place}::{kind}[]" for place, kind in enumerate(BEAT_COLUMNS.values(), start=1))
    history = f"substr(history, greatest(length(history) - {OLDER_BYTES - 1}, 1)) || beat.entry"
    named = " AND monitor.id = ANY($1::text[])"  # without it the planner scans all monitors that are up, until the table is analyzed
    beats = f"SELECT * FROM unnest({columns})"  # noqa: S608  # our own texts
    return RECORD_BEATS.format(beats=beats, history=history, named=named, limit=limit, of_page=BEATS_IN_HISTORY)


@cache
def _in_sqlite(limit: int, count: int) -> str:
    row = f"({', '.join('?' * len(BEAT_COLUMNS))})"
    history = f"CAST(coalesce(substr(history, -{OLDER_BYTES}), '') || beat.entry AS BLOB)"  # substr of no bytes is NULL
    return RECORD_BEATS.format(beats=f"VALUES {', '.join([row] * count)}", history=history, named="", limit=limit, of_page=BEATS_IN_HISTORY)


REGISTERED = ("id", "secret_digest", "owner", "period", "grace", "options")
STATE = MonitorState._fields
BEATEN = ("unverified", "last_beat_at", "beats", "history", "minute", "minute_beats", "capsules", "last_seq")
COUNTED = (*BEATEN, "runs", "progress", "unchanged", "session")
HELD = ("held", "held_since")
LOADED = (*REGISTERED, *STATE, *COUNTED, "fence", "followed_up", "muted_until", *HELD)
LOAD = (
    f"SELECT {', '.join(f'm.{name}' for name in LOADED)}, o.ends_at"  # noqa: S608  # names of columns
    " FROM monitor m LEFT JOIN owner o ON o.lineage = m.owner WHERE m.id "
)
IN_JSON = "IN (SELECT value FROM json_each(?))"  # does not depend on the ids, so it stays prepared
WITH_SEQ = "SELECT m.id, c.body FROM monitor m JOIN capsule c ON c.monitor_id = m.id AND c.seq = m.last_seq WHERE m.id "
NEWEST_CAPSULE = "SELECT m.id, c.body FROM monitor m JOIN capsule c ON c.monitor_id = m.id AND c.number = m.capsules - 1 WHERE "
NEWEST = f"{NEWEST_CAPSULE}m.id "
NULLS = f"{NEWEST_CAPSULE}length(c.body) = 4 AND m.id "
STORE = (
    "UPDATE monitor SET {values}, acknowledged_at = CASE WHEN epoch = {epoch} THEN acknowledged_at END,"
    " reminded_at = CASE WHEN epoch = {same} THEN reminded_at END WHERE id = {key}"
)
"""A new trouble is acknowledged anew."""
CAPSULE = ("capsule", ("monitor_id", "slot", "number", "seq", "at", "body"))
PAGE = ("beat_page", ("monitor_id", "slot", "entries"))
RUN = ("run", ("monitor_id", *RunRow._fields))
OPEN_RUNS = f"SELECT monitor_id, {', '.join(RunRow._fields)} FROM run WHERE ended_at IS NULL AND monitor_id "  # noqa: S608  # names of columns


def load_monitors(connection: Connection, ids: Iterable[str]) -> dict[str, LoadedMonitor]:
    return {row[0]: _loaded(row) for row in _found(connection, LOAD, list(ids))}


def _bodies(
    connection: Connection, query: str, monitors: Mapping[str, LoadedMonitor], beats: Iterable[Beat]
) -> list[tuple[LoadedMonitor, bytes | None]]:
    names = list({beat.monitor_id for beat in beats} & monitors.keys())
    if not names:
        return []
    bodies = {name: bytes(body) for name, body in _found(connection, query, names)}
    return [(monitors[name], bodies.get(name)) for name in names]


def _found(connection: Connection, query: str, names: Sequence[str]) -> Sequence[Any]:
    if is_postgres(connection):
        return connection.exec_driver_sql(query + "= ANY($1)", (names,)).fetchall()
    return connection.exec_driver_sql(query + IN_JSON, (json.dumps(names),)).fetchall()


def _loaded(row: Sequence[Any]) -> LoadedMonitor:
    name, digest, owner, period, grace, stored, *rest = row
    mode, since, alive_at, expected_at, deadline_at, epoch, failures, run_since, down, still, first_beat_at, *counted = rest
    unverified, last_beat_at, beats, history, minute, minute_beats, capsules, last_seq, *counted = counted
    runs, progress, unchanged, session, fence, *followed, ends_at = counted
    followed_up, muted_until, held, held_since = followed
    state = MonitorState(
        mode,
        EPOCH + since * MICROSECOND,
        EPOCH + alive_at * MICROSECOND,
        EPOCH + expected_at * MICROSECOND,
        EPOCH + deadline_at * MICROSECOND,
        epoch,
        failures,
        _time(run_since),
        down * MICROSECOND,
        still * MICROSECOND,
        _time(first_beat_at),
    )
    return LoadedMonitor(
        id=name,
        secret_digest=digest,
        owner=owner,
        options=(options := read_options(stored)),
        schedule=options.schedule_of(period * MICROSECOND, grace * MICROSECOND),
        state=state,
        unverified=bool(unverified),
        last_beat_at=_time(last_beat_at),
        beats=beats,
        history=history,
        minute=minute,
        minute_beats=minute_beats,
        capsules=capsules,
        last_seq=last_seq,
        progress=progress,
        unchanged=unchanged,
        session=read_session(session),
        fence=fence,
        followed_up=bool(followed_up),
        muted_until=_time(muted_until),
        held=held,
        held_since=_time(held_since),
        stores_until=_time(ends_at),
        runs=Runs(runs, owned=owner is not None),
    )


def _load_open_runs(connection: Connection, monitors: Mapping[str, LoadedMonitor], named: Collection[str]) -> None:
    """Load the runs that no beat has ended: of monitors that wait for one, and where a beat may name one that is overdue."""
    ids = [name for name, monitor in monitors.items() if monitor.state.run_since is not None or name in named]
    for name, slot, number, rid, started_at, limit_at, *rest in _found(connection, OPEN_RUNS, ids) if ids else ():
        monitors[name].runs.open.append(RunRow(slot, number, rid, _time(started_at), _time(limit_at), *rest))
    for name in ids:
        monitors[name].runs.open.sort(key=attrgetter("number"))


def store_monitors(connection: Connection, monitors: Sequence[LoadedMonitor]) -> None:
    names = (*STATE, *COUNTED, *HELD, "due_at")
    marks = [f"${place}" for place in range(1, len(names) + 4)] if is_postgres(connection) else ["?"] * (len(names) + 3)
    values = ", ".join(f"{name} = {mark}" for name, mark in zip(names, marks, strict=False))
    connection.exec_driver_sql(
        STORE.format(values=values, epoch=marks[-3], same=marks[-2], key=marks[-1]), [_values(monitor) for monitor in monitors]
    )
    capsules = [
        (monitor.id, slot, number, seq, _microseconds(at), body)
        for monitor in monitors
        for slot, number, seq, at, body in monitor.new_capsules
    ]
    pages = [(monitor.id, slot, history) for monitor in monitors for slot, history in monitor.new_pages]
    runs = [(monitor.id, *_in_columns(run)) for monitor in monitors for run in monitor.runs.changed.values()]
    for (table, columns), rows in ((CAPSULE, capsules), (PAGE, pages), (RUN, runs)):
        if rows:
            _upsert(connection, table, columns, rows)


def _upsert(connection: Connection, table: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
    """Store rows of a monitor, each in its slot: in place of what was there."""
    sql = _upsert_sql(table, tuple(columns), is_postgres(connection))
    if is_postgres(connection):
        connection.exec_driver_sql(sql, list(rows))
    else:
        connection.connection.cursor().executemany(sql, rows)  # see _record


@cache
def _upsert_sql(table: str, columns: tuple[str, ...], in_postgres: bool) -> str:
    marks = [f"${place}" if in_postgres else "?" for place in range(1, len(columns) + 1)]
    values = ", ".join(f"{name} = excluded.{name}" for name in columns[2:])
    return (
        f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join(marks)})"  # noqa: S608  # names of columns
        f" ON CONFLICT (monitor_id, slot) DO UPDATE SET {values}"
    )


def _in_columns(run: RunRow) -> tuple[Any, ...]:
    return tuple(_microseconds(value) if isinstance(value, datetime) else value for value in run)


def _values(monitor: LoadedMonitor) -> tuple[Any, ...]:
    mode, since, alive_at, expected_at, deadline_at, epoch, failures, run_since, down, still, first_beat_at = monitor.state
    return (
        mode,
        (since - EPOCH) // MICROSECOND,
        (alive_at - EPOCH) // MICROSECOND,
        (expected_at - EPOCH) // MICROSECOND,
        (deadline_at - EPOCH) // MICROSECOND,
        epoch,
        failures,
        _microseconds(run_since),
        down // MICROSECOND,
        still // MICROSECOND,
        _microseconds(first_beat_at),
        monitor.unverified,
        _microseconds(monitor.last_beat_at),
        monitor.beats,
        monitor.history,
        monitor.minute,
        monitor.minute_beats,
        monitor.capsules,
        monitor.last_seq,
        monitor.runs.count,
        monitor.progress,
        monitor.unchanged,
        monitor.session.stored,
        monitor.held,
        _microseconds(monitor.held_since),
        _microseconds(due_at(monitor.state, followed_up=monitor.followed_up, is_held=monitor.held is not None)),
        epoch,
        epoch,
        monitor.id,
    )


def _time(number: int | None) -> datetime | None:
    return None if number is None else EPOCH + number * MICROSECOND


def _microseconds(moment: datetime | None) -> int | None:
    return None if moment is None else (moment - EPOCH) // MICROSECOND


def _refuse(
    connection: Connection, beats: Sequence[Beat], results: list[BeatOutcome | Exception | None], unauthorized: Iterable[int]
) -> None:
    """Refuse beats with a wrong secret. Each id is looked up in the same way, so that timing does not reveal which ids exist."""
    ids = {beats[index].monitor_id for index in unauthorized}
    found = connection.execute(
        select(RETIRED_SECRETS.c.monitor_id, RETIRED_SECRETS.c.digest).where(among(connection, RETIRED_SECRETS.c.monitor_id, ids))
    )
    retired: set[tuple[str, bytes]] = {(monitor_id, digest) for monitor_id, digest in found}
    for index in unauthorized:
        beat = beats[index]
        code = TAKEN_OVER if (beat.monitor_id, beat.secret_digest) in retired else "monitor_not_found"
        results[index] = fixed_problem(code)
