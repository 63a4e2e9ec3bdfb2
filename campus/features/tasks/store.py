"""Background tasks in campus's own database, so that any process tells of each, and what becomes of those of a process that died.

    working ──► completed        it has a result: an answer, or the problem why there is none
       │  │
       │  ├────► cancelled       by its caller
       │  ├────► key_ended       the key that it was begun with was revoked, or has ended
       │  └────► interrupted     its process stopped; nothing was charged
       ▼
    charging ──► completed       its result is stored, and its payment or key is about to be charged: the payment's state decides
             └──► interrupted

The process that runs a task renews its lease. After the end of the lease whoever asks for the task concludes it: a working one is
interrupted, a charging one is what its payment is, or has its result if a key opened it. A process that comes too late changes nothing,
and then charges nothing.
"""

from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from typing import Any

from pydantic_core import from_json, to_json
from sqlalchemy import delete, func, update
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from campus.features.tasks.tables import TaskRow
from campus.shares import Counts
from campus.steps import Sold, TaskSeller
from campus.storage import Storage
from campus.storage.leases import Lease, is_held
from twins import Problem

LEASE = Lease(timedelta(seconds=10))
IS_OPEN = col(TaskRow.status).in_(("working", "charging"))
MOST_RUNNING, MOST_RUNNING_IN_ALL = 8, 256
"""Tasks of one caller, and of all."""
MOST_KEPT, MOST_KEPT_IN_ALL = 100, 5_000
"""The same of those that are kept and were not charged."""


