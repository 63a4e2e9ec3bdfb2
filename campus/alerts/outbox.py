"""A building's outbox: alerts are stored in the transaction of the change that they tell of, and their targets are woken."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, Connection, Table, and_, case, func, insert, literal, select, update
from sqlmodel import SQLModel

from campus.storage import Moment, Storage, among, in_snapshot, is_postgres

EARLY_RETRY = timedelta(seconds=30)
"""A target that fails is tried again so soon after a new alert for it, whatever its next try by the retry policy."""


class Outbox:
    """The two tables of a building's alerts, made of its models: `Outbox(Target, Alert)`."""

    def __init__(self, target: type[SQLModel], alert: type[SQLModel]) -> None:
        tables: Mapping[str, Table] = target.metadata.tables
        self.targets, self.alerts = tables[str(target.__tablename__)], tables[str(alert.__tablename__)]

    def raise_alerts(self, connection: Connection, rows: Sequence[Mapping[str, object]], *, now: datetime) -> None:
        """Store alerts, a row each with `target_id`, `kind`, `at` and the building's own columns, and wake their targets."""
        if rows:
            connection.execute(insert(self.alerts), [dict(row) for row in rows])
            self.wake(connection, among(connection, self.targets.c.id, {str(row["target_id"]) for row in rows}), now=now)

    def wake(self, connection: Connection, named: ColumnElement[bool], *, now: datetime) -> None:
        """Have the targets looked at for which alerts were stored: at once, unless they fail or asked to be left alone."""
        target, at_once, soon = self.targets.c, literal(now, Moment()), literal(now + EARLY_RETRY, Moment())
        waits = and_(target.attempts > 0, target.next_try_at.is_not(None))
        # a target that never took anything is tried by the retry policy alone, whatever alerts are raised for it
        unknown = target.answered_at.is_(None)
        keeps = and_(waits, unknown | (target.next_try_at <= soon) | (func.coalesce(target.hold_until, at_once) > soon))
        woken = case((keeps, target.next_try_at), (waits, soon), (target.hold_until > at_once, target.hold_until), else_=at_once)
        connection.execute(update(self.targets).where(named, target.disabled_at.is_(None)).values(next_try_at=woken))

    def void_leases(self, connection: Connection) -> None:
        """Let every message be claimed anew: for a process that starts and is the only one. On PostgreSQL leases lapse."""
        if not is_postgres(connection):
            leased = self.targets.c.leased_until.is_not(None)
            connection.execute(update(self.targets).where(leased).values(leased_until=None))

    async def failing_targets(self, storage: Storage) -> int:
        """How many targets do not take their alerts at present."""
        target = self.targets.c
        failing = target.failing_since.is_not(None) & target.disabled_at.is_(None)
        counted = select(func.count()).select_from(self.targets).where(failing)
        return await in_snapshot(storage, lambda connection: connection.scalar(counted)) or 0

    async def forgotten_targets(self, storage: Storage) -> Sequence[str]:
        """Targets for which alerts wait and that nothing will look at: none, unless the stored data is damaged."""
        target = self.targets.c
        asleep = target.next_try_at.is_(None) & target.disabled_at.is_(None) & target.verified_at.is_not(None)
        forgotten = select(target.id).where(asleep, target.id.in_(select(self.alerts.c.target_id)))
        return await in_snapshot(storage, lambda connection: connection.scalars(forgotten).all())
