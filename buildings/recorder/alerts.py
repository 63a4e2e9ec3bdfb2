"""Raising alerts: into the outbox, in the transaction of the change that they tell of."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from sqlalchemy import ColumnElement, Connection, and_, case, func, insert, literal, select, update

from buildings.recorder.tables import ALERTS, MONITORS, TARGETS
from campus import Moment, among

HASTE = timedelta(seconds=30)
"""A target that fails is tried again so soon after news for it, whatever its turn on the ladder."""


class Notice(NamedTuple):
    """An alert for each of a monitor's targets; `since` is when the downtime began and `until` when it ended.

    `kind` is a state_machine.Kind, `expiring` for one that will be removed, or `blind` for what concerns the recorder itself.
    """

    targets: Sequence[str]
    monitor_id: str | None
    epoch: int
    kind: str
    at: datetime
    since: datetime
    until: datetime | None
    reason: str
    last_beat_at: datetime | None


def raise_alerts(connection: Connection, notices: Iterable[Notice], *, now: datetime) -> None:
    """Put them into the outbox and wake the lanes of their targets."""
    rows = [{"target_id": target_id, **_columns(notice)} for notice in notices for target_id in notice.targets]
    if rows:
        connection.execute(insert(ALERTS), rows)
        _wake(connection, among(connection, TARGETS.c.id, {str(row["target_id"]) for row in rows}), now=now)


def raise_deaths(connection: Connection, ids: Sequence[str], *, now: datetime) -> None:
    """The same for monitors that have missed their deadlines, however many: the database makes the alerts of what it holds."""
    named = among(connection, MONITORS.c.id, ids)
    for target in (MONITORS.c.webhook, MONITORS.c.email):
        values = {
            "target_id": target,
            "monitor_id": MONITORS.c.id,
            "epoch": MONITORS.c.epoch,
            "kind": literal("dead"),
            "at": literal(now, Moment()),
            "since": MONITORS.c.since,
            "reason": literal("timeout"),
            "last_beat_at": MONITORS.c.last_beat_at,
        }
        dead = select(*values.values()).where(named, target.is_not(None))
        connection.execute(insert(ALERTS).from_select(list(values), dead))
        _wake(connection, TARGETS.c.id.in_(select(target).where(named)), now=now)


def _wake(connection: Connection, named: ColumnElement[bool], *, now: datetime) -> None:
    target, at_once, soon = TARGETS.c, literal(now, Moment()), literal(now + HASTE, Moment())
    waits = and_(target.attempts > 0, target.next_try_at.is_not(None))
    # a target that never took anything is asked on the schedule alone, whatever news its monitor raises
    unknown = target.answered_at.is_(None)
    keeps = and_(waits, unknown | (target.next_try_at <= soon) | (func.coalesce(target.hold_until, at_once) > soon))
    woken = case((keeps, target.next_try_at), (waits, soon), (target.hold_until > at_once, target.hold_until), else_=at_once)
    connection.execute(update(TARGETS).where(named, target.disabled_at.is_(None)).values(next_try_at=woken))


def _columns(notice: Notice) -> dict[str, object]:
    columns = notice._asdict()
    del columns["targets"]
    return columns
