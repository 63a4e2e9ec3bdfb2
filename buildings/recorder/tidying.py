"""The daily tidying: keyless monitors that are silent for a month, answers that need not be repeated, owners of nothing."""

import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial

from sqlalchemy import ColumnElement, Connection, and_, exists, or_, select, update

from buildings.recorder.alerts import Notice, raise_alerts
from buildings.recorder.idempotency import ANSWER_RETENTION
from buildings.recorder.monitors import delete_all, targets_of
from buildings.recorder.runtime import Here
from buildings.recorder.tables import ALERTS, MONITORS, OWNERS, REPLIES, TARGETS
from campus import among, in_transaction

log = logging.getLogger(__name__)

INACTIVE_AFTER = timedelta(days=30)
"""Past its deadline: then a keyless monitor is announced to be removed."""
NOTICE = timedelta(hours=20)
"""From the announcement to the removal at least, so that it is the next day's tidying that removes."""
UNDELIVERABLE = timedelta(days=30)
MONITORS_PER_TRANSACTION = 200


async def tidy(site: Here) -> None:
    """Remove keyless monitors that are silent, once their targets were told, a few at a time; and what is kept no longer.

    Nothing is removed by a clock that has just jumped.
    """
    if not site.state.time.is_settled:
        log.warning("not tidied, for the clock has jumped")
        return
    announced = await _all(site, announce)
    removed = await _all(site, remove_announced)
    await in_transaction(site.storage, lambda connection: _remove_old(connection, site.state.time.now()))
    site.state.dispatcher.wake()
    log.info("tidied", extra={"silent_monitors": removed, "announced": announced})


async def _all(site: Here, step: Callable[..., int]) -> int:
    total = 0
    while found := await in_transaction(site.storage, partial(step, now=site.state.time.now())):
        total += found
    return total


def announce(connection: Connection, now: datetime) -> int:
    """Tell the targets of silent monitors that they will be removed; returns how many monitors."""
    told = MONITORS.c.expiry_told_at
    untold = or_(told.is_(None), told <= MONITORS.c.deadline_at, told > now)
    rows = connection.execute(select(MONITORS).where(_silent(now), untold, ~_waits()).limit(MONITORS_PER_TRANSACTION)).all()
    notices = [
        Notice(targets_of(row), row.id, row.epoch, "expiring", now, row.deadline_at, None, "silent", row.last_beat_at) for row in rows
    ]
    raise_alerts(connection, notices, now=now)
    connection.execute(update(MONITORS).where(among(connection, MONITORS.c.id, [row.id for row in rows])).values(expiry_told_at=now))
    return len(rows)


def remove_announced(connection: Connection, now: datetime) -> int:
    """Remove monitors whose targets were told, or can be told nothing any more; returns how many."""
    told = MONITORS.c.expiry_told_at
    due = and_(told > MONITORS.c.deadline_at, told <= now - NOTICE, ~_waits())
    rows = connection.execute(select(MONITORS).where(_silent(now), due).limit(MONITORS_PER_TRANSACTION)).all()
    delete_all(connection, rows)
    return len(rows)


def _silent(now: datetime) -> ColumnElement[bool]:
    return and_(MONITORS.c.owner.is_(None), MONITORS.c.deadline_at <= now - INACTIVE_AFTER)


def _waits() -> ColumnElement[bool]:
    """Whether an announcement is still to be delivered, to a target that has not been given up."""
    of_monitor = and_(ALERTS.c.monitor_id == MONITORS.c.id, ALERTS.c.kind == "expiring")
    return exists().where(of_monitor, TARGETS.c.id == ALERTS.c.target_id, TARGETS.c.disabled_at.is_(None))


def _remove_old(connection: Connection, now: datetime) -> None:
    connection.execute(REPLIES.delete().where(REPLIES.c.at <= now - ANSWER_RETENTION))
    connection.execute(ALERTS.delete().where(ALERTS.c.at <= now - UNDELIVERABLE))
    used = select(TARGETS.c.owner).where(TARGETS.c.owner.is_not(None))
    connection.execute(
        OWNERS.delete().where(OWNERS.c.monitors == 0, OWNERS.c.lineage.not_in(used), OWNERS.c.asked_on < now.date().toordinal())
    )
