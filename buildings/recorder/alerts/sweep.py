"""The sweep: marks monitors past their deadline as dead and raises their alerts; it also detects outages of the recorder.

An outage is stored when it is noticed, then handled in parts, each in a transaction that says how far it came. First the deadlines are
moved, then deaths are raised, and last each target is told of the outage. A part is small enough that no statement of a database with a
million monitors takes long and that beats are stored meanwhile. A recorder that is killed goes on where the last part ended: `moved_to`
and `told_to` change in the transaction of what they stand for.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Row, Update, and_, bindparam, case, func, insert, literal, or_, select, update

from buildings.recorder.alerts.raising import Notice, links_of, raise_alerts, raise_deaths
from buildings.recorder.clock import ClockReading, move_times
from buildings.recorder.monitors.acting import look_at
from buildings.recorder.monitors.options import stored_schedule
from buildings.recorder.monitors.state_machine import (
    DOWN,
    LEAST_GRACE,
    LONGEST_GAP,
    TICK_EVERY,
    TROUBLES,
    WITH_DEADLINE,
    Outage,
    deadline_after_outage,
    outage_between,
)
from buildings.recorder.tables import MONITOR_TARGETS, MONITORS, ONLY, OUTAGES, TARGETS, TICKS
from campus.storage import Moment, Span, among

MONITORS_PER_TRANSACTION = 1_000  # A sweep blocks beats for no longer than this many monitors take.
TICK_TOLERANCE = timedelta(seconds=1)  # A tick this soon after a jump may still show the time before it.
LOOKS_PER_TRANSACTION = 200  # Of these, how many are looked at one by one.
MONITORS_PER_PART = 2_000
TARGETS_PER_PART = 2_000
"""While so many targets are due, the next part waits: an alert of a death queues behind no more news of an outage than that."""
LONGEST_PAUSE = timedelta(seconds=10)
"""After this time the next targets are told however many are due: strangers' targets that hang may not delay the news for others."""


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

    Deadlines come before what follows a trouble: however many reminders are due, no death waits for them. Those whose beats have moved
    the deadline are due then. Those that more follows are looked at one by one: see monitors.acting.
    """
    due = MONITORS.c.due_at <= now
    chosen, deadline = select(MONITORS.c.id).order_by(MONITORS.c.due_at), MONITORS.c.mode.in_(sorted(WITH_DEADLINE))
    first = [*connection.scalars(chosen.where(due, deadline).limit(MONITORS_PER_TRANSACTION))]
    first += connection.scalars(chosen.where(due, ~deadline).limit(min(MONITORS_PER_TRANSACTION - len(first), LOOKS_PER_TRANSACTION)))
    if not first:
        return Looked(0, more=False)
    monitor = MONITORS.c
    found = update(MONITORS).where(among(connection, monitor.id, first), due, monitor.held.is_(None))
    ordinary = ~monitor.followed_up & or_(monitor.muted_until.is_(None), monitor.muted_until <= now)
    watched = monitor.mode.in_(sorted(WITH_DEADLINE))
    was_up = monitor.mode == "up"
    epoch, acknowledged_at = case((was_up, monitor.epoch + 1), else_=monitor.epoch), case((~was_up, monitor.acknowledged_at))
    missed = {"mode": "missed", "since": monitor.deadline_at, "epoch": epoch, "due_at": None, "acknowledged_at": acknowledged_at}
    died = connection.scalars(found.where(ordinary, watched, monitor.deadline_at <= now).values(missed).returning(monitor.id)).all()
    left = len(first) - len(died)
    if left:
        calm = and_(watched, monitor.deadline_at > now, or_(~monitor.followed_up, was_up))
        left -= connection.execute(found.where(calm).values(due_at=monitor.deadline_at)).rowcount
    if died:
        raise_deaths(connection, died, now=now)
    looked = _look(connection, due & among(connection, monitor.id, first), now) if left else []
    more = len(first) == MONITORS_PER_TRANSACTION or len(looked) == LOOKS_PER_TRANSACTION
    return Looked(len(died) + sum(looked), more=more)


def _look(connection: Connection, due: ColumnElement[bool], now: datetime) -> list[bool]:
    """Look at monitors one by one, and do what is due; returns of each whether it died. Rows that others change are due again later."""
    chosen = select(MONITORS).where(due).order_by(MONITORS.c.mode.in_(sorted(DOWN)), MONITORS.c.due_at).limit(LOOKS_PER_TRANSACTION)
    rows = connection.execute(chosen.with_for_update(skip_locked=True)).all()
    if not rows:
        return []
    links = links_of(connection, [row.id for row in rows])
    looks = [look_at(row, links.get(row.id, ()), now) for row in rows]
    changed = update(MONITORS).where(MONITORS.c.id == bindparam("key"))
    connection.execute(
        changed.values({name: bindparam(f"new_{name}", type_=MONITORS.c[name].type) for name in looks[0].changes}),
        [{"key": row.id} | {f"new_{name}": value for name, value in look.changes.items()} for row, look in zip(rows, looks, strict=True)],
    )
    raise_alerts(connection, [notice for look in looks for notice in look.notices], now=now)
    return [look.died for look in looks]


def _next_deadline(connection: Connection) -> datetime | None:
    soonest: datetime | None = connection.scalar(select(func.min(MONITORS.c.due_at)).where(MONITORS.c.due_at.is_not(None)))
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


def note_outage(connection: Connection, outage: Outage, *, moved: timedelta = timedelta(0)) -> None:
    """Store an outage that has ended. `moved` is by how much the deadlines were already moved along with the clock."""
    values = {"began_at": outage.start, "ended_at": outage.end, "lost_by": outage.end + moved}
    connection.execute(insert(OUTAGES).values(**values))


def move_deadlines(connection: Connection) -> bool:
    """Move the deadlines of the next monitors as state_machine.deadline_after_outage does; returns False if all were moved before.

    A monitor whose period began after the outage stays as it is: its beat, registration or takeover came while other parts were done.
    """
    row = connection.execute(select(OUTAGES).where(OUTAGES.c.moved_to.is_not(None)).order_by(OUTAGES.c.id).limit(1)).one_or_none()
    if row is None:
        return False
    monitor = MONITORS.c
    rest = monitor.id > row.moved_to
    last = connection.scalar(select(monitor.id).where(rest).order_by(monitor.id).offset(MONITORS_PER_PART - 1).limit(1))
    part = rest if last is None else rest & (monitor.id <= last)
    part &= monitor.mode.in_(sorted(WITH_DEADLINE)) & (monitor.alive_at <= row.ended_at)
    connection.execute(_move(row).where(part, monitor.plain))
    _move_each(connection, row, part & ~monitor.plain)
    connection.execute(_move_looks(row).where(rest if last is None else rest & (monitor.id <= last)))
    if last is None and Outage(row.began_at, row.ended_at).is_short:
        connection.execute(OUTAGES.delete().where(OUTAGES.c.id == row.id))
    else:
        connection.execute(update(OUTAGES).where(OUTAGES.c.id == row.id).values(moved_to=last))
    return True


def _move(row: Row[Any]) -> Update:
    """The statement that moves the deadlines of the monitors that an outage affects.

    A monitor that was not due yet stays due as it was, before its new deadline: PostgreSQL writes no index then.
    """
    monitor = MONITORS.c
    end = literal(row.ended_at, Moment())

    def due(deadline: ColumnElement[datetime]) -> ColumnElement[datetime]:
        return case((_is_looked_at(), monitor.due_at), (monitor.due_at <= end, deadline), else_=monitor.due_at)

    if Outage(row.began_at, row.ended_at).is_short:
        earliest = _earliest(end)
        return update(MONITORS).where(monitor.deadline_at < earliest).values(deadline_at=earliest, due_at=due(earliest))
    earliest = end + monitor.period + monitor.grace
    later = case((monitor.deadline_at < earliest, earliest), else_=monitor.deadline_at)
    lost = monitor.expected_at - monitor.grace <= literal(row.lost_by, Moment())
    return update(MONITORS).where(lost).values(deadline_at=later, due_at=due(later), unverified=True)


def _move_each(connection: Connection, row: Row[Any], part: ColumnElement[bool]) -> None:
    """Move the deadlines of monitors that may have a calendar, which no statement evaluates."""
    outage, moved = Outage(row.began_at, row.ended_at), []
    for monitor in connection.execute(select(MONITORS).where(part)):
        before = {"expected_at": monitor.expected_at, "deadline_at": monitor.deadline_at}
        deadline, lost = deadline_after_outage(outage, stored_schedule(monitor), **before, lost_by=row.lost_by)
        if lost or deadline > monitor.deadline_at:
            is_looked_at = monitor.held is not None or (monitor.followed_up and monitor.mode in TROUBLES)
            due = monitor.due_at if is_looked_at or monitor.due_at is None or monitor.due_at > outage.end else deadline
            moved.append({"one": monitor.id, "deadline": deadline, "due": due, "lost": lost or monitor.unverified})
    if moved:
        named: dict[str, Any] = {"deadline_at": bindparam("deadline"), "due_at": bindparam("due"), "unverified": bindparam("lost")}
        connection.execute(update(MONITORS).where(MONITORS.c.id == bindparam("one")).values(named), moved)


def _move_looks(row: Row[Any]) -> Update:
    """The statement by which nobody is reminded, nor an alert escalated, before the beats that were lost in an outage were sent again."""
    end = literal(row.ended_at, Moment())
    return update(MONITORS).where(_is_looked_at(), MONITORS.c.due_at <= end).values(due_at=_earliest(end))


def _is_looked_at() -> ColumnElement[bool]:
    """Whether a monitor is due for something else than its deadline."""
    return or_(MONITORS.c.held.is_not(None), MONITORS.c.followed_up & MONITORS.c.mode.in_(sorted(TROUBLES)))


def _earliest(end: ColumnElement[datetime]) -> ColumnElement[datetime]:
    least = literal(LEAST_GRACE, Span())
    return end + case((MONITORS.c.grace > least, MONITORS.c.grace), else_=least)


def tell_targets(connection: Connection, now: datetime) -> bool:
    """Raise the news of an outage for the next targets of monitors that were up when it ended; returns whether there was such news."""
    row = connection.execute(select(OUTAGES).order_by(OUTAGES.c.id).limit(1)).one_or_none()
    if row is None:
        return False
    if row.told_at is not None and now - row.told_at < LONGEST_PAUSE and _due_targets(connection, now) >= TARGETS_PER_PART:
        return True
    link = MONITOR_TARGETS.c
    rest = link.target_id > row.told_to
    last = connection.scalar(select(link.target_id).where(rest).order_by(link.target_id).offset(TARGETS_PER_PART - 1).limit(1))
    part = (rest if last is None else rest & (link.target_id <= last)) & link.told.is_(None)
    targets = _told(connection, row, part)
    notice = Notice(None, 0, "blind", row.ended_at, row.began_at, row.ended_at, "the recorder was down", None, targets)
    raise_alerts(connection, [notice], now=now)
    if last is None:
        connection.execute(OUTAGES.delete().where(OUTAGES.c.id == row.id))
    else:
        connection.execute(update(OUTAGES).where(OUTAGES.c.id == row.id).values(told_to=last, told_at=now))
    return True


def _told(connection: Connection, row: Row[Any], part: ColumnElement[bool]) -> Sequence[str]:
    """Those of some targets that have a monitor that was up when the outage ended.

    Two statements, each with an index: for a join PostgreSQL may read all monitors.
    """
    link = MONITOR_TARGETS.c
    monitor = MONITORS.c
    links = connection.execute(select(link.monitor_id, link.target_id).where(part)).all()
    was_up = or_(monitor.mode == "up", monitor.since > row.ended_at) & (monitor.registered_at <= row.ended_at)
    named = among(connection, monitor.id, {link.monitor_id for link in links})
    up = set(connection.scalars(select(monitor.id).where(named, was_up)))
    return sorted({link.target_id for link in links if link.monitor_id in up})


def _due_targets(connection: Connection, now: datetime) -> int:
    """How many targets that do not fail are due, up to TARGETS_PER_PART."""
    target = TARGETS.c
    due = (target.health.in_(("proven", "new")), target.next_try_at <= now, target.disabled_at.is_(None))
    return connection.scalar(select(func.count()).select_from(select(target.id).where(*due).limit(TARGETS_PER_PART).subquery())) or 0
