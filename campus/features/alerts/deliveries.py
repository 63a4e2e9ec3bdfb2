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
    ColumnElement,
    Connection,
    Row,
    Update,
    bindparam,
    case,
    exists,
    func,
    literal,
    select,
    true,
    type_coerce,
    update,
)

from campus.features.alerts.message import HEALTHS, AlertContents, Health, Lane, Message
from campus.features.alerts.outbox import CONFIRM, Outbox
from campus.features.alerts.retries import NextStep
from campus.features.alerts.turns import MOST_CHOSEN, Turns
from campus.secrets import Entropy, random_id
from campus.storage import MICROSECOND, Moment, among
from campus.storage.leases import Lease

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
NOW = bindparam("now", type_=Moment())
"""In statements: when a result was noted."""


class Chosen(NamedTuple):
    """A lane that begins now, with the alerts of its next message; no alerts if none may be sent."""

    lane: Lane
    target: Row[Any]
    message_id: str
    alerts: Sequence[Row[Any]]


@dataclass(frozen=True)
class Claimer:
    """Claims messages of one outbox for one process; `turns` decides which come next."""

    outbox: Outbox
    contents: AlertContents
    turns: Turns
    entropy: Entropy

    def claim(self, connection: Connection, now: datetime, begun: list[Lane]) -> list[Message]:
        """Lease the next messages that are due. `begun` gains the lanes that `turns` counts as begun; some of them may have no message."""
        for _ in range(LONGEST_ROUNDS):
            later = self._take_turns(connection, now, begun)
            if later:
                rows = [{"key": target_id, "at": max(at, now + LEAST_WAIT)} for target_id, at in later.items()]
                connection.execute(self._change_each(next_try_at=bindparam("at", type_=Moment())), rows)
            if begun or not later:
                break
        if not begun:
            return []
        ids = [lane.target_id for lane in begun]
        target = self.outbox.targets
        targets = {row.id: row for row in connection.execute(select(target).where(among(connection, target.c.id, ids)))}
        waiting = self._waiting(connection, ids)
        chosen = [self._with_message(lane, targets[lane.target_id], waiting.get(lane.target_id, ())) for lane in begun]
        if idle := [choice.lane.target_id for choice in chosen if not choice.alerts]:  # no longer due
            connection.execute(update(target).where(among(connection, target.c.id, idle)).values(next_try_at=None, message_id=None))
        return self._leased(connection, [choice for choice in chosen if choice.alerts], now)

    def _take_turns(self, connection: Connection, now: datetime, begun: list[Lane]) -> dict[str, datetime]:
        """Begin lanes, proven ones first, and new ones of doubted senders last; returns when those that must wait are next due, by target.

        `begun` gains the lanes one query after the other, so that none is lost when the next query fails.
        """
        later: dict[str, datetime] = {}
        for health in HEALTHS:
            most = MOST_CHOSEN
            names = self.turns.pace.doubted(now) if health == "new" else ()
            doubted = among(connection, self.outbox.targets.c.sender, names)
            for senders in (~doubted, doubted) if names else (true(),):
                if most and self.turns.under_way.free(health) > 0:
                    due = self._due_lanes(connection, health, now, senders)
                    chosen, postponed = self.turns.choose(due, health, now, most=most)
                    most -= len(chosen)
                    begun += chosen
                    later |= postponed
        return later

    def _due_lanes(self, connection: Connection, health: Health, now: datetime, senders: ColumnElement[bool]) -> list[Lane]:
        """The due targets of one health, the longest due first. Senders at their limit, in all or at a host, are left out."""
        target = self.outbox.targets.c
        under_way = self.turns.under_way
        free = target.leased_until.is_(None) | (target.leased_until <= now)
        due = (target.health == health) & (target.next_try_at <= now) & target.disabled_at.is_(None) & free & senders
        for column, full in ((target.sender, under_way.full_senders()), (target.sender + " " + target.host, under_way.full_pairs(health))):
            if full:
                due &= ~among(connection, column, full)
        has_owner, has_answered = target.owner.is_not(None), target.answered_at.is_not(None)
        columns = (target.id, target.health, target.sender, target.host, has_owner, has_answered, target.attempts)
        return [Lane(*row) for row in connection.execute(select(*columns).where(due).order_by(target.next_try_at).limit(CANDIDATES))]

    def _waiting(self, connection: Connection, ids: Sequence[str]) -> Mapping[str, Sequence[Row[Any]]]:
        """The first alerts of each target; for an unconfirmed target only the question for confirmation."""
        target = self.outbox.targets.c
        alert = self.outbox.alerts
        other = alert.alias()
        allowed = target.verified_at.is_not(None) | (alert.c.kind == CONFIRM)
        may_be_next = (other.c.target_id == target.id) & (target.verified_at.is_not(None) | (other.c.kind == CONFIRM))
        last = select(other.c.id).where(may_be_next).order_by(other.c.id).offset(LARGEST_DIGEST - 1).limit(1).scalar_subquery()
        joined = self.contents.joined(self.outbox.targets.join(alert, alert.c.target_id == target.id))
        few = alert.c.id <= func.coalesce(last.correlate(self.outbox.targets), LARGEST_ID)
        statement = select(alert, *self.contents.columns).select_from(joined)
        chosen = statement.where(among(connection, target.id, ids), allowed, few).order_by(alert.c.target_id, alert.c.id)
        return {target_id: list(rows) for target_id, rows in groupby(connection.execute(chosen).all(), key=lambda row: str(row.target_id))}

    def _with_message(self, lane: Lane, target: Row[Any], waiting: Sequence[Row[Any]]) -> Chosen:
        """The lane with the message whose last try failed; otherwise a new one with the first alert, or with all if they are many."""
        if target.message_id is not None and (under_way := [alert for alert in waiting if alert.message_id == target.message_id]):
            return Chosen(lane, target, target.message_id, under_way)
        return Chosen(lane, target, random_id("msg", self.entropy), waiting if len(waiting) > MOST_SENT_SINGLY else waiting[:1])

    def _leased(self, connection: Connection, chosen: Sequence[Chosen], now: datetime) -> list[Message]:
        """The messages, with what the building loads for their alerts; their targets are leased, and their ids stored."""
        if not chosen:
            return []
        alert = self.outbox.alerts
        named = update(alert).where(alert.c.id == bindparam("key")).values(message_id=bindparam("message"))
        leased = self._change_each(message_id=bindparam("message"), leased_until=LEASE.end(now))
        connection.execute(leased, [{"key": choice.lane.target_id, "message": choice.message_id} for choice in chosen])
        connection.execute(named, [{"key": row.id, "message": choice.message_id} for choice in chosen for row in choice.alerts])
        loaded = iter(self.contents.load(connection, [row for choice in chosen for row in choice.alerts]))
        return [
            Message(
                id=choice.message_id,
                lane=choice.lane,
                kind=choice.target.kind,
                address=choice.target.address,
                secret=choice.target.secret,
                alerts=tuple(next(loaded) for _ in choice.alerts),
                failing_since=choice.target.failing_since,
                raised_at=None if choice.alerts[0].kind == CONFIRM else min(row.at for row in choice.alerts),
            )
            for choice in chosen
        ]

    def _change_each(self, **values: Any) -> Update:
        """Changes the target `key` of each row of parameters."""
        return update(self.outbox.targets).where(self.outbox.targets.c.id == bindparam("key")).values(**values)


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
    target_id: str
    message_id: str
    at: datetime
    reason: str
    next: NextStep


