"""Targets of alerts: claimed for an address, confirmed by the owner of the address, disabled and deleted."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256
from typing import Any, Literal

from sqlalchemy import ColumnElement, Connection, Row, func, insert, select, update

from campus.alerts.message import Channel, Health
from campus.alerts.outbox import CONFIRM, Outbox
from campus.alerts.rates import LONGEST_FAILING
from campus.errors import TargetRefused
from campus.observability import utc_text
from campus.secrets import Entropy, random_id

SIGNING_BYTES = 32


def sender_of(lineage: str | None, network: str) -> str:
    """The name under which limits count a caller: its key's lineage, or without a key its network (Caller.network)."""
    return f"key:{lineage}" if lineage is not None else f"net:{network}"


@dataclass(frozen=True)
class Address:
    """An address for alerts, before it is a target: its text, the channel that recognizes it, and whether alerts may be sent there
    without a question to its owner."""

    channel: Channel
    text: str
    agreed: bool = False

    @property
    def host(self) -> str:
        """The host that receives the messages."""
        return self.channel.host_of(self.text)

    @property
    def is_confirmed(self) -> bool:
        """Whether alerts may be sent there at once."""
        return self.agreed or not self.channel.confirms

    def identity(self, owner: str | None) -> bytes:
        """The digest that identifies a target: of owner and address, or of the place alone without an owner."""
        return sha256((f"anyone\n{self.channel.place_of(self.text)}" if owner is None else f"{owner}\n{self.text}").encode()).digest()

    async def for_sender(self, sender: str) -> "Address":
        """The address as it is for a sender, to whose alerts its owner may have agreed."""
        return replace(self, agreed=await self.channel.has_agreed(self.text, sender))


def address_of(text: str, channels: Sequence[Channel]) -> Address | None:
    """The address, for the first channel that recognizes it; None if none does."""
    channel = next((one for one in channels if one.recognizes(text)), None)
    return Address(channel, text) if channel else None


TargetState = Literal["ready", "untested", "unconfirmed", "failing", "disabled"]


def target_state(row: Row[Any], *, to_enable: str) -> tuple[TargetState, str | None]:
    """The state of the target in a row, and why nobody knows that alerts reach it; `to_enable` says what enables a disabled one again."""
    if row.disabled_at is not None:
        return "disabled", f"{row.disabled_because}; {to_enable} to use it again"
    if row.verified_at is None:
        unsent = f": {row.last_error}" if row.failing_since is not None else ""
        return "unconfirmed", f"its owner has not confirmed it{unsent}"
    if row.failing_since is not None:
        return "failing", f"{row.last_error}, since {utc_text(row.failing_since)}; it is tried again for {LONGEST_FAILING.days} days"
    if row.answered_at is None:
        return "untested", "nothing was delivered there yet"
    return "ready", None


@dataclass(frozen=True)
class Registrant:
    """Who registers a target: its owner, None without a key, and the sender that limits count.

    Without a key one sender may have `per_host` targets at one host. Shared hosts have no such limit: they serve everyone.
    """

    owner: str | None
    sender: str
    per_host: int
    shared_hosts: frozenset[str]


@dataclass(frozen=True)
class ClaimedTarget:
    """A target that may be used; alerts are sent to it once it is `confirmed`."""

    id: str
    secret: bytes
    confirmed: bool


def claim_target(
    connection: Connection, address: Address, by: Registrant, *, outbox: Outbox, now: datetime, entropy: Entropy
) -> ClaimedTarget:
    """The target at an address: created if there is none, enabled again if it was disabled.

    Without an owner a target has one user, and a sender has a limited number at one host: raises TargetRefused with the rule
    `in_use` or `host_limit`.
    """
    target = outbox.targets
    row = connection.execute(select(target).where(target.c.identity == address.identity(by.owner))).one_or_none()
    if row is None:
        return _new_target(connection, address, by, outbox=outbox, now=now, entropy=entropy)
    if by.owner is None:
        raise TargetRefused("in_use", "Another user has this target.")
    confirmed = address.is_confirmed or (row.disabled_at is None and row.verified_at is not None)
    if row.disabled_at is not None or (row.verified_at is None and confirmed):
        enable_target(connection, outbox, row, verified_at=row.verified_at or now if confirmed else None, now=now)
    return ClaimedTarget(row.id, row.secret, confirmed)


