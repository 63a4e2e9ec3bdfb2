"""Group commit: all waiting items are written in one transaction, so that a hundred callers share one fsync."""

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
"""Items per transaction; more wait for the next one, so that a write() in between waits for milliseconds only."""


class Transact(Protocol):
    """Runs work in one transaction on the only writer; on disk when it returns, rolled back when it raises."""

    async def __call__(self, work: Callable[[Connection], R]) -> R:
        """Returns what the work returns."""
        ...


class Group(Generic[T, R]):
    """The items of one transaction, and the future that each awaiter waits for."""

    def __init__(self) -> None:
        self.items: list[T] = []
        self._futures: list[asyncio.Future[R | Exception]] = []

    def add(self, item: T, future: asyncio.Future[R | Exception]) -> None:
        """Add an item, whose result the future will hold. A future per item costs half as much as one event for all."""
        self.items.append(item)
        self._futures.append(future)

    def settle(self, results: Sequence[R | Exception]) -> None:
        """Hand out the results: all items are on disk."""
        for future, result in zip(self._futures, results, strict=True):
            if not future.done():  # else its awaiter was cancelled
                future.set_result(result)

    def fail(self, error: Exception) -> None:
        """Hand the error to every awaiter: no item is on disk."""
        self.settle([error] * len(self.items))


class Batch(Generic[T, R]):
    """`async with Batch(…) as put`, then `await put(item)` from any number of tasks.

    There is no timer: while one group is written, the next one fills. An awaiter that is cancelled leaves its item in the group.
    Leaving the block writes all accepted items first; a cancellation waits for that.
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
        self._loop = asyncio.get_running_loop()  # looked up once: per item it would cost as much as the item's future
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._write_groups)
        return self.put

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        # the task group does not get the block's error: it would wrap it and cancel the last write
        self._closed = True
        self._wake.set()
        await self._tasks.__aexit__(None, None, None)

    async def put(self, item: T) -> R:
        """Returns the item's result once it is on disk."""
        if self._closed:
            raise StorageError("this batch is closed and takes no more items")
        group = self._groups[-1]
        if len(group.items) == LARGEST_GROUP:
            group = Group()
            self._groups.append(group)
        if not group.items:
            self._wake.set()
        future: asyncio.Future[R | Exception] = self._loop.create_future()
        group.add(item, future)
        result = await future
        if isinstance(result, Exception):
            # one error may be raised to many awaiters, each of which starts a new traceback
            raise result.with_traceback(None)
        return result

    async def _write_groups(self) -> None:
        try:
            with anyio.CancelScope(shield=True):
                written = 0
                while not self._closed or self._groups[0].items:
                    await self._wake.wait()
                    if written > 1:
                        # tasks that are about to put come first: larger groups cost a tenth less per item; a lone caller need not wait
                        await anyio.lowlevel.checkpoint()
                    if self._groups[0].items:
                        async with self._lock:
                            group = self._next_group()
                            await self._write(group)
                            written = len(group.items)
        finally:  # also when cancelled from outside, as at the end of the event loop: every awaiter gets a result
            self._closed = True
            for group in self._groups:
                group.fail(StorageUnavailable("the writer was stopped; the item was not stored"))

    def _next_group(self) -> Group[T, R]:
        """The oldest group. It is taken when the writer is free, because it fills until then."""
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
            raise ValueError(f"a batch of {len(items)} items needs as many results; apply returned {len(results)}")
        return results
