"""One building's storage: reads on snapshots, writes one after the other, and batches between them."""

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
    """What a building stores, in a database of its own.

    A database that is full, read-only, locked or away raises StorageUnavailable; callers get 503 and may try again.
    Hold no transaction open while waiting for the network: it keeps the writer from others, or the log from shrinking.
    """

    def read(self) -> AbstractAsyncContextManager[AsyncSession]:
        """A session on one snapshot, taken by its first statement; a write in it fails."""
        ...

    def write(self) -> AbstractAsyncContextManager[AsyncSession]:
        """One transaction, alone: what it reads nobody changes until it ends. Commits at the end, rolls back on an exception."""
        ...

    def batch(
        self, apply: Callable[[Connection, Sequence[T]], Sequence[R | Exception]]
    ) -> AbstractAsyncContextManager[Callable[[T], Awaitable[R]]]:
        """Group commit: `async with storage.batch(apply) as put`, then `await put(item)`; its return means on disk.

        `apply(connection, items)` writes all that waits in one transaction and gives a result per item. A result that is
        an Exception is raised to that item's awaiter; what `apply` itself raises rolls back and goes to every awaiter.
        On SQLite it runs in a thread: it may touch nothing but its arguments.
        """
        ...


async def try_write(storage: Storage) -> None:
    """Write a row as it is and commit it: StorageUnavailable when the database takes no writes."""
    async with storage.write() as session:
        await (await session.connection()).execute(text("UPDATE alembic_version SET version_num = version_num"))


class NoStorage:
    """The storage of a building that declares no tables: whatever it asks for is refused."""

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
        return StorageError(f"{self._building} has no database, for it declares no tables; give its Building tables=")


class Connections(Protocol):
    """What a database gives a room: connections that read, one that writes, and transactions for batches."""

    readers: AsyncEngine
    writer: AsyncEngine

    async def transact(self, work: Callable[[Connection], R]) -> R:
        """Run work in one transaction on the writer."""
        ...

    async def close(self) -> None:
        """Close every connection."""
        ...


class Database:
    """Storage on one database.

    Within the process one lock lets writers in by order of arrival; against other processes the database's own lock stands.
    """

    def __init__(self, connections: Connections, *, database: str) -> None:
        self._connections = connections
        self._database = database
        self._lock = anyio.Lock()

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncSession]:
        """See Storage."""
        async with self._session(self._connections.readers, reading=True) as session:
            yield session
            if session.new or session.dirty or session.deleted:
                await session.flush()  # fails: a change would be lost without a word

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncSession]:
        """See Storage."""
        async with self._lock, self._session(self._connections.writer, reading=False) as session:
            yield session
            await anyio.lowlevel.checkpoint_if_cancelled()
            with anyio.CancelScope(shield=True):  # a commit that was begun is waited for
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
            with translate_errors(self._database, connecting=True, reading=reading):
                await session.connection()
            with translate_errors(self._database, reading=reading):
                yield session
        finally:
            with anyio.CancelScope(shield=True):
                await session.close()

    async def _transact(self, work: Callable[[Connection], R]) -> R:
        with translate_errors(self._database, connecting=True):
            return await self._connections.transact(work)
