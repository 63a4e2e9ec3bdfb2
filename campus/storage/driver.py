"""aiosqlite connections that finish what they began, whoever is cancelled meanwhile.

A statement runs in the connection's thread and cannot be called back. Where its awaiter was cancelled, SQLAlchemy closed the
connection while the thread was still at it: under load transactions stayed open, and the database stayed locked. So a
cancellation waits for the statement in hand (milliseconds; a busy writer 5 s), and takes effect at the next wait for anything else.
"""

import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import aiosqlite
import anyio

from campus.storage.faults import BUSY_SECONDS

CONNECT: dict[str, Any] = {
    "timeout": BUSY_SECONDS,
    # sqlite3 is to begin no transactions of its own: it would begin them late, and lose updates
    "isolation_level": None,
}
ROWS_AT_ONCE = 64


class Connection(aiosqlite.Connection):
    """Every statement goes through `_execute`."""

    def __init__(self, connector: Callable[[], sqlite3.Connection]) -> None:
        super().__init__(connector, ROWS_AT_ONCE)
        self._thread.daemon = True  # a connection that was not closed does not keep the process

    async def _execute(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with anyio.CancelScope(shield=True):
            try:
                return await self._in_thread(fn, *args, **kwargs)
            except anyio.get_cancelled_exc_class():  # by asyncio itself, which knows no shield
                await self._in_thread(int)
                raise

    async def _in_thread(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return await super()._execute(fn, *args, **kwargs)  # type: ignore[no-untyped-call]  # aiosqlite gives it no types

    async def _connect(self) -> aiosqlite.Connection:
        with anyio.CancelScope(shield=True):
            return await super()._connect()


async def connect(path: Path) -> Connection:
    """Open a file."""
    return await Connection(partial(sqlite3.connect, path, **CONNECT))