def enable_target(connection: Connection, outbox: Outbox, row: Row[Any], *, verified_at: datetime | None, now: datetime) -> None:
    """Enable the target in a row; what waits for it is sent, once it is confirmed, and without the question if it is."""
    fresh = {"last_error": None, "health": _first_health(row.owner), "next_try_at": now, "verified_at": verified_at, **ENABLED}
    connection.execute(update(outbox.targets).where(outbox.targets.c.id == row.id).values(**fresh))
    if verified_at is not None:
        connection.execute(outbox.alerts.delete().where(_question(outbox, row.id)))


ENABLED = {"disabled_at": None, "disabled_because": None, "attempts": 0, "failing_since": None}


def _new_target(
    connection: Connection, address: Address, by: Registrant, *, outbox: Outbox, now: datetime, entropy: Entropy
) -> ClaimedTarget:
    target = outbox.targets
    if by.owner is None and address.host not in by.shared_hosts:
        mine = target.c.owner.is_(None) & (target.c.sender == by.sender) & (target.c.host == address.host)
        if (connection.scalar(select(func.count()).where(mine)) or 0) >= by.per_host:
            raise TargetRefused("host_limit", f"You have {by.per_host} targets at {address.host}, the maximum.")
    secret = entropy(SIGNING_BYTES)
    target_id = random_id("tgt", entropy)
    values = {
        "id": target_id,
        "kind": address.channel.kind,
        "address": address.text,
        "identity": address.identity(by.owner),
        "secret": secret,
    }
    place = {"owner": by.owner, "sender": by.sender, "host": address.host, "health": _first_health(by.owner)}
    verified_at = now if address.is_confirmed else None
    connection.execute(insert(target).values(**values, **place, attempts=0, burst=0, verified_at=verified_at))
    return ClaimedTarget(target_id, secret, verified_at is not None)


def _first_health(owner: str | None) -> Health:
    """The first alert of a key does not wait among those of callers without one, until its target proves slow."""
    return "new" if owner is None else "proven"


def make_room(connection: Connection, outbox: Outbox, target_ids: Sequence[str]) -> None:
    """Let no address be refused because of these targets, which have one user, who replaces them in this transaction."""
    for target_id in target_ids:
        unused = sha256(f"replaced\n{target_id}".encode()).digest()
        connection.execute(update(outbox.targets).where(outbox.targets.c.id == target_id).values(identity=unused, host=""))


def ask_to_confirm(connection: Connection, outbox: Outbox, target: ClaimedTarget, *, now: datetime, **columns: object) -> None:
    """Raise the question for a target that is not confirmed, unless one waits; `columns` are the building's own columns of an alert.

    Its channel decides when it is sent: see mailboxes.
    """
    waits = select(outbox.alerts.c.id).where(_question(outbox, target.id)).limit(1)
    if not target.confirmed and connection.scalar(waits) is None:
        outbox.raise_alerts(connection, [{"target_id": target.id, "kind": CONFIRM, "at": now, **columns}], now=now)


def _question(outbox: Outbox, target_id: str) -> ColumnElement[bool]:
    return (outbox.alerts.c.target_id == target_id) & (outbox.alerts.c.kind == CONFIRM)


def confirm_target(connection: Connection, *, outbox: Outbox, target_id: str, now: datetime) -> None:
    """Confirm a target: alerts are sent there from now on."""
    target = outbox.targets
    connection.execute(outbox.alerts.delete().where(_question(outbox, target_id)))
    fresh = {**ENABLED, "verified_at": now, "next_try_at": now, "message_id": None, "leased_until": None}
    connection.execute(update(target).where(target.c.id == target_id).values(**fresh))


def unsubscribe_target(connection: Connection, *, outbox: Outbox, target_id: str, now: datetime) -> None:
    """Delete what waits for a target, and disable it until it is claimed and confirmed again."""
    target = outbox.targets
    alert = outbox.alerts
    connection.execute(alert.delete().where(alert.c.target_id == target_id))
    gone = {"disabled_at": now, "disabled_because": "its reader unsubscribed", "next_try_at": None, "message_id": None, "verified_at": None}
    connection.execute(update(target).where(target.c.id == target_id).values(**gone))


def delete_target(connection: Connection, outbox: Outbox, target_id: str) -> None:
    """Delete a target that has no user, with the alerts that wait for it."""
    connection.execute(outbox.alerts.delete().where(outbox.alerts.c.target_id == target_id))
    connection.execute(outbox.targets.delete().where(outbox.targets.c.id == target_id))
