"""The outbox: what is to be sent next to each target, and what became of it. Each step is one transaction.

A target is a lane: one message at a time, in the order of the alerts. More than five that wait become one digest. The id of
a message is on disk before it is sent, so that a crash at any moment leads to another try under the same id.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, Connection, Row, bindparam, case, exists, func, literal, select, type_coerce, update

from buildings.recorder.beat import MICROSECOND
from buildings.recorder.capsule import preview
from buildings.recorder.delivery.ladder import Next
from buildings.recorder.delivery.parcel import Item, Parcel
from buildings.recorder.delivery.shares import HEALTHS, Health, Lane, UnderWay
from buildings.recorder.delivery.turns import Turns
from buildings.recorder.tables import ALERTS, CAPSULES, MONITORS, OWNERS, TARGETS
from campus import Entropy, Moment, among, is_postgres, random_id

ALONE = 5
"""As many alerts go out one by one; more become a digest."""
LARGEST_DIGEST = 100
LARGEST_ID = 2**62
LEASE = timedelta(seconds=45)
"""Longer than any try takes."""
LOOKED_AT = 500
"""Lanes of a kind from which the next are chosen: more would cost more than it makes fairer, for full senders are left out."""
LONGEST_ROUNDS = 20
"""Times that lanes are chosen anew, when all that were looked at must wait."""
LEAST_WAIT = timedelta(milliseconds=50)
BURST = timedelta(minutes=1)
"""Within it one target is sent so many messages; what more there is waits, and becomes a digest."""


@dataclass(frozen=True)
class Done:
    """A message that was taken, or need not be sent any more.

    `health` is what is thought of its target from then on; `reopens`: what else waits for its sender and host is due.
    """

    lane: Lane
    message_id: str
    at: datetime
    health: Health = "proven"
    reopens: bool = False


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


def claim(connection: Connection, now: datetime, *, turns: Turns, entropy: Entropy) -> list[Parcel]:
    """Take the messages that are due and whose turn it is, for as long as the lease lasts; in `turns` they count as begun."""
    begun: list[Lane] = []
    try:
        parcels = _claimed(connection, now, turns, begun, entropy)
    except BaseException:
        turns.give_back(begun)
        raise
    taken = {parcel.target_id for parcel in parcels}
    turns.give_back(lane for lane in begun if lane.target_id not in taken)
    return parcels


def _claimed(connection: Connection, now: datetime, turns: Turns, begun: list[Lane], entropy: Entropy) -> list[Parcel]:
    for _ in range(LONGEST_ROUNDS):
        lanes, later = _turns_taken(connection, now, turns)
        begun += lanes
        _postpone(connection, later, now)
        if lanes or not later:
            break
    if not begun:
        return []
    rows = _rows(connection, [lane.target_id for lane in begun])
    waiting = _waiting(connection, [lane.target_id for lane in begun])
    chosen: list[tuple[Lane, Row[Any], str, Sequence[Row[Any]]]] = []
    for lane in begun:
        row = rows[lane.target_id]
        message_id, alerts = _next_message(row, waiting.get(lane.target_id, ()), entropy)
        if alerts:
            chosen.append((lane, row, message_id, alerts))
    _lease(connection, begun, {lane.target_id: (message_id, alerts) for lane, _, message_id, alerts in chosen}, now)
    capsules = _capsules(connection, {one.monitor_id for *_, alerts in chosen for one in alerts if one.owner})
    return [_parcel(lane, row, message_id, alerts, capsules) for lane, row, message_id, alerts in chosen]


def _turns_taken(connection: Connection, now: datetime, turns: Turns) -> tuple[list[Lane], dict[str, datetime]]:
    """Lanes that begin now, proven ones first, and when those are to be looked at again that may not."""
    lanes: list[Lane] = []
    later: dict[str, datetime] = {}
    for health in HEALTHS:
        for among_senders in _in_order(health, turns.doubted(now)):
            if turns.under_way.free(health) > 0:
                chosen, postponed = turns.choose(_due_lanes(connection, health, now, turns.under_way, among_senders), health, now)
                lanes += chosen
                later |= postponed
    return lanes, later


class Senders(NamedTuple):
    """All senders but these, or only these."""

    names: Sequence[str]
    only: bool


def _in_order(health: Health, doubted: Sequence[str]) -> Sequence[Senders]:
    """Whose targets of a kind come first, and whose then: new ones of senders whose others fail keep nobody else's waiting."""
    return [Senders(doubted, only=False), Senders(doubted, only=True)] if health == "new" and doubted else [Senders((), only=False)]


