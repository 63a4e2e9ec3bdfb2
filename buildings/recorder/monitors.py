"""What an owner does to a monitor: pause, resume, take over, delete; and what becomes of those whose key ends."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, insert, select, update

from buildings.recorder.alerts import Notice, raise_alerts
from buildings.recorder.ownership import authorized_monitor, stored_schedule, stored_state, targets_of
from buildings.recorder.refusals import not_dead
from buildings.recorder.secrets import Entropy, digest_of, new_secret
from buildings.recorder.state_machine import Change, Event, Kind, MonitorState, apply_event, shown_state
from buildings.recorder.tables import ALERTS, CAPSULES, MONITORS, OWNERS, RETIRED_SECRETS
from buildings.recorder.targets import release_targets


@dataclass(frozen=True)
class Credentials:
    """Who asks for which monitor: by its secret, or by the lineage of the owning key."""

    monitor_id: str
    lineage: str | None
    secret: str | None


@dataclass(frozen=True)
class TakenOver:
    """A monitor in new hands."""

    row: Row[Any]
    state: MonitorState
    secret: str
    fence: int


def pause_or_resume(connection: Connection, credentials: Credentials, event: Event, *, now: datetime) -> MonitorState:
    """Pause or resume; gives how the monitor stands then."""
    row = authorized_monitor(connection, credentials.monitor_id, lineage=credentials.lineage, secret=credentials.secret)
    return _stored(connection, row, apply_event(stored_state(row), event, stored_schedule(row), now))


def take_over(connection: Connection, credentials: Credentials, *, now: datetime, entropy: Entropy) -> TakenOver:
    """Hand a dead monitor to who asks first: the fence goes up and the secret is another. Problem 409 `not_dead` for the rest."""
    row = authorized_monitor(connection, credentials.monitor_id, lineage=credentials.lineage, secret=credentials.secret, key_only=True)
    died = apply_event(stored_state(row), "deadline", stored_schedule(row), now)
    if (state := shown_state(died.state, now)) != "dead":
        raise not_dead(state)
    if died.alert:
        _raise(connection, row, died.state, died.alert, since=died.state.since, until=None, reason="timeout", now=now)
    risen = apply_event(died.state, "takeover", stored_schedule(row), now)
    if risen.alert:
        _raise(connection, row, risen.state, risen.alert, since=died.state.since, until=now, reason="takeover", now=now)
    secret, fence = new_secret(entropy), row.fence + 1
    connection.execute(insert(RETIRED_SECRETS).values(monitor_id=row.id, digest=row.secret_digest))
    _stored(connection, row, risen, secret_digest=digest_of(secret), fence=fence)
    return TakenOver(row, risen.state, secret, fence)


def delete(connection: Connection, credentials: Credentials) -> None:
    """Remove a monitor and all that belongs to it."""
    row = authorized_monitor(connection, credentials.monitor_id, lineage=credentials.lineage, secret=credentials.secret)
    delete_all(connection, [row])


def delete_all(connection: Connection, rows: Sequence[Row[Any]]) -> None:
    """Remove monitors: their capsules, retired secrets, waiting alerts, and targets that nobody else uses."""
    for row in rows:
        for table in (CAPSULES, RETIRED_SECRETS, ALERTS):
            connection.execute(table.delete().where(table.c.monitor_id == row.id))
        connection.execute(MONITORS.delete().where(MONITORS.c.id == row.id))
        if row.owner is not None:
            connection.execute(update(OWNERS).where(OWNERS.c.lineage == row.owner).values(monitors=OWNERS.c.monitors - 1))
        release_targets(connection, targets_of(row))


def apply_key_event(connection: Connection, lineage: str, event: Event, *, now: datetime) -> int:
    """Put the monitors of a key to sleep, or wake them; returns how many changed."""
    changed = 0
    for row in connection.execute(select(MONITORS).where(MONITORS.c.owner == lineage)).all():
        before = stored_state(row)
        change = apply_event(before, event, stored_schedule(row), now)
        if change.state is not before:
            _stored(connection, row, change)
            changed += 1
    return changed


def _stored(connection: Connection, row: Row[Any], change: Change, **more: object) -> MonitorState:
    values = {**change.state._asdict(), **more}
    connection.execute(update(MONITORS).where(MONITORS.c.id == row.id).values(**values))
    return change.state


def _raise(
    connection: Connection,
    row: Row[Any],
    state: MonitorState,
    kind: Kind,
    *,
    since: datetime,
    until: datetime | None,
    reason: str,
    now: datetime,
) -> None:
    notice = Notice(targets_of(row), row.id, state.epoch, kind, now, since, until, reason, row.last_beat_at)
    raise_alerts(connection, [notice], now=now)
