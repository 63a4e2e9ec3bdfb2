"""One building's storage: reads on snapshots, writes one after the other, and between them group commits.

A group commit writes all waiting items in one transaction, so that a hundred callers share one fsync.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup
from sqlalchemy import Connection, exists, false, select, text
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlmodel import SQLModel
from sqlmodel.ext.asyncio.session import AsyncSession

from campus.errors import StorageError, StorageUnavailable
from campus.storage.errors import DriverErrors, TransactionAborted, translate_errors

T = TypeVar("T")
R = TypeVar("R")
Apply = Callable[[Connection, Sequence[T]], Sequence[R | Exception]]
ByRow = Callable[[Connection, Sequence[T]], Sequence[R | None]]

TURN_SECONDS = 10.0  # How long a write waits for those before it in the same process.
LARGEST_GROUP = 1_000
"""Items per transaction; more wait for the next one, so that a write() in between waits for milliseconds only."""


class Storage(Protocol):
    """What a building stores, in its own database.

    A database that is full, read-only, locked or out of reach raises StorageUnavailable; callers get 503 and may try again.
    Hold no transaction open while waiting for the network: on SQLite it keeps the log from shrinking, and a write blocks other writers.
    """

    def read(self) -> AbstractAsyncContextManager[AsyncSession]:
        """A session on one snapshot, which its first statement takes; a write in it raises StorageError."""

    def write(self) -> AbstractAsyncContextManager[AsyncSession]:
        """One transaction at a time: what it reads cannot change until it ends. Commits at the end, rolls back on an exception."""

    def batch(
        self,
        apply: Callable[[Connection, Sequence[T]], Sequence[R | Exception]],
        *,
        by_row: Callable[[Connection, Sequence[T]], Sequence[R | None]] | None = None,
    ) -> AbstractAsyncContextManager[Callable[[T], Awaitable[R]]]:
        """Group commit: `async with storage.batch(apply) as put`, then `await put(item)`, which returns once the item is on disk.

        `apply(connection, items)` writes all waiting items in one transaction and returns a result per item. A result that is
        an Exception is raised to that item's awaiter; what `apply` itself raises rolls back and is raised to every awaiter.
        On SQLite it runs in a thread: it may touch nothing but its arguments.

        `by_row(connection, items)` lets several processes write at once on PostgreSQL; SQLite does without it. It is called first, in a
        transaction that runs beside the `by_row` of other processes, but beside no write() and no `apply`. It returns a result, or None
        for an item that is left to `apply`. Each of its statements must decide by the rows that it changes, not by what was read before:
        otherwise changes are lost. It should change them in one order: of two processes that wait for each other PostgreSQL ends one
        after a second, whose items are left to `apply`.
        """


async def try_write(storage: Storage, tables: Iterable[type[SQLModel]] = ()) -> None:
    """Rewrite one row unchanged, name each column of the tables, and commit. Raises StorageUnavailable if calls would fail.

    Unlike others, this commit is cancelled with its caller: one may wait for a standby that is missing.
    """
    async with storage.write() as session:
        connection = await session.connection()
        await connection.execute(text("UPDATE alembic_version SET version_num = version_num"))
        if each := [table for base in tables for table in base.metadata.sorted_tables]:
            await connection.execute(select(*(exists(select(*table.c).where(false())) for table in each)))
        await session.commit()


class NoStorage:
    """The storage of a building that declares no tables: every use raises StorageError."""

    def __init__(self, building: str) -> None:
        self._building = building

    def read(self) -> AbstractAsyncContextManager[AsyncSession]:
        raise self._refusal()

    def write(self) -> AbstractAsyncContextManager[AsyncSession]:
        raise self._refusal()

    def batch(self, apply: Apply[T, R], *, by_row: ByRow[T, R] | None = None) -> AbstractAsyncContextManager[Callable[[T], Awaitable[R]]]:
        raise self._refusal()

    def _refusal(self) -> StorageError:
        return StorageError(f"{self._building} has no database, because it declares no tables; pass tables= to its Building")


async def in_transaction(storage: Storage, work: Callable[[Connection], R]) -> R:
    """Run work in one write transaction and return its result once it is on disk; an exception rolls it back."""
    async with storage.write() as session:
        return await (await session.connection()).run_sync(work)


async def in_snapshot(storage: Storage, work: Callable[[Connection], R]) -> R:
    """Run work on one snapshot and return its result."""
    async with storage.read() as session:
        return await (await session.connection()).run_sync(work)


class Connections(Protocol):
    """The connections to one database: some that read, one that writes, and transactions for batches."""

    readers: AsyncEngine
    writer: AsyncEngine
    has_row_locks: bool
    errors: DriverErrors

    async def transact(self, work: Callable[[Connection], R], *, by_row: bool = False) -> R:
        """Run work in one transaction on the writer; `by_row`, beside such transactions of other processes."""

    async def close(self) -> None:
        """Close every connection."""


class Database:
    """Storage on one database; `description` names it in errors.

    Within the process one lock admits writers in the order of their arrival; between processes the database's own lock does.
    """

    turn_seconds = TURN_SECONDS

    def __init__(self, connections: Connections, *, description: str) -> None:
        self._connections = connections
        self._translating = partial(translate_errors, description, connections.errors)
        self._description = description
        self.lock = anyio.Lock(fast_acquire=True)

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncSession]:
        async with self._session(self._connections.readers, reading=True) as session:
            yield session
            if session.new or session.dirty or session.deleted:
                await session.flush()  # raises: the change would be lost silently

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncSession]:
        async with self._turn(), self._session(self._connections.writer, reading=False) as session:
            yield session
            await anyio.lowlevel.checkpoint_if_cancelled()
            with anyio.CancelScope(shield=True):  # a commit that was begun is awaited
                await session.commit()

    def batch(self, apply: Apply[T, R], *, by_row: ByRow[T, R] | None = None) -> "Batch[T, R]":
        return Batch(apply, self, by_row if self._connections.has_row_locks else None)

    async def transact(self, work: Callable[[Connection], R], *, by_row: bool = False) -> R:
        """Run work in one transaction, for the holder of `lock`; it is on disk when this returns, and rolled back when it raises."""
        with self._translating(connecting=True):
            return await self._connections.transact(work, by_row=by_row)

    def reading(self) -> int:
        pool: Any = self._connections.readers.pool  # a QueuePool: the others have no number
        return int(pool.checkedout())

    async def close(self) -> None:
        """Close every connection, also when cancelled: a job that is stopped leaves none to the pool, which would log it as an error."""
        with anyio.CancelScope(shield=True):
            await self._connections.close()

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Hold the lock. While a writer is stuck, each that waits behind it would otherwise wait as long again."""
        try:
            self.lock.acquire_nowait()
        except anyio.WouldBlock:
            with anyio.move_on_after(self.turn_seconds) as wait:
                await self.lock.acquire()
            if wait.cancelled_caught:
                raise StorageUnavailable(f"{self._description} is busy: others were writing for {self.turn_seconds:g} s") from None
        try:
            yield
        finally:
            self.lock.release()

    @asynccontextmanager
    async def _session(self, engine: AsyncEngine, *, reading: bool) -> AsyncIterator[AsyncSession]:
        session = AsyncSession(engine, expire_on_commit=False)
        try:
            with self._translating(connecting=True, reading=reading):
                await session.connection()
            with self._translating(reading=reading):
                yield session
        finally:
            with anyio.CancelScope(shield=True), self._translating():  # a connection may be lost at the last moment
                await session.close()


