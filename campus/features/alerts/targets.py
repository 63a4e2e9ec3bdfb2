"""Targets of alerts: their addresses as callers send them, checked and counted; who registers them, and how they do once stored."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256
from typing import Any, Literal
from urllib.parse import urlsplit

import httpx
from sqlalchemy import Row

from campus.errors import TargetRefused
from campus.features.alerts.message import Channel
from campus.features.alerts.retries import LONGEST_FAILING
from campus.features.mail.smtp import ascii_address
from campus.observability import utc_text
from campus.outbound.http_clients import GuardedClient
from campus.shares import SENDER, FairQueue, TokenBuckets
from twins import Problem

TargetState = Literal["ready", "untested", "unconfirmed", "failing", "disabled"]
"""Whether alerts reach a target: what a tool of the building shows of it."""
UNREACHABLE = "The host of {} cannot be found or reached at the moment. Check its name: alerts are lost unless it can be reached."
JOINERS = dict.fromkeys((0x200C, 0x200D))
"""Leaves out the zero-width non-joiner and joiner, which say how their neighbours are drawn: many emoji and Persian need them."""
UNCONFIRMED = (
    "No {what} is sent to alert_email until its recipient confirms through the link in an e-mail. One mailbox is asked at most once a day,"
    " and never if it refused: {tool} says why no question was sent."
)
"""What a tool answers about a mailbox that has not confirmed; fill in `what` is sent and the `tool` that tells more."""
UNCHECKED = "{} was not looked up: other hosts that you named do not answer. Check its name: alerts are lost unless it can be reached."
CONCURRENT_CHECKS = 4
"""Concurrent checks of webhooks for one sender, so that hosts that do not answer do not delay other senders."""
CHECKS_PER_HOST = CONCURRENT_CHECKS - 1
"""Of these at one host, so that one that does not answer does not delay the sender's others."""
TURN_SECONDS = 5.0
"""How long a registration waits for those before it; it is then stored unchecked. An alert is sent to no private address in any case."""


def masked_address(address: str) -> str:
    """An address as it may be shown. Of a URL only scheme and host, because the rest may be secret; of another service's address, which
    is secret as a whole, the scheme and four characters of its digest, which tell two of them apart."""
    scheme, colon, _ = address.partition("://")
    if not colon:
        return address
    if scheme.lower() not in ("http", "https"):
        return f"{scheme}://…{sha256(address.encode()).hexdigest()[:4]}"
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc}/…"


def sender_of(lineage: str | None, network: str) -> str:
    """The name under which limits count a caller: its key's lineage, or without a key its network (Caller.network)."""
    return f"key:{lineage}" if lineage is not None else f"{SENDER}{network}"


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
        if owner is not None:
            return owned_identity(owner, self.text)
        return sha256(f"anyone\n{self.channel.place_of(self.text)}".encode()).digest()

    async def for_sender(self, sender: str) -> "Address":
        """The address as it is for a sender, to whose alerts its owner may have agreed."""
        return replace(self, agreed=await self.channel.has_agreed(self.text, sender))


def owned_identity(owner: str, address: str) -> bytes:
    return sha256(f"{owner}\n{address}".encode()).digest()


def address_of(text: str, channels: Sequence[Channel]) -> Address | None:
    """The address, for the first channel that recognizes it; None if none does."""
    channel = next((channel for channel in channels if channel.recognizes(text)), None)
    if channel is None:
        return None
    plain = channel.rewritten(text)
    return Address(channel, text) if plain == text else address_of(plain, channels)


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


def visible_name(text: str) -> str:
    """A name for alerts and pages, without surrounding blanks. ValueError for characters that are not shown or change how others are."""
    name = text.strip()
    visible = name.translate(JOINERS).strip()
    if not visible or not visible.isprintable():
        raise ValueError("must be one line of printable characters")
    return name


