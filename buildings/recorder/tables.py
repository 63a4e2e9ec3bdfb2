"""What is stored: monitors and their capsules, owners, targets with what is to be delivered to each, and the time of the last sweep."""

from datetime import datetime, timedelta

from sqlalchemy import BigInteger, Index, UniqueConstraint, text
from sqlmodel import Field, SQLModel

from campus import Moment, Span, registry

ONLY = 1


class Tables(SQLModel, registry=registry()):
    """Base of the building's tables."""


class Owner(Tables, table=True):
    """A key's lineage that owns monitors: how many, when its key ends, and how many addresses it had asked on one day."""

    __tablename__ = "owner"

    lineage: str = Field(primary_key=True)
    monitors: int = 0
    ends_at: datetime = Field(sa_type=Moment)
    asked_on: int = 0
    asked: int = 0


class Target(Tables, table=True):
    """Where alerts go, and its lane: alerts for one target are delivered one after the other.

    `identity` is the digest of owner and address: a target without an owner has one monitor. `secret` signs what is
    sent there. `next_try_at` is when the lane is to be looked at, none while nothing waits. `message_id` names the
    message that is under way, whose alerts bear it too, and `attempts` how often it was tried; `leased_until` keeps two
    processes from sending it at once. `failing_since` is when the first try failed after the last that went well.

    Whose turn it is depends on `host`, on `sender` (the owner, or the network of who registered it) and on `health`: see
    delivery.shares. `answered_at` is when it last took a message, `burst` how many it took in the minute from `burst_since`.
    """

    __tablename__ = "target"
    __table_args__ = (
        Index(
            "ix_target_due",
            *("health", "next_try_at", "sender", "host"),
            sqlite_where=text("next_try_at IS NOT NULL"),
            postgresql_where=text("next_try_at IS NOT NULL"),
        ),
        Index("ix_target_sender", "sender", "host", sqlite_where=text("owner IS NULL"), postgresql_where=text("owner IS NULL")),
    )

    id: str = Field(primary_key=True)
    kind: str
    address: str
    identity: bytes = Field(unique=True)
    secret: bytes
    owner: str | None = Field(default=None, foreign_key="owner.lineage")
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


class Monitor(Tables, table=True):
    """One monitor: what was agreed, how it stands (see state_machine.MonitorState), and its last beats.

    `capsules` is how many were ever stored, which says where the next one goes; `fence` how often another agent took
    over. `expiry_told_at` is when its targets were last told that it will be removed for its silence. `minute` and
    `minute_beats` count the beats of the current minute. `unverified`: the deadline was moved by an
    outage of the recorder.
    """

    __tablename__ = "monitor"
    __table_args__ = (
        Index("ix_monitor_due", "deadline_at", sqlite_where=text("mode = 'up'"), postgresql_where=text("mode = 'up'")),
        Index("ix_monitor_owner", "owner", "id"),
    )

    id: str = Field(primary_key=True)
    secret_digest: bytes
    badge_id: str = Field(unique=True)
    owner: str | None = Field(default=None, foreign_key="owner.lineage")
    name: str
    webhook: str | None = Field(default=None, foreign_key="target.id", index=True)
    email: str | None = Field(default=None, foreign_key="target.id", index=True)
    period: timedelta = Field(sa_type=Span)
    grace: timedelta = Field(sa_type=Span)
    registered_at: datetime = Field(sa_type=Moment)
    mode: str
    since: datetime = Field(sa_type=Moment)
    alive_at: datetime = Field(sa_type=Moment)
    expected_at: datetime = Field(sa_type=Moment)
    deadline_at: datetime = Field(sa_type=Moment)
    epoch: int = 0
    failures: int = 0
    run_since: datetime | None = Field(default=None, sa_type=Moment)
    down: timedelta = Field(default=timedelta(0), sa_type=Span)
    still: timedelta = Field(default=timedelta(0), sa_type=Span)
    unverified: bool = False
    last_beat_at: datetime | None = Field(default=None, sa_type=Moment)
    beats: int = Field(default=0, sa_type=BigInteger)
    history: bytes = b""
    minute: int = 0
    minute_beats: int = 0
    capsules: int = 0
    last_seq: int | None = Field(default=None, sa_type=BigInteger)
    fence: int = 0
    expiry_told_at: datetime | None = Field(default=None, sa_type=Moment)


class Capsule(Tables, table=True):
    """One of a monitor's last capsules; a new one takes the slot of the oldest."""

    __tablename__ = "capsule"

    monitor_id: str = Field(primary_key=True, foreign_key="monitor.id", ondelete="CASCADE")
    slot: int = Field(primary_key=True)
    number: int
    seq: int | None = Field(default=None, sa_type=BigInteger)
    at: datetime = Field(sa_type=Moment)
    body: bytes


class RetiredSecret(Tables, table=True):
    """A secret that takeover retired: whoever still beats with it is told so."""

    __tablename__ = "retired_secret"

    monitor_id: str = Field(primary_key=True, foreign_key="monitor.id", ondelete="CASCADE")
    digest: bytes = Field(primary_key=True)


class Alert(Tables, table=True):
    """The outbox: one alert for one target, with what it says as of the moment it was raised; delivered, it goes.

    `message_id` is set when it is first to be sent, alone or with others in a digest. One about the recorder itself has
    no monitor.
    """

    __tablename__ = "alert"
    __table_args__ = (
        UniqueConstraint("monitor_id", "epoch", "kind", "target_id", name="uq_alert_monitor_id"),
        Index("ix_alert_target_id", "target_id", "id"),
    )

    id: int | None = Field(default=None, primary_key=True)
    target_id: str = Field(foreign_key="target.id")
    monitor_id: str | None = Field(default=None, foreign_key="monitor.id", ondelete="CASCADE")
    epoch: int
    kind: str
    at: datetime = Field(sa_type=Moment)
    since: datetime = Field(sa_type=Moment)
    until: datetime | None = Field(default=None, sa_type=Moment)
    reason: str
    last_beat_at: datetime | None = Field(default=None, sa_type=Moment)
    message_id: str | None = None


class Tick(Tables, table=True):
    """When the recorder was last known to watch: one row."""

    __tablename__ = "tick"

    id: int = Field(default=ONLY, primary_key=True)
    at: datetime = Field(sa_type=Moment)


class Reply(Tables, table=True):
    """The answer to a registration that came with an Idempotency-Key, readable only with that key."""

    __tablename__ = "reply"

    key_digest: bytes = Field(primary_key=True)
    request_digest: bytes
    at: datetime = Field(sa_type=Moment)
    sealed: bytes


_BY_NAME = Tables.metadata.tables
OWNERS, TARGETS, MONITORS, CAPSULES = _BY_NAME["owner"], _BY_NAME["target"], _BY_NAME["monitor"], _BY_NAME["capsule"]
RETIRED_SECRETS, ALERTS, TICKS, REPLIES = _BY_NAME["retired_secret"], _BY_NAME["alert"], _BY_NAME["tick"], _BY_NAME["reply"]
