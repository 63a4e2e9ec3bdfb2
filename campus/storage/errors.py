"""Database errors as campus raises them: StorageUnavailable for a condition that may pass, StorageError for one that will not."""

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from socket import gaierror
from ssl import SSLError

from sqlalchemy.exc import DBAPIError, InterfaceError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from campus.errors import StorageError, StorageUnavailable, one_line

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
POSTGRES_TEMPORARY = {
    "08": "cannot be reached{words}; the server's log says why, unless another program listens there",
    "25006": "is read-only: the server is a standby, or default_transaction_read_only is on; name the primary in [storage] url",
    **dict.fromkeys(ABORTED, "aborted a transaction because of another one"),
    "53": "is out of resources{words}: disk, memory or connections",
    "55P03": f"was locked by another process for more than {BUSY_SECONDS:g} s",
    "57P": "is shutting down or starting{words}",
    "58": "reports a system error{words}",
}
POSTGRES_PERMANENT = {
    "28P01": "refuses this user or its password{words}: set the user in [storage] url, the password in CAMPUS_DATABASE_PASSWORD",
    "28": "does not admit this user from here{words}: allow it in the server's pg_hba.conf; if that admits it with TLS only, add"
    " ?sslmode=require to [storage] url",
    "3D000": "does not exist: create it with createdb",
    "42501": "does not allow this user to do so{words}: grant it the right to create schemas in the database",
}
"""By the beginning of the SQLSTATE. `{words}` are the server's own."""
READ_ONLY = (sqlite3.SQLITE_READONLY, "25006")


class TransactionAborted(StorageUnavailable):
    """The database ended a transaction in favour of another one; nothing of it is written."""


class NoPrimary(OSError):
    """None of the servers that [storage] url names takes writes; its arguments are the errors of each."""


@contextmanager
def translate_errors(database: str, *, connecting: bool = False, reading: bool = False) -> Iterator[None]:
    """Raise an error of the database itself as a StorageError that names `database`; other errors pass unchanged.

    `connecting` also translates errors of the network and of the client's settings; without it they may come from the caller's own
    code, and pass.
    """
    try:
        yield
    except (DBAPIError, sqlite3.Error) as error:
        translated = storage_error_of(error, database, reading=reading)
        if translated is None and connecting and isinstance(error, InterfaceError):
            translated = StorageError(f"{database} cannot be connected to: {one_line(error.orig)}")
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
    """The StorageError for an error of the database itself; None for an error in a statement or its values."""
    code = _code_of(error.orig if isinstance(error, DBAPIError) else error)
    if reading and code in READ_ONLY:
        return StorageError(f"{database} was opened by read(), whose session is readonly; use write() or batch()")
    if isinstance(code, int):
        temporary = SQLITE_TEMPORARY.get(code)
        permanent = SQLITE_PERMANENT.get(code)
    else:
        temporary = _by_prefix(POSTGRES_TEMPORARY, code, error)
        permanent = _by_prefix(POSTGRES_PERMANENT, code, error)
    if permanent:
        return StorageError(f"{database} {permanent}")
    if code in ABORTED:
        return TransactionAborted(f"{database} {temporary}")
    if isinstance(error, DBAPIError) and error.connection_invalidated:
        temporary = temporary or "closed the connection"
    return StorageUnavailable(f"{database} {temporary}") if temporary else None


def _code_of(error: BaseException | None) -> int | str:
    """SQLite's primary result code, or PostgreSQL's SQLSTATE; an empty text when there is neither."""
    number = getattr(error, "sqlite_errorcode", None)
    if number is not None:
        return int(number) & 0xFF
    return str(getattr(error, "sqlstate", None) or "")


def _by_prefix(sentences: dict[str, str], code: str, error: DBAPIError | sqlite3.Error) -> str | None:
    found = next((sentence for prefix, sentence in sentences.items() if code.startswith(prefix)), None)
    return found and found.format(words=f" ({one_line(error.orig)})" if isinstance(error, DBAPIError) else "")


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
