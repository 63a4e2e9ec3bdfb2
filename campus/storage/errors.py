"""Database errors as campus raises them: StorageUnavailable for what may pass, StorageFault for what somebody must mend or no list knows.

Every error of a driver gets its sentence and the database's own code here, but for those about values, which their caller may expect.
"""

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from socket import gaierror
from ssl import SSLError

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from campus.errors import StorageError, StorageFault, StorageUnavailable, one_line

BUSY_SECONDS = 5.0
"""How long a writer waits for a lock of another process, and a reader for a free connection."""

SQLITE_TEMPORARY = {
    sqlite3.SQLITE_FULL: "is full: free space on its disk",
    sqlite3.SQLITE_READONLY: "is read-only: give this user the right to write its directory and files",
    sqlite3.SQLITE_BUSY: f"was locked by another process for more than {BUSY_SECONDS:g} s",
    sqlite3.SQLITE_LOCKED: f"was locked by another process for more than {BUSY_SECONDS:g} s",
    sqlite3.SQLITE_IOERR: "cannot be used: the disk reports an error",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened: its file or directory is gone, this user may not read it, or its disk is read-only",
    sqlite3.SQLITE_NOMEM: "ran out of memory",
}
SQLITE_PERMANENT = {
    sqlite3.SQLITE_CORRUPT: "is damaged: move its file away, with -wal and -shm beside it, and restore a backup",
    sqlite3.SQLITE_NOTADB: "is not a SQLite database: restore a backup, or move the file away",
}
ABORTED = ("40001", "40P01")
LOST = "has lost a schema, table or column, or a statement of campus is wrong{words}: if somebody removed it, restore a backup"
POSTGRES_TEMPORARY = {
    "08": "cannot be reached{words}; the server's log says why, unless another program listens there",
    "25006": "is read-only: the server is a standby, or default_transaction_read_only is on; name the primary in [storage] url",
    **dict.fromkeys(ABORTED, "aborted a transaction because of another one"),
    **dict.fromkeys(("25P03", "25P04"), "ended a transaction{words}: it took longer than the server's or the role's settings allow"),
    "53": "is out of resources{words}: disk, memory or connections",
    "55P03": f"was locked by another process for more than {BUSY_SECONDS:g} s",
    "57014": "cancelled a statement{words}: see statement_timeout of the server and of the role, and what else it is doing",
    "57P": "is shutting down or starting{words}",
    "58": "reports a system error{words}",
}
POSTGRES_PERMANENT = {
    "28P01": "refuses this user or its password{words}: set the user in [storage] url, the password in CAMPUS_DATABASE_PASSWORD",
    "28": "does not admit this user from here{words}: allow it in the server's pg_hba.conf; if that admits it with TLS only, add"
    " ?sslmode=require to [storage] url",
    "3D000": "does not exist: create it with createdb",
    "42501": "does not allow this user to do so{words}: make it the owner of the schema and of its tables, and grant it the right to create"
    " schemas in the database",
    **dict.fromkeys(("3F000", "42P01", "42703"), LOST),
    "InterfaceError": "cannot be used as [storage] url says{words}",
    **dict.fromkeys(("XX001", "XX002"), "is damaged{words}: see the server's log; REINDEX repairs an index, a backup all else"),
}
"""By the beginning of the SQLSTATE. `{words}` are the server's own."""
OF_VALUES = ("22", "23", sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_TOOBIG)
"""What a database says of values, not of itself: the code that sent them may expect it."""
READ_ONLY = ("SQLITE_READONLY", "25006")
"""A write in a session that only reads; a disk that is read-only has other names in SQLite, which begin so."""


class TransactionAborted(StorageUnavailable):
    """The database ended a transaction in favour of another one; nothing of it is written."""


class NoPrimary(OSError):
    """None of the servers that [storage] url names takes writes; its arguments are the errors of each."""


