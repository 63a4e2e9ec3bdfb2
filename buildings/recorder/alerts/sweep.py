"""The sweep: marks monitors past their deadline as dead and raises their alerts; it also detects outages of the recorder."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from sqlalchemy import Connection, and_, func, insert, select, update

from buildings.recorder.alerts.outages import move_deadlines, note_outage, tell_targets
from buildings.recorder.alerts.raising import raise_deaths
from buildings.recorder.clock import ClockReading, move_times
from buildings.recorder.monitors.state_machine import LONGEST_GAP, TICK_EVERY, Outage, outage_between
from buildings.recorder.tables import MONITORS, ONLY, TICKS
from campus.storage import among

MONITORS_PER_TRANSACTION = 1_000
"""A sweep blocks beats for no longer than this many monitors take."""
TICK_TOLERANCE = timedelta(seconds=1)
"""A tick this soon after a jump may still show the time before it."""


class SweepResult(NamedTuple):
    """What one sweep did: the outage that it detected, the number of deaths, the next deadline, and the jump of the clock that it
    adopted. `moving`: it moved deadlines after an outage, and looked for no deaths. `telling`: there was news of an outage to raise.
    `more`: it looked at as many monitors as one sweep may."""

    outage: Outage | None
    died: int
    next_deadline: datetime | None
    adopted: timedelta | None = None
    moving: bool = False
    telling: bool = False
    more: bool = False


class Looked(NamedTuple):
    """How many monitors died, and whether more may be due."""

    died: int
    more: bool


def sweep_at_each(connection: Connection, readings: Sequence[ClockReading]) -> list[SweepResult | Exception]:
    return [_sweep_at(connection, reading) for reading in readings]


def _sweep_at(connection: Connection, reading: ClockReading) -> SweepResult:
    """Write a tick, then sweep. Until a jump of the clock is adopted, deadlines are checked by elapsed time and no tick is written."""
    outage = keep_time(connection, reading.now) if reading.jump is None else None
    adopted = adopt_jump(connection, reading)
    now = reading.now + (adopted or timedelta(0))
    if move_deadlines(connection):
        return SweepResult(outage, 0, None, adopted, moving=True)
    died, more = sweep(connection, now)
    telling = not more and tell_targets(connection, now)
    return SweepResult(outage, died, _next_deadline(connection), adopted, telling=telling, more=more)


def sweep(connection: Connection, now: datetime) -> Looked:
    """Look at monitors that are due, the longest first, up to MONITORS_PER_TRANSACTION; those past their deadline are marked as dead.

    Those whose beats have moved the deadline are due then.
    """
    due = and_(MONITORS.c.mode == "up", MONITORS.c.due_at <= now)
    first = connection.scalars(select(MONITORS.c.id).where(due).order_by(MONITORS.c.due_at).limit(MONITORS_PER_TRANSACTION)).all()
    if not first:
        return Looked(0, more=False)
    found = update(MONITORS).where(among(connection, MONITORS.c.id, first), due)
    die = found.where(MONITORS.c.deadline_at <= now).values(mode="missed", since=MONITORS.c.deadline_at, epoch=MONITORS.c.epoch + 1)
    died = connection.scalars(die.returning(MONITORS.c.id)).all()
    if len(died) < len(first):
        connection.execute(found.values(due_at=MONITORS.c.deadline_at))
    if died:
        raise_deaths(connection, died, now=now)
    return Looked(len(died), more=len(first) == MONITORS_PER_TRANSACTION)


def _next_deadline(connection: Connection) -> datetime | None:
    """When the next monitor is due, at its deadline or before it."""
    soonest: datetime | None = connection.scalar(select(func.min(MONITORS.c.due_at)).where(MONITORS.c.mode == "up"))
    return soonest


def keep_time(connection: Connection, now: datetime) -> Outage | None:
    """Write a tick, the proof that the recorder is running. Stores and returns the outage before it, if there was one."""
    last = last_tick(connection)
    if last is None:
        connection.execute(insert(TICKS).values(id=ONLY, at=now))
        return None
    outage = outage_between(last, now)
    if outage is not None:
        note_outage(connection, outage)
    if now - last >= TICK_EVERY:
        connection.execute(update(TICKS).values(at=now))
    return outage


def last_tick(connection: Connection) -> datetime | None:
    last: datetime | None = connection.scalar(select(TICKS.c.at))
    return last


def adopt_jump(connection: Connection, reading: ClockReading) -> timedelta | None:
    """Move every stored time along with a jump of the clock that has lasted; returns the jump if this process is to adopt it.

    The first process does so; the others find a tick in the new time, and move nothing. While other processes write ticks in
    the old time, it is this machine's clock that is wrong.
    """
    if reading.jump is None or reading.jumped_at is None or not reading.may_adopt:
        return None
    last = connection.scalar(select(TICKS.c.at).with_for_update())
    now = reading.now + reading.jump
    if last is None or abs(now - last) <= LONGEST_GAP:
        return reading.jump
    if last > reading.jumped_at + TICK_TOLERANCE:
        return None
    move_times(connection, reading.jump, now=now)
    if reading.jump > timedelta(0):
        note_outage(connection, Outage(reading.now, now), moved=reading.jump)
    connection.execute(update(TICKS).values(at=now))
    return reading.jump
