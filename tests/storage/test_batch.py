"""Group commit, on both databases."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path

import anyio
import pytest
from sqlalchemy import Connection, insert, text
from sqlmodel import select

from campus.errors import StorageError, StorageUnavailable
from campus.storage import Storage
from campus.storage.databases import Databases
from tests import forkserver
from tests.forkserver import PIPE
from tests.storage.bank.tables import Account, Tables

pytestmark = pytest.mark.anyio

WRITER = Path(__file__).with_name("endless_writer.py")


class Ledger:
    """An `apply` that opens accounts, and remembers how they came: one list of names per transaction."""

    def __init__(self) -> None:
        self.groups: list[Sequence[str]] = []

    def __call__(self, connection: Connection, names: Sequence[str]) -> Sequence[str | Exception]:
        self.groups.append(list(names))
        connection.execute(insert(Account), [{"name": name, "balance": 0} for name in names])
        if "poison" in names:
            raise ZeroDivisionError
        return [KeyError(name) if name.startswith("bad") else name.upper() for name in names]


async def names_in(storage: Storage) -> set[str]:
    async with storage.read() as session:
        return set((await session.exec(select(Account.name))).all())


@pytest.mark.both_databases
async def test_1000_items_of_50_tasks_are_each_applied_once_and_answered_with_their_own(bank: Storage) -> None:
    apply, answers = Ledger(), dict[str, str]()

    async with bank.batch(apply) as put:

        async def work(task: int) -> None:
            for number in range(20):
                name = f"t{task}-{number}"
                answers[name] = await put(name)

        async with anyio.create_task_group() as tasks:
            for task in range(50):
                tasks.start_soon(work, task)
    assert answers == {name: name.upper() for name in answers}
    assert len(answers) == 1000
    assert await names_in(bank) == set(answers)
    assert sorted(name for group in apply.groups for name in group) == sorted(answers)
    assert len(apply.groups) < 200, "hardly anything was grouped"


async def test_items_are_applied_in_the_order_of_their_arrival(bank: Storage) -> None:
    apply = Ledger()
    async with bank.batch(apply) as put, anyio.create_task_group() as tasks:
        for number in range(2500):
            tasks.start_soon(put, f"{number:04d}")
    applied = [name for group in apply.groups for name in group]
    assert applied == sorted(applied)
    assert len(applied) == 2500
    assert max(map(len, apply.groups)) <= 1000, "one transaction keeps other writers waiting"


async def test_one_item_is_written_at_once(bank: Storage) -> None:
    async with bank.batch(Ledger()) as put:
        assert await put("a") == "A"
        assert await names_in(bank) == {"a"}


async def test_an_exception_among_the_results_reaches_its_own_awaiter_only(bank: Storage) -> None:
    outcomes: dict[str, object] = {}

    async with bank.batch(Ledger()) as put:

        async def work(name: str) -> None:
            try:
                outcomes[name] = await put(name)
            except KeyError as error:
                outcomes[name] = error.args

        async with anyio.create_task_group() as tasks:
            for name in ("a", "bad-1", "b", "bad-2"):
                tasks.start_soon(work, name)
    assert outcomes == {"a": "A", "bad-1": ("bad-1",), "b": "B", "bad-2": ("bad-2",)}


@pytest.mark.both_databases
async def test_when_apply_raises_for_one_item_that_one_fails_alone(bank: Storage) -> None:
    outcomes: dict[str, object] = {}

    async with bank.batch(Ledger()) as put:

        async def work(name: str) -> None:
            try:
                outcomes[name] = await put(name)
            except ZeroDivisionError as error:
                outcomes[name] = type(error)

        async with anyio.create_task_group() as tasks:
            for name in ("a", "b", "poison", "c", "d"):
                tasks.start_soon(work, name)
        assert await put("e") == "E"
    assert outcomes == {"a": "A", "b": "B", "poison": ZeroDivisionError, "c": "C", "d": "D"}
    assert await names_in(bank) == {"a", "b", "c", "d", "e"}


async def test_apply_must_give_a_result_per_item(bank: Storage) -> None:
    def forgetful(connection: Connection, names: Sequence[str]) -> Sequence[str]:
        Ledger()(connection, names)
        return []

    async with bank.batch(forgetful) as put:
        with pytest.raises(ValueError, match="a batch of 1 items needs as many results; apply returned 0"):
            await put("a")
    assert await names_in(bank) == set()


async def test_an_awaiter_that_is_cancelled_breaks_nothing(bank: Storage) -> None:
    async with bank.batch(Ledger()) as put:
        async with bank.write(), anyio.create_task_group() as tasks:  # the writer is taken: the item waits
            tasks.start_soon(put, "impatient")
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        assert await put("a") == "A"
    assert await names_in(bank) == {"impatient", "a"}


async def test_accepted_items_are_written_when_the_batch_is_left(bank: Storage) -> None:
    async with anyio.create_task_group() as tasks, bank.batch(Ledger()) as put:
        for name in ("a", "b", "c"):
            tasks.start_soon(put, name)
        await anyio.wait_all_tasks_blocked()
    assert await names_in(bank) == {"a", "b", "c"}
    with pytest.raises(StorageError, match="this batch is closed"):
        await put("late")


async def test_accepted_items_are_written_when_everything_is_cancelled(bank: Storage) -> None:
    async def run() -> None:
        async with bank.batch(Ledger()) as put, bank.write(), anyio.create_task_group() as tasks:
            tasks.start_soon(put, "a")
            await anyio.wait_all_tasks_blocked()
            outer.cancel_scope.cancel()
            await anyio.sleep_forever()

    async with anyio.create_task_group() as outer:
        outer.start_soon(run)
    assert await names_in(bank) == {"a"}


async def test_when_the_writer_is_stopped_every_awaiter_gets_an_error(bank: Storage) -> None:
    failed: list[str] = []

    async def ask(put: Callable[[str], Awaitable[str]], name: str) -> None:
        with pytest.raises(StorageUnavailable, match="the writer was stopped"):
            await put(name)
        failed.append(name)

    async def run() -> None:
        tasks_before = asyncio.all_tasks()
        async with bank.batch(Ledger()) as put:
            (writer,) = asyncio.all_tasks() - tasks_before
            async with bank.write(), anyio.create_task_group() as tasks:
                tasks.start_soon(ask, put, "a")
                await anyio.wait_all_tasks_blocked()
                writer.cancel()

    with suppress(asyncio.CancelledError):
        await run()
    assert failed == ["a"]
    assert await names_in(bank) == set()


async def test_an_error_in_the_block_is_raised_unchanged(bank: Storage) -> None:
    with pytest.raises(ZeroDivisionError):
        async with bank.batch(Ledger()):
            raise ZeroDivisionError


@pytest.mark.both_databases
async def test_batches_and_writes_take_turns(bank: Storage, other_bank: Storage) -> None:
    def deposit(connection: Connection, amounts: Sequence[int]) -> Sequence[None]:
        connection.execute(text("UPDATE account SET balance = balance + :amount"), [{"amount": amount} for amount in amounts])
        return [None] * len(amounts)

    async with bank.write() as session:
        session.add(Account(name="a"))

    async with bank.batch(deposit) as put, other_bank.batch(deposit) as put_elsewhere:

        async def batched() -> None:
            for _ in range(20):
                await put(1)
                await put_elsewhere(1)

        async def alone(storage: Storage) -> None:
            for _ in range(20):
                async with storage.write() as session:
                    account = await session.get(Account, "a")
                    assert account is not None
                    account.balance += 1

        async with anyio.create_task_group() as tasks:
            for _ in range(4):
                tasks.start_soon(batched)
            tasks.start_soon(alone, bank)
            tasks.start_soon(alone, other_bank)
    async with bank.read() as session:
        assert (await session.exec(select(Account.balance))).one() == 4 * 40 + 2 * 20


async def test_a_full_database_is_unavailable_to_each_awaiter_and_recovers_when_there_is_space(tmp_path: Path) -> None:
    async with Databases.open(f"sqlite:{tmp_path}") as databases:
        bank = await databases.storage_of("bank", Tables)
        pages: list[int] = []

        def write(connection: Connection, names: Sequence[str]) -> Sequence[str]:
            connection.exec_driver_sql(f"PRAGMA max_page_count = {pages[-1]}")
            connection.execute(insert(Account), [{"name": name, "balance": 0} for name in names])
            return names

        async with bank.read() as session:
            pages.append((await (await session.connection()).execute(text("PRAGMA page_count"))).scalar_one())
        async with bank.batch(write) as put:
            with pytest.raises(StorageUnavailable, match=r"bank\.db is full: free space on its disk"):
                await put("a" * 100_000)
            assert await names_in(bank) == set()
            pages.append(1_000_000)
            assert await put("b") == "b"


@pytest.mark.both_databases
async def test_acknowledged_items_survive_kill_9(storage_url: str) -> None:
    with forkserver.shared().start(WRITER.read_text(), storage_url, stdout=PIPE) as process:
        assert process.stdout is not None
        acknowledged = [process.stdout.readline() for _ in range(300)]
        process.kill()
        acknowledged += [line for line in process.stdout if line.endswith("\n")]
    async with Databases.open(storage_url) as databases:
        stored = await names_in(await databases.storage_of("bank", Tables))
    assert len(set(acknowledged)) == len(acknowledged) >= 300
    assert {line.strip() for line in acknowledged} <= stored
