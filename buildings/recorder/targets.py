"""Alert targets: what an address is, whether it may be one, and its row."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal
from urllib.parse import unquote, urlsplit

import httpx
from sqlalchemy import Connection, and_, func, insert, or_, select, update

from buildings.recorder.alerts import Notice, raise_alerts
from buildings.recorder.delivery.shares import Health
from buildings.recorder.problems import host_limit_reached, target_in_use, target_refused
from buildings.recorder.secrets import SIGNING_BYTES, digest_of
from buildings.recorder.tables import ALERTS, MONITORS, OWNERS, TARGETS
from campus import Entropy, GuardedClient, Problem, TargetRefused, random_id

Kind = Literal["webhook", "discord", "email"]
EMAIL = re.compile(r"[^\s@]{1,64}@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+")
DISCORD_PATH = re.compile(r"/api(/v\d+)?/webhooks/\d+/[\w-]+")
UNREACHABLE = (
    "The host of alert_webhook cannot be found or reached at the moment. Check its name: alerts are lost unless it can be reached."
)
ASK_AGAIN = timedelta(days=1)
ASKED_A_DAY = 20
"""MonitorUrls that one key may have asked for confirmation in a day: more would make a relay for unwanted mail of us."""


@dataclass(frozen=True)
class Address:
    """Where alerts are to go, before it is anyone's."""

    kind: Kind
    text: str

    @property
    def host(self) -> str:
        """Whom it burdens to be sent there: of e-mail it is the one server that takes it all."""
        return "email" if self.kind == "email" else urlsplit(self.text).hostname or ""

    @property
    def place(self) -> str:
        """Scheme, host, port and path: neither query nor fragment makes it another place."""
        parts = urlsplit(self.text)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        return f"{parts.scheme}://{parts.hostname}:{port}{unquote(parts.path) or '/'}"

    def identity(self, owner: str | None) -> bytes:
        """What makes a target the same: with an owner its whole address, without one its place."""
        return digest_of(f"anyone\n{self.place}" if owner is None else f"{owner}\n{self.text}")


@dataclass(frozen=True)
class Registrant:
    """Who registers: with a key its owner, and whom limits count. `per_host`: monitors that it may have at one host."""

    owner: str | None
    sender: str
    per_host: int
    shared_hosts: frozenset[str]


@dataclass(frozen=True)
class Claimed:
    """A target that a monitor may use."""

    id: str
    secret: bytes
    confirmed: bool


def webhook_address(url: str, web: GuardedClient, *, discord_hosts: Sequence[str]) -> Address:
    """A webhook's address; Discord's own are recognised. Problem 422 for a text that breaks a rule, before anything splits it."""
    try:
        web.check_url(url)
    except TargetRefused as refused:
        raise target_refused(refused) from None
    parts = urlsplit(url)
    is_discord = parts.hostname in discord_hosts and DISCORD_PATH.fullmatch(parts.path) is not None
    return Address("discord" if is_discord else "webhook", url)


def email_address(text: str) -> Address:
    """An e-mail address; Problem 422 for what is none."""
    if not EMAIL.fullmatch(text) or len(text) > 254:
        raise Problem(422, "invalid_request", "alert_email is not an e-mail address; write it as name@host.example")
    return Address("email", text)


async def check_webhook(address: Address, web: GuardedClient) -> str | None:
    """Refuse what alerts may not be sent to, Problem 422 with the rule that is broken; nothing is connected before that is known.

    Returns a warning about a host that cannot be found or reached at the moment: that may be its name, or the network.
    """
    try:
        await web.check_target(address.text)
        answer = await web.get(address.text) if address.kind == "discord" else None
    except TargetRefused as refused:
        raise target_refused(refused) from None
    except httpx.TransportError:
        return UNREACHABLE
    if answer is not None and answer.is_client_error:
        raise Problem(
            422,
            "target_refused",
            f"alert_webhook cannot be used: Discord returns {answer.status_code} for this webhook; create a new one",
            rule="discord",
        )
    return None


