"""Stores the results of deliveries, many in one transaction: delivered alerts are deleted, failed ones are tried again later."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, Connection, Delete, Update, bindparam, case, exists, func, literal, type_coerce, update

from campus.alerts.fair_shares import Health, Lane
from campus.alerts.outbox import Outbox
from campus.alerts.retry_policy import NextStep
from campus.storage import Moment

BURST = timedelta(minutes=1)
"""The time in which one target is sent a limited number of messages; further alerts wait, and become a digest."""
MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True)
class Delivered:
    """A message that was taken, or need not be sent any more.

    `health` is that of its target from then on; if it `reopens`, other messages of its sender to its host are due at once.
    """

    lane: Lane
    message_id: str
    at: datetime
    health: Health = "proven"
    reopens: bool = False


@dataclass(frozen=True)
class Failed:
    """A message that was not taken, and what happens next."""

    target_id: str
    message_id: str
    at: datetime
    reason: str
    next: NextStep


def store_results(connection: Connection, results: Sequence[Delivered | Failed], *, outbox: Outbox, most: int) -> list[Exception | None]:
    """Store a batch of results; one target is sent at most `most` messages a minute."""
    statements = _statements_of(outbox)
    if delivered := [one for one in results if isinstance(one, Delivered)]:
        connection.execute(statements.remove, [{"target": one.lane.target_id, "message": one.message_id} for one in delivered])
        connection.execute(statements.close, [_closed(one, most=most) for one in delivered])
        for one in delivered:
            if one.reopens:
                connection.execute(statements.reopen, {"by": one.lane.sender, "at": one.lane.host, "now": one.at})
    if failed := [_postponed(one) for one in results if isinstance(one, Failed)]:
        connection.execute(statements.postpone, failed)
    return [None] * len(results)


class _Statements(NamedTuple):
    """The SQL statements for one outbox, built once."""

    remove: Delete
    close: Update
    postpone: Update
    reopen: Update


@cache
def _statements_of(outbox: Outbox) -> _Statements:
    target, alert, now = outbox.targets, outbox.alerts, bindparam("now", type_=Moment())
    same_message = (target.c.id == bindparam("target")) & (target.c.message_id == bindparam("message"))
    unanswered = (target.c.owner.is_(None), target.c.answered_at.is_(None), target.c.next_try_at > now)
    return _Statements(
        remove=alert.delete().where(alert.c.target_id == bindparam("target"), alert.c.message_id == bindparam("message")),
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
    """What a delivered message sets: the target is free, counted in its burst, and due again if more waits."""
    target, now = outbox.targets.c, bindparam("now", type_=Moment())
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
