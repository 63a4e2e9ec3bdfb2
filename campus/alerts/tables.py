"""The tables of an outbox: base classes for targets and waiting alerts, which a building adds to its own SQLAlchemy registry."""

from datetime import datetime

from sqlalchemy import Index, text
from sqlalchemy.orm import declared_attr
from sqlmodel import Field, SQLModel

from campus.storage import Moment

CONFIRM = "confirm"
"""The kind of an alert that asks whether its target may be sent alerts; nothing else is sent to a target that is not verified."""


class AlertTarget(SQLModel):
    """Where alerts go: `class Target(AlertTarget, Tables, table=True)`. The alerts for one target are sent one after the other.

    `identity` is the digest of owner and address (see targets.Address): a target without an owner has one user. `secret` signs
    what is sent there. `next_try_at` is when the target is looked at next, none while nothing waits. `message_id` names the
    message that is being sent, whose alerts have it too, and `attempts` how often it was tried; `leased_until` keeps two
    processes from sending it at once. `failing_since` is when the first try failed after the last that was taken.

    Whose turn it is depends on `host`, on `sender` (the owner, or the network of who registered it) and on `health`: see
    fair_shares. `answered_at` is when it last took a message, `burst` how many it took in the minute from `burst_since`.
    """

    __tablename__ = "target"

    @declared_attr.directive
    def __table_args__(cls) -> tuple[Index, ...]:  # noqa: N805  # SQLAlchemy passes the class
        waits, ownerless = text("next_try_at IS NOT NULL"), text("owner IS NULL")
        return (
            Index("ix_target_due", "health", "next_try_at", "sender", "host", sqlite_where=waits, postgresql_where=waits),
            Index("ix_target_sender", "sender", "host", sqlite_where=ownerless, postgresql_where=ownerless),
        )

    id: str = Field(primary_key=True)
    kind: str
    address: str
    identity: bytes = Field(unique=True)
    secret: bytes
    owner: str | None = None
    verified_at: datetime | None = Field(default=None, sa_type=Moment)
    asked_at: datetime | None = Field(default=None, sa_type=Moment)
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

    The building adds columns for what the alert says as of the moment when it was raised. `message_id` is set when the alert is
    first sent, alone or with others in a digest.
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
