"""Reading and writing in one database, on SQLite and PostgreSQL."""

import asyncio
import random
import sqlite3
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from itertools import repeat
from pathlib import Path
from time import sleep

import anyio
import pytest
from sqlalchemy import Connection, event, text, update
from sqlalchemy.exc import IntegrityError, StatementError
from sqlmodel import col, select

from campus.errors import StorageError, StorageUnavailable
from campus.storage import Storage, among, column_pages, in_snapshot, in_transaction, insert_columns
from campus.storage.database import Database, NoStorage, try_write
from campus.storage.databases import Databases
from campus.storage.sqlite_connections import CONNECT, AsyncConnection, SqliteConnections
from tests.storage.bank.tables import Account, Entry, Tables

pytestmark = pytest.mark.anyio


async def balance_of(storage: Storage, name: str = "a") -> int | None:
    async with storage.read() as session:
        account = await session.get(Account, name)
        return account.balance if account else None


async def open_account(storage: Storage, name: str = "a", balance: int = 0) -> None:
    async with storage.write() as session:
        session.add(Account(name=name, balance=balance))


@pytest.mark.both_databases
async def test_none_of_320_updates_by_16_tasks_in_two_processes_is_lost(bank: Storage, other_bank: Storage) -> None:
    await open_account(bank)

    async def deposit(storage: Storage) -> None:
        for _ in range(20):
            async with storage.write() as session:
                account = await session.get(Account, "a")
                assert account is not None
                account.balance += 1

    async with anyio.create_task_group() as tasks:
        for storage in (bank, other_bank) * 8:
            tasks.start_soon(deposit, storage)
    assert await balance_of(bank) == 320


async def test_a_write_rolls_back_on_an_exception(bank: Storage) -> None:
    async def fail() -> None:
        async with bank.write() as session:
            session.add(Account(name="a"))
            await session.flush()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert await balance_of(bank) is None


@pytest.mark.both_databases
async def test_a_write_whose_task_is_cancelled_rolls_back_and_frees_the_writer(bank: Storage) -> None:
    written = anyio.Event()

    async def hesitate() -> None:
        async with bank.write() as session:
            session.add(Account(name="a"))
            await session.flush()
            written.set()
            await anyio.sleep_forever()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(hesitate)
        await written.wait()
        tasks.cancel_scope.cancel()
    assert await balance_of(bank) is None
    await open_account(bank, "b", 1)
    assert await balance_of(bank, "b") == 1


@pytest.mark.both_databases
async def test_a_write_that_is_cancelled_before_its_commit_is_not_stored(bank: Storage) -> None:
    with anyio.CancelScope() as scope:
        async with bank.write() as session:
            session.add(Account(name="a"))
            await session.flush()
            scope.cancel()  # and nothing is awaited after it
    assert scope.cancelled_caught
    assert await balance_of(bank) is None


@pytest.mark.both_databases
async def test_a_commit_that_was_begun_is_awaited(bank: Storage) -> None:
    with anyio.CancelScope() as scope:
        async with bank.write() as session:
            session.add(Account(name="a", balance=7))
            event.listen(session.sync_session, "before_commit", lambda _: scope.cancel())
    assert scope.cancel_called
    assert await balance_of(bank) == 7
    await open_account(bank, "b", 1)


def test_a_closed_connection_frees_the_lock_though_a_cursor_lives_on(tmp_path: Path) -> None:
    address = (tmp_path / "a.db").as_uri()
    one = sqlite3.connect(address, **CONNECT)
    one.execute("PRAGMA journal_mode = WAL")
    one.execute("CREATE TABLE t (n)")
    one.execute("BEGIN IMMEDIATE")
    cursor = one.execute("INSERT INTO t VALUES (1), (2) RETURNING n")
    assert cursor.fetchone() == (1,)
    one.close()
    with closing(sqlite3.connect(address, **CONNECT | {"timeout": 0})) as other:
        other.execute("BEGIN IMMEDIATE")
        assert other.execute("SELECT count(*) FROM t").fetchone() == (0,)
    del cursor


@pytest.mark.both_databases
async def test_tasks_that_are_cancelled_anywhere_leave_the_writer_free(bank: Storage, other_bank: Storage) -> None:
    chance = random.Random(1)
    await open_account(bank)
    tasks_before = asyncio.all_tasks()

    async def deposit(storage: Storage) -> None:
        async with storage.write() as session:
            account = await session.get(Account, "a")
            assert account is not None
            account.balance += 1

    async def work() -> None:
        async with anyio.create_task_group() as tasks:
            for way in (deposit, balance_of) * 3:
                tasks.start_soon(way, chance.choice([bank, other_bank]))

    for number in range(40):
        seconds = chance.random() * 0.02
        if number % 2:
            with anyio.move_on_after(seconds):
                await work()
        else:
            with suppress(TimeoutError):
                await asyncio.wait_for(work(), seconds)
        await deposit(bank)
        await deposit(other_bank)
    balance = await balance_of(bank)
    assert balance is not None
    assert balance >= 80
    assert asyncio.all_tasks() == tasks_before


