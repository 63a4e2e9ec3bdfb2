"""The runner: runs the tasks of this process after their requests, renews their leases, and stops what was cancelled or whose key ended."""

import math
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from typing import Any

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from campus.features.tasks.store import LEASE, TaskStore
from campus.keys.makers import Makers

Work = Callable[[], Coroutine[Any, Any, None]]


class TaskRunner:
    """Runs tasks apart from the requests that begin them: in a context of its own, where nothing of a request is left."""

    def __init__(self, store: TaskStore, makers: Makers) -> None:
        self.store = store
        self._makers = makers
        self._scopes: dict[str, anyio.CancelScope] = {}
        self._begun_by: dict[str, str | None] = {}

    @cached_property
    def _streams(self) -> tuple[MemoryObjectSendStream[Work], MemoryObjectReceiveStream[Work]]:
        """Where work is begun, and where it waits; made at first use: a runner that never runs would close none."""
        return anyio.create_memory_object_stream[Work](math.inf)

    def start(self, work: Work) -> None:
        """Run the work, which raises nothing, as soon as possible."""
        self._streams[0].send_nowait(work)

    @contextmanager
    def running(self, task_id: str, *, seconds: float, maker: str | None) -> Iterator[anyio.CancelScope]:
        """A scope for the task's tool: it is cancelled after this time, by `stop`, when the task is no more this process's, and when
        the key or client that began it, its `maker`, has ended."""
        with anyio.move_on_after(seconds) as scope:
            self._scopes[task_id] = scope
            self._begun_by[task_id] = maker
            try:
                yield scope
            finally:
                del self._scopes[task_id]
                del self._begun_by[task_id]

    def stop(self, task_id: str) -> None:
        if (scope := self._scopes.get(task_id)) is not None:
            scope.cancel()

    async def run(self) -> None:
        """Run what is started, until cancelled."""
        begun, waiting = self._streams
        async with anyio.create_task_group() as tasks, begun, waiting:
            tasks.start_soon(partial(LEASE.keep, self.renew, of="tasks"))
            async for work in waiting:
                tasks.start_soon(work)

    async def renew(self) -> None:
        """Renew all leases once, and stop what another process cancelled or concluded, and what a key began that has ended."""
        if running := frozenset(self._scopes):
            begun_by = {task_id: maker for task_id, maker in self._begun_by.items() if maker}
            makers = await self._makers.all_of(set(begun_by.values()))
            for task_id in (each for each, maker in begun_by.items() if makers[maker].has_ended(self.store.now())):
                await self.store.end_with_key(task_id)
            for task_id in running - await self.store.renew(running):
                self.stop(task_id)