def _due_lanes(connection: Connection, health: Health, now: datetime, under_way: UnderWay, senders: Senders) -> list[Lane]:
    """The longest due of one kind, but for senders that have as much under way as they may, in all or to a host."""
    target = TARGETS.c
    free = target.leased_until.is_(None) | (target.leased_until <= now)
    due = (target.health == health) & (target.next_try_at <= now) & target.disabled_at.is_(None) & free
    for column, full in ((target.sender, under_way.full_senders()), (target.sender + " " + target.host, under_way.full_pairs(health))):
        if full:
            due &= ~among(connection, column, full)
    if senders.names:
        named = among(connection, target.sender, senders.names)
        due &= named if senders.only else ~named
    columns = (target.id, target.health, target.sender, target.host, target.owner, target.answered_at, target.attempts)
    rows = connection.execute(select(*columns).where(due).order_by(target.next_try_at).limit(LOOKED_AT))
    return [Lane(name, health, sender, host, owner is not None, at is not None, tries) for name, _, sender, host, owner, at, tries in rows]


def _postpone(connection: Connection, later: Mapping[str, datetime], now: datetime) -> None:
    if later:
        soonest = now + LEAST_WAIT
        moved = update(TARGETS).where(TARGETS.c.id == bindparam("key")).values(next_try_at=bindparam("at", type_=Moment()))
        connection.execute(moved, [{"key": target_id, "at": max(at, soonest)} for target_id, at in later.items()])


def _rows(connection: Connection, ids: Sequence[str]) -> Mapping[str, Row[Any]]:
    joined = TARGETS.outerjoin(OWNERS, TARGETS.c.owner == OWNERS.c.lineage)
    statement = select(TARGETS, OWNERS.c.ends_at).select_from(joined).where(among(connection, TARGETS.c.id, ids))
    return {row.id: row for row in connection.execute(statement)}


def _waiting(connection: Connection, ids: Sequence[str]) -> Mapping[str, Sequence[Row[Any]]]:
    """The first alerts of each lane; for an address that nobody confirmed only the question whether it may be used."""
    target, other = TARGETS.c, ALERTS.alias()
    allowed = target.verified_at.is_not(None) | (ALERTS.c.kind == "confirm")
    may_be_next = (other.c.target_id == target.id) & (target.verified_at.is_not(None) | (other.c.kind == "confirm"))
    last = select(other.c.id).where(may_be_next).order_by(other.c.id).offset(LARGEST_DIGEST - 1).limit(1).scalar_subquery()
    monitor = MONITORS.c
    joined = TARGETS.join(ALERTS, ALERTS.c.target_id == target.id).outerjoin(MONITORS, ALERTS.c.monitor_id == monitor.id)
    few = ALERTS.c.id <= func.coalesce(last.correlate(TARGETS), LARGEST_ID)
    statement = select(ALERTS, monitor.name, monitor.owner, monitor.deadline_at).select_from(joined)
    chosen = statement.where(among(connection, target.id, ids), allowed, few).order_by(ALERTS.c.target_id, ALERTS.c.id)
    return {target_id: list(rows) for target_id, rows in groupby(connection.execute(chosen).all(), key=lambda row: str(row.target_id))}


def _next_message(lane: Row[Any], waiting: Sequence[Row[Any]], entropy: Entropy) -> tuple[str, Sequence[Row[Any]]]:
    """The message that is under way, else a new one: the first alert, or all of many."""
    if lane.message_id is not None and (under_way := [one for one in waiting if one.message_id == lane.message_id]):
        return lane.message_id, under_way
    return random_id("msg", entropy), waiting if len(waiting) > ALONE else waiting[:1]


