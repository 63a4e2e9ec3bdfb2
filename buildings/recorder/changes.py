"""What an owner does to a monitor: pause, resume, take over, delete; and what becomes of those whose key ends."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, insert, select, update

from buildings.recorder.alerts import Notice, raise_alerts
from buildings.recorder.ownership import own_monitor, standing_of, targets_of, terms_of
from buildings.recorder.refusals import not_dead
from buildings.recorder.secrets import Entropy, digest_of, new_secret
from buildings.recorder.status import Change, Event, Kind, Standing, follow, state_of
from buildings.recorder.tables import ALERTS, CAPSULES, MONITORS, OWNERS, RETIRED_SECRETS
from buildings.recorder.targets import release_targets


@dataclass(frozen=True)
class Claim:
    """Who asks for which monitor: by its secret, or by the lineage of the owning key."""

    monitor_id: str
    lineage: str | None
    secret: str | None


@dataclass(frozen=True)
class TakenOver:
    """A monitor in new hands."""

    row: Row[Any]
    standing: Standing
    secret: str
    fence: int


def set_watch(connection: Connection, claim: Claim, event: Event, *, now: datetime) -> Standing:
    """Pause or resume; gives how the monitor stands then."""
    row = own_monitor(connection, claim.monitor_id, lineage=claim.lineage, secret=claim.secret)
    return _stored(connection, row, follow(standing_of(row), event, terms_of(row), now))


def take_over(connection: Connection, claim: Claim, *, now: datetime, entropy: Entropy) -> TakenOver:
    """Hand a dead monitor to who asks first: the fence goes up and the secret is another. Problem 409 `not_dead` for the rest."""
    row = own_monitor(connection, claim.monitor_id, lineage=claim.lineage, secret=claim.secret, key_only=True)
    died = follow(standing_of(row), "deadline", terms_of(row), now)
    if (state := state_of(died.standing, now)) != "dead":
        raise not_dead(state)
    if died.alert:
        _raise(connection, row, died.standing, died.alert, since=died.standing.since, until=None, reason="timeout", now=now)
    risen = follow(died.standing, "takeover", terms_of(row), now)
    if risen.alert:
        _raise(connection, row, risen.standing, risen.alert, since=died.standing.since, until=now, reason="takeover", now=now)
    secret, fence = new_secret(entropy), row.fence + 1
    connection.execute(insert(RETIRED_SECRETS).values(monitor_id=row.id, digest=row.secret_digest))
    _stored(connection, row, risen, secret_digest=digest_of(secret), fence=fence)
    return TakenOver(row, risen.standing, secret, fence)


def delete(connection: Connection, claim: Claim) -> None:
    """Remove a monitor and all that belongs to it."""
    row = own_monitor(connection, claim.monitor_id, lineage=claim.lineage, secret=claim.secret)
    forget(connection, [row])


def forget(connection: Connection, rows: Sequence[Row[Any]]) -> None:
    """Remove monitors: their capsules, retired secrets, waiting alerts, and targets that nobody else uses."""
    for row in rows:
        for table in (CAPSULES, RETIRED_SECRETS, ALERTS):
            connection.execute(table.delete().where(table.c.monitor_id == row.id))
        connection.execute(MONITORS.delete().where(MONITORS.c.id == row.id))
        if row.owner is not None:
            connection.execute(update(OWNERS).where(OWNERS.c.lineage == row.owner).values(monitors=OWNERS.c.monitors - 1))
        release_targets(connection, targets_of(row))


def set_asleep(connection: Connection, lineage: str, event: Event, *, now: datetime) -> int:
    """Put the monitors of a key to sleep, or wake them; returns how many changed."""
    changed = 0
    for row in connection.execute(select(MONITORS).where(MONITORS.c.owner == lineage)).all():
        before = standing_of(row)
        change = follow(before, event, terms_of(row), now)
        if change.standing is not before:
            _stored(connection, row, change)
            changed += 1
    return changed


def _stored(connection: Connection, row: Row[Any], change: Change, **more: object) -> Standing:
    values = {**change.standing._asdict(), **more}
    connection.execute(update(MONITORS).where(MONITORS.c.id == row.id).values(**values))
    return change.standing


def _raise(
    connection: Connection,
    row: Row[Any],
    standing: Standing,
    kind: Kind,
    *,
    since: datetime,
    until: datetime | None,
    reason: str,
    now: datetime,
) -> None:
    notice = Notice(targets_of(row), row.id, standing.epoch, kind, now, since, until, reason, row.last_beat_at)
    raise_alerts(connection, [notice], now=now)
