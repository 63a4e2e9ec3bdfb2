"""The tables of keys and their callers: tokens, sales, browsers' sessions, sent forms and what is kept for them, secrets, and logs."""

from datetime import datetime

from sqlalchemy import CheckConstraint
from sqlmodel import BigInteger, Field, Index

from campus.caller import Key
from campus.storage import UtcDateTime
from campus.storage.tables import CoreTables


class KeyRow(CoreTables, table=True):
    """One token, by its digest. Rows are never deleted, because the log and what a key owns refer to them."""

    __tablename__ = "keys"
    __table_args__ = (Index(None, "issued_at", "id"),)  # in the order of `campus key list`

    id: str = Field(primary_key=True)
    digest: bytes = Field(unique=True)
    prefix: str
    product: str
    scope: str
    lineage: str
    note: str = ""
    issued_at: datetime = Field(sa_type=UtcDateTime)
    expires_at: datetime = Field(sa_type=UtcDateTime)
    revoked_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    replaced_by: str | None = Field(default=None, foreign_key="keys.id")
    last_used_at: datetime | None = Field(default=None, sa_type=UtcDateTime)

    def key(self) -> Key:
        return Key(self.id, self.product, self.scope, self.lineage, self.issued_at, self.expires_at)


class KeyEvent(CoreTables, table=True):
    """Who did what to which key, and when. Triggers, which the migration makes, refuse to change or delete a row.

    `credits` are the millionths of a dollar by which it changed the balance of the key's lineage.
    """

    __tablename__ = "key_events"

    id: int | None = Field(default=None, primary_key=True)
    at: datetime = Field(sa_type=UtcDateTime)
    key_id: str = Field(foreign_key="keys.id", index=True)
    action: str
    by: str
    detail: str
    credits: int = Field(default=0, sa_type=BigInteger)


class CreditAccount(CoreTables, table=True):
    """What a lineage has left: `balance` in millionths of a dollar, and of its allowance how many `calls` it opened since the day `period`.

    What calls hold that have not ended yet is not in the balance.
    """

    __tablename__ = "credit_accounts"
    __table_args__ = (CheckConstraint("balance >= 0", name="balance"),)

    lineage: str = Field(primary_key=True)
    balance: int = Field(sa_type=BigInteger)
    period: str
    calls: int = Field(sa_type=BigInteger)


class KeySale(CoreTables, table=True):
    """What a payment buys: a key that is not in `keys` yet, or more time for one that is. It takes effect when the payment settles.

    `action` is new or renew; the columns after it describe the key. `term` and `credits` are as sold; the term counts from
    `started_at`, the time of the call. The transaction that settles the payment sets `delivered_at`, and `ends_at`, the key's end by it.
    `payment` is the id of a row in `payments`, without a foreign key, because keys do not depend on how they are paid for.
    """

    __tablename__ = "key_sales"

    payment: str = Field(primary_key=True)
    action: str
    key_id: str = Field(index=True)
    digest: bytes
    prefix: str
    product: str
    scope: str
    lineage: str
    term: str
    by: str
    started_at: datetime = Field(sa_type=UtcDateTime)
    delivered_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    ends_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    credits: int = Field(default=0, sa_type=BigInteger)


class SessionRow(CoreTables, table=True):
    """A browser that signed in with a key, by the digest of the id in its cookie. It ends with its key, at the latest at `ends_at`."""

    __tablename__ = "sessions"

    digest: bytes = Field(primary_key=True)
    key_id: str = Field(foreign_key="keys.id")
    lineage: str
    opened_at: datetime = Field(sa_type=UtcDateTime)
    ends_at: datetime = Field(sa_type=UtcDateTime, index=True)


class SentFormRow(CoreTables, table=True):
    """An HTML form that was answered or is being answered, by the digest of its token."""

    __tablename__ = "sent_forms"

    digest: bytes = Field(primary_key=True)
    sent_at: datetime = Field(sa_type=UtcDateTime, index=True)


class KeptRow(CoreTables, table=True):
    """What is kept for one browser, sealed under a secret in its cookie.

    `owner` is the digest of that secret, `holder` whose share it takes from, `size` what it counts there.
    """

    __tablename__ = "kept"
    __table_args__ = (Index(None, "owner", "size"), Index(None, "holder", "size"))

    name: str = Field(primary_key=True)
    owner: bytes
    holder: str
    size: int
    kept_at: datetime = Field(sa_type=UtcDateTime)
    ends_at: datetime = Field(sa_type=UtcDateTime, index=True)
    sealed: bytes


class SecretRow(CoreTables, table=True):
    """A random secret of this campus, which its migration made, so that all processes share it and nobody has to set it."""

    __tablename__ = "secrets"

    name: str = Field(primary_key=True)
    value: bytes
