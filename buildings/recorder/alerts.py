"""Raising alerts: into the outbox, in the transaction of the change that they tell of."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import Connection, insert, literal, select

from buildings.recorder.tables import ALERTS, MONITORS, OUTBOX, TARGETS
from campus import Moment, among


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
    """Put them into the outbox, and wake their targets."""
    rows = [{"target_id": target_id, **_columns(notice)} for notice in notices for target_id in notice.targets]
    OUTBOX.raise_alerts(connection, rows, now=now)


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
        OUTBOX.wake(connection, TARGETS.c.id.in_(select(target).where(named)), now=now)


def _columns(notice: Notice) -> dict[str, object]:
    columns = notice._asdict()
    del columns["targets"]
    return columns
