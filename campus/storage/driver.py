"""A sqlite3 connection whose end is the end of its transaction."""

import sqlite3
from contextlib import suppress
from typing import Any

from campus.storage.faults import BUSY_SECONDS


class Connection(sqlite3.Connection):
    """Rolls back when it is closed.

    sqlite3 leaves a transaction open until the last cursor of a closed connection was collected. When a task is cancelled in a
    statement, SQLAlchemy closes its connection, and the cursors live on in the traceback: the database stayed locked.
    """

    def close(self) -> None:
        """End the transaction, then close."""
        with suppress(sqlite3.ProgrammingError):  # closed before
            self.rollback()
        super().close()


CONNECT: dict[str, Any] = {
    "factory": Connection,
    "timeout": BUSY_SECONDS,
    # sqlite3 is to begin no transactions of its own: it would begin them late, and lose updates
    "isolation_level": None,
}
