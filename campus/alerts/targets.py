"""Targets of alerts, before and after they are stored: their addresses, who registers them, and how they do."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Literal
from urllib.parse import urlsplit

from sqlalchemy import Row

from campus.alerts.message import Channel
from campus.alerts.retries import LONGEST_FAILING
from campus.observability import utc_text
from campus.shares import SENDER

TargetState = Literal["ready", "untested", "unconfirmed", "failing", "disabled"]
"""Whether alerts reach a target: what a tool of the building shows of it."""


def masked_address(address: str) -> str:
    """An address as it may be shown. Of a URL only scheme and host, because the rest may be secret."""
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc}/…" if parts.scheme in ("http", "https") else address


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
        return sha256((f"anyone\n{self.channel.place_of(self.text)}" if owner is None else f"{owner}\n{self.text}").encode()).digest()

    async def for_sender(self, sender: str) -> "Address":
        """The address as it is for a sender, to whose alerts its owner may have agreed."""
        return replace(self, agreed=await self.channel.has_agreed(self.text, sender))


def address_of(text: str, channels: Sequence[Channel]) -> Address | None:
    """The address, for the first channel that recognizes it; None if none does."""
    channel = next((channel for channel in channels if channel.recognizes(text)), None)
    return Address(channel, text) if channel else None


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
