"""Opening databases: each refusal is one sentence, with nothing written."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream
from patience import patience
from sqlalchemy import Connection, event
from sqlalchemy.pool import Pool
from sqlmodel import SQLModel, select

from campus.errors import StorageError
from campus.storage.databases import Databases
from tests import forkserver
from tests.conftest import Postgres
from tests.storage.bank.tables import Account, Tables
from tests.storage.conftest import MakePackage, steps_in

pytestmark = pytest.mark.anyio

STEP = """
revision = {number!r}
down_revision = {before!r}
def upgrade():
    op.create_table("t{number}", sa.Column("n", sa.Integer()))
"""
STEP_BODY = 'op.create_table("t0001", sa.Column("n", sa.Integer()))'
FIRST = {"0001_first.py": STEP.format(number="0001", before=None)}
SECOND = {"0002_more.py": STEP.format(number="0002", before="0001")}
CONTRACTING = {"0003_less.py": STEP.format(number="0003", before="0002") + "contract = True\n"}


@asynccontextmanager
async def opened(url: str, name: str, tables: type[SQLModel], *, exclusive: bool = False) -> AsyncIterator[Databases]:
    async with Databases.open(url, exclusive=exclusive) as databases:
        await databases.storage_of(name, tables)
        yield databases


async def refusal(url: str, folder: Path = Path(), password: str | None = None, *, exclusive: bool = False) -> str:
    with pytest.raises(StorageError) as caught:
        async with Databases.open(url, folder=folder, password=password, exclusive=exclusive) as databases:
            await databases.storage_of("bank", Tables)
    return str(caught.value)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


async def test_a_directory_is_relative_to_its_folder_and_for_its_owner_only(tmp_path: Path) -> None:
    async with Databases.open("sqlite:data", folder=tmp_path) as databases:
        await databases.storage_of("bank", Tables)
    assert (tmp_path / "data" / "bank.db").exists()
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700


@pytest.mark.both_databases
async def test_stored_rows_are_there_after_reopening(storage_url: str) -> None:
    async with Databases.open(storage_url) as databases, (await databases.storage_of("bank", Tables)).write() as session:
        session.add(Account(name="a"))
    async with Databases.open(storage_url) as databases, (await databases.storage_of("bank", Tables)).read() as session:
        assert (await session.exec(select(Account.name))).all() == ["a"]


async def test_sqlite_syncs_every_commit_and_keeps_a_log_of_bounded_size(tmp_path: Path) -> None:
    async with Databases.open(f"sqlite:{tmp_path}") as databases, (await databases.storage_of("bank", Tables)).write() as session:
        connection = await session.connection()
        found = {
            name: (await connection.exec_driver_sql(f"PRAGMA {name}")).scalar_one()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout", "journal_size_limit")
        }
    assert found == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 5000, "journal_size_limit": 64 * 2**20}


async def test_sqlite_syncs_the_commits_of_every_writer(tmp_path: Path, make_package: MakePackage) -> None:
    noted = 'op.execute("INSERT INTO seen SELECT synchronous FROM pragma_synchronous")'
    step = f'op.create_table("seen", sa.Column("n", sa.Integer()))\n    {noted}'
    tables = make_package("synced", {"0001_first.py": STEP.format(number="0001", before=None).replace(STEP_BODY, step)})

    def synchronous(connection: Connection, items: Sequence[int]) -> Sequence[int]:
        return [connection.exec_driver_sql("PRAGMA synchronous").scalar_one() for _ in items]

    async with Databases.open(f"sqlite:{tmp_path}") as databases:
        storage = await databases.storage_of("synced", tables)
        async with storage.write() as session:
            by_session = (await (await session.connection()).exec_driver_sql("PRAGMA synchronous")).scalar_one()
            by_migration = (await (await session.connection()).exec_driver_sql("SELECT n FROM seen")).scalar_one()
        async with storage.batch(synchronous) as put:
            by_batch = await put(1)
    assert (by_session, by_batch, by_migration) == (2, 2, 2)


async def test_a_second_server_on_the_same_directory_is_refused_and_other_commands_are_not(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'data'}"
    async with opened(url, "bank", Tables, exclusive=True):
        before = contents(tmp_path).keys()
        assert await refusal(url, exclusive=True) == (
            f"another process serves the data in {tmp_path / 'data'}, and only one can serve SQLite; stop it,"
            " or name a database in [storage] url that several processes can share"
        )
        assert contents(tmp_path).keys() == before
        async with Databases.open(url) as databases, (await databases.storage_of("bank", Tables)).write() as session:
            session.add(Account(name="beside"))
    async with opened(url, "bank", Tables, exclusive=True):
        pass


async def test_a_server_that_was_killed_leaves_the_directory_free(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'data'}"
    code = (
        "import anyio, os, sys; from campus.storage.databases import Databases\n"
        "async def main():\n    async with Databases.open(sys.argv[1], exclusive=True): os.kill(os.getpid(), 9)\n"
        "anyio.run(main)"
    )
    assert forkserver.shared().run(code, url, timeout=patience(60)).returncode == -9
    async with opened(url, "bank", Tables, exclusive=True):
        pass


async def test_any_number_may_serve_from_postgresql(postgres_url: str) -> None:
    async with Databases.open(postgres_url, exclusive=True), Databases.open(postgres_url, exclusive=True):
        pass


async def test_a_file_in_the_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("mine")
    said = await refusal("sqlite:data", tmp_path)
    assert said == f"{tmp_path / 'data'} is not a directory; name a directory, which will hold a file per building"
    assert contents(tmp_path) == {"data": b"mine"}


async def test_a_directory_that_cannot_be_created_is_refused(tmp_path: Path) -> None:
    said = await refusal("sqlite:no/data", tmp_path)
    assert said.startswith(f"the directory {tmp_path / 'no/data'} cannot be created: No such file or directory; create it")
    assert not contents(tmp_path)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a directory that not even root can write")
async def test_a_directory_that_cannot_be_written_is_refused() -> None:
    said = await refusal("sqlite:/proc/self", exclusive=True)
    assert said.startswith("the directory /proc/self cannot be written: ")


def test_a_full_disk_is_refused_and_no_directory_is_left(tmp_path: Path) -> None:
    code = (
        "import anyio, resource, sys; from campus.storage.databases import Databases\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
        "async def main():\n    async with Databases.open(sys.argv[1], exclusive=True): pass\n"
        "anyio.run(main)"
    )
    ended = forkserver.shared().run(code, f"sqlite:{tmp_path / 'data'}", timeout=patience(60))
    assert f"StorageError: the directory {tmp_path / 'data'} cannot be written: " in ended.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("url", ["", "sqlite:", "mysql://root@host/db", "data"])
async def test_a_url_of_another_kind_is_refused_with_the_known_ones(url: str) -> None:
    assert (await refusal(url)).endswith('write "sqlite:DIRECTORY" or "postgresql://…"')


@pytest.mark.parametrize("url", ["postgresql://user:hunter2@host/db", "postgresql://host/db?password=hunter2"])
async def test_a_password_in_the_url_is_refused_and_not_shown(url: str) -> None:
    said = await refusal(url)
    assert said == "[storage] url holds a password; set it in the environment, as CAMPUS_DATABASE_PASSWORD"


@pytest.mark.parametrize("url", ["postgresql://user@host:port/db", "postgresql://user@host:99999/db", "postgresql://user@host"])
async def test_a_postgresql_url_that_cannot_be_read_is_refused_with_its_form(url: str) -> None:
    assert (await refusal(url)).endswith('write it as "postgresql://user@host/database"')


UNREACHABLE = {
    "127.0.0.1:9": "at 127.0.0.1:9 cannot be reached: nothing listens there, the connection was refused; start PostgreSQL, or correct",
    "[::1%none]:5433": "at [::1%none]:5433 cannot be reached: the name of its host is not found (",
    "?host=/nowhere": "at /nowhere/.s.PGSQL.5432 cannot be reached: there is no such socket; start PostgreSQL, or name the directory",
    "127.0.0.1:9?sslmode=on": "at 127.0.0.1:9 cannot be used as [storage] url says (`sslmode` parameter must be one of: disable, allow",
}


@pytest.mark.parametrize(("place", "said"), UNREACHABLE.items())
async def test_a_server_that_cannot_be_reached_is_named_with_what_to_do_and_without_the_password(place: str, said: str) -> None:
    host, _, query = place.partition("?")
    with pytest.raises(StorageError) as caught:
        async with Databases.open(f"postgresql://user@{host}/db?{query}", password="hunter2") as databases:
            await databases.storage_of("bank", Tables)
    assert str(caught.value).startswith(f"the database db {said}")
    assert "hunter2" not in repr(caught.value) + repr(caught.value.__cause__)


async def test_the_place_of_a_database_is_its_file_or_its_server_and_schema(tmp_path: Path) -> None:
    for url, place in (
        (f"sqlite:{tmp_path}", f"{tmp_path}/shop.db"),
        ("postgresql://user@harbour:5433/db?sslmode=require", "db at harbour:5433, schema shop"),
    ):
        async with Databases.open(url) as databases:
            assert databases.place_of("shop") == place


async def test_a_program_that_closes_the_connection_is_told_from_a_server_that_is_gone() -> None:
    async def hang_up(stream: SocketStream) -> None:
        await stream.aclose()

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, hang_up)
        port = listener.extra(SocketAttribute.local_port)
        said = await refusal(f"postgresql://user@127.0.0.1:{port}/db?sslmode=disable")
        tasks.cancel_scope.cancel()
    assert said.startswith(f"the database db at 127.0.0.1:{port} cannot be reached")
    assert said.endswith("; the server's log says why, unless another program listens there [08003]")


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (
            "ssl=require",
            "the parameter 'ssl', which is not known; there are: host, port, sslmode, sslrootcert, sslcert, sslkey, sslcrl, pgbouncer",
        ),
        ("sslmode=verify-full&sslrootcert=/nowhere.pem", "sslrootcert names /nowhere.pem, which cannot be read"),
    ],
)
async def test_a_parameter_of_a_postgresql_url_that_cannot_be_used_is_named(query: str, said: str) -> None:
    assert (await refusal(f"postgresql://user@host/db?{query}")).endswith(said)


@pytest.mark.parametrize(
    ("user", "database", "said"),
    [
        ("postgres", "nowhere", "does not exist: create it with createdb"),
        ("locked", "postgres", 'refuses this user or its password (password authentication failed for user "locked"): set the user in'),
        ("refused", "postgres", 'does not admit this user from here (pg_hba.conf rejects connection for host "[local]", user "refused"'),
    ],
)
async def test_a_server_that_refuses_is_quoted(postgres: Postgres, user: str, database: str, said: str) -> None:
    url = postgres.url(database).replace("postgres@", f"{user}@")
    found = await refusal(url, password="hunter2")
    assert found.startswith(f"the database {database} at {postgres.sockets}/.s.PGSQL.5432 {said}")
    assert "hunter2" not in found


async def test_a_schema_that_this_user_may_not_read_is_named_among_all_that_are_asked_for(postgres: Postgres) -> None:
    name = postgres.create_database()
    async with (
        opened(postgres.url(name), "bank", Tables),
        opened(postgres.url(name), "shop", Tables) as databases,
        (await databases.storage_of("shop", Tables)).write() as session,
    ):
        for statement in (
            "CREATE ROLE reader LOGIN",
            "GRANT USAGE ON SCHEMA bank TO reader",
            "GRANT SELECT ON bank.alembic_version TO reader",
        ):
            await (await session.connection()).exec_driver_sql(statement)
    async with Databases.open(postgres.url(name).replace("postgres@", "reader@")) as databases:
        await databases.check({"bank": Tables})
        with pytest.raises(StorageError, match=rf"the schema shop of the database {name} at .* does not allow this user to do so \("):
            await databases.check({"bank": Tables, "shop": Tables})
    postgres.drop_database(name)


async def test_one_connection_asks_all_schemas_at_which_step_they_are(postgres: Postgres) -> None:
    name = postgres.create_database()
    async with opened(postgres.url(name), "bank", Tables), opened(postgres.url(name), "shop", Tables):
        pass
    connected: list[object] = []
    event.listen(Pool, "connect", note := lambda *connection: connected.append(connection))
    try:
        async with Databases.open(postgres.url(name)) as databases:
            await databases.check({"bank": Tables, "shop": Tables})
            await databases.refuse_lost("bank", others=["shop"])
            assert not await databases.is_empty("shop")
            for one in ("bank", "shop"):
                await databases.storage_of(one, Tables)
    finally:
        event.remove(Pool, "connect", note)
    assert len(connected) == 1
    postgres.drop_database(name)


async def test_a_name_that_is_no_identifier_is_refused(storage_url: str) -> None:
    async with Databases.open(storage_url) as databases:
        with pytest.raises(StorageError, match=r"'\.\./x' cannot name a database"):
            await databases.storage_of("../x", Tables)


async def test_tables_without_migrations_are_refused(storage_url: str, make_package: MakePackage) -> None:
    tables = make_package("bare", {})
    async with Databases.open(storage_url) as databases:
        with pytest.raises(StorageError, match='bare has tables and no migrations; write the first: campus migration bare "first tables"'):
            await databases.storage_of("bare", tables)


@pytest.mark.both_databases
async def test_a_step_that_contracts_waits_until_it_is_asked_for_or_another_follows(storage_url: str, make_package: MakePackage) -> None:
    fourth = {"0004_more.py": STEP.format(number="0004", before="0003")}
    releases = FIRST, FIRST | SECOND | CONTRACTING, FIRST | SECOND | CONTRACTING | fourth
    old, new, newest = (make_package(f"release_{number}", steps) for number, steps in enumerate(releases))
    for tables, contracts, expected in ((old, False, "0001"), (new, False, "0002"), (old, False, "0002"), (newest, False, "0004")):
        async with Databases.open(storage_url, contracts=contracts) as databases:
            await databases.check({"bank": tables})
            assert await steps_in(await databases.storage_of("bank", tables)) == [expected]
    async with Databases.open(storage_url, migrates=False) as databases:
        with pytest.raises(StorageError, match="is at step 0004, and the installed version of bank knows the steps up to 0001"):
            await databases.check({"bank": old})
    async with Databases.open(storage_url) as databases:  # nobody serves a new one
        assert await steps_in(await databases.storage_of("shop", new)) == ["0003"]


@pytest.mark.both_databases
async def test_a_database_of_a_newer_version_is_refused(storage_url: str, make_package: MakePackage) -> None:
    old, new = make_package("old", FIRST), make_package("new", FIRST | SECOND | CONTRACTING)
    async with opened(storage_url, "bank", new):
        pass
    said = r"bank.* is at step 0003, and the installed version of bank knows the steps up to 0001: install the newer version again"
    async with Databases.open(storage_url) as databases:
        with pytest.raises(StorageError, match=said):
            await databases.check({"bank": old})
        with pytest.raises(StorageError, match=said):
            await databases.storage_of("bank", old)


async def test_a_database_at_a_step_that_no_longer_exists_is_refused_and_left(storage_url: str, make_package: MakePackage) -> None:
    merged = {"0003_all.py": 'revision = "0003"\ndown_revision = None\ndef upgrade():\n    pass'}
    old, new = make_package("old", FIRST), make_package("new", merged)
    async with opened(storage_url, "bank", old):
        pass
    said = (
        r"bank.* is at step 0001, from which the installed version of bank has no upgrade: its first step is 0003\. Upgrade with a"
        r" version of bank that has step 0001, or move this database away to begin with an empty one"
    )
    async with Databases.open(storage_url) as databases:
        with pytest.raises(StorageError, match=said):
            await databases.check({"bank": new})
        with pytest.raises(StorageError, match=said):
            await databases.storage_of("bank", new)
    async with opened(storage_url, "bank", old):
        pass


async def test_that_refusal_leaves_the_directory_byte_for_byte(tmp_path: Path, make_package: MakePackage) -> None:
    old, new = make_package("old", FIRST), make_package("new", FIRST | SECOND | CONTRACTING)
    url = f"sqlite:{tmp_path / 'data'}"
    async with opened(url, "bank", new):
        pass
    before = contents(tmp_path / "data")
    assert before.keys() == {"bank.db"}
    async with Databases.open(url, exclusive=True) as databases:
        with pytest.raises(StorageError, match="newer version"):
            await databases.storage_of("bank", old)
    assert contents(tmp_path / "data") == before


async def test_a_check_creates_nothing(tmp_path: Path, make_package: MakePackage) -> None:
    async with Databases.open(f"sqlite:{tmp_path / 'data'}") as databases:
        await databases.check({"bank": make_package("old", FIRST)})
        assert list((tmp_path / "data").iterdir()) == []


async def test_a_file_that_is_not_a_database_is_refused_and_left(tmp_path: Path) -> None:
    (tmp_path / "bank.db").write_text("these are my memoirs, and not a database " * 100)
    before = contents(tmp_path)
    said = await refusal(f"sqlite:{tmp_path}")
    assert said == f"the database {tmp_path / 'bank.db'} is not a SQLite database: restore a backup, or move the file away [SQLITE_NOTADB]"
    assert contents(tmp_path) == before


async def test_a_backup_holds_each_database_as_it_was_while_others_write(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'data'}"
    async with opened(url, "shop", Tables), opened(url, "bank", Tables) as databases:
        bank = await databases.storage_of("bank", Tables)
        async with bank.write() as session:
            session.add(Account(name="a"))
        async with bank.write() as session, Databases.open(url) as beside:
            session.add(Account(name="b"))
            await session.flush()
            await beside.backup(str(tmp_path / "copy.zip"), release="1")
    async with Databases.open("sqlite:copy", folder=tmp_path) as databases:
        restored = await databases.restore(str(tmp_path / "copy.zip"), {"bank": Tables, "shop": Tables}, replace=False)
        assert sorted(restored.parts) == ["bank.db", "shop.db"]
        async with (await databases.storage_of("bank", Tables)).read() as session:
            assert (await session.exec(select(Account.name))).all() == ["a"]


async def test_a_failed_backup_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "bank.db").write_text("no database at all " * 100)
    before = contents(tmp_path)
    async with Databases.open(f"sqlite:{tmp_path / 'data'}") as databases:
        with pytest.raises(StorageError, match=r"data/bank\.db is not a SQLite database"):
            await databases.backup(str(tmp_path / "copy.zip"), release="1")
    assert contents(tmp_path) == before
