"""The tables of alerts, which a building adds to its own registry: targets, alerts that wait, and alerts that were delivered."""

from datetime import datetime

from sqlalchemy import Index, text
from sqlalchemy.orm import declared_attr
from sqlmodel import Field, SQLModel

from campus.storage import Moment, UtcDateTime, registry


class AlertTarget(SQLModel):
    """Where alerts go: `class Target(AlertTarget, Tables, table=True)`. The alerts for one target are sent one after the other.

    `identity` is the digest of owner and address (see targets.Address): a target without an owner has one user. `secret` signs
    the messages. `next_try_at` is when the target is next due, null while no alert waits. `message_id` is the id of the message
    that is being sent, and of its alerts; `attempts` counts its tries. While `leased_until` is in the future, no other process
    sends it. `failing_since` is when the first try failed since the last message was delivered.

    Which target comes next depends on `host`, `sender` (the owner, or the network of the caller who registered it) and
    `health`: see message.Health. `answered_at` is when the last message was delivered, `burst` how many were delivered in the
    minute that began at `burst_since`.
    """

    __tablename__ = "target"

    @declared_attr.directive
    def __table_args__(cls) -> tuple[Index, ...]:  # noqa: N805  # SQLAlchemy passes the class
        indexes = {
            "ix_target_due": (["health", "next_try_at", "sender", "host"], "next_try_at IS NOT NULL"),
            "ix_target_sender": (["sender", "host"], "owner IS NULL"),
            # for the operator, who looks often and among many
            "ix_target_failing": (["failing_since", "id"], "failing_since IS NOT NULL AND disabled_at IS NULL"),
            "ix_target_disabled": (["disabled_at", "id"], "disabled_at IS NOT NULL"),
            "ix_target_unconfirmed": (["id"], "verified_at IS NULL AND disabled_at IS NULL"),
        }
        return tuple(
            Index(name, *columns, sqlite_where=text(condition), postgresql_where=text(condition))
            for name, (columns, condition) in indexes.items()
        )

    id: str = Field(primary_key=True)
    kind: str
    address: str
    identity: bytes = Field(unique=True)
    secret: bytes
    owner: str | None = None
    verified_at: datetime | None = Field(default=None, sa_type=Moment)
    disabled_at: datetime | None = Field(default=None, sa_type=Moment)
    disabled_because: str | None = None
    next_try_at: datetime | None = Field(default=None, sa_type=Moment)
    tried_at: datetime | None = Field(default=None, sa_type=Moment)
    hold_until: datetime | None = Field(default=None, sa_type=Moment)
    leased_until: datetime | None = Field(default=None, sa_type=Moment)
    message_id: str | None = None
    attempts: int = 0
    failing_since: datetime | None = Field(default=None, sa_type=Moment)
    last_error: str | None = None
    host: str = Field(default="", sa_column_kwargs={"server_default": ""})
    sender: str = Field(default="", sa_column_kwargs={"server_default": ""})
    health: str = Field(default="new", sa_column_kwargs={"server_default": "new"})
    answered_at: datetime | None = Field(default=None, sa_type=Moment)
    burst: int = Field(default=0, sa_column_kwargs={"server_default": "0"})
    burst_since: datetime | None = Field(default=None, sa_type=Moment)


class WaitingAlert(SQLModel):
    """One alert for one target, until it is delivered: `class Alert(WaitingAlert, Tables, table=True)`.

    The building adds columns for what the alert says. `message_id` is set when the alert is first sent, alone or in a digest.
    `omitted` counts the older alerts that this one replaces, because too many waited (see Outbox.thin), and `omitted_since` is when
    the first of them was raised. The building's AlertContents says so.
    """

    __tablename__ = "alert"

    @declared_attr.directive
    def __table_args__(cls) -> tuple[object, ...]:  # noqa: N805
        return (Index("ix_alert_target_id", "target_id", "id"),)

    id: int | None = Field(default=None, primary_key=True)
    target_id: str = Field(foreign_key="target.id")
    kind: str
    at: datetime = Field(sa_type=Moment)
    message_id: str | None = None
    omitted: int = Field(default=0, sa_column_kwargs={"server_default": "0"})
    omitted_since: datetime | None = Field(default=None, sa_type=Moment)


class DeliveredAlert(SQLModel):
    """One alert that was delivered to a target with an owner: `class Delivery(DeliveredAlert, Tables, table=True)`.

    The building may add columns of its alerts; they are copied. The newest outbox.MOST_KEPT of each target are kept.
    """

    __tablename__ = "delivery"

    @declared_attr.directive
    def __table_args__(cls) -> tuple[object, ...]:  # noqa: N805
        return (Index("ix_delivery_target_id", "target_id", "id"),)

    id: int | None = Field(default=None, primary_key=True)
    target_id: str = Field(foreign_key="target.id", ondelete="CASCADE")
    kind: str
    at: datetime = Field(sa_type=Moment)
    message_id: str
    delivered_at: datetime = Field(sa_type=Moment)


class Tables(SQLModel, registry=registry()):
    """Base of the tables in campus's own database."""


class MailboxRow(Tables, table=True):
    """One mailbox, by the digest of its normalised address. `token` is the secret part of the page that refuses and allows questions."""

    __tablename__ = "alerts_mailboxes"

    digest: bytes = Field(primary_key=True)
    token: str = Field(unique=True)
    asked_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    unanswered: int = 0
    refused_at: datetime | None = Field(default=None, sa_type=UtcDateTime)


class MailboxSenderRow(Tables, table=True):
    """An address that a sender named: when it was last asked for that sender, and when its holder agreed. See targets.sender_of."""

    __tablename__ = "alerts_senders"
    __table_args__ = (Index(None, "sender", "asked_at"),)

    address: bytes = Field(primary_key=True)
    sender: str = Field(primary_key=True)
    asked_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    agreed_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
