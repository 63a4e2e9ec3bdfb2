"""The recorder's jobs: follow owners' keys each minute, delete inactive monitors and expired rows each day."""

import logging
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Table, and_, exists, or_, select, update

from buildings.recorder.alerts.raising import Notice, raise_alerts
from buildings.recorder.alerts.texts import WATCHED_AFTER_EXPIRY
from buildings.recorder.monitors.registration import ANSWER_RETENTION
from buildings.recorder.monitors.rows import apply_key_event, delete_all
from buildings.recorder.runtime import RecorderSite
from buildings.recorder.tables import ALERTS, DELIVERIES, FLEET_KEYS, MONITORS, OWNERS, REPLIES, TARGETS
from campus.storage import among, in_snapshot, in_transaction

log = logging.getLogger(__name__)

INACTIVE_AFTER = timedelta(days=30)  # A monitor without a key is inactive if no beat came for this long after its deadline.
NOTICE_BEFORE_DELETION = timedelta(hours=20)
"""The least time from the notice to the deletion, so that the next day's job deletes."""
ALERT_RETENTION = timedelta(days=30)  # How long an alert is stored: undelivered, and for the timeline after it was delivered.
MONITORS_PER_TRANSACTION = 200
ROWS_PER_TRANSACTION = 5_000
EXPIRING = ((REPLIES, "at", ANSWER_RETENTION), (ALERTS, "at", ALERT_RETENTION), (DELIVERIES, "delivered_at", ALERT_RETENTION))
OWNERS_AT_ONCE = 200


async def follow_keys(site: RecorderSite) -> bool:
    """Store when each owner's key expires. A week after that its monitors fall asleep; a renewed key wakes them.

    They also wake if a clock that was ahead is corrected and the week is not over. Returns whether any changed.
    """
    followed = 0
    owners = await in_snapshot(site.storage, _owners)
    for start in range(0, len(owners), OWNERS_AT_ONCE):
        part = owners[start : start + OWNERS_AT_ONCE]
        ends = await site.keys.ends_of([owner.lineage for owner in part])
        for owner in part:
            now = site.state.time.now()
            ends_at = ends.get(owner.lineage, min(owner.ends_at, now))  # every key was revoked: it ends now, or has ended
            late = owner.asleep if now < ends_at + WATCHED_AFTER_EXPIRY else owner.awake
            if ends_at != owner.ends_at or late:
                work = partial(_follow_key, lineage=owner.lineage, ends_at=ends_at, now=now)
                if changed := await in_transaction(site.storage, work):
                    log.info("monitors followed their key", extra={"lineage": owner.lineage, "count": changed})
                    followed += changed
    return followed > 0


def _owners(connection: Connection) -> Sequence[Row[Any]]:
    mine = MONITORS.c.owner == OWNERS.c.lineage
    asleep = exists().where(mine, MONITORS.c.mode == "asleep").label("asleep")
    awake = exists().where(mine, MONITORS.c.mode != "asleep").label("awake")
    return connection.execute(
        select(OWNERS.c.lineage, OWNERS.c.ends_at, asleep, awake).where(or_(OWNERS.c.monitors > 0, _has_keys()))
    ).all()


def _follow_key(connection: Connection, lineage: str, ends_at: datetime, now: datetime) -> int:
    connection.execute(update(OWNERS).where(OWNERS.c.lineage == lineage).values(ends_at=ends_at))
    return apply_key_event(connection, lineage, "key_renewed" if now < ends_at + WATCHED_AFTER_EXPIRY else "key_ended", now=now)


async def tidy(site: RecorderSite) -> None:
    """Delete inactive monitors without a key, after a notice to their targets; and answers, alerts and owners that have expired.

    Nothing is deleted within an hour of a jump of the clock.
    """
    if not site.state.time.is_settled:
        log.warning("not tidied: the clock jumped")
        return
    announced = await _all(site, announce_deletion)
    deleted = await _all(site, delete_announced)
    for table, column, retention in EXPIRING:
        await _all(site, partial(_delete_older, table=table, column=column, retention=retention))
    await in_transaction(site.storage, partial(_delete_owners, now=site.state.time.now()))
    site.state.dispatcher.wake()
    log.info("tidied", extra={"inactive_monitors": deleted, "announced": announced})


async def _all(site: RecorderSite, step: Callable[..., int]) -> int:
    """Repeat a step, a transaction each time, until it finds no more monitors; returns how many it found."""
    total = 0
    while found := await in_transaction(site.storage, partial(step, now=site.state.time.now())):
        total += found
    return total


def announce_deletion(connection: Connection, now: datetime) -> int:
    announced_at = MONITORS.c.expiry_told_at
    is_new = or_(announced_at.is_(None), announced_at <= MONITORS.c.deadline_at, announced_at > now)
    rows = connection.execute(select(MONITORS).where(_is_inactive(now), is_new, ~_is_waiting()).limit(MONITORS_PER_TRANSACTION)).all()
    notices = [Notice(row.id, row.epoch, "expiring", now, row.deadline_at, None, "silent", row.last_beat_at) for row in rows]
    raise_alerts(connection, notices, now=now)
    connection.execute(update(MONITORS).where(among(connection, MONITORS.c.id, [row.id for row in rows])).values(expiry_told_at=now))
    return len(rows)


def delete_announced(connection: Connection, now: datetime) -> int:
    """Delete inactive monitors whose notice was delivered or can no longer be delivered; returns the number of monitors."""
    announced_at = MONITORS.c.expiry_told_at
    is_due = and_(announced_at > MONITORS.c.deadline_at, announced_at <= now - NOTICE_BEFORE_DELETION, ~_is_waiting())
    rows = connection.execute(select(MONITORS).where(_is_inactive(now), is_due).limit(MONITORS_PER_TRANSACTION)).all()
    delete_all(connection, rows)
    return len(rows)


def _is_inactive(now: datetime) -> ColumnElement[bool]:
    return and_(MONITORS.c.owner.is_(None), MONITORS.c.deadline_at <= now - INACTIVE_AFTER)


def _is_waiting() -> ColumnElement[bool]:
    of_monitor = and_(ALERTS.c.monitor_id == MONITORS.c.id, ALERTS.c.kind == "expiring")
    return exists().where(of_monitor, TARGETS.c.id == ALERTS.c.target_id, TARGETS.c.disabled_at.is_(None))


def _delete_older(connection: Connection, now: datetime, *, table: Table, column: str, retention: timedelta) -> int:
    """Delete some rows that are as old as this; returns how many. All at once could hold up beats for seconds."""
    (key,) = table.primary_key
    some = select(key).where(table.c[column] <= now - retention).limit(ROWS_PER_TRANSACTION)
    return connection.execute(table.delete().where(key.in_(some))).rowcount


def _has_keys() -> ColumnElement[bool]:
    return exists().where(FLEET_KEYS.c.owner == OWNERS.c.lineage)


def _delete_owners(connection: Connection, now: datetime) -> None:
    """Delete the ping and read keys of owners whose key has ended, and owners of whom nothing is left."""
    ended = select(OWNERS.c.lineage).where(OWNERS.c.ends_at <= now - WATCHED_AFTER_EXPIRY)
    connection.execute(FLEET_KEYS.delete().where(FLEET_KEYS.c.owner.in_(ended)))
    used = select(TARGETS.c.owner).where(TARGETS.c.owner.is_not(None))
    connection.execute(OWNERS.delete().where(OWNERS.c.monitors == 0, OWNERS.c.lineage.not_in(used), ~_has_keys()))
