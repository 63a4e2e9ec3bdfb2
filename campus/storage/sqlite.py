"""SQLite: a directory with one file per building, `<name>.db`; locked by the process that serves, and copied while others write."""

import fcntl
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from time import monotonic, sleep

from anyio.to_thread import run_sync
from sqlalchemy import Connection

from campus.errors import StorageError
from campus.storage.backups import RESTORING, Manifest, restore_backup, write_backup
from campus.storage.errors import BUSY_SECONDS, translate_errors
from campus.storage.migrations import History, Version, place_of
from campus.storage.object_stores import download, is_object, refuse_existing_object, upload
from campus.storage.sqlite_connections import MIGRATOR, SqliteConnections, sync_engine
from campus.storage.sqlite_files import give_to_owner, readable, versions_of

NOW = partial(datetime.now, UTC)
LAST_BACKUP = "last-backup"  # An empty file beside the databases, of the time of the last backup.
BACKUP_AGE = timedelta(days=2)  # A nightly backup that is older was missed once.
PROBE_BYTES = 64 * 1024
WAL_RETRY_SECONDS = 0.01


class SqliteBackend:
    is_single_process = True
    has_several_servers = False

    def __init__(self, folder: Path, *, reading: bool = False) -> None:
        self._folder = folder
        self._reading = reading

    def describe(self, name: str) -> str:
        return f"the database {self._path(name)}"

    def place_of(self, name: str) -> str:
        return str(self._path(name))

    async def versions_of(self, names: Sequence[str]) -> Mapping[str, Version | None]:
        """The newest step that was run of each history; nothing is created or changed. None for a missing or empty file."""
        if (self._folder / RESTORING).exists():
            raise StorageError(f"a restore into {self._folder} was cut off, and left databases of two backups: run `campus restore` again")
        places = {name: place_of(name) for name in names}
        there = {}
        for database in dict.fromkeys(place.database for place in places.values()):
            with translate_errors(self.describe(database)):
                there[database] = await run_sync(versions_of, self._path(database))
        return {name: there[place.database].get(place.version_table) for name, place in places.items()}

    async def upgrade(self, name: str, history: History) -> None:
        with translate_errors(self.describe(name)):
            await run_sync(_upgrade, self._path(name), history)

    def connections(self, name: str) -> SqliteConnections:
        if not self._reading:
            return SqliteConnections(self._path(name))
        with translate_errors(self.describe(name)):
            return SqliteConnections(self._path(name), reads_at=readable(self._path(name)))

    async def watch(self) -> None:
        """Nothing: this process is the only server."""

    async def findings(self) -> Sequence[str]:
        try:
            probe(self._folder)
        except StorageError as error:
            return [str(error)]
        return []

    async def backup(self, target: str, *, release: str) -> None:
        await run_sync(self._back_up, target, release)

    def _back_up(self, target: str, release: str) -> None:
        if is_object(target):
            refuse_existing_object(target)
            with TemporaryDirectory() as scratch:
                write_backup(self._folder, archive := Path(scratch) / "campus.zip", release=release, now=NOW)
                upload(archive, target)
        else:
            write_backup(self._folder, Path(target), release=release, now=NOW)
        with suppress(OSError):  # the disk may be full or read-only
            (self._folder / LAST_BACKUP).touch()

    async def restore(self, source: str, *, accept: Callable[[Manifest], None], replace: bool) -> Manifest:
        """Put the files of a backup into the directory, which this process has locked; see restore_backup."""
        return await run_sync(partial(self._restore, source, accept, replace=replace))

    def _restore(self, source: str, accept: Callable[[Manifest], None], *, replace: bool) -> Manifest:
        with TemporaryDirectory() as scratch:
            file = Path(source)
            if is_object(source):
                download(source, file := Path(scratch) / "campus.zip")
            elif not file.is_file():
                raise StorageError(f"there is no file {source}; name a backup that `campus backup` wrote")
            return restore_backup(file, self._folder, name=source, accept=accept, replace=replace, now=NOW())

    def backup_note(self) -> str | None:
        try:
            made_at = datetime.fromtimestamp((self._folder / LAST_BACKUP).stat().st_mtime, UTC)
        except OSError:
            return f"there is no backup of {self._folder} that `campus backup` made; let a timer make one every night"
        if NOW() - made_at > BACKUP_AGE:
            return f"the last backup of {self._folder} was made on {made_at:%Y-%m-%d}; see whether the timer that makes them runs"
        return None

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.db"


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
        with suppress(OSError), path.open("xb"):
            give_to_owner(path)


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
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise StorageError(f"the directory {folder} cannot be read: {error.strerror}") from None
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
            " or name a database in [storage] url that several processes can share"
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
