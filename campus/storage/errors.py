"""Database errors as campus raises them: StorageUnavailable for what may pass, StorageFault for what somebody must mend or no list knows.

Every error of a driver gets its sentence and the database's own code here, but for those about values, which their caller may expect.
"""

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from campus.errors import StorageError, StorageFault, StorageUnavailable, one_line

BUSY_SECONDS = 5.0  # How long a writer waits for a lock of another process, and a reader for a free connection.


class TransactionAborted(StorageUnavailable):
    """The database ended a transaction in favour of another one; nothing of it is written."""


@dataclass(frozen=True)
class DriverErrors:
    """What the errors of a database's driver mean, by the beginnings of their codes. In a sentence `{words}` are the database's own.

    `of_values` is what it says of values, not of itself: the code that sent them may expect it. `read_only` are the whole codes of a
    write in a session that only reads, and `aborted` those of a transaction that another one ended. `unreachable` says why no
    connection could be made.
    """

    temporary: Mapping[str, str]
    permanent: Mapping[str, str]
    of_values: tuple[str, ...]
    read_only: str
    aborted: tuple[str, ...] = ()
    unreachable: Callable[[OSError], str] = str


SQLITE = DriverErrors(
    temporary={
        "SQLITE_FULL": "is full: free space on its disk",
        "SQLITE_READONLY": "is read-only: give this user the right to write its directory and files",
        "SQLITE_BUSY": f"was locked by another process for more than {BUSY_SECONDS:g} s",
        "SQLITE_LOCKED": f"was locked by another process for more than {BUSY_SECONDS:g} s",
        "SQLITE_IOERR": "cannot be used: the disk reports an error",
        "SQLITE_CANTOPEN": "cannot be opened: its file or directory is gone, this user may not read it, or its disk is read-only",
        "SQLITE_NOMEM": "ran out of memory",
    },
    permanent={
        "SQLITE_CORRUPT": "is damaged: move its file away, with -wal and -shm beside it, and restore a backup",
        "SQLITE_NOTADB": "is not a SQLite database: restore a backup, or move the file away",
    },
    of_values=("SQLITE_CONSTRAINT", "SQLITE_MISMATCH", "SQLITE_TOOBIG"),
    read_only="SQLITE_READONLY",  # a disk that is read-only has longer codes
)
PRIMARY = {getattr(sqlite3, name): name for name in (*SQLITE.temporary, *SQLITE.permanent, *SQLITE.of_values)}


@contextmanager
def translate_errors(database: str, errors: DriverErrors = SQLITE, *, connecting: bool = False, reading: bool = False) -> Iterator[None]:
    """Raise an error of the database itself as a StorageError that names `database`; other errors pass unchanged.

    `connecting` also translates errors of the network; without it they may come from the caller's own code, and pass.
    """
    try:
        yield
    except (DBAPIError, sqlite3.Error) as error:
        translated = storage_error_of(error, database, errors, reading=reading)
        if translated is None:
            raise
        raise translated from error
    except PoolTimeout as error:
        raise StorageUnavailable(f"{database} is busy: no connection was free for {BUSY_SECONDS:g} s") from error
    except OSError as error:
        if not connecting:
            raise
        raise StorageUnavailable(f"{database} cannot be reached: {errors.unreachable(error)}") from error


def storage_error_of(
    error: DBAPIError | sqlite3.Error, database: str, errors: DriverErrors, *, reading: bool = False
) -> StorageError | None:
    """The StorageError for an error of the driver; None for one about the values of a statement."""
    driver = error.orig if isinstance(error, DBAPIError) else error
    code = _code_of(driver)
    if reading and code == errors.read_only:
        return StorageError(f"{database} was opened by read(), whose session is readonly; use write() or batch()")
    if code.startswith(errors.of_values):
        return None
    permanent, temporary = _by_prefix(errors.permanent, code), _by_prefix(errors.temporary, code)
    if isinstance(error, DBAPIError) and error.connection_invalidated:
        temporary = temporary or "closed the connection{words}"
    sentence = permanent or temporary or "reports an error that campus does not know{words}: see its log"
    first, _, _ = str(driver).partition("\n")  # further lines may show values
    words = f" ({one_line(first)})"
    said = f"{database} {sentence.format(words=words)} [{code}]"
    if code in errors.aborted:
        return TransactionAborted(said)
    return StorageUnavailable(said) if temporary and not permanent else StorageFault(said, is_known=bool(permanent))


def _code_of(error: BaseException | None) -> str:
    """An SQLSTATE or the name of SQLite's code, which may be newer than Python; the kind of error where a driver tells neither."""
    name = getattr(error, "sqlite_errorname", None)
    if name == "unknown":
        name = PRIMARY.get(getattr(error, "sqlite_errorcode", 0) & 0xFF, name)
    return str(getattr(error, "sqlstate", None) or name or type(error).__name__)


def _by_prefix(sentences: Mapping[str, str], code: str) -> str | None:
    return next((sentence for prefix, sentence in sentences.items() if code.startswith(prefix)), None)
