"""One run of a job: the process that wins the job's lease runs it, renews the lease meanwhile, and releases it however the run ends."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import anyio

from campus.errors import StorageError
from campus.jobs.record import LEASE, JobRecord
from campus.jobs.store import JobStore
from campus.jobs.task import Task

RELEASE_SECONDS = 5
"""How long a run that ends waits for the database to store that."""
RENEWAL_RETRY = timedelta(seconds=5)
log = logging.getLogger(__name__)


class LeaseLost(Exception):
    """The lease lapsed, so that another process may run the job; this run was stopped."""


@dataclass(frozen=True)
class Claim:
    """A job's lease that this process took: when, and the record before."""

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
        """Take the lease; None when another process holds it or `allowed` returns False."""
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
            error = await self._work(task, store, claim, options)
            after = as_before if options else self._outcome(error)
        finally:
            await self._release(task, store, after)
        if error is None:
            seconds = (self.now() - claim.taken_at).total_seconds()
            # jobs of every process are too frequent for INFO
            log.log(logging.INFO if task.on == "one" else logging.DEBUG, "job finished", extra={"job": task.name, "seconds": seconds})
        return error

    async def _work(self, task: Task, store: JobStore, claim: Claim, options: Mapping[str, Any]) -> Exception | None:
        error: Exception | None = LeaseLost(f"the lease of {task.name} lapsed, so another process may run it; this run was stopped")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._keep, claim, task, store, tasks.cancel_scope)
            try:
                await task.run(**options)
                error = None
            except Exception as raised:  # the border to a building's code
                error = raised
            tasks.cancel_scope.cancel()
        return error

    async def _keep(self, claim: Claim, task: Task, store: JobStore, work: anyio.CancelScope) -> None:
        """Renew the lease until cancelled; stop the work when another process may hold it."""
        renew_at, lapses_at = claim.taken_at + LEASE.renewal, LEASE.end(claim.taken_at)
        while True:
            await anyio.sleep(self.pace)
            now = self.now()
            if lapses_at - LEASE.length <= now < renew_at:  # an earlier time means that the clock was set back
                continue
            try:
                if await store.change(task.name, self._renewed) is None:
                    return work.cancel()
                renew_at, lapses_at = now + LEASE.renewal, LEASE.end(now)
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
