"""Tables of features: in the database that they extend, with a history of their own, copied, saved and compared with the rest of it."""

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from shutil import copytree

import pytest
from sqlalchemy import Connection, text
from sqlmodel import SQLModel

from campus.errors import StorageError
from campus.features.postgres.copying import copy_databases
from campus.storage import Storage, in_transaction
from campus.storage.alembic_runner import drift, write_revision
from campus.storage.databases import Databases
from campus.storage.migrations import history_of
from tests.conftest import Postgres
from tests.storage.bank.tables import Account, Tables
from tests.storage.conftest import MakePackage

pytestmark = pytest.mark.anyio

FEES = """
from campus.storage import registry
from sqlmodel import Field, SQLModel

class Tables(SQLModel, registry=registry()):
    pass

class Fee(Tables, table=True):
    __tablename__ = "fees_due"

    account: str = Field(primary_key=True)
    amount: int
"""


@pytest.fixture
def fees(make_package: MakePackage) -> type[SQLModel]:
    """The tables of a feature, whose first step is written from them."""
    tables = make_package("fees", {}, FEES)
    write_revision(tables, "bank.fees", "fees")
    return tables


@pytest.fixture
def tables(fees: type[SQLModel]) -> dict[str, type[SQLModel]]:
    return {"bank": Tables, "bank.fees": fees}


async def rows_in(storage: Storage) -> list[object]:
    async with storage.read() as session:
        connection = await session.connection()
        return [await connection.scalar(text(f"SELECT count(*) FROM {table}")) for table in ("account", "fees_due")]


def empty_and_fail(connection: Connection) -> None:
    connection.execute(text("DELETE FROM account"))
    connection.execute(text("DELETE FROM fees_due"))
    raise ZeroDivisionError


async def fill(databases: Databases, tables: dict[str, type[SQLModel]]) -> Storage:
    bank, fees = [await databases.storage_of(name, each) for name, each in tables.items()]
    assert bank is fees
    async with fees.write() as session:
        session.add(Account(name="a"))
        session.add(tables["bank.fees"].__subclasses__()[0](account="a", amount=5))
    return bank


@pytest.mark.both_databases
async def test_one_transaction_holds_a_features_rows_and_others(storage_url: str, tables: dict[str, type[SQLModel]]) -> None:
    async with Databases.open(storage_url) as databases:
        bank = await fill(databases, tables)
        with pytest.raises(ZeroDivisionError):
            await in_transaction(bank, empty_and_fail)
        assert await rows_in(bank) == [1, 1]
        assert list(databases.waiting()) == ["bank"]
    async with Databases.open(storage_url, migrates=False) as databases:
        await databases.check(tables, made=True)


@pytest.mark.both_databases
async def test_each_history_is_compared_with_its_own_tables(storage_url: str, tables: dict[str, type[SQLModel]]) -> None:
    async with Databases.open(storage_url) as databases:
        bank = await fill(databases, tables)
        assert [await drift(bank, each, name) for name, each in tables.items()] == [[], []]
        async with bank.write() as session:
            await (await session.connection()).execute(text("CREATE TABLE fees_old (id INTEGER)"))
            await (await session.connection()).execute(text("CREATE TABLE feet (id INTEGER)"))
        of_bank, of_fees = [" ".join(await drift(bank, each, name)) for name, each in tables.items()]
    assert ("'feet'" in of_bank, "fees_old" in of_bank) == (True, False)
    assert ("'feet'" in of_fees, "fees_old" in of_fees) == (False, True)


async def test_a_feature_is_migrated_and_refused_by_its_own_steps(
    storage_url: str, make_package: MakePackage, fees: type[SQLModel]
) -> None:
    newer = make_package("fees_later", {}, FEES.replace("amount: int", "amount: int\n    reason: str | None = None"))
    copytree(history_of(fees, "bank.fees").folder, history_of(newer, "bank.fees").folder)
    path = write_revision(newer, "bank.fees", "reasons")
    path.write_text(path.read_text() + "\n\ncontract = True\n")
    async with Databases.open(storage_url) as databases:
        await databases.storage_of("bank", Tables)
        with pytest.raises(StorageError, match=r"the part fees of the .*bank.* is missing or empty: restart the server"):
            await databases.check({"bank": Tables, "bank.fees": fees}, made=True)
        await databases.storage_of("bank.fees", newer)
    async with Databases.open(storage_url) as databases:
        with pytest.raises(
            StorageError, match=r"the part fees of the .*bank.* is at step 0002, and the installed version of bank.fees knows"
        ):
            await databases.check({"bank": Tables, "bank.fees": fees})


async def test_a_features_tables_bear_its_name(storage_url: str, make_package: MakePackage) -> None:
    tables = make_package("fees", {"0001_fees.py": "revision = '0001'\ndown_revision = None"}, FEES.replace("fees_due", "due"))
    async with Databases.open(storage_url) as databases:
        with pytest.raises(StorageError, match=r"bank\.fees has the table 'due'; let the names of its tables begin with fees_"):
            await databases.storage_of("bank.fees", tables)


async def test_features_are_copied(tmp_path: Path, postgres: Postgres, tables: dict[str, type[SQLModel]]) -> None:
    async with Databases.open(f"sqlite:{tmp_path}") as source, Databases.open(postgres.url(name := postgres.create_database())) as target:
        await fill(source, tables)
        copied = await copy_databases(source, target, tables)
        assert [tuple(one) for one in copied] == [("bank", "account", 1), ("bank", "entry", 0), ("bank.fees", "fees_due", 1)]
        assert await rows_in(await target.storage_of("bank.fees", tables["bank.fees"])) == [1, 1]
    postgres.drop_database(name)


def aged(file: Path, change: Callable[[dict[str, object]], object]) -> None:
    with zipfile.ZipFile(file) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    manifest = json.loads(parts["manifest.json"])
    change(manifest["parts"]["bank.db"])
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in {**parts, "manifest.json": json.dumps(manifest)}.items():
            archive.writestr(name, data)


async def test_a_backup_of_a_newer_feature_is_refused_before_anything_is_changed(tmp_path: Path, tables: dict[str, type[SQLModel]]) -> None:
    backup = tmp_path / "campus.zip"
    async with Databases.open(f"sqlite:{tmp_path / 'data'}") as databases:
        await fill(databases, tables)
        await databases.backup(str(backup), release="1")
    async with Databases.open(f"sqlite:{tmp_path / 'new'}", exclusive=True) as databases:
        await databases.restore(str(backup), tables, replace=False)
        assert await rows_in(await databases.storage_of("bank", Tables)) == [1, 1]
    aged(backup, lambda part: part.update(features={"fees": "0009"}))
    async with Databases.open(f"sqlite:{tmp_path / 'newer'}", exclusive=True) as databases:
        with pytest.raises(StorageError, match=r"the database bank\.db is at step 0009, and the installed version of bank\.fees knows"):
            await databases.restore(str(backup), tables, replace=False)
    assert not list((tmp_path / "newer").iterdir())