async def test_a_database_that_is_closed_leaves_no_thread_of_a_connection_that_was_cancelled(bank: Storage) -> None:
    if isinstance(bank, Database) and isinstance(bank._connections, SqliteConnections):
        async with bank.read() as session:
            driver = (await (await session.connection()).get_raw_connection()).driver_connection
            assert isinstance(driver, AsyncConnection)
            driver._tx.put_nowait((None, partial(sleep, 0.2)))  # a statement that still runs
            driver.stop()  # as SQLAlchemy does when its awaiter is cancelled: nobody waits for it
            session.sync_session.invalidate()
        await bank.close()
        assert not driver._thread.is_alive()


async def test_what_was_written_is_usable_after_the_transaction(bank: Storage) -> None:
    async with bank.write() as session:
        account = Account(name="a", balance=3)
        session.add(account)
    assert (account.name, account.balance, account.currency) == ("a", 3, "EUR")


@pytest.mark.both_databases
async def test_a_statement_that_writes_fails_in_read(bank: Storage) -> None:
    await open_account(bank)
    with pytest.raises(StorageError, match="readonly; use write"):
        async with bank.read() as session:
            await (await session.connection()).execute(update(Account).values(balance=9))
    assert await balance_of(bank) == 0


async def test_an_object_added_in_read_fails_at_the_commit_or_at_the_end(bank: Storage) -> None:
    async def commit() -> None:
        async with bank.read() as session:
            session.add(Account(name="b"))
            await session.commit()

    with pytest.raises(StorageError, match="readonly"):
        await commit()
    with pytest.raises(StorageError, match="readonly"):
        async with bank.read() as session:
            session.add(Account(name="b"))
    assert await balance_of(bank, "b") is None


@pytest.mark.both_databases
async def test_a_read_sees_its_snapshot_while_others_write(bank: Storage) -> None:
    await open_account(bank, balance=1)
    async with bank.read() as session:
        assert (await session.exec(select(Account.balance))).all() == [1]
        async with bank.write() as writing:
            await (await writing.connection()).execute(update(Account).values(balance=2))
            assert await balance_of(bank) == 1, "not committed, yet seen"
        assert await balance_of(bank) == 2
        assert (await session.exec(select(Account.balance))).all() == [1], "the snapshot moved"


@pytest.mark.both_databases
async def test_two_buildings_may_have_tables_of_the_same_name(databases: Databases, bank: Storage) -> None:
    shop = await databases.storage_of("shop", Tables)
    await open_account(bank, balance=1)
    await open_account(shop, balance=2)
    assert (await balance_of(bank), await balance_of(shop)) == (1, 2)


async def test_a_database_is_opened_once(databases: Databases, bank: Storage) -> None:
    assert await databases.storage_of("bank", Tables) is bank


@pytest.mark.both_databases
async def test_a_row_with_a_dangling_reference_is_refused_without_its_values_and_a_delete_cascades(bank: Storage) -> None:
    with pytest.raises(IntegrityError) as caught:
        async with bank.write() as session:
            session.add(Entry(account="the-secret", amount=1))
    assert "[SQL parameters hidden" in str(caught.value)
    await open_account(bank)
    async with bank.write() as session:
        session.add(Entry(account="a", amount=1))
    async with bank.write() as session:
        await (await session.connection()).execute(text("DELETE FROM account"))
    async with bank.read() as session:
        assert (await session.exec(select(Entry))).all() == []


@pytest.mark.both_databases
async def test_times_come_back_aware_in_utc_and_compare_across_zones(bank: Storage) -> None:
    await open_account(bank)
    noon = datetime(2026, 8, 21, 12, 0, 0, 123_456, tzinfo=UTC)
    east = timezone(timedelta(hours=9))
    async with bank.write() as session:
        session.add(Entry(account="a", amount=1, at=noon.astimezone(east)))
        session.add(Entry(account="a", amount=2, at=noon + timedelta(microseconds=1)))
        session.add(Entry(account="a", amount=3))
    async with bank.read() as session:
        found = (await session.exec(select(Entry.at).order_by(col(Entry.amount)))).all()
        until = (await session.exec(select(Entry.amount).where(col(Entry.at) <= noon.astimezone(east)))).all()
    assert found == [noon, noon + timedelta(microseconds=1), None]
    assert [at.utcoffset() for at in found if at] == [timedelta(0)] * 2
    assert until == [1]


async def test_a_naive_datetime_is_refused(bank: Storage) -> None:
    await open_account(bank)
    with pytest.raises(StatementError, match="2026-08-21T12:00:00 has no time zone"):
        async with bank.write() as session:
            session.add(Entry(account="a", amount=1, at=datetime(2026, 8, 21, 12)))
    with pytest.raises(StatementError, match="has no time zone"):
        async with bank.read() as session:
            await session.exec(select(Entry).where(col(Entry.at) > datetime(2026, 8, 21)))


