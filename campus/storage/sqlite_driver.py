"""Connections to SQLite that outlive a cancellation: by aiosqlite for sessions, and below it sqlite3's own.

A statement runs in the connection's thread and cannot be called back. When its awaiter is cancelled, SQLAlchemy closes the
connection; sqlite3 then keeps the transaction until the last cursor is collected, and cursors live on in tracebacks: the database
stayed locked. Hence two rules. A closed connection ends its transaction. And a cancellation waits for the statement in hand
(milliseconds; where another process writes, up to 5 s) and takes effect at the next wait for anything else, so that connections are
rarely closed at all.
"""

import sqlite3
from contextlib import suppress
from functools import partial
from typing import Any

import aiosqlite
import anyio

from campus.storage.errors import BUSY_SECONDS

ROWS_AT_ONCE = 64


class Connection(sqlite3.Connection):
    """Rolls back when it is closed."""

    def close(self) -> None:
        """End the transaction, then close."""
        with suppress(sqlite3.ProgrammingError):  # it was closed before
            self.rollback()
        super().close()


class AsyncConnection(aiosqlite.Connection):
    """Finishes the statement in hand before it lets a cancellation through."""

    def __init__(self, address: str) -> None:
        super().__init__(partial(sqlite3.connect, address, **CONNECT), ROWS_AT_ONCE)
        self._thread.daemon = True  # a connection that was not closed does not keep the process alive

    def stop(self) -> Any:
        """Stop the thread, once: from one that stopped no answer would come, and whoever awaits it would do so for ever."""
        return super().stop() if self._running else None

    async def _execute(self, fn: Any, *args: Any, **kwargs: Any) -> Any:
        with anyio.CancelScope(shield=True):
            return await super()._execute(fn, *args, **kwargs)  # type: ignore[no-untyped-call]  # it has no types

    async def _connect(self) -> aiosqlite.Connection:
        with anyio.CancelScope(shield=True):
            await super()._connect()
        return self


CONNECT: dict[str, Any] = {
    "factory": Connection,
    "uri": True,
    "timeout": BUSY_SECONDS,
    # sqlite3 is to begin no transactions of its own: it would begin them late, and lose updates
    "isolation_level": None,
}


async def open_async(address: str) -> aiosqlite.Connection:
    """Open a file for sessions, by its `file:` address."""
    return await AsyncConnection(address)
