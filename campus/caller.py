"""Who calls, and by which key."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from campus.addresses import network_of

Frame = Literal["http", "mcp"]
CredentialState = Literal["absent", "valid", "unknown", "expired", "revoked"]


@dataclass(frozen=True, slots=True)
class Key:
    """A key that was issued; the token that a caller sends for it is not in here.

    What a key owns is stored under its `lineage`: a rotation gives another id, and the same lineage.
    `scope` is a building's scope, or "all". Times are UTC.
    """

    id: str
    product: str
    scope: str
    lineage: str
    issued_at: datetime
    expires_at: datetime

    def has_ended(self, now: datetime) -> bool:
        """Whether its term is over: a key is good while now < `expires_at`."""
        return now >= self.expires_at


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls a tool.

    `key` is set only when it is valid and its scope covers the building that is called; `payer` and `payment` only while
    a call runs that is paid for: the address that pays, and the id of the payment, which is charged once the tool has answered.
    `frame` is the way in, `address` the network address at the other end. `key_ignored` says why a key that was sent does
    not count, where the tool is free without one: key_expired, key_revoked or key_unknown.
    """

    key: Key | None
    payer: str | None
    frame: Frame
    address: str
    payment: str | None = None
    key_ignored: str | None = None

    @property
    def network(self) -> str:
        """What limits per caller count by: an IPv4 address, or the /64 of an IPv6 address, which is one subscriber's."""
        return network_of(self.address)


@dataclass(frozen=True, slots=True)
class Credential:
    """What a request's Authorization says, whatever it asks for; `key` is set when valid, expired or revoked."""

    state: CredentialState
    key: Key | None = None
