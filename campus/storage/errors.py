"""What a database error means to whoever called: broken for now, broken for good, or none of storage's business."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from campus.errors import StorageError, StorageUnavailable

BUSY_SECONDS = 5.0
"""How long a writer waits for another process, and a reader for a free connection."""

SQLITE_TEMPORARY = {
    sqlite3.SQLITE_FULL: "is full: free space on its disk",
    sqlite3.SQLITE_READONLY: "is read-only: give this user the right to write its directory and files",
    sqlite3.SQLITE_BUSY: f"was kept by another process for more than {BUSY_SECONDS:g} s",
    sqlite3.SQLITE_LOCKED: f"was kept by another process for more than {BUSY_SECONDS:g} s",
    sqlite3.SQLITE_IOERR: "cannot be used: the disk reports an error",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened: its file or directory is gone, or not for this user",
    sqlite3.SQLITE_NOMEM: "found no memory",
}
SQLITE_PERMANENT = {
    sqlite3.SQLITE_CORRUPT: "is damaged: restore a backup, beside which none of the old files with -wal and -shm may be left",
    sqlite3.SQLITE_NOTADB: "is no SQLite database: restore a backup, or move the file away",
}
POSTGRES_TEMPORARY = {
    "08": "cannot be reached",
    "25006": "is read-only: the server is a standby, or its disk is full",
    "40001": "had to give up a transaction for another one",
    "40P01": "had to give up a transaction for another one",
    "53": "is out of resources: disk, memory or connections",
    "55P03": f"was kept by another process for more than {BUSY_SECONDS:g} s",
    "57P": "is shutting down or starting",
    "58": "reports an error of its system",
}
POSTGRES_PERMANENT = {
    "28": "refuses this user or its password: the user stands in [storage] url, the password in CAMPUS_DATABASE_PASSWORD",
    "3D000": "is not there: create it with createdb",
    "42501": "does not allow this user to do so: it must be allowed to create schemas in the database",
}
READ_ONLY = (sqlite3.SQLITE_READONLY, "25006")


@contextmanager
def translate_errors(database: str, *, connecting: bool = False, reading: bool = False) -> Iterator[None]:
    """Raise what the database cannot do as a StorageError about `database`; other errors pass as they are.

    `connecting` counts errors of the network as the database's, which in a caller's own code may be about anything.
    """
    try:
        yield
    except (DBAPIError, sqlite3.Error) as error:
        if (fault := storage_error_of(error, database, reading=reading)) is None:
            raise
        raise fault from error
    except PoolTimeout as error:
        raise StorageUnavailable(f"{database} is busy: no connection was free for {BUSY_SECONDS:g} s") from error
    except OSError as error:
        if not connecting:
            raise
        raise StorageUnavailable(f"{database} cannot be reached: {error.strerror or type(error).__name__}") from error


def storage_error_of(error: DBAPIError | sqlite3.Error, database: str, *, reading: bool = False) -> StorageError | None:
    """The sentence for an error of the database itself; None for an error in a statement or its values."""
    code = _code_of(error.orig if isinstance(error, DBAPIError) else error)
    if reading and code in READ_ONLY:
        return StorageError(f"{database} was opened by read(), whose session is readonly; write in write() or batch()")
    if isinstance(code, int):
        now, good = SQLITE_TEMPORARY.get(code), SQLITE_PERMANENT.get(code)
    else:
        now, good = _by_prefix(POSTGRES_TEMPORARY, code), _by_prefix(POSTGRES_PERMANENT, code)
    if good:
        return StorageError(f"{database} {good}")
    if isinstance(error, DBAPIError) and error.connection_invalidated:
        now = now or "closed the connection"
    return StorageUnavailable(f"{database} {now}") if now else None


def _code_of(error: BaseException | None) -> int | str:
    """SQLite's primary result code, or PostgreSQL's five characters; an empty text when there is neither."""
    number = getattr(error, "sqlite_errorcode", None)
    if number is not None:
        return int(number) & 0xFF
    return str(getattr(error, "sqlstate", None) or "")


def _by_prefix(sentences: dict[str, str], code: str) -> str | None:
    return next((sentence for prefix, sentence in sentences.items() if code.startswith(prefix)), None)
