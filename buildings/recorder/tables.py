"""The tables of the recorder: monitors, capsules, owners, targets with their alerts, and the time of the last sweep."""

from datetime import datetime, timedelta

from sqlalchemy import BigInteger, Index, UniqueConstraint, text
from sqlmodel import Field, SQLModel

from campus.features.alerts import AlertTarget, DeliveredAlert, Outbox, WaitingAlert
from campus.storage import Moment, Span, registry

ONLY = 1
DEMO = "mon_demo"  # The monitor that the recorder beats itself, for the start page.
SLUGS = "slug IS NOT NULL AND owner IS NOT NULL"
ALERTS_PER_MONITOR = 10
"""Alerts of one monitor that wait for one target, besides those of the message that is being sent: the last five times it was down."""


class Tables(SQLModel, registry=registry(), defer_build=True):  # no row is validated: a validator of each would delay the start
    """Base of the building's tables."""


class Owner(Tables, table=True):
    """The lineage of a key that owns monitors: how many, and when the key expires.

    The addresses of the badges of its tags are made of `badge_id` and `badge_secret`.
    """

    __tablename__ = "owner"

    lineage: str = Field(primary_key=True)
    badge_id: str = Field(unique=True)
    badge_secret: bytes
    monitors: int = 0
    ends_at: datetime = Field(sa_type=Moment)


class Target(AlertTarget, Tables, table=True):
    """An address that alerts are sent to. Without an owner a target has one monitor."""

    owner: str | None = Field(default=None, foreign_key="owner.lineage")


class Monitor(Tables, table=True):
    """One monitor: its schedule, its state (see state_machine.MonitorState), and its last beats.

    `capsules` is how many were ever stored, which determines the slot of the next; `fence` counts the takeovers.
    `expiry_told_at` is when the last notice of its deletion was raised. `minute` and `minute_beats` count the beats of the
    current minute. `due_at` is when a sweep looks at a monitor, null if it waits for nothing: while it is up never after `deadline_at`,
    which most beats move without it, because it is indexed; while it is down, when it next reminds or escalates. `unverified`: the deadline
    was moved because of an outage of the recorder. `made_by` is the `Caller.maker` of the owner who registered it, changed it or took it
    over last.

    `options` is MonitorOptions as JSON, null for none; `plain` whether its ok beats change nothing but times (beats.sql). `ping_digest` is
    that of the UUID that authorizes beats at /ping, `page_digest` that of the address of its page, while it has no owner. `tags` stand
    between blanks, with one before the first and after the last. `runs` is how many runs there ever were. `progress` is the digest of the
    last reported progress, and `unchanged` how often in a row it was the same; `session` what the hooks of its agent's host reported
    (beats/hooks.py). `muted_until`: no alert is raised before, and `held` is the kind of the one that is raised then (monitors.muting),
    `held_since` when the downtime began of which it reports the end. `acknowledged_at`: somebody acts, and nobody is reminded of this
    epoch; `reminded_at` is when somebody last was, or was told of it by a sweep. `followed_up`: more may follow its alerts than their
    delivery, such as reminders, so that a sweep looks at each of its troubles by itself (monitors.acting).
    """

    __tablename__ = "monitor"
    __table_args__ = (
        Index("ix_monitor_due", "due_at", sqlite_where=text("due_at IS NOT NULL"), postgresql_where=text("due_at IS NOT NULL")),
        Index("ix_monitor_owner", "owner", "id"),
        Index("ix_monitor_slug", "owner", "slug", unique=True, sqlite_where=text(SLUGS), postgresql_where=text(SLUGS)),
        {"postgresql_with": {"fillfactor": 75}},
    )

    id: str = Field(primary_key=True)
    secret_digest: bytes
    badge_id: str = Field(unique=True)
    owner: str | None = Field(default=None, foreign_key="owner.lineage")
    made_by: str | None = None
    name: str
    period: timedelta = Field(sa_type=Span)
    grace: timedelta = Field(sa_type=Span)
    registered_at: datetime = Field(sa_type=Moment)
    mode: str
    since: datetime = Field(sa_type=Moment)
    alive_at: datetime = Field(sa_type=Moment)
    expected_at: datetime = Field(sa_type=Moment)
    deadline_at: datetime = Field(sa_type=Moment)
    due_at: datetime | None = Field(default=None, sa_type=Moment)
    epoch: int = 0
    failures: int = 0
    run_since: datetime | None = Field(default=None, sa_type=Moment)
    down: timedelta = Field(default=timedelta(0), sa_type=Span)
    still: timedelta = Field(default=timedelta(0), sa_type=Span)
    first_beat_at: datetime | None = Field(default=None, sa_type=Moment)
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
    options: bytes | None = None
    plain: bool = True
    ping_digest: bytes = Field(unique=True)
    page_digest: bytes | None = Field(default=None, unique=True)
    slug: str | None = None
    tags: str = ""
    runs: int = 0
    progress: bytes | None = None
    unchanged: int = 0
    session: bytes | None = None
    held: str | None = None
    held_since: datetime | None = Field(default=None, sa_type=Moment)
    muted_until: datetime | None = Field(default=None, sa_type=Moment)
    acknowledged_at: datetime | None = Field(default=None, sa_type=Moment)
    reminded_at: datetime | None = Field(default=None, sa_type=Moment)
    followed_up: bool = False


