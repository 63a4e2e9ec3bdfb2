"""The scheduler: finds the jobs that are due and starts their runs. One per process."""

import logging
import os
import platform
import random
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import anyio
from anyio.abc import TaskGroup

from campus.errors import CampusError, JobRefused
from campus.jobs.run import JobStore, ProcessJobStore, Runner, SharedJobStore
from campus.jobs.task import JobRecord, JobStatus, Task, describe_error, due_at, status_of
from campus.observability import utc_text
from campus.storage import Storage

PACE_SECONDS = 1.0  # How often the clock is looked at.
LONGEST_REST = timedelta(seconds=30)  # The longest time between two reads of the records, which other processes change too.
log = logging.getLogger(__name__)


class Rest(NamedTuple):
    begin: datetime
    end: datetime


class Scheduler:
    """Runs tasks when they are due: `run()` until cancelled, which `ask(name)` has start one early; `run_now(name)` by hand.

    `storage` is campus's own. `now` is the clock, `pace` how often it is looked at, in seconds; `chance` returns a number in 0..1 and
    spreads retries. `holder` is this process's name for others.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        storage: Storage,
        *,
        now: Callable[[], datetime],
        pace: float = PACE_SECONDS,
        chance: Callable[[], float] = random.random,
        holder: str | None = None,
    ) -> None:
        self._tasks = {task.name: task for task in tasks}
        self._stores: dict[str, JobStore] = {"one": SharedJobStore(storage), "each": ProcessJobStore()}
        self._now = now
        self._runner = Runner(holder or process_name(), now, chance, pace)
        self._records: dict[str, JobRecord] = {}
        self._running: set[str] = set()
        self._asked: set[str] = set()
        self._rest: Rest | None = None
        self._changes = 0
        self._read_at: datetime | None = None
        self._looks_since: datetime | None = None
        self._errors: dict[str, str] = {}

    @property
    def name(self) -> str:
        return self._runner.holder

    async def run(self) -> None:
        """Run what is due, until cancelled; then running jobs are cancelled and their leases released."""
        async with anyio.create_task_group() as tasks:
            while True:
                await self._start_due(tasks)
                await anyio.sleep(self._runner.pace)

    async def run_now(self, name: str, **options: Any) -> None:
        """Run a job in this process now, due or not, and raise what it raises; JobRefused when it runs elsewhere or is unknown.

        A run with options does not replace the scheduled one, which is due as before.
        """
        task = self._named(name)
        store = self._stores[task.on]
        claim = await self._runner.claim(task, store, lambda *_: True)
        if claim is None:
            holder = (await store.records())[name].holder
            raise JobRefused(f"{name} is being run by {holder}; try again when it has ended")
        if error := await self._runner.run(task, store, claim, options):
            raise error

    async def ask(self, name: str) -> None:
        """Have `run` start a job at once, due or not; JobRefused when it is unknown or runs already, here or elsewhere."""
        task = self._named(name)
        await self.read_records()
        record = self._record(task)
        if name in self._running | self._asked or record.is_leased(self._now()):
            raise JobRefused(f"{name} is being run by {record.holder or self._runner.holder}; try again when it has ended")
        self._asked.add(name)
        self._look_again()

    async def read_records(self) -> None:
        """Read the records, which `status` and `findings` then describe; `run` does so at least every 30 s."""
        for store in self._stores.values():
            self._records |= await store.records()
        self._read_at = self._now()
        self._looks_since = self._looks_since or self._read_at

    def status(self) -> Sequence[JobStatus]:
        now = self._now()
        found = [status_of(task, self._record(task), now=now, since=self._looks_since) for task in self._tasks.values()]
        return [replace(one, running=True) if one.name in self._asked else one for one in found]

    def findings(self) -> Sequence[str]:
        found = list(self._errors.values())
        if self._read_at is None:
            return found
        if self._now() > self._read_at + 2 * LONGEST_REST:
            found.append(f"jobs were last looked up at {utc_text(self._read_at)}")
        return [*found, *(finding for one in self.status() if (finding := one.finding))]

    async def _start_due(self, tasks: TaskGroup) -> None:
        now = self._now()
        if self._rest is not None and self._rest.begin <= now < self._rest.end:
            return  # nothing is due yet, and the clock was not set back
        changes = self._changes
        with self._noting("the jobs cannot be looked up"):
            await self.read_records()
            idle = [task for task in self._tasks.values() if task.name not in self._running]
            for task in idle:
                if task.name in self._asked or self._is_due(task, self._record(task), now):
                    self._running.add(task.name)
                    tasks.start_soon(self._run_if_due, task)
            coming = [due for task in idle if (due := due_at(task.schedule, self._record(task), now)) is not None and due > now]
            if changes == self._changes:  # else a run has ended since the records were read
                self._rest = Rest(now, min([*coming, now + LONGEST_REST]))

    def _look_again(self) -> None:
        """End the rest, and let the look that goes on begin none."""
        self._rest = None
        self._changes += 1

    async def _run_if_due(self, task: Task) -> None:
        """Claim the job, if it is still due then: another process may have been quicker."""
        store = self._stores[task.on]
        asked = task.name in self._asked
        try:
            with self._noting(f"{task.name} cannot be started"):
                claim = await self._runner.claim(task, store, lambda record, now: asked or self._is_due(task, record, now))
                if claim is not None and (error := await self._runner.run(task, store, claim, {})):
                    _log_failure(task, error, times=claim.before.failures + 1)
        finally:
            self._running.discard(task.name)
            self._asked.discard(task.name)
            self._look_again()

    @contextmanager
    def _noting(self, what: str) -> Iterator[None]:
        """Keep an error as a finding until the same step succeeds, and log it once; the scheduler goes on."""
        try:
            yield
            self._errors.pop(what, None)
        except Exception as error:  # any error: the other jobs go on
            sentence = f"{what}: {describe_error(error)}"
            if self._errors.get(what) != sentence:
                foreseen = isinstance(error, CampusError)  # its sentence needs no traceback
                log.error("scheduler in trouble", extra={"reason": sentence}, exc_info=None if foreseen else error)
            self._errors[what] = sentence

    def _is_due(self, task: Task, record: JobRecord, now: datetime) -> bool:
        due = due_at(task.schedule, record, now)
        return due is not None and due <= now and not record.is_leased(now)

    def _named(self, name: str) -> Task:
        if (task := self._tasks.get(name)) is None:
            raise JobRefused(f"there is no job {name!r}; the jobs are: {', '.join(sorted(self._tasks)) or 'none'}")
        return task

    def _record(self, task: Task) -> JobRecord:
        return self._records.get(task.name, JobRecord())


def _log_failure(task: Task, error: Exception, *, times: int) -> None:
    foreseen = isinstance(error, CampusError)  # its sentence needs no traceback
    about = {"job": task.name, "times": times} | ({"reason": str(error)} if foreseen else {})
    log.error("job failed", extra=about, exc_info=None if foreseen else error)


def process_name() -> str:
    """A name for this process: host, process id, and random letters, because process ids are reused."""
    return f"{platform.node()}:{os.getpid()}:{secrets.token_hex(2)}"
