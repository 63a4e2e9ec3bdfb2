"""Monitors as beats read and write them: plain SQL and plain numbers, for here every microsecond is paid by every beat."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from buildings.recorder.alerts import Notice
from buildings.recorder.moments import EPOCH, MICROSECOND
from buildings.recorder.sql import is_postgres, json_of
from buildings.recorder.state_machine import MonitorState, Schedule

FIXED = ("id", "secret_digest", "owner", "webhook", "email", "period", "grace")
STANDING = MonitorState._fields
BESIDE = ("unverified", "last_beat_at", "beats", "history", "minute", "minute_beats", "capsules", "last_seq")
READ = (
    f"SELECT {', '.join(f'm.{name}' for name in (*FIXED, *STANDING, *BESIDE))}, o.ends_at"  # noqa: S608  # names of columns
    " FROM monitor m LEFT JOIN owner o ON o.lineage = m.owner WHERE m.id "
)
ALL_OF_JSON = "IN (SELECT value FROM json_each(?))"  # a fixed text
LAST_CAPSULES = "SELECT m.id, c.body FROM monitor m JOIN capsule c ON c.monitor_id = m.id AND c.seq = m.last_seq WHERE m.id "
WRITE = "UPDATE monitor SET {values} WHERE id = {key}"
KEEP = (
    "INSERT INTO capsule (monitor_id, slot, number, seq, at, body) VALUES ({values})"
    " ON CONFLICT (monitor_id, slot) DO UPDATE SET number = excluded.number, seq = excluded.seq, at = excluded.at, body = excluded.body"
)


@dataclass(slots=True)
class LoadedMonitor:
    """A monitor while the beats of one transaction are entered into it, one after the other.

    `keeps_until` is when its owner's key ends, none without an owner; `kept` are the capsules to store: slot, number, seq,
    time and JSON. `last_capsule` is the one that was stored under `last_seq`, where it is asked for.
    """

    id: str
    secret_digest: bytes
    owner: str | None
    targets: tuple[str, ...]
    schedule: Schedule
    state: MonitorState
    unverified: bool
    last_beat_at: datetime | None
    beats: int
    history: bytes
    minute: int
    minute_beats: int
    capsules: int
    last_seq: int | None
    keeps_until: datetime | None
    changed: bool = False
    kept: list[tuple[int, int, int | None, datetime, bytes]] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    last_capsule: bytes | None = None


def load_monitors(connection: Connection, ids: Iterable[str]) -> dict[str, LoadedMonitor]:
    """The monitors of these ids, those that there are."""
    if is_postgres(connection):
        found = connection.exec_driver_sql(READ + "= ANY($1)", (list(ids),))
    else:
        found = connection.exec_driver_sql(READ + ALL_OF_JSON, (json_of(ids),))
    return {row[0]: _sheet(row) for row in found.fetchall()}


def load_last_capsules(connection: Connection, monitors: Sequence[LoadedMonitor]) -> None:
    """Add the capsule that is stored under each monitor's last seq."""
    query, names = LAST_CAPSULES, [monitor.id for monitor in monitors]
    if is_postgres(connection):
        found = connection.exec_driver_sql(query + "= ANY($1)", (names,))
    else:
        found = connection.exec_driver_sql(query + ALL_OF_JSON, (json_of(names),))
    bodies = dict(tuple(row) for row in found.fetchall())
    for monitor in monitors:
        monitor.last_capsule = bodies.get(monitor.id)


def _sheet(row: Sequence[Any]) -> LoadedMonitor:
    name, digest, owner, webhook, email, period, grace, *rest = row
    mode, since, alive_at, expected_at, deadline_at, epoch, failures, run_since, down, still, *beside = rest
    unverified, last_beat_at, beats, history, minute, minute_beats, capsules, last_seq, ends_at = beside
    state = MonitorState(
        mode,
        EPOCH + since * MICROSECOND,
        EPOCH + alive_at * MICROSECOND,
        EPOCH + expected_at * MICROSECOND,
        EPOCH + deadline_at * MICROSECOND,
        epoch,
        failures,
        _moment(run_since),
        down * MICROSECOND,
        still * MICROSECOND,
    )
    return LoadedMonitor(
        id=name,
        secret_digest=digest,
        owner=owner,
        targets=tuple(target for target in (webhook, email) if target),
        schedule=Schedule(period * MICROSECOND, grace * MICROSECOND),
        state=state,
        unverified=bool(unverified),
        last_beat_at=_moment(last_beat_at),
        beats=beats,
        history=history,
        minute=minute,
        minute_beats=minute_beats,
        capsules=capsules,
        last_seq=last_seq,
        keeps_until=_moment(ends_at),
    )


def store_monitors(connection: Connection, monitors: Sequence[LoadedMonitor]) -> None:
    """Store what the beats have changed, and the capsules that came along."""
    names = (*STANDING, *BESIDE)
    marks = [f"${place}" for place in range(1, len(names) + 2)] if is_postgres(connection) else ["?"] * (len(names) + 1)
    values = ", ".join(f"{name} = {mark}" for name, mark in zip(names, marks, strict=False))
    connection.exec_driver_sql(WRITE.format(values=values, key=marks[-1]), [_values(monitor) for monitor in monitors])
    if capsules := [
        (monitor.id, slot, number, seq, _number(at), body) for monitor in monitors for slot, number, seq, at, body in monitor.kept
    ]:
        connection.exec_driver_sql(KEEP.format(values=", ".join(marks[:6])), capsules)


def _values(monitor: LoadedMonitor) -> tuple[Any, ...]:
    mode, since, alive_at, expected_at, deadline_at, epoch, failures, run_since, down, still = monitor.state
    return (
        mode,
        (since - EPOCH) // MICROSECOND,
        (alive_at - EPOCH) // MICROSECOND,
        (expected_at - EPOCH) // MICROSECOND,
        (deadline_at - EPOCH) // MICROSECOND,
        epoch,
        failures,
        _number(run_since),
        down // MICROSECOND,
        still // MICROSECOND,
        monitor.unverified,
        _number(monitor.last_beat_at),
        monitor.beats,
        monitor.history,
        monitor.minute,
        monitor.minute_beats,
        monitor.capsules,
        monitor.last_seq,
        monitor.id,
    )


def _moment(number: int | None) -> datetime | None:
    return None if number is None else EPOCH + number * MICROSECOND


def _number(moment: datetime | None) -> int | None:
    return None if moment is None else (moment - EPOCH) // MICROSECOND
