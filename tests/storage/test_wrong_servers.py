"""A PostgreSQL behind a pooler that drops the schema, and one that takes no writes: both are named before anything is read or written."""

import struct
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

import anyio
import asyncpg
import pytest
from anyio.abc import SocketStream
from keys.links import building

from campus.errors import StorageError
from campus.storage import CoreTables, Databases
from campus.testing import open_campus
from tests.conftest import Postgres

pytestmark = pytest.mark.anyio


def without(parameter: bytes, startup: bytes) -> bytes:
    """A client's first message without one of its parameters."""
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
            assert "[storage]" not in await campus.service.ask("check")
            await connection.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
            await connection.execute("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'campus'")
            [sentence] = (await campus.service.ask("check"))["[storage]"]
            assert "schema campus" in sentence
            assert "is read-only: the server is a standby, or default_transaction_read_only is on" in sentence
    finally:
        await connection.execute(f"SET default_transaction_read_only = off; ALTER DATABASE {name} RESET default_transaction_read_only")
        await connection.close()
    postgres.drop_database(name)
