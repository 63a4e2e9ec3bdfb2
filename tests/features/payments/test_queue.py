"""Turns before the facilitator: in rounds over addresses and wallets, with limits for each, and a bounded wait."""

from collections import Counter
from contextlib import AbstractAsyncContextManager, ExitStack
from dataclasses import replace
from itertools import count
from typing import Any

import anyio
import pytest
from features.payments.seller import Seller
from sqlmodel.ext.asyncio.session import AsyncSession

from campus.features.chain import new_wallet
from campus.features.payments.payment import Payment
from campus.features.payments.queue import PaymentQueue, QueueLimits
from campus.storage import Storage
from twins import Problem

pytestmark = pytest.mark.anyio


class Turns:
    """Whose turns came, in order, and how each caller's wait ended."""

    def __init__(self, **limits: Any) -> None:
        self.queue = PaymentQueue(QueueLimits(**{"wait_seconds": 60.0, **limits}))
        self.turns: list[str] = []
        self.refused: list[str] = []
        self.most: Counter[str] = Counter()
        self._now: Counter[str] = Counter()
        self._go_on = anyio.Event()
        self._nonces = count()

    async def check(self, client: str, payer: str = "w") -> None:
        try:
            async with self.queue.turn(client, (payer, str(next(self._nonces)))):
                self.turns.append(client if payer == "w" else f"{client} {payer}")
                self._now[client] += 1
                self.most[client] = max(self.most[client], self._now[client])
                await self._go_on.wait()
                await anyio.lowlevel.checkpoint()
                self._now[client] -= 1
        except Problem as problem:
            again = "" if int(problem.headers["Retry-After"]) > 0 else " without a time to come again"
            self.refused.append(f"{client} {problem.status} {problem.code}{again}")

    def go_on(self) -> None:
        self._go_on.set()


async def settled() -> None:
    await anyio.wait_all_tasks_blocked()


async def test_one_address_gets_its_share_and_no_more_while_another_is_served_at_once() -> None:
    seen = Turns(at_once=8, at_once_per_client=4, at_once_per_payer=8)
    async with anyio.create_task_group() as tasks:
        for _ in range(64):
            tasks.start_soon(seen.check, "stranger")
        await settled()
        assert seen.turns == ["stranger"] * 4
        tasks.start_soon(seen.check, "buyer")
        await settled()
        assert seen.turns[4:] == ["buyer"]
        seen.go_on()
    assert Counter(seen.turns) == {"stranger": 64, "buyer": 1}
    assert seen.most["stranger"] == 4
    assert seen.refused == []


async def test_the_limit_of_a_wallet_is_lower_than_that_of_its_address() -> None:
    seen = Turns(at_once_per_client=4, at_once_per_payer=2)
    async with anyio.create_task_group() as tasks:
        for payer in ("x", "x", "x", "x", "y"):
            tasks.start_soon(seen.check, "a", payer)
        await settled()
        assert seen.turns == ["a x", "a x", "a y"]
        seen.go_on()
    assert Counter(seen.turns) == {"a x": 4, "a y": 1}


async def test_turns_are_granted_in_rounds() -> None:
    seen = Turns(at_once=1)
    async with anyio.create_task_group() as tasks:
        for client, payer in (("a", "x"), ("a", "x"), ("a", "x"), ("a", "y"), ("b", "w"), ("b", "w"), ("c", "w")):
            tasks.start_soon(seen.check, client, payer)
            await settled()
        seen.go_on()
    assert seen.turns == ["a x", "a x", "b", "c", "a y", "b", "a x"]


async def test_a_call_that_waits_too_long_or_is_cancelled_leaves_no_trace() -> None:
    seen = Turns(at_once=1, wait_seconds=0.05)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(seen.check, "a")
        await settled()
        await seen.check("b")
        assert seen.refused == ["b 503 payments_busy"]
        with anyio.move_on_after(0) as gone:
            await seen.check("c")
        assert gone.cancelled_caught
        seen.go_on()
    async with seen.queue.turn("c", ("w", "0x1")):
        assert seen.turns == ["a"]
    assert len(vars(seen.queue)["_turns"]) == 0


