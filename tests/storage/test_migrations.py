"""Migrations: a chain of steps on either database, by one process or by several, and the next step written from the tables."""

import sqlite3
from contextlib import ExitStack, closing
from pathlib import Path

import anyio
import pytest
from sqlalchemy import text
from sqlmodel import select

import campus.jobs.run
import campus.keys.tables
from campus.catalog.loader import find, installed_buildings
from campus.core import feature_tables
from campus.errors import StorageError
from campus.storage.alembic_runner import drift, write_revision
from campus.storage.databases import Databases
from campus.storage.migrations import history_of
from campus.storage.tables import CoreTables
from tests import forkserver
from tests.forkserver import PIPE
from tests.storage.bank.tables import Account, Entry, Tables
from tests.storage.conftest import MakePackage, steps_in

pytestmark = pytest.mark.anyio

MIGRATOR = Path(__file__).with_name("migrator.py")
BANK = Path(__file__).parent / "bank"
STEPS = {path.name: path.read_text().split("from alembic import op\n")[1] for path in sorted((BANK / "migrations").glob("0*.py"))}
CORE_TABLE_NAMES = {
    campus.jobs.run.JobRow.__tablename__,
    campus.keys.tables.KeyRow.__tablename__,
}

SHOP = """
from datetime import datetime
from typing import Any
from sqlmodel import Field, SQLModel
from campus.storage import Json, UtcDateTime, registry

class Tables(SQLModel, registry=registry()):
    pass

class Item(Tables, table=True):
    id: int | None = Field(default=None, primary_key=True)
    name: str = Field(max_length=40, unique=True)
    label: str = Field(default="", index=True)
    made_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    detail: Any = Field(default=None, sa_type=Json, nullable=True)
"""
SHOP_LATER = SHOP.replace('label: str = Field(default="", index=True)', "label: str | None = None\n    price: int | None = None")
SHOP_FIRST_STEP = '''"""Items."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Items."""
    op.create_table("item",
    sa.Column("id", sa.Integer(), nullable=False),
    sa.Column("name", sa.String(length=40), nullable=False),
    sa.Column("label", sa.String(), nullable=False),
    sa.Column("made_at", sa.DateTime(timezone=True), nullable=True),
    sa.Column("detail", sa.JSON(), nullable=True),
    sa.PrimaryKeyConstraint("id", name=op.f("pk_item")),
    sa.UniqueConstraint("name", name=op.f("uq_item_name"))
    )
    with op.batch_alter_table("item", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_item_label"), ["label"], unique=False)
'''


def first(count: int) -> dict[str, str]:
    return dict(list(STEPS.items())[:count])


@pytest.mark.both_databases
async def test_a_building_is_upgraded_over_two_steps_and_keeps_its_rows(storage_url: str, make_package: MakePackage) -> None:
    async with Databases.open(storage_url) as databases:
        bank = await databases.storage_of("bank", make_package("bank_v1", first(1)))
        async with bank.write() as session:
            await (await session.connection()).execute(text("INSERT INTO account (name, balance) VALUES ('a', 1), ('b', 2)"))
        assert await steps_in(bank) == ["0001"]
    async with Databases.open(storage_url) as databases:
        bank = await databases.storage_of("bank", Tables)
        assert await steps_in(bank) == ["0003"]
        async with bank.write() as session:
            session.add(Entry(account="a", amount=10))
        async with bank.read() as session:
            found = [(one.name, one.balance, one.currency) for one in await session.exec(select(Account).order_by(Account.name))]
        assert found == [("a", 1, "EUR"), ("b", 2, "EUR")]
        assert await drift(bank, Tables, "bank") == []


@pytest.mark.both_databases
async def test_a_step_that_rebuilds_a_table_keeps_the_rows_that_refer_to_it(storage_url: str, make_package: MakePackage) -> None:
    async with Databases.open(storage_url) as databases:
        bank = await databases.storage_of("bank", make_package("bank_v2", first(2)))
        async with bank.write() as session:
            connection = await session.connection()
            await connection.execute(text("INSERT INTO account (name, balance) VALUES ('a', 1), ('b', 2)"))
            await connection.execute(text("INSERT INTO entry (account, amount) VALUES ('a', 10), ('a', 20), ('b', 30)"))
    async with Databases.open(storage_url) as databases:
        bank = await databases.storage_of("bank", Tables)
        async with bank.read() as session:
            assert [entry.amount for entry in await session.exec(select(Entry))] == [10, 20, 30]
            assert {(account.name, account.currency) for account in await session.exec(select(Account))} == {("a", "EUR"), ("b", "EUR")}
        assert await steps_in(bank) == ["0003"]


@pytest.mark.both_databases
async def test_a_step_that_fails_leaves_the_database_as_it_was(storage_url: str, make_package: MakePackage) -> None:
    broken = {"0004_broken.py": "revision = '0004'\ndown_revision = '0003'\ndef upgrade():\n    op.drop_table('entry')\n    1 / 0"}
    async with Databases.open(storage_url) as databases:
        bank = await databases.storage_of("bank", make_package("bank_v1", first(1)))
        with pytest.raises(ZeroDivisionError):
            async with Databases.open(storage_url) as newer:
                await newer.storage_of("bank", make_package("bank_v4", STEPS | broken))
        assert await steps_in(bank) == ["0001"]
        async with bank.read() as session:
            assert (await (await session.connection()).execute(text("SELECT * FROM account"))).all() == []


