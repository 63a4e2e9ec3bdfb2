"""SQLite: a directory with one file per building, `<name>.db`; locked by the process that serves, and copied while others write."""

import fcntl
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from time import monotonic, sleep

from anyio.to_thread import run_sync
from sqlalchemy import Connection

from campus.errors import StorageError
from campus.storage.errors import BUSY_SECONDS, translate_errors
from campus.storage.migrations import History, Version
from campus.storage.sqlite_connections import MIGRATOR, SqliteConnections, sync_engine

PROBE_BYTES = 64 * 1024
WAL_RETRY_SECONDS = 0.01


class SqliteBackend:
    """A directory, which holds a file per building."""

    is_single_process = True

    def __init__(self, folder: Path, *, reading: bool = False) -> None:
        self._folder = folder
        self._reading = reading

    def describe(self, name: str) -> str:
        """What to call a building's database in a sentence."""
        return f"the database {self._path(name)}"

    def place_of(self, name: str) -> str:
        """The path of a building's file."""
        return str(self._path(name))

    async def versions_of(self, names: Sequence[str]) -> Mapping[str, Version | None]:
        """The newest step that was run on each file; nothing is created or changed. None for a missing or empty file."""
        found = {}
        for name in names:
            with translate_errors(self.describe(name)):
                found[name] = await run_sync(_version_of, self._path(name))
        return found

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


def _version_of(path: Path) -> Version | None:
    if not path.exists():
        return None
    log = path.with_name(f"{path.name}-wal")
    if not log.exists():
        return _version_at(path, "immutable=1")  # without a log the file is opened as immutable; otherwise SQLite would create a log
    try:
        return _version_at(path, "mode=ro")
    except sqlite3.OperationalError:
        if log.stat().st_size:
            raise
        return _version_at(path, "immutable=1")  # the log is empty and its index cannot be created: the disk is full or read-only


def _version_at(path: Path, mode: str) -> Version | None:
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True, timeout=BUSY_SECONDS)) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'alembic_version'").fetchone():
            return None
        connection.row_factory = sqlite3.Row
        row = connection.execute("SELECT * FROM alembic_version").fetchone()
        return Version(row["version_num"], row["usable_from"] if "usable_from" in row.keys() else None) if row else None  # noqa: SIM118


def _upgrade(path: Path, history: History) -> None:
    from campus.storage.alembic_runner import upgrade  # 0.2 s, spared when nothing is due

    _create(path)
    _switch_to_wal(path)
    engine = sync_engine(path, MIGRATOR)
    try:
        with engine.begin() as connection:
            upgrade(connection, history)
            _refuse_dangling_rows(connection)
    finally:
        engine.dispose()


def _create(path: Path) -> None:
    """Create a missing file for the owner of its directory: when root runs a command before the service, which has a user of its own.

    SQLite does the same with the files beside it. It also creates this one, for other users, and says why when that fails.
    """
    if os.geteuid() == 0:
        with suppress(OSError), path.open("xb") as file:
            owner = path.parent.stat()
            os.fchown(file.fileno(), owner.st_uid, owner.st_gid)


def _switch_to_wal(path: Path) -> None:
    """Make the file one with a write-ahead log. SQLite does not wait for this while another process writes: it says at once "locked"."""
    deadline = monotonic() + BUSY_SECONDS
    with closing(sqlite3.connect(path, timeout=BUSY_SECONDS)) as connection:
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or monotonic() > deadline:
                    raise
            sleep(WAL_RETRY_SECONDS)


def _refuse_dangling_rows(connection: Connection) -> None:
    """Check the foreign keys, which were off while the steps ran."""
    if row := connection.exec_driver_sql("PRAGMA foreign_key_check").first():
        raise StorageError(f"a migration would leave rows of {row[0]} that refer to no row of {row[2]}; nothing was changed")


@contextmanager
def open_directory(folder: Path, *, exclusive: bool) -> Iterator[Path]:
    """The directory, created when it is missing; with `exclusive` it is locked against other servers and tested for writing.

    A StorageError leaves nothing behind. Without `exclusive` nothing is tested, so that commands that only read work on a full disk.
    """
    with ExitStack() as stack:
        made = _make(folder)
        try:
            if exclusive:
                stack.enter_context(_locked(folder))
                probe(folder)
        except StorageError:
            if made:
                folder.rmdir()
            raise
        yield folder


def copy_files(folder: Path, target: Path) -> Sequence[Path]:
    """Copy every database into another directory, each as of one moment; returns the copies, which are on disk."""
    if not (files := sorted(folder.glob("*.db"))):
        raise StorageError(f"there is no database in {folder}: nothing was copied")
    _make(target)
    copies = [(path, target / path.name) for path in files]
    if existing := [copy.name for _, copy in copies if copy.exists()]:
        raise StorageError(f"{target} already holds {existing[0]}; name an empty directory")
    for path, copy in copies:
        _copy(path, copy)
    _sync(target)
    return [copy for _, copy in copies]


def _make(folder: Path) -> bool:
    """Create the directory; False when it existed before."""
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        if folder.is_dir():
            return False
        raise StorageError(f"{folder} is not a directory; name a directory, which will hold a file per building") from None
    except OSError as error:
        raise StorageError(f"the directory {folder} cannot be created: {error.strerror}; create it, or name another") from None
    return True


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """A lock on the directory itself: it needs no file, and ends with the process, however that ends."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        _lock(descriptor, folder)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, folder: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise StorageError(
            f"another process serves the data in {folder}, and only one can serve SQLite; stop it,"
            ' or let several processes share PostgreSQL: [storage] url = "postgresql://user@host/database"'
        ) from None


def probe(folder: Path) -> None:
    """Write and sync a temporary file without a name; StorageError when that fails."""
    try:
        with TemporaryFile(dir=folder) as file:
            file.write(bytes(PROBE_BYTES))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise StorageError(f"the directory {folder} cannot be written: {error.strerror}") from None


def _copy(path: Path, copy: Path) -> None:
    try:
        with translate_errors(f"the backup of {path}"), closing(_connect(path)) as connection:
            connection.execute("VACUUM INTO ?", (str(copy),))
        _sync(copy)
    except BaseException:
        copy.unlink(missing_ok=True)  # an incomplete backup is deleted
        raise


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(readable(path), uri=True, timeout=BUSY_SECONDS)


def readable(path: Path) -> str:
    """The URI under which SQLite can read a database, even on a full or read-only disk.

    SQLite writes an index of the log into a file beside it, which such a disk refuses. Without a log the file is complete and is
    read as immutable, because no process writes it then.
    """
    address = path.absolute().as_uri()
    try:
        with closing(sqlite3.connect(address, uri=True, timeout=BUSY_SECONDS)) as connection:
            connection.execute("SELECT 1 FROM sqlite_schema").fetchone()
    except sqlite3.OperationalError:
        log = path.with_name(f"{path.name}-wal")
        if log.exists() and log.stat().st_size:
            raise
        return f"{address}?immutable=1"
    return address


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
