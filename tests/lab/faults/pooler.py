"""A PgBouncer in transaction mode between campus and PostgreSQL: campus works if it is told, and otherwise says what to tell it."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import asyncpg
import pytest
from lab.faults.pgbouncer import pgbouncer
from recorder.conftest import authority, open_recorder  # noqa: F401  # fixtures
from recorder.races import at_once
from recorder.recorders import OpenRecorder

from campus.errors import StorageError
from campus.storage import in_snapshot
from campus.storage.databases import Databases
from campus.storage.tables import CoreTables
from campus.testing import Frame
from tests.conftest import Postgres

pytestmark = [pytest.mark.anyio, pytest.mark.faults("PgBouncer")]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that PgBouncer's user may read."""
    with TemporaryDirectory(prefix="campus-pool-", dir="/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.parametrize("frame", ["http", "mcp"])
async def test_two_processes_share_two_connections_of_a_pgbouncer_and_leave_nothing_on_them(
    folder: Path,
    postgres: Postgres,
    open_recorder: OpenRecorder,  # noqa: F811  # the fixture
    frame: Frame,
) -> None:
    name = postgres.create_database()
    with pgbouncer(folder, f"host={postgres.sockets}") as port:
        url = f"postgresql://postgres@127.0.0.1:{port}/{name}?pgbouncer=true"
        async with open_recorder(frame, storage=url) as first, open_recorder(frame, storage=url, clock=first.clock) as second:
            monitors = [await one.register(f"https://localhost/{number}") for number, one in enumerate((first, second) * 3)]
            asked = [{"monitor_id": one["monitor_id"], "secret": one["secret"]} for one in monitors]
            for _ in range(4):
                assert {reply.status for reply in await at_once([first, second], "heartbeat", asked)} == {200}
            assert {(await second.row(monitor)).beats for monitor in monitors} == {4}
            await first.pass_time(days=2)
            assert await first.sweep() == len(monitors)
            with pytest.raises(StorageError, match=r"was opened by read\(\), whose session is readonly"):
                await in_snapshot(first.campus.site.storage, lambda connection: connection.exec_driver_sql("DELETE FROM monitor"))
            assert "its tables" not in str((await second.campus.service.ask("check"))["recorder"]), "they are found"
        for _ in range(4):
            connection = await asyncpg.connect(user="postgres", host="127.0.0.1", port=port, database=name, statement_cache_size=0)
            left = await connection.fetchrow(
                "SELECT current_setting('search_path'), current_setting('lock_timeout'), count(*) FROM pg_prepared_statements"
            )
            assert tuple(left) == ('"$user", public', "0", 0)
            await connection.close()
    postgres.drop_database(name)


@pytest.mark.parametrize("ignored", ["extra_float_digits", "search_path,lock_timeout,idle_in_transaction_session_timeout"])
async def test_a_pgbouncer_that_campus_is_not_told_of_is_named_with_the_remedy(folder: Path, postgres: Postgres, ignored: str) -> None:
    name = postgres.create_database()
    with pgbouncer(folder, f"host={postgres.sockets}", ignored=ignored) as port:
        url = f"postgresql://postgres@127.0.0.1:{port}/{name}"
        with pytest.raises(StorageError, match=r"PgBouncer.*; add pgbouncer=true to \[storage\] url, or name PostgreSQL's own host"):
            async with Databases.open(url) as databases:
                await databases.storage_of("campus", CoreTables)
        async with Databases.open(f"{url}?pgbouncer=true") as databases:
            await databases.storage_of("campus", CoreTables)
    postgres.drop_database(name)
