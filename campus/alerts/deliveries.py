"""The dispatcher's SQL: claims the messages to send next, and stores what became of each.

A message is one alert, or a digest of all that wait for a target. The alerts for one target are sent one message at a time, in
their order. More than five that wait become one digest. The id of a message is on disk before it is sent, so that a crash at any
moment leads to another try under the same id. Delivered alerts leave the outbox, failed ones are tried again later.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from itertools import groupby
from typing import Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    Connection,
    Delete,
    Row,
    Update,
    bindparam,
    case,
    exists,
    func,
    literal,
    select,
    type_coerce,
    update,
)

from campus.alerts.message import HEALTHS, AlertContents, Health, Lane, Message
from campus.alerts.outbox import CONFIRM, Outbox
from campus.alerts.rates import NextStep
from campus.alerts.turns import MOST_CHOSEN, Turns, UnderWay
from campus.secrets import Entropy, random_id
from campus.storage import MICROSECOND, Lease, Moment, among

MOST_SENT_SINGLY = 5
"""Up to this many waiting alerts are sent one by one; more become a digest."""
LARGEST_DIGEST = 100
LARGEST_ID = 2**62
LEASE = Lease(timedelta(seconds=45))
"""Longer than any try takes."""
CANDIDATES = 500
"""The next targets of one health are chosen from this many. Senders at their limit are not among them."""
LONGEST_ROUNDS = 20
"""How often the choice is repeated when all candidates must wait."""
LEAST_WAIT = timedelta(milliseconds=50)
BURST = timedelta(minutes=1)
"""In this time one target is sent a limited number of messages; further alerts wait and become a digest."""


@dataclass(frozen=True)
class Claimer:
    """Claims messages of one outbox for one process; `turns` decides which come next."""

    outbox: Outbox
    contents: AlertContents
    turns: Turns
    entropy: Entropy

    def claim(self, connection: Connection, now: datetime) -> list[Message]:
        """Lease the next messages that are due; `turns` counts them as begun."""
        begun: list[Lane] = []
        try:
            messages = self._claimed(connection, now, begun)
        except BaseException:
            self.turns.give_back(begun)
            raise
        taken = {message.target_id for message in messages}
        self.turns.give_back(lane for lane in begun if lane.target_id not in taken)
        return messages

    def _claimed(self, connection: Connection, now: datetime, begun: list[Lane]) -> list[Message]:
        for _ in range(LONGEST_ROUNDS):
            lanes, later = self._take_turns(connection, now)
            begun += lanes
            _postpone(connection, self.outbox, later, now)
            if lanes or not later:
                break
        if not begun:
            return []
        ids = [lane.target_id for lane in begun]
        targets = _targets(connection, self.outbox, ids)
        waiting = _waiting(connection, self.outbox, self.contents, ids)
        chosen = [_with_message(lane, targets[lane.target_id], waiting.get(lane.target_id, ()), self.entropy) for lane in begun]
        _lease(connection, self.outbox, chosen, now)
        return self._messages(connection, [one for one in chosen if one.alerts])

    def _take_turns(self, connection: Connection, now: datetime) -> tuple[list[Lane], dict[str, datetime]]:
        """Lanes that begin now, proven ones first; and by target id, when those that must wait are next due."""
        lanes: list[Lane] = []
        later: dict[str, datetime] = {}
        for health in HEALTHS:
            most = MOST_CHOSEN
            for senders in _in_order(health, self.turns.doubted(now)):
                if most and self.turns.under_way.free(health) > 0:
                    due = _due_lanes(connection, self.outbox, health, now, self.turns.under_way, senders)
                    chosen, postponed = self.turns.choose(due, health, now, most=most)
                    most -= len(chosen)
                    lanes += chosen
                    later |= postponed
        return lanes, later

    def _messages(self, connection: Connection, chosen: Sequence["Chosen"]) -> list[Message]:
        rows = [row for one in chosen for row in one.alerts]
        loaded = iter(self.contents.load(connection, rows) if rows else ())
        return [
            Message(
                id=one.message_id,
                lane=one.lane,
                kind=one.target.kind,
                address=one.target.address,
                secret=one.target.secret,
                alerts=tuple(next(loaded) for _ in one.alerts),
                failing_since=one.target.failing_since,
            )
            for one in chosen
        ]


class Chosen(NamedTuple):
    """A lane that begins now, with the alerts of its next message; no alerts if none may be sent."""

    lane: Lane
    target: Row[Any]
    message_id: str
    alerts: Sequence[Row[Any]]


class Senders(NamedTuple):
    """All senders except these, or only these."""

    names: Sequence[str]
    only: bool


def _in_order(health: Health, doubted: Sequence[str]) -> Sequence[Senders]:
    """The order of senders: new targets of doubted senders come after those of all others."""
    return [Senders(doubted, only=False), Senders(doubted, only=True)] if health == "new" and doubted else [Senders((), only=False)]


def _due_lanes(connection: Connection, outbox: Outbox, health: Health, now: datetime, under_way: UnderWay, senders: Senders) -> list[Lane]:
    """The due targets of one health, the longest due first. Senders at their limit, in all or at a host, are left out."""
    target = outbox.targets.c
    free = target.leased_until.is_(None) | (target.leased_until <= now)
    due = (target.health == health) & (target.next_try_at <= now) & target.disabled_at.is_(None) & free
    for column, full in ((target.sender, under_way.full_senders()), (target.sender + " " + target.host, under_way.full_pairs(health))):
        if full:
            due &= ~among(connection, column, full)
    if senders.names:
        named = among(connection, target.sender, senders.names)
        due &= named if senders.only else ~named
    columns = (target.id, target.health, target.sender, target.host, target.owner, target.answered_at, target.attempts)
    rows = connection.execute(select(*columns).where(due).order_by(target.next_try_at).limit(CANDIDATES))
    return [Lane(name, health, sender, host, owner is not None, at is not None, tries) for name, _, sender, host, owner, at, tries in rows]


def _postpone(connection: Connection, outbox: Outbox, later: Mapping[str, datetime], now: datetime) -> None:
    if later:
        soonest = now + LEAST_WAIT
        target = outbox.targets
        moved = update(target).where(target.c.id == bindparam("key")).values(next_try_at=bindparam("at", type_=Moment()))
        connection.execute(moved, [{"key": target_id, "at": max(at, soonest)} for target_id, at in later.items()])


def _targets(connection: Connection, outbox: Outbox, ids: Sequence[str]) -> Mapping[str, Row[Any]]:
    found = connection.execute(select(outbox.targets).where(among(connection, outbox.targets.c.id, ids)))
    return {row.id: row for row in found}


def _waiting(connection: Connection, outbox: Outbox, contents: AlertContents, ids: Sequence[str]) -> Mapping[str, Sequence[Row[Any]]]:
    """The first alerts of each target; for an unconfirmed target only the question for confirmation."""
    target = outbox.targets.c
    alert = outbox.alerts
    other = outbox.alerts.alias()
    allowed = target.verified_at.is_not(None) | (alert.c.kind == CONFIRM)
    may_be_next = (other.c.target_id == target.id) & (target.verified_at.is_not(None) | (other.c.kind == CONFIRM))
    last = select(other.c.id).where(may_be_next).order_by(other.c.id).offset(LARGEST_DIGEST - 1).limit(1).scalar_subquery()
    joined = contents.joined(outbox.targets.join(alert, alert.c.target_id == target.id))
    few = alert.c.id <= func.coalesce(last.correlate(outbox.targets), LARGEST_ID)
    statement = select(alert, *contents.columns).select_from(joined)
    chosen = statement.where(among(connection, target.id, ids), allowed, few).order_by(alert.c.target_id, alert.c.id)
    return {target_id: list(rows) for target_id, rows in groupby(connection.execute(chosen).all(), key=lambda row: str(row.target_id))}


def _with_message(lane: Lane, target: Row[Any], waiting: Sequence[Row[Any]], entropy: Entropy) -> Chosen:
    """The lane with the message whose last try failed; otherwise a new one with the first alert, or with all if they are many."""
    if target.message_id is not None and (under_way := [one for one in waiting if one.message_id == target.message_id]):
        return Chosen(lane, target, target.message_id, under_way)
    return Chosen(lane, target, random_id("msg", entropy), waiting if len(waiting) > MOST_SENT_SINGLY else waiting[:1])


def _lease(connection: Connection, outbox: Outbox, chosen: Sequence[Chosen], now: datetime) -> None:
    """Lease the targets whose message is sent now; those without a waiting alert are no longer due."""
    target = outbox.targets
    alert = outbox.alerts
    if idle := [one.lane.target_id for one in chosen if not one.alerts]:
        connection.execute(update(target).where(among(connection, target.c.id, idle)).values(next_try_at=None, message_id=None))
    if not (sent := [one for one in chosen if one.alerts]):
        return
    leased = update(target).where(target.c.id == bindparam("key")).values(message_id=bindparam("message"), leased_until=LEASE.end(now))
    connection.execute(leased, [{"key": one.lane.target_id, "message": one.message_id} for one in sent])
    named = update(alert).where(alert.c.id == bindparam("key")).values(message_id=bindparam("message"))
    connection.execute(named, [{"key": row.id, "message": one.message_id} for one in sent for row in one.alerts])


@dataclass(frozen=True)
class Delivered:
    """A message that was delivered, or withheld because it need no longer be sent.

    `health` is the new health of its target. If it `reopens`, other messages of its sender to its host are due at once.
    """

    lane: Lane
    message_id: str
    at: datetime
    health: Health = "proven"
    reopens: bool = False
    withheld: bool = False


@dataclass(frozen=True)
class Failed:
    """A message that was not delivered, and what happens next."""

    target_id: str
    message_id: str
    at: datetime
    reason: str
    next: NextStep


def store_results(connection: Connection, results: Sequence[Delivered | Failed], *, outbox: Outbox, most: int) -> list[Exception | None]:
    """Store a batch of results. One target is sent at most `most` messages a minute."""
    statements = _statements_of(outbox)
    if delivered := [one for one in results if isinstance(one, Delivered)]:
        ended = [{"target": one.lane.target_id, "message": one.message_id, "now": one.at} for one in delivered]
        if sent := [row for row, one in zip(ended, delivered, strict=True) if not one.withheld]:
            outbox.keep(connection, sent)
        connection.execute(statements.delete, ended)
        connection.execute(statements.close, [_closed(one, most=most) for one in delivered])
        for one in delivered:
            if one.reopens:
                connection.execute(statements.reopen, {"by": one.lane.sender, "at": one.lane.host, "now": one.at})
    if failed := [_postponed(one) for one in results if isinstance(one, Failed)]:
        connection.execute(statements.postpone, failed)
    return [None] * len(results)


class _Statements(NamedTuple):
    """The SQL statements for one outbox, built once."""

    delete: Delete
    close: Update
    postpone: Update
    reopen: Update


@cache
def _statements_of(outbox: Outbox) -> _Statements:
    target = outbox.targets
    alert = outbox.alerts
    now = bindparam("now", type_=Moment())
    same_message = (target.c.id == bindparam("target")) & (target.c.message_id == bindparam("message"))
    unanswered = (target.c.owner.is_(None), target.c.answered_at.is_(None), target.c.next_try_at > now)
    return _Statements(
        delete=alert.delete().where(alert.c.target_id == bindparam("target"), alert.c.message_id == bindparam("message")),
        close=update(target).where(same_message).values(**_closing(outbox)),
        postpone=update(target)
        .where(same_message)
        .values(
            attempts=target.c.attempts + 1,
            health="suspect",
            failing_since=func.coalesce(target.c.failing_since, now),
            last_error=bindparam("reason"),
            tried_at=now,
            leased_until=None,
            next_try_at=bindparam("try_at", type_=Moment()),
            hold_until=bindparam("hold_until", type_=Moment()),
            disabled_at=bindparam("disabled_at", type_=Moment()),
            disabled_because=bindparam("because"),
        ),
        reopen=update(target)
        .where(target.c.sender == bindparam("by"), target.c.host == bindparam("at"), *unanswered)
        .values(next_try_at=case((target.c.hold_until > now, target.c.hold_until), else_=now)),
    )


def _closing(outbox: Outbox) -> dict[str, Any]:
    """What a delivered message changes: its target has no lease, counts it in its burst, and is due again if alerts wait."""
    target = outbox.targets.c
    now = bindparam("now", type_=Moment())
    more = exists().where(outbox.alerts.c.target_id == target.id)
    in_burst = target.burst_since > bindparam("burst_began", type_=Moment())
    sent = case((in_burst, target.burst + 1), else_=1)
    since = case((in_burst, target.burst_since), else_=now)
    full = bindparam("most") <= sent
    next_burst = type_coerce(since + literal(BURST // MICROSECOND, BigInteger()), Moment())
    return {
        "message_id": None,
        "attempts": 0,
        "failing_since": None,
        "last_error": None,
        "leased_until": None,
        "health": bindparam("lane_health"),
        "answered_at": now,
        "tried_at": now,
        "burst": sent,
        "burst_since": since,
        "hold_until": case((full, next_burst), else_=None),
        "next_try_at": case((~more, None), (full, next_burst), else_=now),
    }


def _closed(delivered: Delivered, *, most: int) -> dict[str, Any]:
    return {
        "target": delivered.lane.target_id,
        "message": delivered.message_id,
        "now": delivered.at,
        "burst_began": delivered.at - BURST,
        "lane_health": delivered.health,
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
