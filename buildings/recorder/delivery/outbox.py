"""The outbox: what is to be sent next to each target, and what became of it. Each step is one transaction.

A target is a lane: one message at a time, in the order of the alerts. More than five that wait become one digest. The id of
a message is on disk before it is sent, so that a crash at any moment leads to another try under the same id.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

from sqlalchemy import Connection, Row, bindparam, case, exists, func, select, update

from buildings.recorder.capsule import preview
from buildings.recorder.delivery.ladder import Next
from buildings.recorder.delivery.parcel import Item, Parcel
from buildings.recorder.rows import among, is_postgres
from buildings.recorder.secrets import Entropy, new_id
from buildings.recorder.tables import ALERTS, CAPSULES, MONITORS, OWNERS, TARGETS, Moment

ALONE = 5
"""As many alerts go out one by one; more become a digest."""
LARGEST_DIGEST = 100
LEASE = timedelta(seconds=45)
"""Longer than any try takes."""


@dataclass(frozen=True)
class Done:
    """A message that was taken, or need not be sent any more."""

    target_id: str
    message_id: str
    at: datetime


@dataclass(frozen=True)
class Failed:
    """A message that was not taken."""

    target_id: str
    message_id: str
    at: datetime
    reason: str
    next: Next


def void_leases(connection: Connection) -> None:
    """Let everything be claimed anew: for a process that starts and knows that it is the only one. On PostgreSQL leases lapse."""
    if not is_postgres(connection):
        connection.execute(update(TARGETS).where(TARGETS.c.leased_until.is_not(None)).values(leased_until=None))


def claim(connection: Connection, now: datetime, *, limit: int, entropy: Entropy) -> list[Parcel]:
    """Take up to `limit` messages that are due, for as long as the lease lasts."""
    lanes = _due_lanes(connection, now, limit)
    waiting = _waiting(connection, lanes)
    parcels: list[tuple[Row[Any], str, Sequence[Row[Any]]]] = []
    for lane in lanes:
        message_id, chosen = _next_message(lane, waiting.get(lane.id, ()), entropy)
        if chosen:
            parcels.append((lane, message_id, chosen))
    _lease(connection, lanes, parcels, now)
    capsules = _capsules(connection, {one.monitor_id for _, _, chosen in parcels for one in chosen if one.owner})
    return [_parcel(lane, message_id, chosen, capsules) for lane, message_id, chosen in parcels]


def _due_lanes(connection: Connection, now: datetime, limit: int) -> Sequence[Row[Any]]:
    target = TARGETS.c
    free = target.leased_until.is_(None) | (target.leased_until <= now)
    due = (target.next_try_at <= now) & target.disabled_at.is_(None) & free
    joined = TARGETS.outerjoin(OWNERS, target.owner == OWNERS.c.lineage)
    statement = select(TARGETS, OWNERS.c.ends_at).select_from(joined).where(due).order_by(target.next_try_at).limit(limit)
    return connection.execute(statement).all()


def _waiting(connection: Connection, lanes: Sequence[Row[Any]]) -> Mapping[str, Sequence[Row[Any]]]:
    """The first alerts of each lane; for an address that nobody confirmed only the question whether it may be used."""
    place = func.row_number().over(partition_by=ALERTS.c.target_id, order_by=ALERTS.c.id).label("place")
    allowed = TARGETS.c.verified_at.is_not(None) | (ALERTS.c.kind == "confirm")
    inner = (
        select(ALERTS, place)
        .select_from(ALERTS.join(TARGETS, ALERTS.c.target_id == TARGETS.c.id))
        .where(among(connection, ALERTS.c.target_id, [lane.id for lane in lanes]), allowed)
        .subquery()
    )
    monitor = MONITORS.c
    joined = inner.outerjoin(MONITORS, inner.c.monitor_id == monitor.id)
    statement = select(inner, monitor.name, monitor.owner, monitor.deadline_at).select_from(joined)
    found = connection.execute(statement.where(inner.c.place <= LARGEST_DIGEST).order_by(inner.c.target_id, inner.c.id)).all()
    return {target_id: list(rows) for target_id, rows in groupby(found, key=lambda row: str(row.target_id))}


def _next_message(lane: Row[Any], waiting: Sequence[Row[Any]], entropy: Entropy) -> tuple[str, Sequence[Row[Any]]]:
    """The message that is under way, else a new one: the first alert, or all of many."""
    if lane.message_id is not None and (under_way := [one for one in waiting if one.message_id == lane.message_id]):
        return lane.message_id, under_way
    return new_id("msg", entropy), waiting if len(waiting) > ALONE else waiting[:1]


def _lease(
    connection: Connection, lanes: Sequence[Row[Any]], parcels: Iterable[tuple[Row[Any], str, Sequence[Row[Any]]]], now: datetime
) -> None:
    messages = {lane.id: (message_id, chosen) for lane, message_id, chosen in parcels}
    if idle := [lane.id for lane in lanes if lane.id not in messages]:
        connection.execute(update(TARGETS).where(among(connection, TARGETS.c.id, idle)).values(next_try_at=None, message_id=None))
    if not messages:
        return
    leased = update(TARGETS).where(TARGETS.c.id == bindparam("key")).values(message_id=bindparam("message"), leased_until=now + LEASE)
    connection.execute(leased, [{"key": target_id, "message": message_id} for target_id, (message_id, _) in messages.items()])
    named = update(ALERTS).where(ALERTS.c.id == bindparam("key")).values(message_id=bindparam("message"))
    connection.execute(named, [{"key": one.id, "message": message_id} for message_id, chosen in messages.values() for one in chosen])


def _capsules(connection: Connection, monitor_ids: Iterable[str]) -> Sequence[Row[Any, Any, Any]]:
    ids = list(monitor_ids)
    if not ids:
        return ()
    body = func.substr(CAPSULES.c.body, 1, 1_000).label("body")
    statement = select(CAPSULES.c.monitor_id, CAPSULES.c.at, body).where(among(connection, CAPSULES.c.monitor_id, ids))
    return connection.execute(statement.order_by(CAPSULES.c.number.desc())).all()


def _parcel(lane: Row[Any], message_id: str, chosen: Sequence[Row[Any]], capsules: Sequence[Row[Any, Any, Any]]) -> Parcel:
    return Parcel(
        message_id=message_id,
        target_id=lane.id,
        kind=lane.kind,
        address=lane.address,
        secret=lane.secret,
        items=tuple(_item(one, capsules) for one in chosen),
        attempts=lane.attempts,
        failing_since=lane.failing_since,
        key_ends_at=lane.ends_at,
    )


def _item(row: Row[Any], capsules: Sequence[Row[Any, Any, Any]]) -> Item:
    """The alert, with the capsule that was the last one when it was raised."""
    last = next((one for one in capsules if one.monitor_id == row.monitor_id and one.at <= row.at), None)
    return Item(
        kind=row.kind,
        monitor_id=row.monitor_id,
        name=row.name,
        at=row.at,
        since=row.since,
        until=row.until,
        reason=row.reason,
        last_beat_at=row.last_beat_at,
        deadline_at=row.deadline_at,
        owned=row.owner is not None,
        capsule=preview(last.body) if last else None,
        taken_at=last.at if last else None,
    )


OPEN = (TARGETS.c.id == bindparam("target")) & (TARGETS.c.message_id == bindparam("message"))
MORE = exists().where(ALERTS.c.target_id == TARGETS.c.id)
CLOSE = (
    update(TARGETS)
    .where(OPEN)
    .values(
        message_id=None,
        attempts=0,
        failing_since=None,
        last_error=None,
        hold_until=None,
        leased_until=None,
        tried_at=bindparam("now", type_=Moment()),
        next_try_at=case((MORE, bindparam("now", type_=Moment())), else_=None),
    )
)
REMOVE = ALERTS.delete().where(ALERTS.c.target_id == bindparam("target"), ALERTS.c.message_id == bindparam("message"))
POSTPONE = (
    update(TARGETS)
    .where(OPEN)
    .values(
        attempts=TARGETS.c.attempts + 1,
        failing_since=func.coalesce(TARGETS.c.failing_since, bindparam("now", type_=Moment())),
        last_error=bindparam("reason"),
        tried_at=bindparam("now", type_=Moment()),
        leased_until=None,
        next_try_at=bindparam("try_at", type_=Moment()),
        hold_until=bindparam("hold_until", type_=Moment()),
        disabled_at=bindparam("disabled_at", type_=Moment()),
        disabled_because=bindparam("because"),
    )
)


def settle(connection: Connection, results: Sequence[Done | Failed]) -> list[Exception | None]:
    """Note what became of messages, as many as wait in one transaction."""
    done = [{"target": one.target_id, "message": one.message_id} for one in results if isinstance(one, Done)]
    if done:
        connection.execute(REMOVE, done)
        times = [one.at for one in results if isinstance(one, Done)]
        connection.execute(CLOSE, [{**key, "now": at} for key, at in zip(done, times, strict=True)])
    if failed := [_postponed(one) for one in results if isinstance(one, Failed)]:
        connection.execute(POSTPONE, failed)
    return [None] * len(results)


def _postponed(failed: Failed) -> dict[str, Any]:
    because = failed.next.disabled_because
    return {
        "target": failed.target_id,
        "message": failed.message_id,
        "now": failed.at,
        "reason": failed.reason,
        "try_at": failed.next.try_at,
        "hold_until": failed.next.hold_until,
        "disabled_at": failed.at if because else None,
        "because": because,
    }
