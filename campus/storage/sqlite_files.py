"""The directory of SQLite files: claimed by one server, tried before it is used, copied while others write."""

import fcntl
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryFile

from campus.errors import StorageError
from campus.storage.errors import BUSY_SECONDS, translate_errors

PROBE_BYTES = 64 * 1024


@contextmanager
def claimed(folder: Path, *, exclusive: bool) -> Iterator[Path]:
    """The directory, made if need be; with `exclusive` it is found writable, and no other process can claim it so.

    On a refusal nothing was written. Without `exclusive` nothing is tried: what only reads works on a full disk too.
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
    """Copy every database into another directory, each as it stands at one moment; gives the copies, synced."""
    _make(target)
    copies = [(path, target / path.name) for path in sorted(folder.glob("*.db"))]
    if there := [copy.name for _, copy in copies if copy.exists()]:
        raise StorageError(f"{target} already holds {there[0]}; name a directory for this backup alone")
    for path, copy in copies:
        _copy(path, copy)
    _sync(target)
    return [copy for _, copy in copies]


def _make(folder: Path) -> bool:
    """Whether it was not there before."""
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        if folder.is_dir():
            return False
        raise StorageError(f"{folder} is not a directory; name one that is, or can be made, to hold a file per building") from None
    except OSError as error:
        raise StorageError(f"the directory {folder} cannot be made: {error.strerror}; make it, or name another") from None
    return True


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """A lock on the directory itself: it needs no file, and goes when the process does, however that ends."""
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
            f"another process serves the data in {folder}, and SQLite can be served by one only; stop it,"
            ' or let several share PostgreSQL: [storage] url = "postgresql://user@host/database"'
        ) from None


def probe(folder: Path) -> None:
    """Write and sync a file that has no name and vanishes; StorageError where that cannot be."""
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
        copy.unlink(missing_ok=True)  # half a backup is none
        raise


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(readable(path), uri=True, timeout=BUSY_SECONDS)


def readable(path: Path) -> str:
    """The address at which a database can be read, also where nothing can be written beside it.

    SQLite keeps an index of its log in a file of its own, which a full or read-only disk does not take. Where there is no log, the
    file is all there is, and is read without one; nobody else writes it then.
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