class MonitorTarget(Tables, table=True):
    """Where a monitor's alerts go: any number of targets, each used by any number of monitors; `place` is their order.

    `kinds` are the kinds of alerts that go there, between blanks, null for all; `after` is how long a trouble must last first. `told` is
    the epoch of the trouble that it was told of and whose end it has not heard, 0 for none, null without conditions: told of all.
    """

    __tablename__ = "monitor_target"

    monitor_id: str = Field(primary_key=True, foreign_key="monitor.id", ondelete="CASCADE")
    target_id: str = Field(primary_key=True, foreign_key="target.id", index=True)
    place: int = 0
    kinds: str | None = None
    after: timedelta | None = Field(default=None, sa_type=Span)
    told: int | None = None


class Run(Tables, table=True):
    """One of a monitor's last hundred runs, or ten without a key; a new one replaces the oldest in its slot.

    `started_at` is null where no beat reported the start, `ended_at` while it is open; `limit_at` is by when it must end. `result` is ok,
    fail, or unknown where it was replaced or taken over before an end was reported; null while it is open, overdue once its limit was
    reported; log for output that belongs to no run. `output` is the end of what it wrote.
    """

    __tablename__ = "run"

    monitor_id: str = Field(primary_key=True, foreign_key="monitor.id", ondelete="CASCADE")
    slot: int = Field(primary_key=True)
    number: int
    rid: str | None = None
    started_at: datetime | None = Field(default=None, sa_type=Moment)
    limit_at: datetime | None = Field(default=None, sa_type=Moment)
    ended_at: datetime | None = Field(default=None, sa_type=Moment)
    result: str | None = None
    exit_code: int | None = None
    session: str | None = None
    agent: str | None = None
    output: bytes | None = None


class BeatPage(Tables, table=True):
    """Earlier beats of a monitor: its history whenever that had twenty new ones; a new page replaces the oldest in its slot."""

    __tablename__ = "beat_page"

    monitor_id: str = Field(primary_key=True, foreign_key="monitor.id", ondelete="CASCADE")
    slot: int = Field(primary_key=True)
    entries: bytes


class FleetKey(Tables, table=True):
    """A key of an owner beside its own: `ping` sends beats by slug, `read` reads states. It is found by its digest."""

    __tablename__ = "fleet_key"

    digest: bytes = Field(primary_key=True)
    owner: str = Field(foreign_key="owner.lineage", index=True)
    kind: str
    hint: str
    made_at: datetime = Field(sa_type=Moment)
    made_by: str | None = None


