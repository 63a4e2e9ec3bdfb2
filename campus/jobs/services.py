"""Services: what a building runs all the time while the process serves. A failed service is restarted after a growing wait."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

import anyio

from campus.backoff import Backoff
from campus.errors import CampusError
from campus.jobs.task import describe_error

log = logging.getLogger(__name__)

RESTARTS = Backoff([timedelta(seconds=seconds) for seconds in (1, 2, 5, 15, 60)])
STEADY_SECONDS = 60.0
"""After running for so long a service counts as healthy: its finding ends, and its next failure counts as the first."""


@dataclass(frozen=True)
class ServiceTask:
    building: str
    name: str
    run: Callable[[], Awaitable[None]]


@dataclass
class _Failures:
    """How often a service failed in a row, why the last time, and since when it runs again, None while it waits for its restart."""

    count: int
    reason: str
    restarted_at: float | None = None


class ServiceRunner:
    """Runs services until cancelled; one per process. `restarts` are the waits before a service that failed is started again."""

    def __init__(self, tasks: Sequence[ServiceTask], *, restarts: Backoff = RESTARTS, steady_seconds: float = STEADY_SECONDS) -> None:
        self._tasks = tasks
        self._restarts = restarts
        self._steady_seconds = steady_seconds
        self._failures: dict[ServiceTask, _Failures] = {}

    async def run(self) -> None:
        """Run each service, and start it again whenever it ends; until cancelled, which cancels them."""
        async with anyio.create_task_group() as group:
            for task in self._tasks:
                group.start_soon(self._keep_running, task)

    def findings(self) -> Mapping[str, Sequence[str]]:
        found: dict[str, list[str]] = {}
        for task, failures in self._failures.items():
            at = failures.restarted_at
            if at is None or anyio.current_time() - at < self._steady_seconds:
                times = "once" if failures.count == 1 else f"{failures.count} times in a row"
                found.setdefault(task.building, []).append(f"the service {task.name} failed {times}: {failures.reason}; see the log")
        return found

    async def _keep_running(self, task: ServiceTask) -> None:
        while True:
            started_at = anyio.current_time()
            reason = await _run_until_it_ends(task)
            before = self._failures.get(task)
            steady = anyio.current_time() - started_at >= self._steady_seconds
            count = 1 if steady or before is None else before.count + 1
            failures = self._failures[task] = _Failures(count, reason)
            await self._restarts.sleep(count)
            failures.restarted_at = anyio.current_time()


async def _run_until_it_ends(task: ServiceTask) -> str:
    about = {"building": task.building, "service": task.name}
    try:
        await task.run()
    except CampusError as error:  # its sentence needs no traceback
        log.error("service failed", extra={**about, "reason": error})
        return str(error)
    except Exception as error:  # the border to a building's code
        log.exception("service failed", extra=about)
        return describe_error(error)
    log.error("service ended", extra=about)
    return "it returned, and a service runs until it is cancelled"