def webhook_address(url: str, web: GuardedClient, channels: Sequence[Channel], *, argument: str = "alert_webhook") -> Address:
    """The address of a webhook or of another service, for the first channel that recognizes it. Problem 422 for one that breaks a rule.

    `argument` is the tool's argument that the address came in: the refusal names it.
    """
    usable = [channel for channel in channels if not channel.confirms]
    try:
        found = None if url.lower().startswith(("http://", "https://")) else address_of(url, usable)
        if found is None:
            web.check_url(url)
            found = address_of(url, usable)
        assert found is not None, "the webhook channel accepts every URL"
        found.channel.check_text(found.text, web)
    except TargetRefused as refused:
        raise _target_refused(refused, argument) from None
    return found


def email_address(text: str, channels: Sequence[Channel]) -> Address:
    """An e-mail address, its host in ASCII. Problem 422 for a text that is not one."""
    found = address_of(ascii_address(text), [channel for channel in channels if channel.confirms])
    if found is None:
        raise Problem(422, "invalid_request", "alert_email is not an e-mail address; write it as name@host.example")
    return found


async def check_webhook(address: Address, web: GuardedClient, *, argument: str = "alert_webhook") -> str | None:
    """Refuse a webhook to which alerts may not be sent, such as one in a private network, before any connection is made.

    Problem 422 with the broken rule. Returns a warning if the host cannot be found or reached at the moment. Both name `argument`.
    """
    try:
        await address.channel.check(address.text, web)
    except TargetRefused as refused:
        raise _target_refused(refused, argument) from None
    except httpx.TransportError:
        return UNREACHABLE.format(argument)
    return None


@dataclass(frozen=True)
class Addresses:
    """The addresses that a call named; None for those that it did not."""

    webhook: Address | None
    email: Address | None


class Registrations:
    """The addresses that callers name in one process, for a building's channels: recognized, counted and checked.

    Webhooks are checked by a client that resolves names in its own threads, so that a slow name server delays no alert.
    """

    def __init__(self, channels: Sequence[Channel], web: GuardedClient, *, per_minute: int) -> None:
        """`per_minute` registrations of one sender (see targets.sender_of) are accepted."""
        self._channels = channels
        self._web = web.apart()
        self._per_minute = per_minute
        self._buckets = TokenBuckets(per_minute)
        self._checks = FairQueue(per_holder=CONCURRENT_CHECKS, per_part=CHECKS_PER_HOST)

    async def addresses(self, webhook: str | None, email: str | None, sender: str, *, argument: str = "alert_webhook") -> Addresses:
        """The addresses in a sender's call; an empty text is none. Problem 422, which names the `argument`, for an unusable one."""
        to_mail = await email_address(email, self._channels).for_sender(sender) if email else None
        return Addresses(webhook_address(webhook, self._web, self._channels, argument=argument) if webhook else None, to_mail)

    async def check(self, webhook: Address | None, sender: str, now: datetime, *, argument: str = "alert_webhook") -> str | None:
        """Count a registration and check its webhook; returns a warning about it. Problem 429 `too_many_registrations` beyond the limit."""
        if not self._buckets.take(sender, now):
            raise _too_many_registrations(self._buckets.seconds_left(sender, now), limit=self._per_minute)
        if webhook is None:
            return None
        async with self._checks.turn(sender, webhook.host, seconds=TURN_SECONDS) as has_turn:
            return await check_webhook(webhook, self._web, argument=argument) if has_turn else UNCHECKED.format(argument)


def _target_refused(refused: TargetRefused, argument: str) -> Problem:
    return Problem(422, "target_refused", f"{argument} cannot be used: {refused}", rule=refused.rule)


def _too_many_registrations(seconds: int, *, limit: int) -> Problem:
    return Problem(
        429,
        "too_many_registrations",
        f"at most {limit} registrations a minute are accepted from one key, or without a key from one address; try again in {seconds} s",
        headers={
            "Retry-After": str(seconds),
            "RateLimit-Policy": f'"registrations";q={limit};w=60',
            "RateLimit": f'"registrations";r=0;t={seconds}',
        },
    )