class Capsule(Tables, table=True):
    """One of a monitor's last five capsules; a new one replaces the oldest in its slot."""

    __tablename__ = "capsule"

    monitor_id: str = Field(primary_key=True, foreign_key="monitor.id", ondelete="CASCADE")
    slot: int = Field(primary_key=True)
    number: int
    seq: int | None = Field(default=None, sa_type=BigInteger)
    at: datetime = Field(sa_type=Moment)
    body: bytes


class RetiredSecret(Tables, table=True):
    """A secret that a takeover made invalid: its beats are refused with `taken_over`."""

    __tablename__ = "retired_secret"

    monitor_id: str = Field(primary_key=True, foreign_key="monitor.id", ondelete="CASCADE")
    digest: bytes = Field(primary_key=True)


class Alert(WaitingAlert, Tables, table=True):
    """One undelivered alert for one target, as it was raised. An alert about the recorder itself has no monitor."""

    __table_args__ = (
        UniqueConstraint("monitor_id", "epoch", "kind", "target_id", name="uq_alert_monitor_id"),
        Index("ix_alert_target_id", "target_id", "id"),
    )

    monitor_id: str | None = Field(default=None, foreign_key="monitor.id", ondelete="CASCADE")
    epoch: int
    since: datetime = Field(sa_type=Moment)
    until: datetime | None = Field(default=None, sa_type=Moment)
    reason: str
    last_beat_at: datetime | None = Field(default=None, sa_type=Moment)


class Delivery(DeliveredAlert, Tables, table=True):
    """One alert of a monitor with an owner, after it was delivered to one of its targets."""

    monitor_id: str | None = Field(default=None, foreign_key="monitor.id", ondelete="CASCADE", index=True)
    reason: str


class Tick(Tables, table=True):
    """When the recorder was last known to be running: one row."""

    __tablename__ = "tick"

    id: int = Field(default=ONLY, primary_key=True)
    at: datetime = Field(sa_type=Moment)


class StoredOutage(Tables, table=True):
    """An outage of the recorder until all deadlines are moved and all targets are told: see sweep.py.

    Monitors whose beat was expected by `lost_by` may have lost it. `moved_to` is the last monitor, in the order of ids, whose
    deadline was moved, null once all are; `told_to` is the last target that was told, and `told_at` when.
    """

    __tablename__ = "outage"

    id: int | None = Field(default=None, primary_key=True)
    began_at: datetime = Field(sa_type=Moment)
    ended_at: datetime = Field(sa_type=Moment)
    lost_by: datetime = Field(sa_type=Moment)
    moved_to: str | None = ""
    told_to: str = ""
    told_at: datetime | None = Field(default=None, sa_type=Moment)


class Reply(Tables, table=True):
    """The answer to a registration with an Idempotency-Key, encrypted under that key."""

    __tablename__ = "reply"

    key_digest: bytes = Field(primary_key=True)
    request_digest: bytes
    at: datetime = Field(sa_type=Moment)
    sealed: bytes


# the tables for SQL: MONITORS.c.deadline_at is typed as a column, which Monitor.deadline_at is not
_BY_NAME = Tables.metadata.tables
OWNERS, TARGETS, MONITORS, CAPSULES = _BY_NAME["owner"], _BY_NAME["target"], _BY_NAME["monitor"], _BY_NAME["capsule"]
RETIRED_SECRETS, ALERTS, TICKS, REPLIES = _BY_NAME["retired_secret"], _BY_NAME["alert"], _BY_NAME["tick"], _BY_NAME["reply"]
MONITOR_TARGETS, DELIVERIES, OUTAGES = _BY_NAME["monitor_target"], _BY_NAME["delivery"], _BY_NAME["outage"]
RUNS, BEAT_PAGES, FLEET_KEYS = _BY_NAME["run"], _BY_NAME["beat_page"], _BY_NAME["fleet_key"]
OUTBOX = Outbox(
    Target, Alert, Delivery, about="monitor_id", most=ALERTS_PER_MONITOR, uncounted=("recovered", "reminder", "expiring", "test")
)