@contextmanager
def translate_errors(database: str, *, connecting: bool = False, reading: bool = False) -> Iterator[None]:
    """Raise an error of the database itself as a StorageError that names `database`; other errors pass unchanged.

    `connecting` also translates errors of the network; without it they may come from the caller's own code, and pass.
    """
    try:
        yield
    except (DBAPIError, sqlite3.Error) as error:
        translated = storage_error_of(error, database, reading=reading)
        if translated is None:
            raise
        raise translated from error
    except PoolTimeout as error:
        raise StorageUnavailable(f"{database} is busy: no connection was free for {BUSY_SECONDS:g} s") from error
    except OSError as error:
        if not connecting:
            raise
        raise StorageUnavailable(f"{database} cannot be reached: {_network_reason(error)}") from error


def storage_error_of(error: DBAPIError | sqlite3.Error, database: str, *, reading: bool = False) -> StorageError | None:
    """The StorageError for an error of the driver; None for one about the values of a statement."""
    driver = error.orig if isinstance(error, DBAPIError) else error
    code = _code_of(driver)
    if reading and code in READ_ONLY:
        return StorageError(f"{database} was opened by read(), whose session is readonly; use write() or batch()")
    number = getattr(driver, "sqlite_errorcode", 0) & 0xFF
    if number in OF_VALUES or code[:2] in OF_VALUES:
        return None
    permanent = SQLITE_PERMANENT.get(number) or _by_prefix(POSTGRES_PERMANENT, code)
    temporary = SQLITE_TEMPORARY.get(number) or _by_prefix(POSTGRES_TEMPORARY, code)
    if isinstance(error, DBAPIError) and error.connection_invalidated:
        temporary = temporary or "closed the connection{words}"
    sentence = permanent or temporary or "reports an error that campus does not know{words}: see its log"
    first, _, _ = str(driver).partition("\n")  # further lines may show values
    words = f" ({one_line(first)})"
    said = f"{database} {sentence.format(words=words)} [{code}]"
    if code in ABORTED:
        return TransactionAborted(said)
    return StorageUnavailable(said) if temporary and not permanent else StorageFault(said, is_known=bool(permanent))


def _code_of(error: BaseException | None) -> str:
    """PostgreSQL's SQLSTATE or the name of SQLite's code; the kind of error where a driver tells neither."""
    return str(getattr(error, "sqlstate", None) or getattr(error, "sqlite_errorname", None) or type(error).__name__)


def _by_prefix(sentences: dict[str, str], code: str) -> str | None:
    return next((sentence for prefix, sentence in sentences.items() if code.startswith(prefix)), None)


def _network_reason(error: OSError) -> str:
    """Why a PostgreSQL server cannot be reached, and what to do."""
    if isinstance(error, NoPrimary):
        return f"none of its servers takes writes ({', '.join(one_line(each) or 'no answer in time' for each in error.args)})"
    words = one_line(getattr(error, "verify_message", None) or error.strerror or error) or type(error).__name__
    place = "correct host and port in [storage] url"
    # a name with several addresses has one error for all of them, without a number
    if error.errno == errno.ECONNREFUSED or f"[Errno {errno.ECONNREFUSED}]" in words:
        return f"nothing listens there, the connection was refused; start PostgreSQL, or {place}"
    if isinstance(error, TimeoutError):
        return f"no answer within {BUSY_SECONDS:g} s; look for a firewall in between, or {place}"
    if isinstance(error, gaierror):
        return f"the name of its host is not found ({words}); correct the host in [storage] url"
    if isinstance(error, FileNotFoundError):
        return (
            'there is no such socket; start PostgreSQL, or name the directory of its socket: "postgresql://user@/database?host=DIRECTORY"'
        )
    if isinstance(error, SSLError):
        return f"its certificate or its TLS is not accepted ({words}); name the authority that signed it: sslrootcert=FILE in [storage] url"
    if "SSL upgrade" in words:
        return "it speaks no TLS; configure TLS there, or remove sslmode from [storage] url, unless another program listens there"
    if "connection_lost" in words:
        return "it closed the connection; the server's log says why, unless another program listens there"
    return f"{words}; {place}"
