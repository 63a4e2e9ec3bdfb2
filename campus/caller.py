"""The caller of a tool, its key, and what its Authorization header says."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple

from campus.addresses import network_of

__all__ = ["Caller", "Key"]

Frame = Literal["http", "mcp"]
Way = Frame | Literal["delegate"]
"""How a caller comes: a delegate, which calls with the key of somebody else, sends neither headers nor payments."""
CredentialState = Literal["absent", "valid", "unknown", "expired", "revoked"]


class GivenByCampus:
    """What campus gives to a tool, and no caller may send: as an argument of the tool its class is refused when the tool is declared."""

    __slots__ = ()

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """Raises TypeError: pydantic asks for the schema of an argument."""
        name = cls.__name__
        raise TypeError(f"callers cannot send a {name}; give the parameter its default: {name.lower()}: {name} = Current{name}()")


class Key(NamedTuple):
    """A key that was issued, without the token that its caller sends.

    What a key owns is stored under its `lineage`: a rotation or renewal changes the id and keeps the lineage.
    `scope` is a building's scope, or "all". Times are UTC.
    """

    id: str
    product: str
    scope: str
    lineage: str
    issued_at: datetime
    expires_at: datetime

    def has_ended(self, now: datetime) -> bool:
        """True when its term is over: a key is valid while now < `expires_at`."""
        return now >= self.expires_at


@dataclass(frozen=True, slots=True)
class Caller(GivenByCampus):
    """The caller of a tool.

    `key` is set only if it is valid and its scope covers the building. `payer` and `payment` are set only during a paid call: the
    address that pays, and the id of the payment, which is charged after the tool has answered. `frame` is the protocol of the call,
    `address` the caller's network address. `key_ignored` says why a key that was sent to a free tool does not count: key_expired,
    key_revoked or key_unknown. `client` is the id of the connected client that calls with the key, by OAuth.
    """

    key: Key | None
    payer: str | None
    frame: Frame
    address: str
    payment: str | None = None
    key_ignored: str | None = None
    client: str | None = None

    @property
    def maker(self) -> str | None:
        """The id to store with what the call makes and what goes on after it, for `site.keys.maker`: the client's, else the key's."""
        return self.client or (self.key.id if self.key else None)

    @property
    def network(self) -> str:
        """The network that limits per caller count by: an IPv4 address, or the /64 of an IPv6 address, which one subscriber has."""
        return network_of(self.address)


class Credential(NamedTuple):
    """What a request's Authorization header, or the session of its browser, contains; `key` is set if it is valid, expired or revoked.

    `client` is the id of the connected client whose access token it is.
    """

    state: CredentialState
    key: Key | None = None
    client: str | None = None

    @property
    def valid_key(self) -> Key | None:
        return self.key if self.state == "valid" else None

    @property
    def renewable_key(self) -> Key | None:
        """A valid or expired one: its holder may sign in with it, see its receipts and renew it."""
        return self.key if self.state in ("valid", "expired") else None


ABSENT = Credential("absent")  # The credential of a request without an Authorization header and without a session.
