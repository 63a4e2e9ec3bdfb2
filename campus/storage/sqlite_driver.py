"""Connections to SQLite that survive a cancellation: aiosqlite connections for sessions, sqlite3 connections underneath.

A statement runs in the connection's thread and cannot be interrupted. When its awaiter is cancelled, SQLAlchemy closes the
connection; sqlite3 then keeps the transaction until the last cursor is collected, and tracebacks hold cursors: the database stayed
locked. Hence two rules. Closing a connection ends its transaction. A cancellation waits for the running statement (milliseconds; up
to 5 s while another process writes) and takes effect at the next wait for anything else, so that connections are rarely closed at all.
"""

import sqlite3
from contextlib import suppress
from functools import partial
from typing import Any

import aiosqlite
import anyio

from campus.storage.errors import BUSY_SECONDS

ROWS_PER_FETCH = 64


class Connection(sqlite3.Connection):
    """Rolls back when it is closed."""

    def close(self) -> None:
        """End the transaction, then close."""
        with suppress(sqlite3.ProgrammingError):  # it was closed before
            self.rollback()
        super().close()


class AsyncConnection(aiosqlite.Connection):
    """Finishes the running statement before it lets a cancellation through."""

    def __init__(self, address: str) -> None:
        super().__init__(partial(sqlite3.connect, address, **CONNECT), ROWS_PER_FETCH)
        self._thread.daemon = True  # a connection that was not closed does not keep the process alive

    def stop(self) -> Any:
        """Stop the thread, once: a stopped thread never answers, and its awaiter would wait for ever."""
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
    # sqlite3 must not begin transactions by itself: it begins them late, and updates are lost
    "isolation_level": None,
}


async def open_async(address: str) -> aiosqlite.Connection:
    """Open a file for sessions, by its `file:` address."""
    return await AsyncConnection(address)
