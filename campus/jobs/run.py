"""One run of a job: a lease is taken, renewed while the job works, and given back however it ends."""

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

LAST_WORD_SECONDS = 5
RENEWAL_RETRY = timedelta(seconds=5)
log = logging.getLogger(__name__)


class LeaseLost(Exception):
    """Another process took the job over; the run was stopped."""


@dataclass(frozen=True)
class Lease:
    """A lease that was taken: when, and what the record was before."""

    taken_at: datetime
    before: JobRecord


@dataclass(frozen=True)
class Runner:
    """Runs jobs for one process, `holder`. `pace` is in seconds: how often a run looks at the clock."""

    holder: str
    now: Callable[[], datetime]
    chance: Callable[[], float]
    pace: float

    async def claim(self, task: Task, store: JobStore, allowed: Callable[[JobRecord, datetime], bool]) -> Lease | None:
        """Take the lease; None when another has it or `allowed` says no."""
        now = self.now()

        def claimed(record: JobRecord) -> JobRecord | None:
            nonlocal now
            now = self.now()  # not before the record was read: it would look as if written by a clock that is ahead
            if record.is_leased(now) or not allowed(record, now):
                return None
            return record.claimed(self.holder, now=now, chance=self.chance())

        before = await store.change(task.name, claimed)
        return None if before is None else Lease(now, before)

    async def run(self, task: Task, store: JobStore, lease: Lease, options: Mapping[str, Any]) -> Exception | None:
        """Run a job whose lease was taken, and note how it ended; returns what it raised, which the caller logs or raises.

        A run with options is another work than the scheduled one: its end leaves the record as it was before. So does a run
        that is cancelled, which is then due as if it had not begun.
        """

        def as_before(_: JobRecord) -> JobRecord:
            return lease.before

        after: Callable[[JobRecord], JobRecord] = as_before
        try:
            error = await self._work(task, store, lease, options)
            after = as_before if options else self._outcome(error)
        finally:
            await self._give_back(task, store, after)
        if error is None:
            seconds = (self.now() - lease.taken_at).total_seconds()
            # what every process does all the time is of no interest
            log.log(logging.INFO if task.on == "one" else logging.DEBUG, "job finished", extra={"job": task.name, "seconds": seconds})
        return error

    async def _work(self, task: Task, store: JobStore, lease: Lease, options: Mapping[str, Any]) -> Exception | None:
        error: Exception | None = LeaseLost(f"the lease of {task.name} lapsed, so another process may run it; this run was stopped")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._keep, lease, task, store, tasks.cancel_scope)
            try:
                await task.run(**options)
                error = None
            except Exception as raised:  # the border to a building's code
                error = raised
            tasks.cancel_scope.cancel()
        return error

    async def _keep(self, lease: Lease, task: Task, store: JobStore, work: anyio.CancelScope) -> None:
        """Renew until cancelled; stop the work when the lease is another's, or could be."""
        renew_at, lapses_at = lease.taken_at + LEASE.renewal, LEASE.end(lease.taken_at)
        while True:
            await anyio.sleep(self.pace)
            now = self.now()
            if lapses_at - LEASE.length <= now < renew_at:  # before that only a clock that was set back can be
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

    async def _give_back(self, task: Task, store: JobStore, after: Callable[[JobRecord], JobRecord]) -> None:
        with anyio.move_on_after(LAST_WORD_SECONDS, shield=True):
            try:
                await store.change(task.name, lambda record: after(record) if record.holder == self.holder else None)
            except StorageError:
                log.warning("lease not given back", extra={"job": task.name}, exc_info=True)  # it lapses
