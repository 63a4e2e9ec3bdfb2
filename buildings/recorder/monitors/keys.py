"""Owners of monitors, and their keys beside the owning one: ping keys, which send beats by slug, and read keys, which read states."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import Connection, Row, insert, select, update

from buildings.recorder.models import FleetKeyList, FleetKeyMade, FleetKeyView
from buildings.recorder.monitors.credentials import SECRET_LENGTH
from buildings.recorder.monitors.rows import apply_key_event
from buildings.recorder.problems import fixed_problem, fleet_key_limit_reached
from buildings.recorder.runtime import RecorderSite
from buildings.recorder.tables import FLEET_KEYS, OWNERS
from campus import Caller
from campus.caller import Key
from campus.secrets import Entropy, digest_of, random_base62, random_id
from campus.storage import in_snapshot, in_transaction

FLEET_KEYS_PER_OWNER = 10
HINT_LENGTH = 12
BADGE_SECRET_BYTES = 32
FleetKeyKind = Literal["ping", "read"]


def open_owner(connection: Connection, key: Key, *, now: datetime, entropy: Entropy) -> None:
    """Store the owner of a key's monitors, and until when the key is valid; a key that was renewed wakes its monitors."""
    ends_at = connection.scalar(select(OWNERS.c.ends_at).where(OWNERS.c.lineage == key.lineage))
    if ends_at is None:
        badges = {"badge_id": random_id("tags", entropy), "badge_secret": entropy(BADGE_SECRET_BYTES)}
        connection.execute(insert(OWNERS).values(lineage=key.lineage, monitors=0, ends_at=key.expires_at, **badges))
    elif key.expires_at > ends_at:
        connection.execute(update(OWNERS).where(OWNERS.c.lineage == key.lineage).values(ends_at=key.expires_at))
        apply_key_event(connection, key.lineage, "key_renewed", now=now)


async def make_key(site: RecorderSite, caller: Caller, kind: FleetKeyKind) -> FleetKeyMade:
    """A new key. Problem 403 for a connected client, 409 beyond the limit."""
    key = caller.key
    assert key is not None, "the paywall admits keys only"
    if caller.client is not None:
        raise fixed_problem("client_makes_no_keys")
    secret = f"{kind}_{random_base62(SECRET_LENGTH, site.state.entropy)}"
    now = site.state.time.now()

    def work(connection: Connection) -> None:
        open_owner(connection, key, now=now, entropy=site.state.entropy)
        if len(_keys_of(connection, key.lineage)) >= FLEET_KEYS_PER_OWNER:
            raise fleet_key_limit_reached(FLEET_KEYS_PER_OWNER)
        row = {"digest": digest_of(secret), "owner": key.lineage, "kind": kind, "hint": secret[:HINT_LENGTH]}
        connection.execute(insert(FLEET_KEYS).values(**row, made_at=now, made_by=key.id))

    await in_transaction(site.storage, work)
    url = f"{site.url}/ping/{secret}/SLUG" if kind == "ping" else f"{site.url}/v1/recorder/read/{secret}"
    return FleetKeyMade(hint=secret[:HINT_LENGTH], key=secret, url=url)


async def list_keys(site: RecorderSite, lineage: str) -> FleetKeyList:
    rows = await in_snapshot(site.storage, lambda connection: _keys_of(connection, lineage))
    makers = await site.keys.makers({row.made_by for row in rows})
    now = site.now()
    keys = [FleetKeyView(hint=row.hint, kind=row.kind, made_at=row.made_at, ended=makers[row.made_by].has_ended(now)) for row in rows]
    return FleetKeyList(keys=tuple(keys))


async def end_key(site: RecorderSite, lineage: str, hint: str) -> FleetKeyList:
    """End a key at once; returns the others. Problem 404 if the owner has none with this hint."""
    mine = (FLEET_KEYS.c.owner == lineage) & (FLEET_KEYS.c.hint == hint)
    ended = await in_transaction(site.storage, lambda connection: connection.execute(FLEET_KEYS.delete().where(mine)).rowcount)
    if not ended:
        raise fixed_problem("fleet_key_not_found")
    return await list_keys(site, lineage)


async def stored_key(site: RecorderSite, secret: str, kind: FleetKeyKind) -> Row[Any] | None:
    """The row of a key; None once the key that made it was revoked, and for a read key once that has expired.

    A ping key goes on after that, as the secrets of monitors do: its monitors are watched for a week more.
    """
    chosen = select(FLEET_KEYS).where(FLEET_KEYS.c.digest == digest_of(secret), FLEET_KEYS.c.kind == kind)
    row = await in_snapshot(site.storage, lambda connection: connection.execute(chosen).one_or_none())
    if row is None:
        return None
    maker = await site.keys.maker(row.made_by)
    return None if maker.ends_at is None or (kind == "read" and maker.has_ended(site.now())) else row


async def most_monitors(site: RecorderSite, row: Row[Any]) -> int:
    """How many monitors the owner of a key may have."""
    key = await site.keys.get(row.made_by)
    return site.settings.monitors if key is None else site.settings.monitors_for(key.product)


def _keys_of(connection: Connection, lineage: str) -> Sequence[Row[Any]]:
    return connection.execute(select(FLEET_KEYS).where(FLEET_KEYS.c.owner == lineage).order_by(FLEET_KEYS.c.made_at)).all()