class TaskStore:
    """The tasks of all buildings. `process` is the name of this one, as the holder of leases."""

    def __init__(self, storage: Storage, *, process: str, now: Callable[[], datetime], seller: TaskSeller | None = None) -> None:
        self._storage = storage
        self._process = process
        self.seller = seller
        self.now = now

    async def begin(self, task: TaskRow) -> None:
        """Store a task that is about to run here. Problem 429 or 503 if there are too many; the ended ones are deleted."""
        async with self._storage.write() as session:
            await session.exec(delete(TaskRow).where(col(TaskRow.kept_until) <= self.now()))
            await self._check_limits(session, task)
            if task.purchase is not None:  # that of an earlier task, which was not charged
                past = update(TaskRow).where(col(TaskRow.purchase) == task.purchase)
                await (await session.connection()).execute(past.values(purchase=None))
            session.add(task)

    def new(self, **members: Any) -> TaskRow:
        """A task that this process begins to run now."""
        now = self.now()
        return TaskRow(status="working", holder=self._process, lease_until=LEASE.end(now), created_at=now, updated_at=now, **members)

    async def find(self, task_id: str, *, building: str, owner: str | None) -> TaskRow | None:
        """The building's task of this id as it is now, if it has this owner, or none."""
        async with self._storage.read() as session:
            task = await session.get(TaskRow, task_id)
        if task is None or task.building != building or task.owner not in (None, owner) or task.kept_until <= self.now():
            return None
        return await self._as_it_is(task)

    async def bought(self, purchase: bytes) -> TaskRow | None:
        """The task that a payment began before, unless it ended without a charge."""
        async with self._storage.read() as session:
            task = (await session.exec(select(TaskRow).where(TaskRow.purchase == purchase))).first()
        if task is None or task.kept_until <= self.now():
            return None
        task = await self._as_it_is(task)
        return None if task is None or task.status in ("cancelled", "interrupted") or task.purchase is None else task

    async def charge(self, task_id: str, result: bytes, *, kept_until: datetime) -> bool:
        """Store the result before it is charged; False if the task is not this process's any more: it must not be charged."""
        return await self._changed(task_id, ("working",), status="charging", result=result, kept_until=kept_until)

    async def conclude(self, task_id: str, result: bytes | None, *, kept_until: datetime, is_charged: bool) -> None:
        """Store how a task of this process ended; without a result it was interrupted, and one that is being charged stays so.

        One that was not charged may be begun again by the same payment.
        """
        before, status = (("working",), "interrupted") if result is None else (("working", "charging"), "completed")
        past: dict[str, Any] = {} if is_charged else {"purchase": None}
        await self._changed(task_id, before, status=status, result=result, kept_until=kept_until, payment=None, **past)

    async def cancel(self, task: TaskRow) -> TaskRow:
        """Cancel a task that works; one that has ended, or is being charged, stays as it is. Returns it as it is now."""
        async with self._storage.write() as session:
            found = await session.get(TaskRow, task.id)
            if found is not None and found.status == "working":
                found.status = "cancelled"
                found.purchase = found.payment = None
                found.updated_at = self.now()
        return found or task

    async def end_with_key(self, task_id: str) -> None:
        """End a task of this process whose key has ended; one that has ended meanwhile stays as it is."""
        await self._changed(task_id, ("working",), status="key_ended")

    async def renew(self, running: Collection[str]) -> frozenset[str]:
        """Renew the leases of tasks that run here; returns those that still are this process's to run."""
        mine = col(TaskRow.id).in_(sorted(running)) & (col(TaskRow.holder) == self._process) & IS_OPEN
        async with self._storage.write() as session:
            renewed = update(TaskRow).where(mine).values(lease_until=LEASE.end(self.now())).returning(col(TaskRow.id))
            return frozenset((await (await session.connection()).execute(renewed)).scalars())

    async def _check_limits(self, session: AsyncSession, task: TaskRow) -> None:
        share = 1 if task.owner or task.payment else 2  # those who bring nothing leave half of the room to others
        running: Counts[str] = Counts(MOST_RUNNING_IN_ALL // share, MOST_RUNNING)
        kept: Counts[str] = Counts(MOST_KEPT_IN_ALL // share, MOST_KEPT)
        is_unpaid = col(TaskRow.purchase).is_(None)  # what was charged is kept as any paid answer, however much it is
        for counts, those in ((running, IS_OPEN & (col(TaskRow.lease_until) > self.now())), (kept, is_unpaid)):
            rows = select(TaskRow.started_by, func.count()).where(those).group_by(col(TaskRow.started_by))
            for holder, number in await session.exec(rows):
                counts.add(holder, number)
        if not running.has_share(task.started_by):
            raise too_many_tasks(f"{MOST_RUNNING} of your tasks are running; wait until one has ended, or cancel one", 5)
        if not kept.has_share(task.started_by):
            raise too_many_tasks(f"the results of your last {MOST_KEPT} tasks are being kept; try again when the first is deleted", 60)
        if not (kept.has_room(task.started_by) and running.has_room(task.started_by)):
            raise Problem(503, "tasks_busy", "Too many tasks are running or kept; try again soon.", headers={"Retry-After": "30"})

    async def _changed(self, task_id: str, before: Collection[str], **values: Any) -> bool:
        mine = (col(TaskRow.id) == task_id) & (col(TaskRow.holder) == self._process) & col(TaskRow.status).in_(before)
        async with self._storage.write() as session:
            changed = update(TaskRow).where(mine).values(updated_at=self.now(), **values)
            return (await (await session.connection()).execute(changed)).rowcount == 1

    async def _as_it_is(self, task: TaskRow) -> TaskRow | None:
        """The task, concluded if its process left it."""
        if task.status not in ("working", "charging") or is_held(task.lease_until, self.now()):
            return task
        async with self._storage.write() as session:
            found = await session.get(TaskRow, task.id)
            if found is not None and found.status in ("working", "charging") and not is_held(found.lease_until, self.now()):
                await self._conclude_abandoned(session, found)
        return found

    async def _conclude_abandoned(self, session: AsyncSession, task: TaskRow) -> None:
        sold = Sold(is_known=True)
        if task.payment is not None and task.status == "charging" and self.seller is not None:
            sold = await self.seller.sold(session, task.payment)
        if not sold.is_known:
            return
        by_key = task.status == "charging" and task.payment is None
        if (by_key or sold.meta is not None) and task.result is not None:
            task.status = "completed"
            task.result = _with_receipt(task.result, sold.meta or {})
        else:
            task.status = "interrupted"
            task.result = task.purchase = None
        task.payment = None
        task.updated_at = self.now()


def _with_receipt(result: bytes, receipt: Mapping[str, Any]) -> bytes:
    members = from_json(result)
    return to_json({**members, "_meta": {**members.get("_meta", {}), **receipt}})


def too_many_tasks(detail: str, seconds: int) -> Problem:
    return Problem(429, "too_many_tasks", detail, headers={"Retry-After": str(seconds)})