def claim_target(connection: Connection, address: Address, who: Registrant, *, now: datetime, entropy: Entropy) -> Claimed:
    """The row of a target, made if need be. Without an owner it is one monitor's alone: Problem 409 `target_in_use`."""
    row = connection.execute(select(TARGETS).where(TARGETS.c.identity == address.identity(who.owner))).one_or_none()
    if row is None:
        return _new_target(connection, address, who, now=now, entropy=entropy)
    if who.owner is None:
        raise target_in_use()
    if row.disabled_at is not None:
        confirmed = row.verified_at if address.kind != "email" else None
        fresh = {
            "disabled_at": None,
            "disabled_because": None,
            "attempts": 0,
            "failing_since": None,
            "last_error": None,
            "health": _first_health(who.owner),
            "next_try_at": now,
        }
        connection.execute(update(TARGETS).where(TARGETS.c.id == row.id).values(**fresh, verified_at=confirmed))
        return Claimed(row.id, row.secret, confirmed is not None)
    return Claimed(row.id, row.secret, row.verified_at is not None)


def _new_target(connection: Connection, address: Address, who: Registrant, *, now: datetime, entropy: Entropy) -> Claimed:
    if who.owner is None and address.host not in who.shared_hosts:
        mine = TARGETS.c.owner.is_(None) & (TARGETS.c.sender == who.sender) & (TARGETS.c.host == address.host)
        if (connection.scalar(select(func.count()).where(mine)) or 0) >= who.per_host:
            raise host_limit_reached(address.host, most=who.per_host)
    secret, target_id = entropy(SIGNING_BYTES), random_id("tgt", entropy)
    values = {"id": target_id, "kind": address.kind, "address": address.text, "identity": address.identity(who.owner), "secret": secret}
    place = {"owner": who.owner, "sender": who.sender, "host": address.host, "health": _first_health(who.owner)}
    verified_at = None if address.kind == "email" else now
    connection.execute(insert(TARGETS).values(**values, **place, attempts=0, burst=0, verified_at=verified_at))
    return Claimed(target_id, secret, verified_at is not None)


def _first_health(owner: str | None) -> Health:
    """A key is trusted until its target proves slow: its first alert does not wait among those of strangers."""
    return "new" if owner is None else "proven"


def ask_to_confirm(connection: Connection, target_id: str, owner: str, *, monitor_id: str, now: datetime) -> None:
    """Have the confirmation sent to an address, once a day at most; Problem 429 when the key had too many asked today."""
    recently = connection.scalar(select(TARGETS.c.asked_at).where(TARGETS.c.id == target_id))
    if recently is not None and now - recently < ASK_AGAIN:
        return
    day = now.date().toordinal()
    of_today = and_(OWNERS.c.asked_on == day, OWNERS.c.asked >= ASKED_A_DAY)
    counted = update(OWNERS).where(OWNERS.c.lineage == owner, ~of_today)
    for values, where in (
        ({"asked_on": day, "asked": 1}, OWNERS.c.asked_on != day),
        ({"asked": OWNERS.c.asked + 1}, OWNERS.c.asked_on == day),
    ):
        if connection.execute(counted.where(where).values(**values).returning(OWNERS.c.lineage)).all():
            break
    else:
        raise Problem(
            429,
            "too_many_confirmations",
            f"this key has had confirmation e-mails sent to {ASKED_A_DAY} addresses today, the maximum; register more tomorrow",
        )
    connection.execute(update(TARGETS).where(TARGETS.c.id == target_id).values(asked_at=now))
    raise_alerts(connection, [Notice([target_id], monitor_id, 0, "confirm", now, now, None, "registration", None)], now=now)


def release_targets(connection: Connection, target_ids: Sequence[str]) -> None:
    """Delete those that no monitor uses any more."""
    for target_id in target_ids:
        users = select(MONITORS.c.id).where(or_(MONITORS.c.webhook == target_id, MONITORS.c.email == target_id)).limit(1)
        if connection.execute(users).first() is None:
            connection.execute(ALERTS.delete().where(ALERTS.c.target_id == target_id))
            connection.execute(TARGETS.delete().where(TARGETS.c.id == target_id))


def shown(kind: str, address: str) -> str:
    """An address as others may see it: of a webhook the rest of the URL may be a secret."""
    parts = urlsplit(address)
    return address if kind == "email" else f"{parts.scheme}://{parts.netloc}/…"
