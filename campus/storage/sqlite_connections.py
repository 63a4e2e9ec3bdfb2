"""Connections to SQLite: readers and writers of one file, which survive a cancellation: aiosqlite for sessions, sqlite3 underneath.

A statement runs in the connection's thread and cannot be interrupted. When its awaiter is cancelled, SQLAlchemy closes the
connection; sqlite3 then keeps the transaction until the last cursor is collected, and tracebacks hold cursors: the database stayed
locked. Hence two rules. Closing a connection ends its transaction. A cancellation waits for the running statement (milliseconds; up
to 5 s while another process writes) and takes effect at the next wait for anything else, so that connections are rarely closed at all.
"""

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, partial
from inspect import iscoroutinefunction
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar
from weakref import WeakSet

import aiosqlite
import anyio
from anyio.to_thread import run_sync
from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from campus.storage.errors import BUSY_SECONDS, SQLITE
from campus.storage.tables import ENGINE_OPTIONS

R = TypeVar("R")
log = logging.getLogger(__name__)

ROWS_PER_FETCH = 64
READERS = 4
WAL_BYTES = 64 * 1024 * 1024
PRAGMAS = ("journal_mode = WAL", "synchronous = FULL", f"journal_size_limit = {WAL_BYTES}")
"""synchronous = FULL: acknowledged writes survive a power cut; with NORMAL a fifth of them was lost in a test."""
WRITER = (*PRAGMAS, "foreign_keys = ON", "temp_store = MEMORY", "wal_autocheckpoint = 4000", "cache_size = -8000")
"""temp_store: the journal of a statement over many rows stays in memory; otherwise a file is made and removed each time.
wal_autocheckpoint (16 MB instead of 4) and cache_size (8 MB instead of 2): rows that change often cost the writer a seventh less."""
QUERY_ONLY = "query_only = ON"
READER = (*PRAGMAS, QUERY_ONLY)
MIGRATOR = (*PRAGMAS, "foreign_keys = OFF")
POOL: dict[str, Any] = {"max_overflow": 0, "pool_timeout": BUSY_SECONDS, **ENGINE_OPTIONS}


class SqliteConnections:
    """The connections of one building's file: readers that cannot write, a writer for sessions and one for batches.

    The two writers never run at once, because the Database's lock admits one at a time. The one for batches is synchronous and has
    its own thread, so that a transaction changes threads twice, and not twice per statement.
    """

    has_row_locks = False
    errors = SQLITE

    def __init__(self, path: Path, *, reads_at: str | None = None) -> None:
        address = path.absolute().as_uri()
        # at another address the disk may be read-only, and the journal's mode cannot be changed
        pragmas = (QUERY_ONLY,) if reads_at else READER
        self._ending: WeakSet[Thread] = WeakSet()
        self.readers = _async_engine(reads_at or address, pragmas, self._ending, begin="BEGIN", size=READERS)
        self.writer = _async_engine(address, WRITER, self._ending, begin="BEGIN IMMEDIATE", size=1)
        self._batches = TransactionThread(sync_engine(path, WRITER, begin=None))

    async def transact(self, work: Callable[[Connection], R], *, by_row: bool = False) -> R:
        """Run work in one transaction, in a thread. SQLite has one writer, so `by_row` changes nothing."""
        return await self._batches.run(work)

    async def close(self) -> None:
        await self.readers.dispose()
        await self.writer.dispose()
        await run_sync(self._batches.close)
        for thread in [*self._ending]:  # the pool waits for none that a cancellation closed, and each answers to the event loop
            await run_sync(thread.join, BUSY_SECONDS)


