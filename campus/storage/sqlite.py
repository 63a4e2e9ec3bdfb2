"""SQLite: a directory with one file per building, `<name>.db`."""

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import anyio
from anyio.to_thread import run_sync
from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from campus.errors import StorageError
from campus.storage.errors import BUSY_SECONDS, translate_errors
from campus.storage.migrations import History
from campus.storage.sqlite_driver import CONNECT, open_async
from campus.storage.sqlite_files import copy_files, probe, readable
from campus.storage.tables import ENGINE_OPTIONS

R = TypeVar("R")

READERS = 4
WAL_BYTES = 64 * 1024 * 1024
PRAGMAS = ("journal_mode = WAL", "synchronous = FULL", f"journal_size_limit = {WAL_BYTES}")
"""synchronous = FULL: acknowledged writes survive a power cut; with NORMAL a fifth of them was lost in a test."""
WRITER = (*PRAGMAS, "foreign_keys = ON", "temp_store = MEMORY", "wal_autocheckpoint = 4000", "cache_size = -8000")
"""temp_store: the journal of a statement over many rows stays in memory; otherwise a file is made and removed each time.
wal_autocheckpoint (16 MB instead of 4) and cache_size (8 MB instead of 2): rows that change often cost the writer a seventh less."""
READER = (*PRAGMAS, "query_only = ON")
MIGRATOR = (*PRAGMAS, "foreign_keys = OFF")
POOL: dict[str, Any] = {"max_overflow": 0, "pool_timeout": BUSY_SECONDS, **ENGINE_OPTIONS}


class SqliteConnections:
    """The connections of one building's file: readers that cannot write, a writer for sessions and one for batches.

    The two writers never run at once, because the Database's lock admits one at a time. The one for batches is synchronous, which
    saves a change of threads per statement.
    """

    def __init__(self, path: Path, *, reads_at: str | None = None) -> None:
        address = path.absolute().as_uri()
        self.readers = _async_engine(reads_at or address, READER, begin="BEGIN", size=READERS)
        self.writer = _async_engine(address, WRITER, begin="BEGIN IMMEDIATE", size=1)
        self._batches = _engine(path, WRITER)
        self._thread = anyio.CapacityLimiter(1)

    async def transact(self, work: Callable[[Connection], R]) -> R:
        """Run work in one transaction, in a thread."""
        return await run_sync(self._transact, work, limiter=self._thread)

    async def close(self) -> None:
        """Close every connection."""
        await self.readers.dispose()
        await self.writer.dispose()
        await run_sync(self._batches.dispose)

    def _transact(self, work: Callable[[Connection], R]) -> R:
        with self._batches.begin() as connection:
            return work(connection)


class SqliteBackend:
    """A directory, which holds a file per building."""

    is_single_process = True

    def __init__(self, folder: Path, *, reading: bool = False) -> None:
        self._folder = folder
        self._reading = reading

    def describe(self, name: str) -> str:
        """What to call a building's database in a sentence."""
        return f"the database {self._path(name)}"

    async def version_of(self, name: str) -> str | None:
        """The newest step that was run on the file; nothing is created or changed. None for a missing or empty file."""
        with translate_errors(self.describe(name)):
            return await run_sync(_version_of, self._path(name))

    async def upgrade(self, name: str, history: History) -> None:
        """Run the steps that are due, creating the file when it is missing."""
        with translate_errors(self.describe(name)):
            await run_sync(_upgrade, self._path(name), history)

    def connections(self, name: str) -> SqliteConnections:
        """The connections of a building's file, which are opened at the first use."""
        if not self._reading:
            return SqliteConnections(self._path(name))
        with translate_errors(self.describe(name)):
            return SqliteConnections(self._path(name), reads_at=readable(self._path(name)))

    def findings(self) -> Sequence[str]:
        """Why the directory cannot be written; empty while it can."""
        try:
            probe(self._folder)
        except StorageError as error:
            return [str(error)]
        return []

    async def backup(self, target: Path) -> Sequence[Path]:
        """Copy every file into a directory, each as of one moment, while others read and write."""
        return await run_sync(copy_files, self._folder, target)

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.db"


def _async_engine(address: str, pragmas: Sequence[str], *, begin: str, size: int) -> AsyncEngine:
    url = URL.create("sqlite+aiosqlite", database=address)
    engine = create_async_engine(url, async_creator=partial(open_async, address), pool_size=size, **POOL)
    _prepare(engine.sync_engine, pragmas, begin)
    return engine


def _engine(path: Path, pragmas: Sequence[str]) -> Engine:
    engine = create_engine(
        URL.create("sqlite", database=path.absolute().as_uri(), query={"uri": "true"}), connect_args=CONNECT, pool_size=1, **POOL
    )
    _prepare(engine, pragmas, "BEGIN IMMEDIATE")
    return engine


def _prepare(engine: Engine, pragmas: Sequence[str], begin: str) -> None:
    @event.listens_for(engine, "connect")
    def set_pragmas(connection: Any, _: object) -> None:
        cursor = connection.cursor()
        for pragma in pragmas:
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @event.listens_for(engine, "begin")
    def begin_transaction(connection: Connection) -> None:
        connection.exec_driver_sql(begin)


def _version_of(path: Path) -> str | None:
    if not path.exists():
        return None
    log = path.with_name(f"{path.name}-wal")
    if not log.exists():
        return _version_at(path, "immutable=1")  # without a log the file is read as it is, or SQLite would create a log
    try:
        return _version_at(path, "mode=ro")
    except sqlite3.OperationalError:
        if log.stat().st_size:
            raise
        return _version_at(path, "immutable=1")  # the log is empty and its index cannot be created: the disk is full or read-only


def _version_at(path: Path, mode: str) -> str | None:
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True, timeout=BUSY_SECONDS)) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'alembic_version'").fetchone():
            return None
        row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        return str(row[0]) if row else None


def _upgrade(path: Path, history: History) -> None:
    from campus.storage.alembic_runner import upgrade  # 0.2 s, spared when nothing is due

    engine = _engine(path, MIGRATOR)
    try:
        with engine.begin() as connection:
            upgrade(connection, history)
            _refuse_dangling_rows(connection)
    finally:
        engine.dispose()


def _refuse_dangling_rows(connection: Connection) -> None:
    """Check the foreign keys, which were off while the steps ran."""
    if row := connection.exec_driver_sql("PRAGMA foreign_key_check").first():
        raise StorageError(f"a migration would leave rows of {row[0]} that refer to no row of {row[2]}; nothing was changed")
