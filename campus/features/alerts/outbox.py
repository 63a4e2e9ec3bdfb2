"""The outbox: alerts are raised here, in the building's own transaction, and targets claimed, confirmed, disabled and deleted.

`Outbox.raise_alerts` stores alerts in the transaction of the change that they report: either both are committed, or neither.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from itertools import groupby
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Row, Table, and_, bindparam, case, exists, func, insert, literal, select, update
from sqlmodel import SQLModel

from campus.errors import TargetRefused
from campus.features.alerts.message import Health
from campus.features.alerts.targets import Address, ClaimedTarget, Registrant, masked_address, owned_identity
from campus.secrets import Entropy, random_id
from campus.storage import Moment, Storage, among, in_snapshot, is_postgres

CONFIRM = "confirm"
"""The kind of an alert that asks a target's owner for confirmation. An unconfirmed target is sent nothing else."""
PROMPT: tuple[Health, ...] = ("proven", "new")
"""The health of targets that neither fail nor are slow."""
MOST_WAITING = 100
"""How many alerts about one subject wait for one target, with those of the message that is being sent to it."""
MOST_KEPT = 200
"""How many delivered alerts of one target are kept."""
EARLY_RETRY = timedelta(seconds=30)
"""A failing target is tried again this soon after a new alert for it, even if the retry policy says later."""
SIGNING_BYTES = 32
ENABLED = {"disabled_at": None, "disabled_because": None, "attempts": 0, "failing_since": None}


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
        """Leave out the oldest of the `named` alerts where more than `most` about one subject would wait for one target.

        The oldest that stays counts them. Alerts of a message that is being sent stay as they are, because each try sends the same: a
        place is left for one, so that a digest never takes all of them, and the news after it find one.
        """
        alert = self.alerts.c
        group = (alert.target_id,) if self._about is None else (alert.target_id, self._about)
        is_sent = alert.message_id.is_not(None)
        place = func.row_number().over(partition_by=(*group, is_sent), order_by=alert.id.desc()).label("place")
        sent = func.sum(case((is_sent, 1), else_=0)).over(partition_by=group)
        places = (self._most - case((sent > 0, sent), else_=1)).label("places")
        waiting = select(alert.id, place, places, is_sent.label("is_sent")).where(named, alert.kind != CONFIRM).subquery()
        columns = (alert.id, alert.kind, alert.at, alert.omitted, alert.omitted_since)
        surplus = ~waiting.c.is_sent & (waiting.c.place >= waiting.c.places)
        oldest = select(*group, *columns).join(waiting, waiting.c.id == alert.id).where(surplus)
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

    def claim(self, connection: Connection, address: Address, by: Registrant, *, now: datetime, entropy: Entropy) -> ClaimedTarget:
        """The target at an address: created if there is none, enabled again if it was disabled.

        Without an owner a target has one user, and a sender has a limited number at one host: raises TargetRefused with the rule
        `in_use` or `host_limit`.
        """
        target = self.targets
        row = connection.execute(select(target).where(target.c.identity == address.identity(by.owner))).one_or_none()
        if row is None:
            return self._new_target(connection, address, by, now=now, entropy=entropy)
        if by.owner is None:
            raise TargetRefused("in_use", "Another user has this target.")
        confirmed = address.is_confirmed or (row.disabled_at is None and row.verified_at is not None)
        if row.disabled_at is not None or (row.verified_at is None and confirmed):
            self.enable(connection, row, verified_at=row.verified_at or now if confirmed else None, now=now)
        return ClaimedTarget(row.id, row.secret, confirmed)

    def adopt(self, connection: Connection, row: Row[Any], by: Registrant, *, now: datetime) -> Row[Any]:
        """Give the target in a row, which has no owner, to one: it stays as it is. If the owner has a target at its address, returns that
        one, enabled: the caller links its subjects to it, redirects what waits, and deletes the other.
        """
        assert by.owner is not None, "a target is given to an owner"
        identity = owned_identity(by.owner, row.address)
        own = connection.execute(select(self.targets).where(self.targets.c.identity == identity)).one_or_none()
        if own is None:
            self._change(connection, row.id, owner=by.owner, sender=by.sender, identity=identity)
            return row
        if own.disabled_at is not None:
            self.enable(connection, own, verified_at=own.verified_at, now=now)
        return own

    def _new_target(self, connection: Connection, address: Address, by: Registrant, *, now: datetime, entropy: Entropy) -> ClaimedTarget:
        target = self.targets
        if by.owner is None and address.host not in by.shared_hosts:
            mine = target.c.owner.is_(None) & (target.c.sender == by.sender) & (target.c.host == address.host)
            if (connection.scalar(select(func.count()).where(mine)) or 0) >= by.per_host:
                raise TargetRefused("host_limit", f"You have {by.per_host} targets at {address.host}, the maximum.")
        secret = entropy(SIGNING_BYTES)
        target_id = random_id("tgt", entropy)
        row = insert(target).values(id=target_id, kind=address.channel.kind, address=address.text, identity=address.identity(by.owner))
        row = row.values(secret=secret, owner=by.owner, sender=by.sender, host=address.host, health=_first_health(by.owner))
        connection.execute(row.values(attempts=0, burst=0, verified_at=now if address.is_confirmed else None))
        return ClaimedTarget(target_id, secret, address.is_confirmed)

    def enable(self, connection: Connection, row: Row[Any], *, verified_at: datetime | None, now: datetime) -> None:
        """Enable the target in a row; what waits for it is sent, once it is confirmed, and without the question if it is."""
        fresh = {"last_error": None, "health": _first_health(row.owner), "next_try_at": now, "verified_at": verified_at, **ENABLED}
        self._change(connection, row.id, **fresh)
        if verified_at is not None:
            connection.execute(self.alerts.delete().where(self._question(row.id)))

    def make_room(self, connection: Connection, target_ids: Sequence[str]) -> None:
        """Let no address be refused because of these targets, which have one user, who replaces them in this transaction."""
        for target_id in target_ids:
            self._change(connection, target_id, identity=sha256(f"replaced\n{target_id}".encode()).digest(), host="")

    def ask_to_confirm(self, connection: Connection, target: ClaimedTarget, *, now: datetime, **columns: object) -> None:
        """Raise the question for a target that is not confirmed, unless one waits; `columns` are the building's own columns of an alert.

        Its channel decides when it is sent: see mailboxes.
        """
        waits = select(self.alerts.c.id).where(self._question(target.id)).limit(1)
        if not target.confirmed and connection.scalar(waits) is None:
            self.raise_alerts(connection, [{"target_id": target.id, "kind": CONFIRM, "at": now, **columns}], now=now)

    def confirm(self, connection: Connection, target_id: str, *, now: datetime) -> None:
        """Confirm a target: alerts are sent there from now on."""
        connection.execute(self.alerts.delete().where(self._question(target_id)))
        self._change(connection, target_id, **ENABLED, verified_at=now, next_try_at=now, message_id=None, leased_until=None)

    def unsubscribe(self, connection: Connection, target_id: str, *, now: datetime) -> None:
        """Delete what waits for a target, and disable it until it is claimed and confirmed again."""
        connection.execute(self.alerts.delete().where(self.alerts.c.target_id == target_id))
        gone = {"disabled_at": now, "disabled_because": "its reader unsubscribed"}
        self._change(connection, target_id, **gone, next_try_at=None, message_id=None, verified_at=None)

    def delete_target(self, connection: Connection, target_id: str) -> None:
        """Delete a target that has no user, with the alerts that wait for it."""
        connection.execute(self.alerts.delete().where(self.alerts.c.target_id == target_id))
        connection.execute(self.targets.delete().where(self.targets.c.id == target_id))

    def _change(self, connection: Connection, target_id: str, **values: object) -> None:
        connection.execute(update(self.targets).where(self.targets.c.id == target_id).values(**values))

    def _question(self, target_id: str) -> ColumnElement[bool]:
        return (self.alerts.c.target_id == target_id) & (self.alerts.c.kind == CONFIRM)

    def void_leases(self, connection: Connection) -> None:
        """End all leases, for a process that starts and is the only one. On PostgreSQL they end by themselves."""
        if not is_postgres(connection):
            leased = self.targets.c.leased_until.is_not(None)
            connection.execute(update(self.targets).where(leased).values(leased_until=None))

    async def targets_are_reached(self, site: Any) -> Sequence[str]:
        """Whether alerts are delivered to their targets: a check of the building."""
        counted = select(func.count()).select_from(self.targets).where(self._fails)
        count = await in_snapshot(site.storage, lambda connection: connection.scalar(counted)) or 0
        return [f"alerts cannot be delivered to {count} target{'s' * (count > 1)}; they are retried for 5 days"] if count else []

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
            return DeliveryState(targets, failing, disabled, unconfirmed, *self.backlog(connection)[:2])

        return await in_snapshot(storage, read)

    def backlog(self, connection: Connection) -> tuple[int, datetime | None, datetime | None]:
        """How many alerts wait, since when the next message is due (see DeliveryState), and when the oldest alert was raised."""
        target, alert = self.targets.c, self.alerts.c
        waiting = connection.execute(select(func.count(), func.min(func.coalesce(alert.omitted_since, alert.at)))).one()
        # by health, because the index begins with it
        first = [select(func.min(target.next_try_at)).where(target.health == one, target.next_try_at.is_not(None)) for one in PROMPT]
        due = [at for at in map(connection.scalar, first) if at is not None]
        return waiting[0], min(due, default=None), waiting[1]

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

    async def outbox_adds_up(self, site: Any) -> Sequence[str]:
        """Whether every target with undelivered alerts is due at some time: a check of the building's stored data."""
        target = self.targets.c
        asleep = target.next_try_at.is_(None) & target.disabled_at.is_(None) & target.verified_at.is_not(None)
        forgotten = select(target.id).where(asleep, target.id.in_(select(self.alerts.c.target_id)))
        ids = await in_snapshot(site.storage, lambda connection: connection.scalars(forgotten).all())
        return [f"target {target_id} has undelivered alerts and no time for the next try; restore a backup" for target_id in ids]


def _first_health(owner: str | None) -> Health:
    """The first alert of a key does not wait among those of callers without one, until its target proves slow."""
    return "new" if owner is None else "proven"
