"""Schedulers as processes have them: each with a vault of its own on one database, on clocks that the test moves."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

import anyio
import pytest

from campus.jobs import JobStatus, Scheduler, Task
from campus.storage import House, Storage, Vault
from campus.testing import Clock

PACE = 0.005
PATIENCE = 20.0
"""Seconds after which a wait is given up: a bound, not an expectation."""

Until = Callable[[Callable[[], bool]], Awaitable[None]]


@dataclass(frozen=True)
class Process:
    """One process's scheduler, its house storage and its clock."""

    scheduler: Scheduler
    storage: Storage
    clock: Clock

    async def status(self, name: str = "job") -> JobStatus:
        """How a job fares, looked up now."""
        await self.scheduler.look()
        return next(one for one in self.scheduler.status() if one.name == name)


Open = Callable[..., AbstractAsyncContextManager[Process]]


@pytest.fixture
def clock() -> Clock:
    return Clock(datetime(2026, 8, 21, 13, 30, tzinfo=UTC))


@pytest.fixture
def open_process(storage_url: str, clock: Clock) -> Open:
    """Open a scheduler on the test's database; `clock` gives it one of its own."""

    @asynccontextmanager
    async def open_one(*tasks: Task, holder: str | None = None, clock: Clock = clock) -> AsyncIterator[Process]:
        async with Vault.open(storage_url) as vault:
            storage = await vault.room("campus", House)
            yield Process(Scheduler(tasks, storage, now=clock, pace=PACE, chance=lambda: 0.5, holder=holder), storage, clock)

    return open_one


@pytest.fixture
def until() -> Until:
    """Wait until something holds."""

    async def wait(condition: Callable[[], bool]) -> None:
        with anyio.fail_after(PATIENCE):
            while not condition():  # noqa: ASYNC110  # what is waited for is in a database, or a plain number
                await anyio.sleep(PACE)

    return wait


@pytest.fixture
def settle() -> Callable[[], Awaitable[None]]:
    """Let every scheduler look at its clock a few times."""

    async def wait() -> None:
        await anyio.sleep(20 * PACE)

    return wait


def started(processes: Sequence[Process], tasks: anyio.abc.TaskGroup) -> None:
    """Let the schedulers of several processes run."""
    for process in processes:
        tasks.start_soon(process.scheduler.run)