def store_results(connection: Connection, results: Sequence[Delivered | Failed], *, outbox: Outbox, most: int) -> list[bool]:
    """Store a batch of results. One target is sent at most `most` messages a minute.

    Beside those of other processes too: each changes what belongs to the targets that it has leased. They may wait for one another
    only where a message reopens a sender's targets.
    """
    if delivered := [result for result in results if isinstance(result, Delivered)]:
        ended = [{"target": result.lane.target_id, "message": result.message_id, "now": result.at} for result in delivered]
        if sent := [row for row, result in zip(ended, delivered, strict=True) if not result.withheld]:
            outbox.keep(connection, sent)
        alert = outbox.alerts.c
        same_message = (alert.target_id == bindparam("target")) & (alert.message_id == bindparam("message"))
        connection.execute(outbox.alerts.delete().where(same_message), ended)
        more = [{"burst_began": result.at - BURST, "lane_health": result.health, "most": most} for result in delivered]
        connection.execute(_closing(outbox), [row | values for row, values in zip(ended, more, strict=True)])
        for result in delivered:
            if result.reopens:
                connection.execute(_reopening(outbox), {"by": result.lane.sender, "at": result.lane.host, "now": result.at})
    if failed := [result for result in results if isinstance(result, Failed)]:
        connection.execute(_postponing(outbox), [_postponed(result) for result in failed])
    return [True] * len(results)