def _lease(connection: Connection, lanes: Sequence[Lane], messages: Mapping[str, tuple[str, Sequence[Row[Any]]]], now: datetime) -> None:
    if idle := [lane.target_id for lane in lanes if lane.target_id not in messages]:
        connection.execute(update(TARGETS).where(among(connection, TARGETS.c.id, idle)).values(next_try_at=None, message_id=None))
    if not messages:
        return
    leased = update(TARGETS).where(TARGETS.c.id == bindparam("key")).values(message_id=bindparam("message"), leased_until=now + LEASE)
    connection.execute(leased, [{"key": target_id, "message": message_id} for target_id, (message_id, _) in messages.items()])
    named = update(ALERTS).where(ALERTS.c.id == bindparam("key")).values(message_id=bindparam("message"))
    connection.execute(named, [{"key": one.id, "message": message_id} for message_id, alerts in messages.values() for one in alerts])


def _capsules(connection: Connection, monitor_ids: Iterable[str]) -> Sequence[Row[Any, Any, Any]]:
    ids = list(monitor_ids)
    if not ids:
        return ()
    body = func.substr(CAPSULES.c.body, 1, 1_000).label("body")
    statement = select(CAPSULES.c.monitor_id, CAPSULES.c.at, body).where(among(connection, CAPSULES.c.monitor_id, ids))
    return connection.execute(statement.order_by(CAPSULES.c.number.desc())).all()


def _parcel(lane: Lane, row: Row[Any], message_id: str, alerts: Sequence[Row[Any]], capsules: Sequence[Row[Any, Any, Any]]) -> Parcel:
    return Parcel(
        message_id=message_id,
        lane=lane,
        kind=row.kind,
        address=row.address,
        secret=row.secret,
        items=tuple(_item(one, capsules) for one in alerts),
        failing_since=row.failing_since,
        key_ends_at=row.ends_at,
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
NOW = bindparam("now", type_=Moment())
IN_BURST = TARGETS.c.burst_since > bindparam("burst_began", type_=Moment())
SENT = case((IN_BURST, TARGETS.c.burst + 1), else_=1)
SINCE = case((IN_BURST, TARGETS.c.burst_since), else_=NOW)
FULL = bindparam("most") <= SENT
NEXT_BURST = type_coerce(SINCE + literal(BURST // MICROSECOND, BigInteger()), Moment())
CLOSE = (
    update(TARGETS)
    .where(OPEN)
    .values(
        message_id=None,
        attempts=0,
        failing_since=None,
        last_error=None,
        leased_until=None,
        health=bindparam("lane_health"),
        answered_at=NOW,
        tried_at=NOW,
        burst=SENT,
        burst_since=SINCE,
        hold_until=case((FULL, NEXT_BURST), else_=None),
        next_try_at=case((~MORE, None), (FULL, NEXT_BURST), else_=NOW),
    )
)
REMOVE = ALERTS.delete().where(ALERTS.c.target_id == bindparam("target"), ALERTS.c.message_id == bindparam("message"))
POSTPONE = (
    update(TARGETS)
    .where(OPEN)
    .values(
        attempts=TARGETS.c.attempts + 1,
        health="suspect",
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


REOPEN = (
    update(TARGETS)
    .where(
        *(TARGETS.c.owner.is_(None), TARGETS.c.sender == bindparam("by"), TARGETS.c.host == bindparam("at")),
        *(TARGETS.c.answered_at.is_(None), TARGETS.c.next_try_at > NOW),
    )
    .values(next_try_at=case((TARGETS.c.hold_until > NOW, TARGETS.c.hold_until), else_=NOW))
)


def settle(connection: Connection, results: Sequence[Done | Failed], *, most: int) -> list[Exception | None]:
    """Note what became of messages, as many as wait in one transaction; `most` is how many a minute one target is sent."""
    if done := [one for one in results if isinstance(one, Done)]:
        connection.execute(REMOVE, [{"target": one.lane.target_id, "message": one.message_id} for one in done])
        connection.execute(CLOSE, [_closed(one, most=most) for one in done])
        for one in done:
            if one.reopens:
                connection.execute(REOPEN, {"by": one.lane.sender, "at": one.lane.host, "now": one.at})
    if failed := [_postponed(one) for one in results if isinstance(one, Failed)]:
        connection.execute(POSTPONE, failed)
    return [None] * len(results)


def _closed(done: Done, *, most: int) -> dict[str, Any]:
    return {
        "target": done.lane.target_id,
        "message": done.message_id,
        "now": done.at,
        "burst_began": done.at - BURST,
        "lane_health": done.health,
        "most": most,
    }


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
