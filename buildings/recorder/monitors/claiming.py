"""Moves a monitor without an owner to a key, in place: its id, secret, addresses and history stay, and its targets become the key's."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection, select, update

from buildings.recorder.alerts.targets import SigningSecrets, adopt_targets
from buildings.recorder.models import Updated
from buildings.recorder.monitors.credentials import Credentials
from buildings.recorder.monitors.options import stored_schedule
from buildings.recorder.monitors.registration import count_monitor
from buildings.recorder.monitors.rows import authorized_monitor, updated
from buildings.recorder.monitors.state_machine import stored_state
from buildings.recorder.problems import fixed_problem
from buildings.recorder.tables import ALERTS, CAPSULES, MONITORS
from campus.caller import Key
from campus.features.alerts import Channel, Registrant, signing_secret
from campus.secrets import Entropy

SIGNED_ANEW = (
    "Your key had a target at this address already. Alerts of this monitor have its signatures from now on, as those of your others."
)


def claim(
    connection: Connection,
    credentials: Credentials,
    key: Key,
    by: Registrant,
    *,
    maker: str | None,
    most: int,
    channels: Sequence[Channel],
    now: datetime,
    entropy: Entropy,
) -> Updated:
    """Move a monitor to a key. Problem 409 beyond the key's limit, and `claimed` if another key was faster; its own changes nothing."""
    row = authorized_monitor(connection, credentials)
    notes: list[str] = []
    secrets: list[bytes] = []
    if row.owner is None:
        count_monitor(connection, key, most, now=now, entropy=entropy)
        last = connection.execute(select(CAPSULES.c.seq).where(CAPSULES.c.monitor_id == row.id)).one_or_none()
        kept = {"capsules": 1, "last_seq": last.seq} if last else {}
        moved = {"owner": key.lineage, "made_by": maker, "page_digest": None, **kept}
        free = (MONITORS.c.id == row.id) & MONITORS.c.owner.is_(None)
        if not connection.execute(update(MONITORS).where(free).values(**moved).returning(MONITORS.c.id)).all():
            raise fixed_problem("claimed")  # another process was faster
        connection.execute(ALERTS.delete().where(ALERTS.c.monitor_id == row.id, ALERTS.c.kind == "expiring"))
        secrets = adopt_targets(connection, row.id, by, channels=channels, now=now)
        notes = [SIGNED_ANEW] if secrets else []
    elif row.owner != key.lineage:
        raise fixed_problem("claimed")
    signing = SigningSecrets(signing_secret(secrets[0]) if secrets else None, ())
    return updated(row.id, row.name, stored_schedule(row), stored_state(row), signing, notes, now=now)
