"""The tables of connected clients and their tokens, in campus's own database."""

from datetime import datetime

from sqlmodel import Field, SQLModel

from campus.storage import UtcDateTime, registry


class Tables(SQLModel, registry=registry()):
    """Base of the feature's tables."""


class ClientRow(Tables, table=True):
    """A client program that a key's holder let in by OAuth, to the MCP server of one building.

    It lasts as long as the key with this id, or until `ends_at` if that is earlier: until the client has fetched its first tokens,
    `ends_at` is when its code expires. `client_id` is the one that the client sends, and `returns_to` the host that its code was sent to.
    """

    __tablename__ = "connect_clients"

    id: str = Field(primary_key=True)
    key_id: str = Field(index=True)
    building: str
    client_id: str
    client_name: str
    returns_to: str
    connected_at: datetime = Field(sa_type=UtcDateTime)
    ends_at: datetime | None = Field(default=None, sa_type=UtcDateTime, index=True)


class TokenRow(Tables, table=True):
    """A code, access token or refresh token of a connected client, by its digest; `kind` is code, access or refresh.

    A refresh token that was not used yet has no `expires_at`. `code_challenge` and `redirect_uri` are those that a code is bound to.
    """

    __tablename__ = "connect_tokens"

    digest: bytes = Field(primary_key=True)
    client: str = Field(foreign_key="connect_clients.id", index=True)
    kind: str
    issued_at: datetime = Field(sa_type=UtcDateTime)
    expires_at: datetime | None = Field(default=None, sa_type=UtcDateTime, index=True)
    used_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    code_challenge: str | None = None
    redirect_uri: str | None = None
