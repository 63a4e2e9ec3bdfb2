"""Schedulers like those of several processes: each opens the test's database by itself; the test moves their clocks."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import anyio
import pytest
from patience import patience
from sqlmodel.ext.asyncio.session import AsyncSession

from campus.jobs import JobStatus, Scheduler, Task
from campus.storage import Storage
from campus.storage.databases import Databases
from campus.storage.tables import CoreTables
from campus.testing import Clock

PACE = 0.005
QUIET_LOOKS = 20
"""Seconds after which a wait fails."""

Until = Callable[[Callable[[], bool]], Awaitable[None]]


@dataclass
class Watch:
    """How often a scheduler read its clock since it last used its database, and whether it uses that now."""

    clock: Clock
    storage: Storage
    reads: int = 0
    busy: int = 0
    runs: bool = False
    writes: int = 0
    """How many transactions the scheduler has made."""
    after_read: Callable[[], Awaitable[None]] | None = None
    """Awaited when the scheduler has read its records, before it looks at them."""

    def __call__(self) -> datetime:
        self.reads += 1
        return self.clock()

    def read(self) -> AbstractAsyncContextManager[AsyncSession]:
        return self._read()

    def write(self) -> AbstractAsyncContextManager[AsyncSession]:
        self.writes += 1
        return self._used(self.storage.write())

    def batch(self, apply: Any) -> Any:
        return self.storage.batch(apply)

    @asynccontextmanager
    async def _read(self) -> AsyncIterator[AsyncSession]:
        async with self._used(self.storage.read()) as session:
            yield session
        if self.after_read is not None:
            await self.after_read()

    @asynccontextmanager
    async def _used(self, session: AbstractAsyncContextManager[AsyncSession]) -> AsyncIterator[AsyncSession]:
        self.busy += 1
        try:
            async with session as entered:
                yield entered
        finally:
            self.busy -= 1
            self.reads = 0

    @property
    def is_quiet(self) -> bool:
        return not self.runs or (not self.busy and self.reads >= QUIET_LOOKS)


@dataclass(frozen=True)
class Process:
    """One process's scheduler, its storage and its clock."""

    scheduler: Scheduler
    storage: Storage
    clock: Clock
    watch: Watch

    async def status(self, name: str = "job") -> JobStatus:
        await self.scheduler.read_records()
        return next(one for one in self.scheduler.status() if one.name == name)


Open = Callable[..., AbstractAsyncContextManager[Process]]


@pytest.fixture
def clock() -> Clock:
    return Clock(datetime(2026, 8, 21, 13, 30, tzinfo=UTC))


@pytest.fixture
def watches() -> list[Watch]:
    """Those of every scheduler of the test."""
    return []


@pytest.fixture
def open_process(storage_url: str, clock: Clock, watches: list[Watch]) -> Open:
    @asynccontextmanager
    async def open_one(*tasks: Task, holder: str | None = None, clock: Clock = clock) -> AsyncIterator[Process]:
        async with Databases.open(storage_url) as databases:
            storage = await databases.storage_of("campus", CoreTables)
            watches.append(watch := Watch(clock, storage))
            scheduler = Scheduler(tasks, watch, now=watch, pace=PACE, chance=lambda: 0.5, holder=holder)
            yield Process(scheduler, storage, clock, watch)
            watch.runs = False

    return open_one


@pytest.fixture
def until() -> Until:
    async def wait(condition: Callable[[], bool]) -> None:
        with anyio.fail_after(patience(100)):
            while not condition():  # noqa: ASYNC110  # what is waited for is in a database, or a plain number
                await anyio.sleep(PACE)

    return wait


@pytest.fixture
def settle(watches: list[Watch]) -> Callable[[], Awaitable[None]]:
    async def wait() -> None:
        for watch in watches:
            watch.reads = 0
        with anyio.fail_after(patience(100)):
            while not all(watch.is_quiet for watch in watches):  # noqa: ASYNC110  # a count of what others do
                await anyio.sleep(PACE)

    return wait


def started(processes: Sequence[Process], tasks: anyio.abc.TaskGroup) -> None:
    for process in processes:
        process.watch.runs = True
        tasks.start_soon(process.scheduler.run)
