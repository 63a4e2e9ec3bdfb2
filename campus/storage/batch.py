"""Group commit: whatever waits is written in one transaction at once, so that a hundred callers share one fsync."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Generic, Protocol, TypeVar

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup
from sqlalchemy import Connection

from campus.errors import StorageError, StorageUnavailable

T = TypeVar("T")
R = TypeVar("R")
Apply = Callable[[Connection, Sequence[T]], Sequence[R | Exception]]

LARGEST_GROUP = 1_000
"""Items in one transaction: beyond it they wait for the next, so that a write() in between waits for milliseconds."""


class Transact(Protocol):
    """Runs work in one transaction on the one writer; on disk when it returns, rolled back when it raises."""

    async def __call__(self, work: Callable[[Connection], R]) -> R:
        """What the work gives."""
        ...


class Group(Generic[T, R]):
    """The items of one transaction, and who waits for each."""

    def __init__(self) -> None:
        self.items: list[T] = []
        self._awaited: list[asyncio.Future[R | Exception]] = []

    def add(self, item: T, told: asyncio.Future[R | Exception]) -> None:
        """`told` will be told of the item. A future each, not an event for all, is half the cost of waiting."""
        self.items.append(item)
        self._awaited.append(told)

    def settle(self, results: Sequence[R | Exception]) -> None:
        """All is on disk."""
        for told, result in zip(self._awaited, results, strict=True):
            if not told.done():  # else its awaiter was cancelled
                told.set_result(result)

    def fail(self, error: Exception) -> None:
        """Nothing is on disk."""
        self.settle([error] * len(self.items))


class Batch(Generic[T, R]):
    """`async with Batch(…) as put`, then `await put(item)` from any number of tasks.

    There is no timer: while one group is being written the next one fills. An awaiter that is cancelled leaves its item
    in the group. On leaving, what was accepted is still written; a cancellation waits for that.
    """

    def __init__(self, apply: Apply[T, R], transact: Transact, *, lock: anyio.Lock) -> None:
        self._apply = apply
        self._transact = transact
        self._lock = lock
        self._groups: deque[Group[T, R]] = deque([Group()])
        self._wake = anyio.Event()
        self._closed = False
        self._tasks: TaskGroup = anyio.create_task_group()

    async def __aenter__(self) -> Callable[[T], Awaitable[R]]:
        self._loop = asyncio.get_running_loop()  # asked for once: with each item it would cost as much as the item's future
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._write_groups)
        return self.put

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        # the error of the block is not handed to the task group, which would wrap it and cancel the last write
        self._closed = True
        self._wake.set()
        await self._tasks.__aexit__(None, None, None)

    async def put(self, item: T) -> R:
        """The item's result, once it is on disk."""
        if self._closed:
            raise StorageError("this batch is closed and takes no more items")
        group = self._groups[-1]
        if len(group.items) == LARGEST_GROUP:
            group = Group()
            self._groups.append(group)
        if not group.items:
            self._wake.set()
        told: asyncio.Future[R | Exception] = self._loop.create_future()
        group.add(item, told)
        result = await told
        if isinstance(result, Exception):
            # one error may be raised to many awaiters: each begins with a traceback of its own
            raise result.with_traceback(None)
        return result

    async def _write_groups(self) -> None:
        try:
            with anyio.CancelScope(shield=True):
                while not self._closed or self._groups[0].items:
                    await self._wake.wait()
                    await anyio.lowlevel.checkpoint()  # those who are about to put come first: larger groups cost a tenth less per item
                    if self._groups[0].items:
                        async with self._lock:
                            await self._write(self._next_group())
        finally:  # stopped from outside, as when the event loop ends: nobody is left waiting
            self._closed = True
            for group in self._groups:
                group.fail(StorageUnavailable("the writer was stopped; the item was not stored"))

    def _next_group(self) -> Group[T, R]:
        """The oldest group; taken when the writer is free, for it fills until then."""
        group = self._groups.popleft()
        if not self._groups:
            self._groups.append(Group())
            if not self._closed:
                self._wake = anyio.Event()
        return group

    async def _write(self, group: Group[T, R]) -> None:
        try:
            results = await self._transact(partial(self._apply_all, items=group.items))
        except Exception as error:  # the border to the callers' code: each awaiter of the group raises it
            group.fail(error)
        except BaseException:
            group.fail(StorageUnavailable("the writer was stopped; whether the item was stored is not known"))
            raise
        else:
            group.settle(results)

    def _apply_all(self, connection: Connection, *, items: Sequence[T]) -> Sequence[R | Exception]:
        results = self._apply(connection, items)
        if len(results) != len(items):
            raise ValueError(f"a batch of {len(items)} items must give as many results, and gave {len(results)}")
        return results
