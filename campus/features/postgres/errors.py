"""PostgreSQL's errors in sentences, by the beginning of the SQLSTATE, and why a server cannot be reached."""

import errno
from socket import gaierror
from ssl import SSLError

from campus.errors import one_line
from campus.storage.errors import BUSY_SECONDS, DriverErrors

READ_ONLY = "25006"  # The SQLSTATE of a write where none is taken.
ABORTED = ("40001", "40P01")
LOST = "has lost a schema, table or column, or a statement of campus is wrong{words}: if somebody removed it, restore a backup"
TEMPORARY = {
    "08": "cannot be reached{words}; the server's log says why, unless another program listens there",
    READ_ONLY: "is read-only: the server is a standby, or default_transaction_read_only is on; name the primary in [storage] url",
    **dict.fromkeys(ABORTED, "aborted a transaction because of another one"),
    **dict.fromkeys(("25P03", "25P04"), "ended a transaction{words}: it took longer than the server's or the role's settings allow"),
    "53": "is out of resources{words}: disk, memory or connections",
    "55P03": f"was locked by another process for more than {BUSY_SECONDS:g} s",
    "57014": "cancelled a statement{words}: see statement_timeout of the server and of the role, and what else it is doing",
    "57P": "is shutting down or starting{words}",
    "58": "reports a system error{words}",
}
PERMANENT = {
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


class NoPrimary(OSError):
    """None of the servers that [storage] url names takes writes; its arguments are the errors of each."""


def unreachable(error: OSError) -> str:
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


POSTGRES = DriverErrors(TEMPORARY, PERMANENT, of_values=("22", "23"), read_only=READ_ONLY, aborted=ABORTED, unreachable=unreachable)
