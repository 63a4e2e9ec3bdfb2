"""One building's storage: reads on snapshots, writes one after the other, and batched writes between them."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol, TypeVar

import anyio
import anyio.lowlevel
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlmodel.ext.asyncio.session import AsyncSession

from campus.errors import StorageError
from campus.storage.batch import Apply, Batch
from campus.storage.errors import translate_errors

T = TypeVar("T")
R = TypeVar("R")


class Storage(Protocol):
    """What a building stores, in its own database.

    A database that is full, read-only, locked or out of reach raises StorageUnavailable; callers get 503 and may try again.
    Hold no transaction open while waiting for the network: on SQLite it keeps the log from shrinking, and a write blocks other writers.
    """

    def read(self) -> AbstractAsyncContextManager[AsyncSession]:
        """A session on one snapshot, which its first statement takes; a write in it raises StorageError."""
        ...

    def write(self) -> AbstractAsyncContextManager[AsyncSession]:
        """One transaction at a time: what it reads cannot change until it ends. Commits at the end, rolls back on an exception."""
        ...

    def batch(
        self, apply: Callable[[Connection, Sequence[T]], Sequence[R | Exception]]
    ) -> AbstractAsyncContextManager[Callable[[T], Awaitable[R]]]:
        """Group commit: `async with storage.batch(apply) as put`, then `await put(item)`, which returns once the item is on disk.

        `apply(connection, items)` writes all waiting items in one transaction and returns a result per item. A result that is
        an Exception is raised to that item's awaiter; what `apply` itself raises rolls back and is raised to every awaiter.
        On SQLite it runs in a thread: it may touch nothing but its arguments.
        """
        ...


async def try_write(storage: Storage) -> None:
    """Rewrite one row unchanged and commit. Raises StorageUnavailable if the database accepts no writes."""
    async with storage.write() as session:
        await (await session.connection()).execute(text("UPDATE alembic_version SET version_num = version_num"))


class NoStorage:
    """The storage of a building that declares no tables: every use raises StorageError."""

    def __init__(self, building: str) -> None:
        self._building = building

    def read(self) -> AbstractAsyncContextManager[AsyncSession]:
        """StorageError."""
        raise self._refusal()

    def write(self) -> AbstractAsyncContextManager[AsyncSession]:
        """StorageError."""
        raise self._refusal()

    def batch(self, apply: Apply[T, R]) -> AbstractAsyncContextManager[Callable[[T], Awaitable[R]]]:
        """StorageError."""
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

    async def transact(self, work: Callable[[Connection], R]) -> R:
        """Run work in one transaction on the writer."""
        ...

    async def close(self) -> None:
        """Close every connection."""
        ...


class Database:
    """Storage on one database; `description` names it in errors.

    Within the process one lock admits writers in the order of their arrival; between processes the database's own lock does.
    """

    def __init__(self, connections: Connections, *, description: str) -> None:
        self._connections = connections
        self._description = description
        self._lock = anyio.Lock(fast_acquire=True)

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncSession]:
        """See Storage."""
        async with self._session(self._connections.readers, reading=True) as session:
            yield session
            if session.new or session.dirty or session.deleted:
                await session.flush()  # raises: the change would be lost silently

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncSession]:
        """See Storage."""
        async with self._lock, self._session(self._connections.writer, reading=False) as session:
            yield session
            await anyio.lowlevel.checkpoint_if_cancelled()
            with anyio.CancelScope(shield=True):  # a commit that was begun is awaited
                await session.commit()

    def batch(self, apply: Apply[T, R]) -> Batch[T, R]:
        """See Storage."""
        return Batch(apply, self._transact, lock=self._lock)

    async def close(self) -> None:
        """Close every connection."""
        await self._connections.close()

    @asynccontextmanager
    async def _session(self, engine: AsyncEngine, *, reading: bool) -> AsyncIterator[AsyncSession]:
        session = AsyncSession(engine, expire_on_commit=False)
        try:
            with translate_errors(self._description, connecting=True, reading=reading):
                await session.connection()
            with translate_errors(self._description, reading=reading):
                yield session
        finally:
            with anyio.CancelScope(shield=True):
                await session.close()

    async def _transact(self, work: Callable[[Connection], R]) -> R:
        with translate_errors(self._description, connecting=True):
            return await self._connections.transact(work)
