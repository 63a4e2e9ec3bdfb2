"""One run of a job, and the stored records of jobs: `SharedJobStore.change` is the transaction by which one process wins a job.

The process that wins the job's lease runs it, renews the lease meanwhile, and releases it however the run ends.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

import anyio
from sqlmodel import Field, select

from campus.errors import StorageError
from campus.jobs.task import LEASE, JobRecord, Task
from campus.storage import Storage, UtcDateTime
from campus.storage.tables import CoreTables

RELEASE_SECONDS = 5  # How long a run that ends waits for the database to store that.
RENEWAL_RETRY = timedelta(seconds=5)
Change = Callable[[JobRecord], JobRecord | None]  # Returns what a record becomes, or None to leave it as it is.
log = logging.getLogger(__name__)


class JobRow(CoreTables, table=True):
    """A JobRecord by the name of its job; all processes share the row."""

    __tablename__ = "jobs"

    name: str = Field(primary_key=True)
    holder: str | None = None
    lease_until: datetime | None = Field(default=None, sa_type=UtcDateTime)
    last_started: datetime | None = Field(default=None, sa_type=UtcDateTime)
    last_success: datetime | None = Field(default=None, sa_type=UtcDateTime)
    last_error: str | None = None
    failures: int = 0
    retry_at: datetime | None = Field(default=None, sa_type=UtcDateTime)

    def record(self) -> JobRecord:
        return JobRecord(**self.model_dump(exclude={"name"}))


class JobStore(Protocol):
    async def records(self) -> Mapping[str, JobRecord]: ...

    async def change(self, name: str, change: Change) -> JobRecord | None:
        """Change a record while nobody else does; returns it as it was before, or None when `change` left it as it is."""
        ...


class SharedJobStore:
    """For jobs that one process of the campus runs: one row per job, changed in a transaction each."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    async def records(self) -> Mapping[str, JobRecord]:
        async with self._storage.read() as session:
            return {row.name: row.record() for row in await session.exec(select(JobRow))}

    async def change(self, name: str, change: Change) -> JobRecord | None:
        async with self._storage.write() as session:
            row = await session.get(JobRow, name) or JobRow(name=name)
            before = row.record()
            after = change(before)
            if after is None:
                return None
            session.add(row.sqlmodel_update(asdict(after)))
            return before


class ProcessJobStore:
    """For jobs that every process runs: in memory, for as long as the process lives."""

    def __init__(self) -> None:
        self._records: dict[str, JobRecord] = {}

    async def records(self) -> Mapping[str, JobRecord]:
        return dict(self._records)

    async def change(self, name: str, change: Change) -> JobRecord | None:
        before = self._records.get(name, JobRecord())
        if (after := change(before)) is None:
            return None
        self._records[name] = after
        return before


class LeaseLost(Exception):
    """The lease lapsed, so that another process may run the job; this run was stopped."""


@dataclass(frozen=True)
class Claim:
    taken_at: datetime
    before: JobRecord


@dataclass(frozen=True)
class Runner:
    """Runs jobs for one process, which others know as `holder`. `pace`: a run looks at the clock every so many seconds."""

    holder: str
    now: Callable[[], datetime]
    chance: Callable[[], float]
    pace: float

    async def claim(self, task: Task, store: JobStore, allowed: Callable[[JobRecord, datetime], bool]) -> Claim | None:
        now = self.now()

        def claimed(record: JobRecord) -> JobRecord | None:
            nonlocal now
            now = self.now()  # read after the record, which otherwise seems to come from the future
            if record.is_leased(now) or not allowed(record, now):
                return None
            return record.claimed(self.holder, now=now, chance=self.chance())

        before = await store.change(task.name, claimed)
        return None if before is None else Claim(now, before)

    async def run(self, task: Task, store: JobStore, claim: Claim, options: Mapping[str, Any]) -> Exception | None:
        """Run a claimed job and store how it ended; returns what it raised, which the caller logs or raises.

        A run with options is not the scheduled one and leaves the record as it was before. So does a run that is cancelled: the job
        is then due as if it had not begun.
        """

        def as_before(_: JobRecord) -> JobRecord:
            return claim.before

        after: Callable[[JobRecord], JobRecord] = as_before
        try:
            error, found = await self._work(task, store, claim, options)
            after = as_before if options else self._outcome(error)
        finally:
            await self._release(task, store, after)
        if error is None:
            seconds = (self.now() - claim.taken_at).total_seconds()
            # jobs that run in every process are too frequent for INFO
            is_idle = (found is False or task.on == "each") and not claim.before.failures
            log.log(logging.DEBUG if is_idle else logging.INFO, "job finished", extra={"job": task.name, "seconds": round(seconds, 3)})
        return error

    async def _work(self, task: Task, store: JobStore, claim: Claim, options: Mapping[str, Any]) -> tuple[Exception | None, bool | None]:
        error: Exception | None = LeaseLost(f"the lease of {task.name} lapsed, so another process may run it; this run was stopped")
        found: bool | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._keep, claim, task, store, tasks.cancel_scope)
            try:
                found = await task.run(**options)
                error = None
            except Exception as raised:  # the border to a building's code
                error = raised
            tasks.cancel_scope.cancel()
        return error, found

    async def _keep(self, claim: Claim, task: Task, store: JobStore, work: anyio.CancelScope) -> None:
        """Renew the lease until cancelled; stop the work when another process may hold it."""
        renew_at = claim.taken_at + LEASE.renewal
        lapses_at = LEASE.end(claim.taken_at)
        while True:
            await anyio.sleep(self.pace)
            now = self.now()
            if lapses_at - LEASE.length <= now < renew_at:  # an earlier time means that the clock was set back
                continue
            try:
                if await store.change(task.name, self._renewed) is None:
                    return work.cancel()
                renew_at = now + LEASE.renewal
                lapses_at = LEASE.end(now)
            except StorageError:
                log.warning("lease not renewed", extra={"job": task.name}, exc_info=True)
                if now >= lapses_at:
                    return work.cancel()
                renew_at = min(now + RENEWAL_RETRY, lapses_at)

    def _renewed(self, record: JobRecord) -> JobRecord | None:
        return record.renewed(self.now()) if record.holder == self.holder else None

    def _outcome(self, error: Exception | None) -> Callable[[JobRecord], JobRecord]:
        if error is None:
            return JobRecord.succeeded
        return lambda record: record.failed(error, now=self.now(), chance=self.chance())

    async def _release(self, task: Task, store: JobStore, after: Callable[[JobRecord], JobRecord]) -> None:
        with anyio.move_on_after(RELEASE_SECONDS, shield=True):
            try:
                await store.change(task.name, lambda record: after(record) if record.holder == self.holder else None)
            except StorageError:
                log.warning("lease not given back", extra={"job": task.name}, exc_info=True)  # then it lapses
