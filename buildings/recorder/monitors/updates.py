"""Changing a monitor: its name, its schedule and where its alerts go, in one transaction."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row

from buildings.recorder.alerts.targets import UNCONFIRMED_NOTE, replace_target
from buildings.recorder.models import Resecured, Updated
from buildings.recorder.monitors.credentials import Credentials, MonitorUrls, new_secret
from buildings.recorder.monitors.rows import authorized_monitor, store_change, stored_schedule, stored_state, watched
from buildings.recorder.monitors.state_machine import AppliedEvent, Schedule, reschedule
from buildings.recorder.problems import owner_needed
from buildings.recorder.tables import MONITORS
from campus.alerts import Addresses, Channel, Registrant, signing_secret
from campus.secrets import Entropy, digest_of

WITH_THE_NEXT_BEAT = "The new period begins with the next beat."


@dataclass(frozen=True)
class NewTargets:
    """The addresses that replace a monitor's; they are checked, and `warning` is about the webhook."""

    addresses: Addresses
    by: Registrant
    channels: Sequence[Channel]
    warning: str | None


@dataclass(frozen=True, kw_only=True)
class MonitorUpdate:
    """What changes of a monitor, and who changes it; None for what stays."""

    maker: str | None
    name: str | None
    period: timedelta | None
    grace: timedelta | None
    targets: NewTargets | None


def owner_for_targets(connection: Connection, credentials: Credentials, addresses: Addresses) -> str | None:
    """The owner of a monitor, if the caller may change its targets. Problem 404 or 403 otherwise.

    A key's monitor needs that key: alerts show its capsules, and a target shares its signing secret with the key's other monitors,
    neither of which the monitor's secret opens.
    """
    row = authorized_monitor(connection, credentials)
    owner: str | None = row.owner
    if owner is None and addresses.email is not None:
        raise owner_needed(is_owned=False)
    if owner is not None and owner != credentials.lineage:
        raise owner_needed(is_owned=True)
    return owner


def update_stored(connection: Connection, credentials: Credentials, update: MonitorUpdate, *, now: datetime, entropy: Entropy) -> Updated:
    """Change a monitor; returns it as it is then. Its owner is its maker from then on, not who has only its secret."""
    row = authorized_monitor(connection, credentials)
    before = stored_schedule(row)
    schedule = Schedule(before.period if update.period is None else update.period, before.grace if update.grace is None else update.grace)
    state = reschedule(stored_state(row), before, schedule, now, unverified=row.unverified)
    name = row.name if update.name is None else update.name
    maker = update.maker if row.owner == credentials.lineage else row.made_by
    store_change(connection, row, AppliedEvent(state), name=name, made_by=maker, **schedule._asdict())
    webhook_secret: str | None = None
    notes: tuple[str, ...] = ()
    if update.targets is not None:
        owner_for_targets(connection, credentials, update.targets.addresses)
        webhook_secret, notes = _replace_targets(connection, row, update.targets, now=now, entropy=entropy)
    begins_later = schedule.period != before.period and state.expected_at == row.expected_at
    return Updated(
        **dict(watched(row.id, state, now)),
        name=name,
        period_minutes=schedule.period / timedelta(minutes=1),
        grace_minutes=schedule.grace / timedelta(minutes=1),
        webhook_secret=webhook_secret,
        notes=(*notes, *([WITH_THE_NEXT_BEAT] if begins_later else [])),
    )


def _replace_targets(
    connection: Connection, row: Row[Any], targets: NewTargets, *, now: datetime, entropy: Entropy
) -> tuple[str | None, tuple[str, ...]]:
    """The secret that signs the alerts to a new webhook, and notes."""
    webhook = email = None
    to_web, to_mail = targets.addresses.webhook, targets.addresses.email
    if to_web is not None:
        webhook = replace_target(connection, row.id, to_web, targets.by, channels=targets.channels, now=now, entropy=entropy)
    if to_mail is not None:
        email = replace_target(connection, row.id, to_mail, targets.by, channels=targets.channels, now=now, entropy=entropy)
    redirected = sum(one.redirected for one in (webhook, email) if one is not None)
    notes = {
        targets.warning: targets.warning is not None,
        UNCONFIRMED_NOTE: email is not None and not email.target.confirmed,
        f"Undelivered alerts that go to the new target: {redirected}.": redirected > 0,
    }
    signs = to_web is not None and to_web.channel.signs
    return (
        signing_secret(webhook.target.secret) if webhook is not None and signs else None,
        tuple(note for note, holds in notes.items() if note and holds),
    )


def secret_replaced(connection: Connection, credentials: Credentials, *, maker: str | None, url: str, entropy: Entropy) -> Resecured:
    """Give a key's monitor a new secret; beats with the old one are refused as with any wrong one. Its state and schedule stay."""
    row = authorized_monitor(connection, credentials, key_only=True)
    secret = new_secret(entropy)
    connection.execute(MONITORS.update().where(MONITORS.c.id == row.id).values(secret_digest=digest_of(secret), made_by=maker))
    urls = MonitorUrls(url, row.id)
    return Resecured(
        monitor_id=row.id, name=row.name, secret=secret, beat_url=urls.beat(secret), hook_url=urls.hook(secret), cron=urls.cron(secret)
    )
