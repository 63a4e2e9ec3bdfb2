"""A PostgreSQL behind a pooler that drops the schema, and one that takes no writes: both are named before anything is read or written."""

import struct
from collections.abc import Sequence
from pathlib import Path
from shutil import rmtree
from subprocess import Popen
from tempfile import TemporaryDirectory, mkdtemp

import anyio
import asyncpg
import pytest
from anyio.abc import SocketStream
from keys.links import building

from campus.errors import StorageError
from campus.features.postgres import backend
from campus.storage.databases import Databases
from campus.storage.tables import CoreTables
from campus.testing import open_campus
from tests.conftest import Postgres, running
from tests.postgres_server import SERVER, unprivileged

pytestmark = pytest.mark.anyio


def without(parameter: bytes, startup: bytes) -> bytes:
    names = startup[8:].rstrip(b"\0").split(b"\0")
    pairs = [pair for pair in zip(names[::2], names[1::2], strict=True) if pair[0] != parameter]
    body = b"".join(b"%s\0%s\0" % pair for pair in pairs) + b"\0"
    return struct.pack("!I", len(body) + 8) + startup[4:8] + body


async def test_a_pooler_that_drops_the_schema_is_refused_by_a_sentence_and_nothing_is_written(postgres: Postgres) -> None:
    folder = Path(mkdtemp(prefix="campus-", dir="/tmp"))  # a socket's path has at most 107 bytes
    name = postgres.create_database()

    async def pass_on(source: SocketStream, target: SocketStream) -> None:
        async for received in source:
            await target.send(received)

    async def pool(client: SocketStream) -> None:
        async with client, await anyio.connect_unix(postgres.sockets / ".s.PGSQL.5432") as server, anyio.create_task_group() as ways:
            await server.send(without(b"search_path", await client.receive()))
            ways.start_soon(pass_on, client, server)
            await pass_on(server, client)
            ways.cancel_scope.cancel()

    async with await anyio.create_unix_listener(folder / ".s.PGSQL.5432") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, pool)
        with pytest.raises(StorageError, match=r'does not use the schema campus but search_path = "\$user", public: a pooler'):
            async with Databases.open(f"postgresql://postgres@/{name}?host={folder}") as databases:
                await databases.storage_of("campus", CoreTables)
        tasks.cancel_scope.cancel()
    connection = await asyncpg.connect(host=str(postgres.sockets), user="postgres", database=name)
    rmtree(folder)
    assert await connection.fetchval("SELECT count(*) FROM pg_tables WHERE schemaname IN ('public', 'campus')") == 0
    await connection.close()
    postgres.drop_database(name)


async def test_campus_check_names_a_database_that_takes_no_writes(postgres: Postgres) -> None:
    name = postgres.create_database()
    connection = await asyncpg.connect(host=str(postgres.sockets), user="postgres", database=name)
    try:
        async with open_campus(storage=postgres.url(name), links=building) as campus:
            await connection.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
            await connection.execute("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'campus'")
            [sentence] = (await campus.service.ask("check"))["[storage]"]
            assert "schema campus" in sentence
            assert "is read-only: the server is a standby, or default_transaction_read_only is on" in sentence
    finally:
        await connection.execute(f"SET default_transaction_read_only = off; ALTER DATABASE {name} RESET default_transaction_read_only")
        await connection.close()
    postgres.drop_database(name)


async def test_campus_check_names_what_a_crash_or_a_failover_would_lose(postgres: Postgres) -> None:
    off = postgres.create_database()
    async with open_campus(storage=postgres.url(off), links=building) as campus:
        assert [sentence.partition(": ")[2][:23] for sentence in (await campus.service.ask("check"))["[storage]"]] == [
            "fsync is off: a power c",
            "full_page_writes is off",
        ]
    postgres.drop_database(off)
    safe = {**SERVER, "fsync": "on", "full_page_writes": "on", "wal_level": "replica", "max_wal_senders": "2"}
    with TemporaryDirectory(prefix="campus-pg-", dir="/tmp") as folder, running(Path(folder), safe) as server:
        several = f"{server.url('postgres')}:5432&host={folder}/nobody:5432"

        async def found() -> Sequence[str]:
            return (await campus.service.ask("check")).get("[storage]", ())

        def set_up(statement: str) -> None:
            server.run("psql", "-c", statement, "-c", "SELECT pg_reload_conf()", "-c", "SELECT pg_sleep(0.5)", "postgres")

        async with open_campus(storage=server.url("postgres"), links=building) as campus:
            assert await found() == ()
        async with open_campus(storage=several, links=building) as campus:
            [alone] = await found()
            assert "no standby is connected: nothing can take over" in alone
            command = [server.programs / "pg_receivewal", "-D", server.sockets, "-h", server.sockets, "-U", "postgres", "--synchronous"]
            with Popen(command, **unprivileged()) as standby:  # noqa: ASYNC220  # it only starts
                while "no standby" in (sentences := await found())[0]:
                    pass
                assert "synchronous_standby_names is empty: a failover may lose what callers were told is stored" in sentences[0]
                set_up("ALTER SYSTEM SET synchronous_standby_names = 'pg_receivewal'")
                assert await found() == ()
                set_up("ALTER DATABASE postgres SET synchronous_commit = local")
                [local] = await found()
                assert "synchronous_commit is local: a failover may lose" in local
                set_up("ALTER DATABASE postgres SET synchronous_commit = off")
                assert "synchronous_commit is off: a crash loses the last writes" in (await found())[0]
                standby.kill()


async def test_a_missing_driver_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "find_spec", {}.get)
    with pytest.raises(StorageError, match=r"needs a driver: `pip install 'mcp-campus\[postgres\]'`"):
        async with Databases.open("postgresql://user@host/database"):
            pass