class Group(Generic[T, R]):
    """The items of one transaction, and the future that each awaiter waits for."""

    def __init__(self) -> None:
        self.items: list[T] = []
        self._futures: list[asyncio.Future[R | Exception]] = []

    def settle_some(self, results: Sequence[R | None]) -> None:
        """Hand out the results of the items that have one; the others stay."""
        rest = []
        for item, future, result in zip(self.items, self._futures, results, strict=True):
            if result is None:
                rest.append((item, future))
            elif not future.done():
                future.set_result(result)
        self.items = [item for item, _ in rest]
        self._futures = [future for _, future in rest]

    def halves(self) -> "tuple[Group[T, R], Group[T, R]]":
        first, second, middle = Group[T, R](), Group[T, R](), len(self.items) // 2
        first.items, first._futures = self.items[:middle], self._futures[:middle]
        second.items, second._futures = self.items[middle:], self._futures[middle:]
        return first, second

    def add(self, item: T, future: asyncio.Future[R | Exception]) -> None:
        self.items.append(item)
        self._futures.append(future)

    def settle(self, results: Sequence[R | Exception]) -> None:
        """Hand out the results: all items are on disk."""
        for future, result in zip(self._futures, results, strict=True):
            if not future.done():  # else its awaiter was cancelled
                future.set_result(result)

    def fail(self, error: Exception) -> None:
        self.settle([error] * len(self.items))