class TransactionThread:
    """A thread with one connection, which runs one transaction after the other.

    It waits in a queue and keeps its connection: handing work to a pool of threads and taking a connection from a pool would cost
    as much as a transaction with one row. After an error the connection is replaced.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: Thread | None = None
        self._connection: Connection | None = None

    async def run(self, work: Callable[[Connection], R]) -> R:
        """Run work in one transaction. Its caller shields it from cancellation, which would not stop the thread."""
        if self._thread is None:
            self._thread = Thread(target=self._run_all, name="transactions", daemon=True)
            self._thread.start()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        self._queue.put(partial(self._run_one, work, loop, future))
        return await future

    def close(self) -> None:
        """End the thread after what was handed to it, and close the connection. Blocks."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
        self._replace()
        self._engine.dispose()

    def _run_all(self) -> None:
        while (task := self._queue.get()) is not None:
            task()

    def _run_one(self, work: Callable[[Connection], R], loop: asyncio.AbstractEventLoop, future: "asyncio.Future[R]") -> None:
        try:
            settle = partial(future.set_result, self._transact(work))
        except BaseException as error:  # the awaiter raises it
            self._replace()  # closing the connection rolls back
            settle = partial(future.set_exception, error)
        with suppress(RuntimeError):  # the event loop was closed: nobody waits
            loop.call_soon_threadsafe(_settle, future, settle)

    def _transact(self, work: Callable[[Connection], R]) -> R:
        if self._connection is None:
            self._connection = self._engine.connect()
        connection = self._connection
        driver = connection.connection.driver_connection
        assert driver is not None
        driver.execute("BEGIN IMMEDIATE")  # by the driver, as the commit: SQLAlchemy's own take half as long as a small transaction
        result = work(connection)
        driver.commit()
        if connection.in_transaction():  # SQLAlchemy's account of it, which the work may have begun
            connection.commit()
        return result

    def _replace(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _settle(future: "asyncio.Future[R]", settle: Callable[[], None]) -> None:
    if not future.done():  # else its awaiter was cancelled by the end of the event loop, which no shield stops
        settle()


def _async_engine(address: str, pragmas: Sequence[str], ending: "WeakSet[Thread]", *, begin: str, size: int) -> AsyncEngine:
    url = URL.create("sqlite+aiosqlite", database=address)
    engine = create_async_engine(url, async_creator=partial(open_async, address, ending), pool_size=size, **POOL)
    _prepare(engine.sync_engine, pragmas, begin)
    return engine


def sync_engine(path: Path, pragmas: Sequence[str], *, begin: str | None = "BEGIN IMMEDIATE") -> Engine:
    """The engine for one connection without an event loop: that of migrations; or of batches, which begin by themselves."""
    engine = create_engine(
        URL.create("sqlite", database=path.absolute().as_uri(), query={"uri": "true"}), connect_args=CONNECT, pool_size=1, **POOL
    )
    _prepare(engine, pragmas, begin)
    return engine


def _prepare(engine: Engine, pragmas: Sequence[str], begin: str | None) -> None:
    @event.listens_for(engine, "connect")
    def set_pragmas(connection: Any, _: object) -> None:
        cursor = connection.cursor()
        for pragma in pragmas:
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    if begin is None:
        return

    @event.listens_for(engine, "begin")
    def begin_transaction(connection: Connection) -> None:
        connection.connection.cursor().execute(begin)  # the driver's own cursor: SQLAlchemy's takes four times as long


class SyncConnection(sqlite3.Connection):
    def close(self) -> None:
        with suppress(sqlite3.Error):  # it was closed before, or the disk fails, which must not keep it open
            self.rollback()
        super().close()


class AsyncConnection(aiosqlite.Connection):
    """Finishes the running statement before it lets a cancellation through. Its thread is put into `ending` when it is told to end."""

    _loop: asyncio.AbstractEventLoop | None = None

    def __init__(self, address: str, ending: "WeakSet[Thread]") -> None:
        self._ending = ending
        super().__init__(partial(sqlite3.connect, address, **CONNECT), ROWS_PER_FETCH)
        if isinstance(thread := getattr(self, "_thread", None), Thread):
            thread.daemon = True  # a connection that was not closed does not keep the process alive

    def stop(self) -> Any:
        """Stop the thread. Only the first call does so: a stopped thread never answers, and a second caller would wait for ever."""
        if not getattr(self, "_running", True):
            return None
        if isinstance(thread := getattr(self, "_thread", None), Thread):
            self._ending.add(thread)
        return super().stop()

    async def _execute(self, fn: Any, *args: Any, **kwargs: Any) -> Any:
        with anyio.CancelScope(shield=True):
            return await super()._execute(fn, *args, **kwargs)  # type: ignore[no-untyped-call]  # it has no types

    async def _connect(self) -> aiosqlite.Connection:
        self._loop = asyncio.get_running_loop()
        with anyio.CancelScope(shield=True):
            await super()._connect()
        return self

    def __del__(self) -> None:
        """Warn of a connection that nobody closed, unless its event loop has ended: then nobody could."""
        if self._loop is not None and self._loop.is_closed():
            self.stop()
        else:
            super().__del__()  # type: ignore[no-untyped-call]  # it has no types


CONNECT: dict[str, Any] = {
    "factory": SyncConnection,
    "uri": True,
    "timeout": BUSY_SECONDS,
    # sqlite3 must not begin transactions by itself: it begins them late, and updates are lost
    "isolation_level": None,
}


@cache
def can_shield() -> bool:
    """True if aiosqlite has the private methods through which it runs every statement, and which AsyncConnection overrides."""
    if all(iscoroutinefunction(getattr(aiosqlite.Connection, name, None)) for name in ("_execute", "_connect")):
        return True
    log.warning("this aiosqlite cannot be shielded from cancellation: a cancelled call closes its connection, and another is opened")
    return False


async def open_async(address: str, ending: "WeakSet[Thread]") -> aiosqlite.Connection:
    """Open a file for sessions, by its `file:` address; see AsyncConnection."""
    if can_shield():
        return await AsyncConnection(address, ending)
    return await aiosqlite.connect(address, iter_chunk_size=ROWS_PER_FETCH, **CONNECT)
