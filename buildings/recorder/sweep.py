"""The sweep: whatever is past its deadline is dead, and said to be so, in one transaction; and the recorder's own outages."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import Connection, and_, case, func, insert, literal, select, union, update

from buildings.recorder.alerts import Notice, raise_alerts, raise_deaths
from buildings.recorder.outage import LEAST_GRACE, TICK, Outage, outage_between
from buildings.recorder.tables import MONITORS, ONLY, TICKS, Moment, Span

AT_ONCE = 1_000
"""Monitors in one transaction: beats wait no longer than that takes."""


def keep_time(connection: Connection, now: datetime) -> Outage | None:
    """Write down that the recorder watches; after an outage, give the monitors time first. Gives the outage."""
    last = connection.scalar(select(TICKS.c.at))
    if last is None:
        connection.execute(insert(TICKS).values(id=ONLY, at=now))
        return None
    outage = outage_between(last, now)
    if outage is not None:
        make_up_for(connection, outage)
    if now - last >= TICK or now < last:
        connection.execute(update(TICKS).values(at=now))
    return outage


def make_up_for(connection: Connection, outage: Outage) -> None:
    """Move the deadlines as outage.moved_deadline says, and after a long outage tell every target of it."""
    monitor = MONITORS.c
    end, up = literal(outage.end, Moment()), monitor.mode == "up"
    if outage.is_short:
        least = literal(LEAST_GRACE, Span())
        moved = end + case((monitor.grace > least, monitor.grace), else_=least)
        connection.execute(update(MONITORS).where(up, monitor.deadline_at < moved).values(deadline_at=moved))
        return
    moved, lost = end + monitor.period + monitor.grace, and_(up, monitor.expected_at - monitor.grace <= end)
    later = case((monitor.deadline_at < moved, moved), else_=monitor.deadline_at)
    _tell_of(connection, outage)
    connection.execute(update(MONITORS).where(lost).values(deadline_at=later, unverified=True))


def _tell_of(connection: Connection, outage: Outage) -> None:
    watched = MONITORS.c.mode == "up"
    targets = connection.scalars(
        union(*(select(column).where(watched, column.is_not(None)) for column in (MONITORS.c.webhook, MONITORS.c.email)))
    )
    notice = Notice(targets.all(), None, 0, "blind", outage.end, outage.start, outage.end, "the recorder was down", None)
    raise_alerts(connection, [notice], now=outage.end)


class Swept(NamedTuple):
    """What one look found: an outage that has just ended, how many monitors are dead, and the next deadline, if there is one."""

    outage: Outage | None
    flipped: int
    next_deadline: datetime | None


def look(connection: Connection, moments: Sequence[datetime]) -> list[Swept | Exception]:
    """Look at the time, then at the deadlines, once for each moment: a batch."""
    return [Swept(keep_time(connection, now), sweep(connection, now), _next_deadline(connection)) for now in moments]


def sweep(connection: Connection, now: datetime) -> int:
    """Flip what is due, the longest overdue first, up to AT_ONCE; gives how many.

    The deadline stands in the UPDATE itself: a beat that was committed first has moved it.
    """
    due = and_(MONITORS.c.mode == "up", MONITORS.c.deadline_at <= now)
    first = select(MONITORS.c.id).where(due).order_by(MONITORS.c.deadline_at).limit(AT_ONCE)
    flip = (
        update(MONITORS)
        .where(MONITORS.c.id.in_(first), due)
        .values(mode="missed", since=MONITORS.c.deadline_at, epoch=MONITORS.c.epoch + 1)
    )
    flipped = connection.scalars(flip.returning(MONITORS.c.id)).all()
    if flipped:
        raise_deaths(connection, flipped, now=now)
    return len(flipped)


def _next_deadline(connection: Connection) -> datetime | None:
    soonest: datetime | None = connection.scalar(select(func.min(MONITORS.c.deadline_at)).where(MONITORS.c.mode == "up"))
    return soonest
