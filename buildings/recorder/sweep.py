"""The sweep: whatever is past its deadline is dead, and said to be so, in one transaction; and the recorder's own outages."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from sqlalchemy import Connection, and_, case, func, insert, literal, select, union, update

from buildings.recorder.alerts import Notice, raise_alerts, raise_deaths
from buildings.recorder.clock import ClockReading
from buildings.recorder.outage import LEAST_GRACE, LONGEST_GAP, TICK, Outage, outage_between
from buildings.recorder.steps import move_along
from buildings.recorder.tables import MONITORS, ONLY, TICKS, Moment, Span

MOMENT = timedelta(seconds=1)
MONITORS_PER_TRANSACTION = 1_000
"""Monitors in one transaction: beats wait no longer than that takes."""


def keep_time(connection: Connection, now: datetime) -> Outage | None:
    """Write down that the recorder watches; after an outage, give the monitors time first. Returns the outage."""
    last = last_tick(connection)
    if last is None:
        connection.execute(insert(TICKS).values(id=ONLY, at=now))
        return None
    outage = outage_between(last, now)
    if outage is not None:
        make_up_for(connection, outage)
    if now - last >= TICK:
        connection.execute(update(TICKS).values(at=now))
    return outage


def last_tick(connection: Connection) -> datetime | None:
    """When the recorder was last known to watch; None before the first time."""
    last: datetime | None = connection.scalar(select(TICKS.c.at))
    return last


def adopt_step(connection: Connection, look: ClockReading) -> timedelta | None:
    """Move everything along with a jump of the clock that has lasted; returns the jump if this process is to go by it.

    Whoever comes second finds a tick in the new time, and moves nothing. While others write ticks in the old time, it is
    this machine's clock that is wrong.
    """
    if look.step is None or look.step_since is None or not look.may_adopt:
        return None
    last, now = connection.scalar(select(TICKS.c.at).with_for_update()), look.now + look.step
    if last is None or abs(now - last) <= LONGEST_GAP:
        return look.step
    if last > look.step_since + MOMENT:
        return None
    move_along(connection, look.step, now=now)
    if look.step > timedelta(0):
        make_up_for(connection, Outage(look.now, now), moved=look.step)
    connection.execute(update(TICKS).values(at=now))
    return look.step


def step_back(connection: Connection, last: datetime, *, now: datetime) -> bool:
    """Move everything back to `now` from the time of the last tick, which lies in the future; False when that is not the last any more."""
    if connection.scalar(select(TICKS.c.at).with_for_update()) != last:
        return False
    move_along(connection, now - last, now=now)
    connection.execute(update(TICKS).values(at=now))
    return True


def make_up_for(connection: Connection, outage: Outage, *, moved: timedelta = timedelta(0)) -> None:
    """Move the deadlines as outage.moved_deadline says, and after a long outage tell every target of it.

    `moved` is how far they were moved along with the clock already.
    """
    monitor = MONITORS.c
    end, up = literal(outage.end, Moment()), monitor.mode == "up"
    if outage.is_short:
        least = literal(LEAST_GRACE, Span())
        earliest = end + case((monitor.grace > least, monitor.grace), else_=least)
        connection.execute(update(MONITORS).where(up, monitor.deadline_at < earliest).values(deadline_at=earliest))
        return
    lost = and_(up, monitor.expected_at - monitor.grace <= literal(outage.end + moved, Moment()))
    earliest = end + monitor.period + monitor.grace
    later = case((monitor.deadline_at < earliest, earliest), else_=monitor.deadline_at)
    _tell_of(connection, outage)
    connection.execute(update(MONITORS).where(lost).values(deadline_at=later, unverified=True))


def _tell_of(connection: Connection, outage: Outage) -> None:
    watched = MONITORS.c.mode == "up"
    targets = connection.scalars(
        union(*(select(column).where(watched, column.is_not(None)) for column in (MONITORS.c.webhook, MONITORS.c.email)))
    )
    notice = Notice(targets.all(), None, 0, "blind", outage.end, outage.start, outage.end, "the recorder was down", None)
    raise_alerts(connection, [notice], now=outage.end)


class SweepResult(NamedTuple):
    """What one look found: an outage that has just ended, how many monitors are dead, the next deadline, if there is one, and a
    jump of the clock that was adopted."""

    outage: Outage | None
    flipped: int
    next_deadline: datetime | None
    adopted: timedelta | None = None


def look(connection: Connection, looks: Sequence[ClockReading]) -> list[SweepResult | Exception]:
    """ClockReading at the time, then at the deadlines, once for each look: a batch."""
    return [_looked(connection, one) for one in looks]


def _looked(connection: Connection, look: ClockReading) -> SweepResult:
    """While a jump is held back deadlines are looked at by elapsed time, and no tick is written."""
    if look.step is None:
        return SweepResult(keep_time(connection, look.now), sweep(connection, look.now), _next_deadline(connection))
    adopted = adopt_step(connection, look)
    return SweepResult(None, sweep(connection, look.now + (adopted or timedelta(0))), _next_deadline(connection), adopted)


def sweep(connection: Connection, now: datetime) -> int:
    """Flip what is due, the longest overdue first, up to MONITORS_PER_TRANSACTION; returns how many.

    The deadline stands in the UPDATE itself: a beat that was committed first has moved it.
    """
    due = and_(MONITORS.c.mode == "up", MONITORS.c.deadline_at <= now)
    first = select(MONITORS.c.id).where(due).order_by(MONITORS.c.deadline_at).limit(MONITORS_PER_TRANSACTION)
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
