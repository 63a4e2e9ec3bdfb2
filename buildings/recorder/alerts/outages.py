"""Outages of the recorder: stored when they are noticed, then handled in parts, each in a transaction that says how far it came.

First the deadlines are moved, then deaths are raised, and last each target is told of the outage. A part is small enough that no
statement of a database with a million monitors takes long and that beats are stored meanwhile. A recorder that is killed goes on
where the last part ended: `moved_to` and `told_to` change in the transaction of what they stand for.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Update, case, func, insert, literal, or_, select, update

from buildings.recorder.alerts.raising import Notice, raise_alerts
from buildings.recorder.monitors.state_machine import LEAST_GRACE, Outage
from buildings.recorder.tables import MONITOR_TARGETS, MONITORS, OUTAGES, TARGETS
from campus.storage import Moment, Span, among

MONITORS_PER_PART = 2_000
TARGETS_PER_PART = 2_000
"""While so many targets are due, the next part waits: an alert of a death queues behind no more news of an outage than that."""
LONGEST_PAUSE = timedelta(seconds=10)
"""After this time the next targets are told however many are due: strangers' targets that hang may not delay the news for others."""


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
    connection.execute(_move(row).where(part, monitor.mode == "up", monitor.alive_at <= row.ended_at))
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
        return case((monitor.due_at <= end, deadline), else_=monitor.due_at)

    if Outage(row.began_at, row.ended_at).is_short:
        least = literal(LEAST_GRACE, Span())
        earliest = end + case((monitor.grace > least, monitor.grace), else_=least)
        return update(MONITORS).where(monitor.deadline_at < earliest).values(deadline_at=earliest, due_at=due(earliest))
    earliest = end + monitor.period + monitor.grace
    later = case((monitor.deadline_at < earliest, earliest), else_=monitor.deadline_at)
    lost = monitor.expected_at - monitor.grace <= literal(row.lost_by, Moment())
    return update(MONITORS).where(lost).values(deadline_at=later, due_at=due(later), unverified=True)


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
    part = rest if last is None else rest & (link.target_id <= last)
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
