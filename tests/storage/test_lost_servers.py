"""A PostgreSQL server that is restarted, vanishes or hangs: calls fail in time, and the next ones succeed."""

import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream
from patience import patience
from sqlalchemy import Connection
from sqlmodel import select

from campus.errors import StorageUnavailable
from campus.storage import Databases, try_write
from campus.storage import postgres as backend
from tests.conftest import Postgres
from tests.storage.bank.tables import Account, Tables

pytestmark = pytest.mark.anyio


@dataclass
class Proxy:
    """Passes bytes to the server and back; those of connections that are frozen are read and kept, as by a machine that hangs."""

    server: Postgres
    port: int = 0
    frozen: anyio.Event = field(default_factory=anyio.Event)
    freezes_at: bytes | None = None
    """What a client must send for its connection to be frozen."""

    def freeze(self) -> None:
        """Freeze the connections that there are; later ones work."""
        self.frozen.set()
        self.frozen = anyio.Event()

    def url(self) -> str:
        """The URL of a new database behind the proxy."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/{self.server.create_database()}"

    async def connect(self, client: SocketStream) -> None:
        """Serve one connection."""
        frozen = self.frozen
        async with client, await anyio.connect_unix(self.server.sockets / ".s.PGSQL.5432") as server, anyio.create_task_group() as ways:
            ways.start_soon(self._pass_on, client, server, frozen)
            ways.start_soon(self._pass_on, server, client, frozen)

    async def _pass_on(self, source: SocketStream, target: SocketStream, frozen: anyio.Event) -> None:
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            while received := await source.receive():
                if self.freezes_at is not None and self.freezes_at in received:
                    frozen.set()
                if not frozen.is_set():
                    await target.send(received)
        await target.aclose()


@pytest.fixture
async def proxy(postgres: Postgres) -> AsyncIterator[Proxy]:
    proxy = Proxy(postgres)
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, proxy.connect)
        proxy.port = listener.extra(SocketAttribute.local_port)
        yield proxy
        tasks.cancel_scope.cancel()


async def test_connections_that_the_server_closed_are_replaced_and_no_call_fails(postgres: Postgres) -> None:
    storage_url = postgres.url(postgres.create_database())
    async with Databases.open(storage_url) as databases:
        bank = await databases.storage_of("bank", Tables)
        async with bank.read() as session:
            await session.exec(select(Account))
        async with bank.write() as session:
            session.add(Account(name="a"))
        async with Databases.open(storage_url) as other, (await other.storage_of("bank", Tables)).read() as session:
            await (await session.connection()).exec_driver_sql(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        async with bank.read() as session:
            assert (await session.exec(select(Account.name))).all() == ["a"]
        async with bank.write() as session:
            session.add(Account(name="again"))


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="only Linux ends connections that are not acknowledged")
async def test_a_server_that_vanishes_does_not_keep_the_process(proxy: Proxy) -> None:
    async with Databases.open(proxy.url()) as databases:
        bank = await databases.storage_of("bank", Tables)
        async with bank.read() as session:
            raw = await (await session.connection()).get_raw_connection()
            peer = raw.driver_connection._transport.get_extra_info("socket")
            assert peer.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1, "while a statement runs, nothing else is sent"
            limits = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_USER_TIMEOUT)
            assert [peer.getsockopt(socket.IPPROTO_TCP, limit) for limit in limits] == [10, 10, 10_000]
        await try_write(bank)
        proxy.freeze()
        with anyio.move_on_after(0.1) as wait:
            await try_write(bank)
        assert wait.cancelled_caught


async def test_a_server_that_takes_statements_and_answers_none_is_given_up(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "STATEMENT_SECONDS", patience(1))

    async def read() -> None:
        async with bank.read() as session:
            await session.exec(select(Account))

    async def fails(work: Callable[[], Awaitable[object]]) -> None:
        with pytest.raises(StorageUnavailable, match=r"bank.* did not answer within [\d.]+ s; its connection was given up"):
            await work()

    async with Databases.open(proxy.url()) as databases:
        bank = await databases.storage_of("bank", Tables)
        async with bank.batch(_names) as put:
            await read()
            await put("before")
            proxy.freeze()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(fails, read)
                tasks.start_soon(fails, partial(put, "while it hangs"))
            await read()
            await put("after")
        await try_write(bank)
        proxy.freeze()
        await fails(partial(try_write, bank))
        await try_write(bank)


async def test_a_server_that_hangs_while_campus_starts_is_named(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "STATEMENT_SECONDS", patience(1))
    proxy.freezes_at = b"alembic_version"
    async with Databases.open(proxy.url()) as databases:
        with pytest.raises(StorageUnavailable, match=r"the database test_\d+ at 127\.0\.0\.1:\d+ did not answer within [\d.]+ s"):
            await databases.check({"bank": Tables})


def _names(connection: Connection, names: Sequence[str]) -> Sequence[str]:
    connection.execute(select(Account.name)).all()
    return names