async def test_a_step_that_would_leave_dangling_rows_is_refused(tmp_path: Path, make_package: MakePackage) -> None:
    careless = {"0004_careless.py": "revision = '0004'\ndown_revision = '0003'\ndef upgrade():\n    op.execute('DELETE FROM account')"}
    url = f"sqlite:{tmp_path / 'data'}"
    async with Databases.open(url) as databases:
        bank = await databases.storage_of("bank", Tables)
        async with bank.write() as session:
            session.add(Account(name="a"))
            await session.flush()
            session.add(Entry(account="a", amount=1))
    async with Databases.open(url) as databases:
        with pytest.raises(StorageError, match="would leave rows of entry that refer to no row of account; nothing was changed"):
            await databases.storage_of("bank", make_package("bank_v4", STEPS | careless))
        bank = await databases.storage_of("bank", Tables)
        async with bank.read() as session:
            assert (await session.exec(select(Account.name))).all() == ["a"]


@pytest.mark.both_databases
async def test_the_steps_create_the_tables_that_the_code_declares(storage_url: str) -> None:
    installed = installed_buildings()
    buildings = {one.name: find(one.name, installed).tables for one in installed}
    async with Databases.open(storage_url) as databases:
        for name, tables in {"bank": Tables, "campus": CoreTables, **feature_tables(), **buildings}.items():
            if tables is not None:
                assert await drift(await databases.storage_of(name, tables), tables, name) == [], name


async def test_a_difference_between_steps_and_tables_is_named(storage_url: str, make_package: MakePackage) -> None:
    async with Databases.open(storage_url) as databases:
        storage = await databases.storage_of("bank", make_package("bank_v2", first(2)))
        assert "currency" in " ".join(await drift(storage, Tables, "bank"))


def test_core_tables_include_those_of_every_package() -> None:
    assert {table.name for table in CoreTables.metadata.sorted_tables} > CORE_TABLE_NAMES


@pytest.mark.both_databases
async def test_four_processes_migrate_at_once(storage_url: str) -> None:
    with ExitStack() as stack:
        started = [forkserver.shared().start(MIGRATOR.read_text(), storage_url, name, stdin=PIPE, stdout=PIPE) for name in "abcd"]
        processes = [stack.enter_context(process) for process in started]
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        assert [process.wait() for process in processes] == [0, 0, 0, 0]
    async with Databases.open(storage_url) as databases:
        bank = await databases.storage_of("bank", Tables)
        assert await steps_in(bank) == ["0003"]
        async with bank.read() as session:
            assert set((await session.exec(select(Account.name))).all()) == set("abcd")


async def test_a_new_file_that_another_process_writes_to_is_waited_for(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "bank.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        async with Databases.open(f"sqlite:{tmp_path}") as databases, anyio.create_task_group() as tasks:
            tasks.start_soon(databases.storage_of, "bank", Tables)
            await anyio.sleep(0.3)
            other.execute("COMMIT")


def test_steps_are_found_beside_the_module_or_above_it(make_package: MakePackage) -> None:
    assert history_of(make_package("near", first(2)), "shop").steps == ("0001", "0002")
    core = history_of(CoreTables, "campus")
    assert core.folder == Path(campus.keys.tables.__file__).parents[1] / "migrations"


async def test_the_first_step_is_written_from_the_tables_and_creates_them(storage_url: str, make_package: MakePackage) -> None:
    tables = make_package("shop", {}, SHOP)
    path = write_revision(tables, "shop", "items")
    assert path == history_of(tables, "shop").folder / "0001_items.py"
    assert path.read_text() == SHOP_FIRST_STEP
    async with Databases.open(storage_url) as databases:
        assert await drift(await databases.storage_of("shop", tables), tables, "shop") == []


@pytest.mark.both_databases
async def test_the_next_step_leads_from_the_last_one_to_the_tables(storage_url: str, make_package: MakePackage) -> None:
    first_step = write_revision(make_package("shop", {}, SHOP), "shop", "items").read_text()
    later = make_package("shop_later", {}, SHOP_LATER)
    folder = history_of(later, "shop").folder
    folder.mkdir()
    (folder / "0001_items.py").write_text(first_step)
    path = write_revision(later, "shop", "Prices, and labels that may be missing!")
    assert path == folder / "0002_prices_and_labels_that_may_be_missing.py"
    assert 'revision = "0002"\ndown_revision = "0001"\n' in path.read_text()
    async with Databases.open(storage_url) as databases:
        assert await drift(await databases.storage_of("shop", later), later, "shop") == []


def test_no_step_is_written_that_would_fail_where_there_are_rows(make_package: MakePackage) -> None:
    first_step = write_revision(make_package("stall", {}, SHOP), "shop", "items").read_text()
    for column, writes in (("int = 1", False), ('int = Field(default=1, sa_column_kwargs={"server_default": "1"})', True)):
        later = make_package(f"stall_{writes}", {}, SHOP.replace("    name: str", f"    weight: {column}\n    name: str"))
        folder = history_of(later, "shop").folder
        folder.mkdir()
        (folder / "0001_items.py").write_text(first_step)
        if writes:
            assert write_revision(later, "shop", "weight")
        else:
            with pytest.raises(StorageError, match="the new column weight of item may not be null"):
                write_revision(later, "shop", "weight")


def test_no_step_is_written_when_there_is_nothing_to_do(make_package: MakePackage) -> None:
    tables = make_package("bank_again", STEPS, (BANK / "tables.py").read_text())
    with pytest.raises(StorageError, match=r"nothing to write: the steps up to 0003 in .*bank_again/migrations create the tables"):
        write_revision(tables, "shop", "nothing")
    assert history_of(tables, "shop").steps == ("0001", "0002", "0003")


def test_a_step_needs_a_description(make_package: MakePackage) -> None:
    tables = make_package("shop", {}, SHOP)
    with pytest.raises(StorageError, match=r"'!' names no file"):
        write_revision(tables, "shop", "!")
    assert not history_of(tables, "shop").folder.exists()