@pytest.mark.both_databases
async def test_json_comes_back_as_it_was_with_its_order_and_nothing_is_null(bank: Storage) -> None:
    await open_account(bank)
    values = [{"z": 1, "a": [1.5, "ä€🙂", True, None]}, [], "", 0, False, {"big": 2**63, "deep": {"b": {}, "a": []}}, None]
    async with bank.write() as session:
        session.add_all(Entry(account="a", amount=number, detail=value) for number, value in enumerate(values))
    async with bank.read() as session:
        found = (await session.exec(select(Entry.detail).order_by(col(Entry.amount)))).all()
        missing = (await session.exec(select(Entry.amount).where(col(Entry.detail).is_(None)))).all()
    assert repr(found) == repr(values)
    assert missing == [len(values) - 1]


async def test_json_refuses_nan_and_infinity(bank: Storage) -> None:
    await open_account(bank)
    with pytest.raises(StatementError, match="not JSON compliant"):
        async with bank.write() as session:
            session.add(Entry(account="a", amount=1, detail=float("nan")))


async def test_more_readers_than_connections_take_turns(bank: Storage) -> None:
    await open_account(bank, balance=7)
    seen: list[int | None] = []

    async def look() -> None:
        seen.append(await balance_of(bank))

    async with anyio.create_task_group() as tasks:
        for _ in range(40):
            tasks.start_soon(look)
    assert seen == [7] * 40


async def test_a_building_without_tables_has_no_storage() -> None:
    nothing = NoStorage("dice")
    for ask in (nothing.read, nothing.write, lambda: nothing.batch(lambda connection, items: items)):
        with pytest.raises(StorageError, match="dice has no database, because it declares no tables"):
            ask()


@pytest.mark.both_databases
async def test_a_database_that_refuses_writes_is_unavailable_and_still_read(bank: Storage, storage_url: str) -> None:
    await open_account(bank, balance=1)
    await try_write(bank)
    statement = "PRAGMA query_only = ON" if storage_url.startswith("sqlite") else "SET default_transaction_read_only = on"
    async with bank.write() as session:
        await (await session.connection()).execute(text(statement))
    with pytest.raises(StorageUnavailable, match=r"bank.* is read-only"):
        await open_account(bank, "b")
    with pytest.raises(StorageUnavailable, match=r"bank.* is read-only"):
        await try_write(bank)
    assert await balance_of(bank) == 1


async def test_a_write_waits_for_those_before_it_for_a_while_only(bank: Storage) -> None:
    assert isinstance(bank, Database)
    bank.turn_seconds = 0.05
    refused = []

    async def write() -> None:
        with pytest.raises(StorageUnavailable, match=r"bank.* is busy: others were writing for 0\.05 s") as caught:
            await open_account(bank)
        refused.append(caught.value)

    async with bank.write(), anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(write)
    assert len(refused) == 20
    await open_account(bank, balance=1)
    assert await balance_of(bank) == 1


@pytest.mark.both_databases
async def test_a_writer_locked_elsewhere_is_unavailable_after_a_while(bank: Storage, other_bank: Storage, storage_url: str) -> None:
    statement = "PRAGMA busy_timeout = 20" if storage_url.startswith("sqlite") else "SET lock_timeout = 20"
    async with other_bank.write() as session:
        await (await session.connection()).execute(text(statement))
    async with bank.write():
        with pytest.raises(StorageUnavailable, match="was locked by another process"):
            await open_account(other_bank)
    await open_account(other_bank, balance=1)
    assert await balance_of(bank) == 1


@pytest.mark.both_databases
async def test_columns_that_are_inserted_come_back_in_pages_in_order(bank: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("campus.storage.tables.ROWS_AT_ONCE", 3)
    at = [datetime(2026, 8, number, tzinfo=UTC) for number in range(1, 9)]
    numbers = [5, 1, 8, 3, 2, 7, 6, 4]
    table = Entry.metadata.tables["entry"]
    columns = numbers, repeat("ada"), (10 * number for number in numbers), (at[number - 1] for number in numbers), repeat(None)
    chosen = select(table.c.id, table.c.amount).where(table.c.id != 2)

    def pages(connection: Connection) -> list[list[int]]:
        insert_columns(connection, table, *columns)
        return [[*ids, *amounts] for ids, amounts in column_pages(connection, chosen, table.c.id)]

    await open_account(bank, "ada")
    assert await in_transaction(bank, pages) == [[1, 3, 4, 10, 30, 40], [5, 6, 7, 50, 60, 70], [8, 80]]
    kept = await in_snapshot(bank, lambda connection: connection.execute(select(table.c.id, table.c.at).order_by(table.c.id)).all())
    assert [row.at for row in kept] == at
    wanted = await in_snapshot(
        bank, lambda connection: connection.scalars(select(table.c.id).where(among(connection, table.c.id, [2, 9]))).all()
    )
    assert wanted == [2]