@cache
def _closing(outbox: Outbox) -> Update:
    """What a delivered message changes: its target has no lease, counts it in its burst, and is due again if alerts wait."""
    target = outbox.targets.c
    more = exists().where(outbox.alerts.c.target_id == target.id)
    in_burst = target.burst_since > bindparam("burst_began", type_=Moment())
    sent = case((in_burst, target.burst + 1), else_=1)
    since = case((in_burst, target.burst_since), else_=NOW)
    full = bindparam("most") <= sent
    next_burst = type_coerce(since + literal(BURST // MICROSECOND, BigInteger()), Moment())
    return _sent_target(outbox).values(
        **{"message_id": None, "attempts": 0, "failing_since": None, "last_error": None, "leased_until": None},
        **{"health": bindparam("lane_health"), "answered_at": NOW, "tried_at": NOW, "burst": sent, "burst_since": since},
        hold_until=case((full, next_burst), else_=None),
        next_try_at=case((~more, None), (full, next_burst), else_=NOW),
    )


@cache
def _postponing(outbox: Outbox) -> Update:
    target = outbox.targets.c
    return _sent_target(outbox).values(
        attempts=target.attempts + 1,
        health="suspect",
        failing_since=func.coalesce(target.failing_since, NOW),
        last_error=bindparam("reason"),
        tried_at=NOW,
        leased_until=None,
        next_try_at=bindparam("try_at", type_=Moment()),
        hold_until=bindparam("until", type_=Moment()),
        disabled_at=bindparam("gone_at", type_=Moment()),
        disabled_because=bindparam("because"),
    )


@cache
def _reopening(outbox: Outbox) -> Update:
    """Makes the other messages of a sender to a host due that waited because it had never accepted one."""
    target = outbox.targets.c
    unanswered = (target.owner.is_(None), target.answered_at.is_(None), target.next_try_at > NOW)
    reopened = update(outbox.targets).where(target.sender == bindparam("by"), target.host == bindparam("at"), *unanswered)
    return reopened.values(next_try_at=case((target.hold_until > NOW, target.hold_until), else_=NOW))


def _sent_target(outbox: Outbox) -> Update:
    """Changes the target of a message, if no other was begun for it meanwhile."""
    target = outbox.targets.c
    return update(outbox.targets).where(target.id == bindparam("target"), target.message_id == bindparam("message"))


def _postponed(failed: Failed) -> dict[str, Any]:
    because = failed.next.disabled_because
    return {
        **{"target": failed.target_id, "message": failed.message_id, "now": failed.at, "reason": failed.reason},
        **{"try_at": failed.next.try_at, "until": failed.next.hold_until},
        **{"gone_at": failed.at if because else None, "because": because},
    }
