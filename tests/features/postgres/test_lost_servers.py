"""A PostgreSQL server that is restarted, vanishes or hangs: calls fail in time, and the next ones succeed."""

import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream
from patience import patience
from sqlalchemy import Connection
from sqlmodel import select

from campus.errors import StorageError, StorageUnavailable
from campus.features.postgres import backend
from campus.storage import Storage
from campus.storage.database import try_write
from campus.storage.databases import Databases
from tests.conftest import Postgres, running
from tests.storage.bank.tables import Account, Tables

pytestmark = [pytest.mark.anyio, pytest.mark.faults("database away")]


@dataclass
class Proxy:
    """Passes bytes to the server and back; those of connections that are frozen are read and kept, as by a machine that hangs."""

    server: Postgres
    port: int = 0
    frozen: anyio.Event = field(default_factory=anyio.Event)
    freezes_at: bytes | None = None
    """What a client must send for its connection to be frozen."""
    cuts_at: bytes | None = None
    """What a client must send for its connection to be closed."""

    def freeze(self) -> None:
        self.frozen.set()
        self.frozen = anyio.Event()

    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{self.server.create_database()}"

    async def connect(self, client: SocketStream) -> None:
        frozen = self.frozen
        async with client, await anyio.connect_unix(self.server.sockets / ".s.PGSQL.5432") as server, anyio.create_task_group() as ways:
            ways.start_soon(self._pass_on, client, server, frozen)
            ways.start_soon(self._pass_on, server, client, frozen)

    async def _pass_on(self, source: SocketStream, target: SocketStream, frozen: anyio.Event) -> None:
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            while received := await source.receive():
                if self.cuts_at is not None and self.cuts_at in received:
                    break
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


async def test_a_connection_that_is_lost_at_the_end_of_a_read_is_the_databases_fault(proxy: Proxy) -> None:
    async with Databases.open(proxy.url()) as databases:
        bank = await databases.storage_of("bank", Tables)
        async with bank.read() as session:
            await session.exec(select(Account))  # connects, which ends with a ROLLBACK of its own
        proxy.cuts_at = b"ROLLBACK"
        with pytest.raises(StorageUnavailable, match="cannot be reached"):
            async with bank.read() as session:
                assert (await session.exec(select(Account))).all() == []
        proxy.cuts_at = None
        async with bank.read() as session:
            assert (await session.exec(select(Account))).all() == []


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


async def test_of_several_servers_the_one_that_takes_writes_is_found_and_left_when_it_becomes_a_standby(postgres: Postgres) -> None:
    name = postgres.create_database()

    async def refusal_of(bank: Storage) -> str:
        try:
            await try_write(bank)
        except StorageError as error:
            return str(error)
        return ""

    async def hang(client: SocketStream) -> None:
        async with client:
            await anyio.sleep_forever()

    with TemporaryDirectory(prefix="campus-pg-", dir="/tmp") as folder, running(Path(folder)) as first:
        first.run("createdb", name)
        async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, hang)
            port = listener.extra(SocketAttribute.local_port)
            async with Databases.open(postgres.url(name)) as databases:
                await databases.storage_of("bank", Tables)  # as a standby would have them
            postgres.run("psql", "-c", f"ALTER DATABASE {name} SET default_transaction_read_only = on", "postgres")
            several = f"postgresql://postgres@/{name}?host=127.0.0.1:{port}&host={postgres.sockets}:5432&host={first.sockets}:5432"
            async with Databases.open(several) as databases:
                bank = await databases.storage_of("bank", Tables)
                await try_write(bank)
                first.run("psql", "-c", "ALTER SYSTEM SET default_transaction_read_only = on", "-c", "SELECT pg_reload_conf()", "postgres")
                while "takes no writes: it is a standby" not in await refusal_of(bank):  # noqa: ASYNC110
                    await anyio.sleep(0.1)  # until it has read its settings
                postgres.run("psql", "-c", f"ALTER DATABASE {name} RESET default_transaction_read_only", "postgres")
                await try_write(bank)
                async with bank.read() as session:
                    await session.exec(select(Account))
            tasks.cancel_scope.cancel()
    postgres.drop_database(name)


async def test_a_statement_on_a_server_that_hangs_ends_when_another_one_takes_writes(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "WATCH_SECONDS", 0.2)
    name = proxy.url().rpartition("/")[2]

    async def is_closed(bank: Storage) -> None:
        with pytest.raises(StorageUnavailable, match="closed in the middle of operation"):
            await try_write(bank)

    with TemporaryDirectory(prefix="campus-pg-", dir="/tmp") as folder, running(Path(folder)) as other:
        other.run("createdb", name)
        async with Databases.open(other.url(name)) as databases:
            await databases.storage_of("bank", Tables)
        other.run("psql", "-c", f"ALTER DATABASE {name} SET default_transaction_read_only = on", "postgres")
        several = f"postgresql://postgres@/{name}?host=127.0.0.1:{proxy.port}&host={other.sockets}:5432"
        async with Databases.open(several) as databases:
            bank = await databases.storage_of("bank", Tables)
            await try_write(bank)
            proxy.freezes_at = b""  # later connections too
            proxy.freeze()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(is_closed, bank)
                other.run("psql", "-c", f"ALTER DATABASE {name} RESET default_transaction_read_only", "postgres")
            await try_write(bank)


def test_hosts_may_stand_in_a_list_as_in_postgresqls_own_addresses() -> None:
    listed = backend.backend("postgresql://campus@a,b:5433/shop?sslmode=require", None)
    assert listed.place_of("core") == "shop at a:5432 or b:5433, schema core"


def _names(connection: Connection, names: Sequence[str]) -> Sequence[str]:
    connection.execute(select(Account.name)).all()
    return names