class Batch(Generic[T, R]):
    """Group commit: `async with Batch(…) as put`, then `await put(item)` from any number of tasks.

    There is no timer: while one group is written, the next one fills. An awaiter that is cancelled leaves its item in the group.
    Leaving the block writes all accepted items first; a cancellation waits for that.
    """

    def __init__(self, apply: Apply[T, R], database: Database, by_row: ByRow[T, R] | None = None) -> None:
        self._apply = apply
        self._by_row = by_row
        self._database = database
        self._groups: deque[Group[T, R]] = deque([Group()])
        self._wake = asyncio.Event()  # one for all groups: anyio's cannot be cleared, and a new one for each costs as much as an item
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
                        # other tasks may put first: in a larger group an item costs a tenth less. After a group of one nobody else is there
                        await anyio.lowlevel.checkpoint()
                    if self._groups[0].items:
                        async with self._database.lock:
                            group = self._next_group()
                            written = len(group.items)
                            await self._write(group)
        finally:  # also when cancelled from outside, as at the end of the event loop: every awaiter gets a result
            self._closed = True
            for group in self._groups:
                group.fail(StorageUnavailable("the writer was stopped; the item was not stored"))

    def _next_group(self) -> Group[T, R]:
        """The oldest group. It is taken when the writer is free, because it fills until then."""
        group = self._groups.popleft()
        if not self._groups:
            self._groups.append(Group())
        if not self._groups[0].items and not self._closed:
            self._wake.clear()
        return group

    async def _write(self, group: Group[T, R]) -> None:
        try:
            if self._by_row is not None:
                with suppress(TransactionAborted):  # in favour of another one's: `apply` writes alone
                    work = partial(_apply_all, apply=self._by_row, items=group.items)
                    group.settle_some(await self._database.transact(work, by_row=True))
            results = await self._database.transact(partial(_apply_all, apply=self._apply, items=group.items)) if group.items else []
        except Exception as error:  # the border to the callers' code: one item may be at fault, which then fails alone
            if len(group.items) > 1 and not isinstance(error, StorageError):
                self._groups.extendleft(reversed(group.halves()))
                self._wake.set()
            else:
                group.fail(error)
        except BaseException:
            group.fail(StorageUnavailable("the writer was stopped; whether the item was stored is not known"))
            raise
        else:
            group.settle(results)


def _apply_all(connection: Connection, *, apply: Callable[[Connection, Sequence[T]], Sequence[R]], items: Sequence[T]) -> Sequence[R]:
    results = apply(connection, items)
    if len(results) != len(items):
        raise ValueError(f"a batch of {len(items)} items needs as many results; apply returned {len(results)}")
    return results
