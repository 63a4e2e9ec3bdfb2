"""Whatever error a driver reports is one sentence with the database's own code, whether a list of campus has it or not."""

import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.exc import IntegrityError

from campus.errors import StorageError, StorageFault, StorageUnavailable
from campus.storage import Storage, in_snapshot, in_transaction
from campus.storage.databases import Databases
from tests.conftest import Postgres
from tests.storage.bank.tables import Tables

pytestmark = pytest.mark.anyio

TEMPORARY = ("57014", "25P03", "25P04", "25006", "53100", "53200", "53300", "40001", "40P01", "55P03", "57P01", "58030", "08006")
KNOWN = ("42501", "3F000", "42P01", "42703", "XX002", "28000")
UNKNOWN = ("42601", "0A000", "54001", "P0001", "XX000", "ZX123")


@asynccontextmanager
async def bank_of(url: str) -> AsyncIterator[Storage]:
    async with Databases.open(url) as databases:
        yield await databases.storage_of("bank", Tables)


async def errors_of(storage: Storage, statement: str) -> Sequence[StorageError]:
    def work(connection: Connection, items: Sequence[int] = ()) -> Sequence[None]:
        connection.execute(text(statement))
        return [None for _ in items]

    found = []
    with pytest.raises(StorageError) as caught:
        await in_transaction(storage, work)
    found.append(caught.value)
    with pytest.raises(StorageError) as caught:
        async with storage.batch(work) as put:
            await put(1)
    found.append(caught.value)
    with pytest.raises(StorageError) as caught:
        await in_snapshot(storage, work)
    return [*found, caught.value]


async def test_every_code_of_postgresql_is_a_sentence_with_the_code(postgres: Postgres) -> None:
    name = postgres.create_database()
    async with bank_of(postgres.url(name)) as bank:
        for code in (*TEMPORARY, *KNOWN, *UNKNOWN):
            raised = f"DO $$ BEGIN RAISE EXCEPTION 'the words' USING ERRCODE = '{code}', DETAIL = 'a value'; END $$"
            for error in (await errors_of(bank, raised))[: 2 if code == "25006" else 3]:
                assert isinstance(error, StorageUnavailable), code
                assert str(error).startswith("the schema bank of the database"), code
                assert str(error).endswith(f"[{code}]")
                assert "a value" not in str(error)
                assert isinstance(error, StorageFault) == (code not in TEMPORARY), code
                assert getattr(error, "is_known", True) == (code not in UNKNOWN), code
        for wrong, code in ("SELEC 1", "42601"), ("SELECT nothing", "42703"), ("SELECT 1 FROM nowhere", "42P01"):
            assert {str(error).rpartition(" [")[2] for error in await errors_of(bank, wrong)} == {f"{code}]"}
        with pytest.raises(IntegrityError):  # of a value, which the code that sent it may expect
            await in_transaction(bank, lambda connection: connection.execute(text("INSERT INTO account (name) VALUES (NULL)")))
    postgres.drop_database(name)


async def test_a_table_of_another_role_is_a_fault_that_names_the_table(postgres: Postgres) -> None:
    name = postgres.create_database()
    postgres.run(
        "psql",
        "-d",
        name,
        "-c",
        "DROP ROLE IF EXISTS clerk",
        "-c",
        "CREATE ROLE clerk LOGIN",
        "-c",
        f"GRANT ALL ON DATABASE {name} TO clerk",
    )
    async with bank_of(postgres.url(name).replace("postgres@", "clerk@")) as bank:
        postgres.run("psql", "-d", name, "-c", "ALTER TABLE bank.account OWNER TO postgres")
        for error in await errors_of(bank, "SELECT * FROM account"):
            assert isinstance(error, StorageFault)
            assert "does not allow this user to do so (permission denied for table account): make it the owner" in str(error)
    postgres.drop_database(name)
    postgres.run("psql", "-d", name, "-c", "DROP OWNED BY clerk; DROP ROLE clerk")


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        ("DROP TABLE entry; DROP TABLE account", "SQLITE_ERROR"),
        ("ALTER TABLE account RENAME COLUMN balance TO other", "SQLITE_ERROR"),
        ("overwritten", "SQLITE_NOTADB"),
        ("malformed", "SQLITE_CORRUPT"),
    ],
)
async def test_every_error_of_sqlite_is_a_sentence_with_the_name_of_its_code(tmp_path: Path, damage: str, code: str) -> None:
    file = tmp_path / "bank.db"
    async with bank_of(f"sqlite:{tmp_path}") as bank:
        await in_transaction(bank, lambda connection: connection.execute(text("INSERT INTO account VALUES ('a', 1, 'EUR')")))
    data = file.read_bytes()
    if damage == "overwritten":
        file.write_bytes(b"no database of SQLite, but long enough to be one" * 90)
    elif damage == "malformed":
        file.write_bytes(data[:100] + b"\xff" * (len(data) - 100))
    else:
        with closing(sqlite3.connect(file)) as connection:
            connection.executescript(damage)
    with pytest.raises(StorageUnavailable) as caught:
        async with bank_of(f"sqlite:{tmp_path}") as bank:
            await in_transaction(bank, lambda connection: connection.execute(text("UPDATE account SET balance = 2")))
    assert isinstance(caught.value, StorageFault)
    assert str(caught.value).startswith(f"the database {file} ")
    assert str(caught.value).endswith(f"[{code}]")