def begun(queue: PaymentQueue, calls: ExitStack, client: str, payment: tuple[str, str]) -> str:
    try:
        calls.enter_context(queue.call(client, payment))
    except Problem as problem:
        return f"{problem.status} {problem.code}"
    return "begun"


def test_copies_of_a_payment_are_few_of_one_address_and_in_all() -> None:
    queue = PaymentQueue(QueueLimits(copies=3, copies_per_client=2))
    payments = [("0xab", "0x1"), ("0xab", "0x2")]
    refused = "409 payment_in_flight"
    for _ in range(2):  # what has ended is not counted
        with ExitStack() as calls:
            found = [begun(queue, calls, "stranger", payments[0]) for _ in range(4)]
            assert found == ["begun", "begun", "begun", refused], "the first is no copy"
            assert [begun(queue, calls, "stranger", payments[1]) for _ in range(2)] == ["begun", refused]
            assert [begun(queue, calls, "buyer", payments[1]) for _ in range(2)] == ["begun", refused]
            assert begun(queue, calls, "buyer", ("0xcd", "0x1")) == "begun", "a payment of one's own is none"


def test_an_address_with_too_many_calls_is_refused_and_others_are_not() -> None:
    queue = PaymentQueue(QueueLimits(calls_per_client=3, calls=5, calls_per_client_then=1))
    nonces = count()
    for _ in range(2):  # what has ended is not counted
        with ExitStack() as calls:
            found = [begun(queue, calls, client, ("0xab", f"{next(nonces)}")) for client in ("a", "a", "a", "a", "b", "b", "b", "c", "c")]
            assert [one == "begun" for one in found] == [True, True, True, False, True, True, False, True, False]
            assert set(found) == {"begun", "429 too_many_payments"}


class CountedStorage:
    """A storage, and how often it was read and written."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.used = Counter[str]()

    def read(self) -> AbstractAsyncContextManager[AsyncSession]:
        self.used["read"] += 1
        return self._storage.read()

    def write(self) -> AbstractAsyncContextManager[AsyncSession]:
        self.used["write"] += 1
        return self._storage.write()


async def send_at_once(seller: Seller, payments: list[Payment]) -> Counter[str]:
    codes = Counter[str]()

    async def send(payment: Payment) -> None:
        try:
            await seller.sell(payment)
        except Problem as problem:
            codes[problem.code] += 1

    async with anyio.create_task_group() as tasks:
        for payment in payments:
            tasks.start_soon(send, payment)
    return codes


async def test_a_worthless_payment_sent_many_times_at_once_reads_and_writes_little(seller: Seller) -> None:
    payment = replace(seller.pay(), valid_after=2**40)
    assert await send_at_once(seller, [payment] * 50) == {"payment_refused": 17, "payment_in_flight": 33}


async def test_worthless_payments_write_nothing_and_beyond_the_share_of_their_address_read_nothing(seller: Seller) -> None:
    nobody, storage, processor = new_wallet(), CountedStorage(seller.storage), seller.payments.processor
    processor.queue = PaymentQueue(QueueLimits(calls_per_client=20))
    processor.reservations._storage = storage  # type: ignore[assignment]  # it has no batches, which are not used there
    payments = [seller.pay(by=nobody) for _ in range(25)]
    found = await send_at_once(seller, payments)
    assert found.pop("too_many_payments") == 5
    assert found.keys() == {"payment_refused", "too_many_worthless_payments"}
    assert found.total() == 20
    assert storage.used == {"read": 2 * 20}
    assert len([call for call in seller.facilitator.calls if call.payer == nobody.address]) == found["payment_refused"]
