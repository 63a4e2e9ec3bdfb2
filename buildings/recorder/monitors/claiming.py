"""Moves a monitor without an owner to a key, in place: its id, secret, addresses and history stay, and its targets become the key's."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import Connection, exists, select, update

from buildings.recorder.alerts.targets import adopt_targets
from buildings.recorder.models import Updated
from buildings.recorder.monitors.credentials import Credentials
from buildings.recorder.monitors.registration import count_monitor
from buildings.recorder.monitors.rows import authorized_monitor, stored_state, watched
from buildings.recorder.problems import fixed_problem
from buildings.recorder.tables import ALERTS, CAPSULES, MONITORS
from campus.caller import Key
from campus.features.alerts import Channel, Registrant, signing_secret

SIGNED_ANEW = (
    "Your key had a target at this address already. Alerts of this monitor have its signatures from now on, as those of your others."
)
WITHOUT_SLUG = "Its slug is that of another monitor of your key, so it has none now; update_monitor sets one."


def claim(
    connection: Connection,
    credentials: Credentials,
    key: Key,
    by: Registrant,
    *,
    maker: str | None,
    channels: Sequence[Channel],
    now: datetime,
) -> Updated:
    """Move a monitor to a key. Problem 409 beyond the key's limit, and `claimed` if another key was faster; its own changes nothing."""
    row = authorized_monitor(connection, credentials)
    notes: list[str] = []
    secrets: list[bytes] = []
    if row.owner is None:
        count_monitor(connection, key, now=now)
        slug_in_use = row.slug is not None and connection.scalar(
            select(exists().where(MONITORS.c.owner == key.lineage, MONITORS.c.slug == row.slug))
        )
        last = connection.execute(select(CAPSULES.c.seq).where(CAPSULES.c.monitor_id == row.id)).one_or_none()
        kept = {"capsules": 1, "last_seq": last.seq} if last else {}
        moved = {"owner": key.lineage, "made_by": maker, "page_digest": None, "slug": None if slug_in_use else row.slug, **kept}
        free = (MONITORS.c.id == row.id) & MONITORS.c.owner.is_(None)
        if not connection.execute(update(MONITORS).where(free).values(**moved).returning(MONITORS.c.id)).all():
            raise fixed_problem("claimed")  # another process was faster
        connection.execute(ALERTS.delete().where(ALERTS.c.monitor_id == row.id, ALERTS.c.kind == "expiring"))
        secrets = adopt_targets(connection, row.id, by, channels=channels, now=now)
        notes = [*([SIGNED_ANEW] if secrets else []), *([WITHOUT_SLUG] if slug_in_use else [])]
    elif row.owner != key.lineage:
        raise fixed_problem("claimed")
    return Updated(
        **dict(watched(row.id, stored_state(row), now)),
        name=row.name,
        period_minutes=row.period / timedelta(minutes=1),
        grace_minutes=row.grace / timedelta(minutes=1),
        webhook_secret=signing_secret(secrets[0]) if secrets else None,
        notes=tuple(notes),
    )
