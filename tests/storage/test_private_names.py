"""Names of aiosqlite that it does not document and that campus/storage/sqlite_connections.py uses."""

import sqlite3
from functools import partial
from importlib.metadata import version
from threading import Thread
from typing import Any

import aiosqlite
import pytest

pytestmark = pytest.mark.anyio

AIOSQLITE = f"aiosqlite {version('aiosqlite')}"


@pytest.fixture
def anyio_backend() -> str:
    """The loop whose futures aiosqlite uses."""
    return "asyncio"


class Recording(aiosqlite.Connection):
    """Notes which of the methods that campus overrides are called."""

    def __init__(self, connector: Any, iter_chunk_size: int) -> None:
        super().__init__(connector, iter_chunk_size)
        self.called: list[str] = []

    async def _execute(self, fn: Any, *args: Any, **kwargs: Any) -> Any:
        self.called.append("_execute")
        return await super()._execute(fn, *args, **kwargs)

    async def _connect(self) -> aiosqlite.Connection:
        self.called.append("_connect")
        return await super()._connect()


async def test_aiosqlite_connects_by_connect_and_runs_every_statement_by_execute() -> None:
    connection = Recording(partial(sqlite3.connect, ":memory:"), 64)
    try:
        assert await connection is connection, f"{AIOSQLITE} returns something else than the connection from _connect"
        assert connection.called[0] == "_connect", f"{AIOSQLITE} does not connect by _connect: a cancellation would leave it half open"
        connection.called.clear()
        await connection.execute("SELECT 1")
        assert connection.called == ["_execute"], f"{AIOSQLITE} runs statements without _execute: a cancellation would not wait for them"
        connection.called.clear()
        await connection.commit()
        assert connection.called == ["_execute"], f"{AIOSQLITE} commits without _execute: a cancellation would not wait for it"
    finally:
        await connection.close()


async def test_aiosqlite_has_a_thread_that_can_be_made_a_daemon_and_says_whether_it_runs() -> None:
    connection = Recording(partial(sqlite3.connect, ":memory:"), 64)
    thread = getattr(connection, "_thread", None)
    assert isinstance(thread, Thread), f"{AIOSQLITE} keeps its thread elsewhere than in _thread: it would keep the process alive"
    assert not thread.is_alive(), f"{AIOSQLITE} starts its thread at once: it cannot be made a daemon any more"
    await connection
    assert connection._running is True, f"{AIOSQLITE} says elsewhere than in _running that its thread runs: stop() would be called twice"
    await connection.close()
    assert connection._running is False, f"{AIOSQLITE} leaves _running true after close(): stop() would wait for a thread that has ended"
