"""The outbox: alerts are raised here, in the building's own transaction; and its tables, which a building adds to its registry.

`Outbox.raise_alerts` stores alerts in the transaction of the change that they report: either both are committed, or neither.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import NamedTuple
from urllib.parse import urlsplit

from sqlalchemy import (
    ColumnElement,
    Connection,
    Index,
    Table,
    and_,
    bindparam,
    case,
    exists,
    func,
    insert,
    literal,
    select,
    text,
    update,
)
from sqlalchemy.orm import declared_attr
from sqlmodel import Field, SQLModel

from campus.alerts.message import Health
from campus.storage import Moment, Storage, among, in_snapshot, is_postgres

CONFIRM = "confirm"
"""The kind of an alert that asks a target's owner for confirmation. An unconfirmed target is sent nothing else."""
PROMPT: tuple[Health, ...] = ("proven", "new")
"""The health of targets that neither fail nor are slow."""
MOST_WAITING = 100
"""How many alerts about one subject wait for one target, besides those of the message that is being sent to it."""
MOST_KEPT = 200
"""How many delivered alerts of one target are kept."""
EARLY_RETRY = timedelta(seconds=30)
"""A failing target is tried again this soon after a new alert for it, even if the retry policy says later."""


def masked_address(address: str) -> str:
    """An address as it may be shown. Of a URL only scheme and host, because the rest may be secret."""
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc}/…" if parts.scheme in ("http", "https") else address


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

    The building may add columns of its alerts; they are copied. The newest `MOST_KEPT` of each target are kept.
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


class TroubledTarget(NamedTuple):
    """A target that fails or is disabled, for the operator. `address` is masked; `waiting` counts its alerts."""

    id: str
    kind: str
    address: str
    failing_since: datetime | None
    disabled_at: datetime | None
    attempts: int
    reason: str
    next_try_at: datetime | None
    waiting: int


class DeliveryState(NamedTuple):
    """How many targets there are, fail, are disabled and are not confirmed; how many alerts wait; and since when the next message is due.

    That may be in the future, and is None if none is. Messages to targets that fail or are slow are not meant: they delay no others.
    """

    targets: int
    failing: int
    disabled: int
    unconfirmed: int
    waiting: int
    due_since: datetime | None


