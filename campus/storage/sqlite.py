"""SQLite: a directory with one file per building, `<name>.db`."""

import fcntl
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, TypeVar

import anyio
from anyio.to_thread import run_sync
from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from campus.errors import StorageError
from campus.storage.faults import BUSY_SECONDS, told
from campus.storage.history import History
from campus.storage.values import OPTIONS

R = TypeVar("R")

READERS = 4
PROBE_BYTES = 64 * 1024
WAL_BYTES = 64 * 1024 * 1024
PRAGMAS = ("journal_mode = WAL", "synchronous = FULL", f"journal_size_limit = {WAL_BYTES}")
"""FULL: what was acknowledged survives a power cut; with NORMAL a fifth of it was lost in a test."""
WRITER = (*PRAGMAS, "foreign_keys = ON")
READER = (*PRAGMAS, "query_only = ON")
MIGRATOR = (*PRAGMAS, "foreign_keys = OFF")


class SqliteConnections:
    """The connections of one building's file: readers that cannot write, a writer for sessions and one for batches.

    The two writers never meet: the room's lock lets in one at a time. That the batches' is synchronous spares them a
    change of threads per statement.
    """

    def __init__(self, path: Path) -> None:
        self.readers = _async_engine(path, READER, begin="BEGIN", size=READERS)
        self.writer = _async_engine(path, WRITER, begin="BEGIN IMMEDIATE", size=1)
        self._batches = _engine(path, WRITER, size=1)
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


class SqliteDirectory:
    """The directory that holds every building's file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def describe(self, name: str) -> str:
        """What to call a building's database in a sentence."""
        return f"the database {self._path(name)}"

    async def version_of(self, name: str) -> str | None:
        """The newest step that the file has seen; nothing is created or changed. None for no file, or an empty one."""
        with told(self.describe(name)):
            return await run_sync(_version_of, self._path(name))

    async def upgrade(self, name: str, history: History) -> None:
        """Make the file if need be, and bring it to the newest step."""
        with told(self.describe(name)):
            await run_sync(_upgrade, self._path(name), history)

    def connections(self, name: str) -> SqliteConnections:
        """The connections of a building's file; it is opened at the first use."""
        return SqliteConnections(self._path(name))

    async def backup(self, target: Path) -> Sequence[Path]:
        """Copy every file into a directory, each as it stands at one moment, while others read and write."""
        return await run_sync(_backup, self._folder, target)

    async def close(self) -> None:
        """Nothing stays open here."""

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.db"


@contextmanager
def claimed(folder: Path, *, exclusive: bool) -> Iterator[SqliteDirectory]:
    """The directory, made if need be; with `exclusive` no other process can claim it. On a refusal nothing was written."""
    with ExitStack() as stack:
        made = _make(folder)
        try:
            if exclusive:
                stack.enter_context(_locked(folder))
            _probe(folder)
        except StorageError:
            if made:
                folder.rmdir()
            raise
        yield SqliteDirectory(folder)


def _make(folder: Path) -> bool:
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        if folder.is_dir():
            return False
        raise StorageError(f"{folder} is not a directory; [storage] url names one, which will hold a file per building") from None
    except OSError as error:
        raise StorageError(f"the directory {folder} cannot be made: {error.strerror}; make it, or name another in [storage] url") from None
    return True


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """A lock on the directory itself: it needs no file, and goes when the process does, however it ends."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise StorageError(
            f"another process serves the data in {folder}, and SQLite can be served by one only; stop it,"
            ' or let several share PostgreSQL: [storage] url = "postgresql://user@host/database"'
        ) from None
    try:
        yield
    finally:
        os.close(descriptor)


def _probe(folder: Path) -> None:
    """Write and sync a file that has no name and vanishes."""
    try:
        with TemporaryFile(dir=folder) as file:
            file.write(bytes(PROBE_BYTES))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise StorageError(f"the directory {folder} cannot be written: {error.strerror}") from None


def _async_engine(path: Path, pragmas: Sequence[str], *, begin: str, size: int) -> AsyncEngine:
    engine = create_async_engine(_url("sqlite+aiosqlite", path), pool_size=size, **_options())
    _prepare(engine.sync_engine, pragmas, begin)
    return engine


def _engine(path: Path, pragmas: Sequence[str], *, size: int) -> Engine:
    sized: dict[str, Any] = {"pool_size": size, **_options()} if size else {"poolclass": NullPool, "connect_args": CONNECT, **OPTIONS}
    engine = create_engine(_url("sqlite", path), **sized)
    _prepare(engine, pragmas, "BEGIN IMMEDIATE")
    return engine


def _url(driver: str, path: Path) -> URL:
    return URL.create(driver, database=str(path))


CONNECT = {"isolation_level": None, "timeout": BUSY_SECONDS}
"""sqlite3 begins no transactions of its own: it would begin them late, and lose updates."""


def _options() -> dict[str, Any]:
    return {"max_overflow": 0, "pool_timeout": BUSY_SECONDS, "connect_args": CONNECT, **OPTIONS}


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
    # a file with no log beside it is read without making one
    mode = "mode=ro" if path.with_name(f"{path.name}-wal").exists() else "immutable=1"
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True, timeout=BUSY_SECONDS)) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'alembic_version'").fetchone():
            return None
        row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        return str(row[0]) if row else None


def _upgrade(path: Path, history: History) -> None:
    from campus.storage.migrations import upgrade  # 0.2 s, spared when nothing is due

    with closing_engine(_engine(path, MIGRATOR, size=0)) as engine, engine.begin() as connection:
        upgrade(connection, history)
        if broken := connection.exec_driver_sql("PRAGMA foreign_key_check").first():
            loose = f"rows of {broken[0]} that refer to no row of {broken[2]}"
            raise StorageError(f"the migration of {path} would leave {loose}; nothing was changed")


@contextmanager
def closing_engine(engine: Engine) -> Iterator[Engine]:
    """An engine that is closed at the end."""
    try:
        yield engine
    finally:
        engine.dispose()


def _backup(folder: Path, target: Path) -> Sequence[Path]:
    _make(target)
    copies = [(path, target / path.name) for path in sorted(folder.glob("*.db"))]
    if there := [copy.name for _, copy in copies if copy.exists()]:
        raise StorageError(f"{target} already holds {there[0]}; name a directory for this backup alone")
    for path, copy in copies:
        _copy(path, copy)
    _sync(target)
    return [copy for _, copy in copies]


def _copy(path: Path, copy: Path) -> None:
    try:
        with told(f"the backup {copy}"), closing(sqlite3.connect(path, timeout=BUSY_SECONDS)) as connection:
            connection.execute("VACUUM INTO ?", (str(copy),))
        _sync(copy)
    except Exception:
        copy.unlink(missing_ok=True)  # half a backup is none
        raise


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