class Outbox:
    """The tables of a building's alerts, from its models: `Outbox(Target, Alert)`; with `Delivery` it keeps delivered alerts.

    `about` is the column of an alert that names its subject, such as the monitor that failed: `most` alerts about one subject wait for
    one target. Without it every alert of a target counts. Alerts of the kinds in `uncounted` report no trouble: of those that are left
    out, only the others are counted.
    """

    def __init__(
        self,
        target: type[SQLModel],
        alert: type[SQLModel],
        delivery: type[SQLModel] | None = None,
        *,
        about: str | None = None,
        most: int = MOST_WAITING,
        uncounted: Collection[str] = (),
    ) -> None:
        tables: Mapping[str, Table] = target.metadata.tables
        self.targets = tables[str(target.__tablename__)]
        self.alerts = tables[str(alert.__tablename__)]
        self.deliveries = None if delivery is None else tables[str(delivery.__tablename__)]
        self._about = None if about is None else self.alerts.c[about]
        self._most = most
        self._uncounted = uncounted

    @property
    def _fails(self) -> ColumnElement[bool]:
        return self.targets.c.failing_since.is_not(None) & self.targets.c.disabled_at.is_(None)

    def raise_alerts(self, connection: Connection, rows: Sequence[Mapping[str, object]], *, now: datetime) -> None:
        """Store alerts, a row each with `target_id`, `kind`, `at` and the building's own columns, and wake their targets."""
        if rows:
            targets = {str(row["target_id"]) for row in rows}
            subjects = set() if self._about is None else {row.get(self._about.name) for row in rows}
            connection.execute(insert(self.alerts), [dict(row) for row in rows])
            self.wake(connection, among(connection, self.targets.c.id, targets), now=now)
            if self._about is None or None in subjects:
                self.thin(connection, among(connection, self.alerts.c.target_id, targets))
            else:
                self.thin(connection, among(connection, self._about, map(str, subjects)))

    def wake(self, connection: Connection, named: ColumnElement[bool], *, now: datetime) -> None:
        """Make the targets due for which alerts were stored: at once, unless they fail or asked for a pause. What is due keeps its turn."""
        target = self.targets.c
        at_once = literal(now, Moment())
        soon = literal(now + EARLY_RETRY, Moment())
        waits = and_(target.attempts > 0, target.next_try_at.is_not(None))
        # new alerts do not change the next try of a target that never accepted a message
        unknown = target.answered_at.is_(None)
        keeps = and_(waits, unknown | (target.next_try_at <= soon) | (func.coalesce(target.hold_until, at_once) > soon))
        keeps |= target.next_try_at <= at_once
        woken = case((keeps, target.next_try_at), (waits, soon), (target.hold_until > at_once, target.hold_until), else_=at_once)
        connection.execute(update(self.targets).where(named, target.disabled_at.is_(None)).values(next_try_at=woken))

    def thin(self, connection: Connection, named: ColumnElement[bool]) -> None:
        """Leave out the oldest of the `named` alerts where more than `most` about one subject wait for one target.

        The oldest that stays counts them. Alerts of a message that is being sent stay as they are, because each try sends the same.
        """
        alert = self.alerts.c
        group = (alert.target_id,) if self._about is None else (alert.target_id, self._about)
        place = func.row_number().over(partition_by=group, order_by=alert.id.desc()).label("place")
        waiting = select(alert.id, place).where(named, alert.message_id.is_(None), alert.kind != CONFIRM).subquery()
        columns = (alert.id, alert.kind, alert.at, alert.omitted, alert.omitted_since)
        oldest = select(*group, *columns).join(waiting, waiting.c.id == alert.id).where(waiting.c.place >= self._most)
        rows = connection.execute(oldest.order_by(*group, alert.id.desc())).all()
        kept: list[dict[str, object]] = []
        left_out: list[dict[str, object]] = []
        for _, (last, *older) in groupby(rows, key=lambda row: tuple(row[: len(group)])):
            if older:
                count = sum(one.omitted + (one.kind not in self._uncounted) for one in older) + last.omitted
                since = min(one.omitted_since or one.at for one in (*older, last))
                kept.append({"key": last.id, "omitted_count": count, "omitted_from": since})
                left_out += [{"key": one.id} for one in older]
        if left_out:
            same = alert.id == bindparam("key")
            counted = {"omitted": bindparam("omitted_count"), "omitted_since": bindparam("omitted_from", type_=Moment())}
            connection.execute(self.alerts.delete().where(same), left_out)
            connection.execute(update(self.alerts).where(same).values(**counted), kept)

    def redirect(self, connection: Connection, named: ColumnElement[bool], target_id: str, *, now: datetime) -> int:
        """Let the waiting alerts that are `named` go to another target; returns how many. Questions for confirmation stay.

        The result of a delivery to their former target that is running finds them no more: if it was delivered, the new one gets them
        too; if it failed, or the former target is gone, the new one gets them nevertheless.
        """
        alert = self.alerts.c
        moved = update(self.alerts).where(named, alert.kind != CONFIRM).values(target_id=target_id, message_id=None)
        count = len(connection.execute(moved.returning(alert.id)).all())
        if count:
            self.wake(connection, self.targets.c.id == target_id, now=now)
            self.thin(connection, alert.target_id == target_id)
        return count

    def void_leases(self, connection: Connection) -> None:
        """End all leases, for a process that starts and is the only one. On PostgreSQL they end by themselves."""
        if not is_postgres(connection):
            leased = self.targets.c.leased_until.is_not(None)
            connection.execute(update(self.targets).where(leased).values(leased_until=None))

    async def failing_targets(self, storage: Storage) -> int:
        """How many targets fail at the moment."""
        counted = select(func.count()).select_from(self.targets).where(self._fails)
        return await in_snapshot(storage, lambda connection: connection.scalar(counted)) or 0

    async def state(self, storage: Storage) -> DeliveryState:
        """How deliveries are doing, in numbers."""
        target = self.targets.c
        unconfirmed = target.verified_at.is_(None) & target.disabled_at.is_(None)
        # each count reads an index of its own
        counts = [select(func.count()).where(condition) for condition in (self._fails, target.disabled_at.is_not(None), unconfirmed)]
        every = select(func.count()).select_from(self.targets)
        counted = select(*(one.scalar_subquery() for one in (every, *counts)))

        def read(connection: Connection) -> DeliveryState:
            targets, failing, disabled, unconfirmed = connection.execute(counted).one()
            return DeliveryState(targets, failing, disabled, unconfirmed, *self.backlog(connection))

        return await in_snapshot(storage, read)

    def backlog(self, connection: Connection) -> tuple[int, datetime | None]:
        """How many alerts wait, and since when the next message is due: see DeliveryState."""
        target = self.targets.c
        waiting = connection.scalar(select(func.count()).select_from(self.alerts)) or 0
        # by health, because the index begins with it
        first = [select(func.min(target.next_try_at)).where(target.health == one, target.next_try_at.is_not(None)) for one in PROMPT]
        due = [at for at in map(connection.scalar, first) if at is not None]
        return waiting, min(due, default=None)

    async def troubled_targets(self, storage: Storage, *, limit: int | None = None) -> Sequence[TroubledTarget]:
        """Targets that fail, the longest failing first, then those that are disabled, the latest first; at most `limit`."""
        target = self.targets.c
        alert = self.alerts.c
        waiting = select(func.count()).where(alert.target_id == target.id).scalar_subquery()
        reason = func.coalesce(target.disabled_because, target.last_error, "")
        shown = (target.failing_since, target.disabled_at, target.attempts, reason, target.next_try_at, waiting)
        every = select(target.id, target.kind, target.address, *shown)
        failing = every.where(self._fails).order_by(target.failing_since, target.id)
        disabled = every.where(target.disabled_at.is_not(None)).order_by(target.disabled_at.desc(), target.id.desc())

        def read(connection: Connection) -> list[TroubledTarget]:
            rows = list(connection.execute(failing.limit(limit)))
            rows += connection.execute(disabled.limit(None if limit is None else limit - len(rows)))
            return [TroubledTarget(*row)._replace(address=masked_address(row.address)) for row in rows]

        return await in_snapshot(storage, read)

    def keep(self, connection: Connection, delivered: Sequence[Mapping[str, object]]) -> None:
        """Copy delivered alerts, by `target`, `message` and `now`, into the history of targets with an owner, and drop its oldest."""
        if self.deliveries is None:
            return
        kept = self.deliveries
        alert = self.alerts
        target = self.targets.c
        copied = [column.name for column in kept.c if column.name in alert.c and column.name != "id"]
        chosen = (alert.c.target_id == bindparam("target"), alert.c.message_id == bindparam("message"), alert.c.kind != CONFIRM)
        owned = exists().where(target.id == alert.c.target_id, target.owner.is_not(None))
        values = (*(alert.c[name] for name in copied), bindparam("now", type_=Moment()))
        connection.execute(insert(kept).from_select([*copied, "delivered_at"], select(*values).where(*chosen, owned)), delivered)
        older = kept.alias()
        last = select(older.c.id).where(older.c.target_id == bindparam("target")).order_by(older.c.id.desc()).offset(MOST_KEPT).limit(1)
        connection.execute(kept.delete().where(kept.c.target_id == bindparam("target"), kept.c.id <= last.scalar_subquery()), delivered)

    async def forgotten_targets(self, storage: Storage) -> Sequence[str]:
        """Targets with waiting alerts that are never due: none, unless the stored data is damaged."""
        target = self.targets.c
        asleep = target.next_try_at.is_(None) & target.disabled_at.is_(None) & target.verified_at.is_not(None)
        forgotten = select(target.id).where(asleep, target.id.in_(select(self.alerts.c.target_id)))
        return await in_snapshot(storage, lambda connection: connection.scalars(forgotten).all())
