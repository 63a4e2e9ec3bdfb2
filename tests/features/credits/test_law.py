"""The law of credits: a balance is what was bought and corrected, without what was delivered, in whichever order things happen."""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import count

import anyio
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from features.credits.dice import Dice
from hypothesis import given, settings
from hypothesis import strategies as st

from campus.errors import KeyRefused
from campus.features.credits.accounts import Accounts
from campus.testing import TestCampus, open_campus

PRICE, SOLD = 20_000, 70_000
EXAMPLES = settings.default.max_examples * 2 // 5
PRODUCT = {"scope": "dice", "price": "5", "term": "90 days", "credits": "0.07"}
STEPS = st.one_of(
    st.tuples(st.just("call"), st.integers(1, 6)),
    st.tuples(st.just("fail"), st.integers(1, 3)),
    st.tuples(st.just("hang up"), st.just(0)),
    st.tuples(st.just("renew"), st.just(0)),
    st.tuples(st.just("pay"), st.just(0)),
    st.tuples(st.just("release"), st.just(0)),
    st.tuples(st.just("take back"), st.integers(0, 3)),
    st.tuples(st.just("correct"), st.sampled_from((-90_000, -20_000, -1, 1, 30_000))),
    st.tuples(st.just("rotate"), st.just(0)),
)
payments = count(1)


class Walk:
    """A key in the campus, and what its balance must be."""

    def __init__(self, campus: TestCampus, dice: Dice) -> None:
        self.campus = campus
        self.dice = dice
        self.keys = campus.service.keys
        self.paid: list[str] = []
        self.balance = SOLD

    async def play(self, steps: Sequence[tuple[str, int]]) -> None:
        self.key, self.token = await self.keys.issue("dice")
        accounts: Accounts = self.campus.service.feature("credits")
        for name, number in steps:
            await getattr(self, name.replace(" ", "_"))(number)
            (account,) = await accounts.all(self.key.lineage)
            assert (account.balance, account.held) == (self.balance, 0), (name, number)
            assert account.is_right
        assert await accounts.findings() == []

    async def _statuses(self, number: int, *, fails: bool) -> Counter[int]:
        found: Counter[int] = Counter()

        async def call() -> None:
            found[(await self.campus.call("roll", key=self.token, fails=fails)).status] += 1

        async with anyio.create_task_group() as tasks:
            for _ in range(number):
                tasks.start_soon(call)
        return found

    async def call(self, number: int) -> None:
        affordable = min(number, self.balance // PRICE)
        assert await self._statuses(number, fails=False) == +Counter({200: affordable, 402: number - affordable})
        self.balance -= affordable * PRICE

    async def fail(self, number: int) -> None:
        found = await self._statuses(number, fails=True)
        assert found.keys() <= ({400, 402} if number * PRICE > self.balance else {400})

    async def hang_up(self, _: int) -> None:
        if self.balance < PRICE:
            return
        self.dice.is_called = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(self.campus.call, "spin", key=self.token))
            await self.dice.is_called.wait()
            tasks.cancel_scope.cancel()

    async def renew(self, _: int) -> None:
        await self.keys.renew(self.key.id)
        self.balance += SOLD

    async def pay(self, _: int) -> None:
        payment = f"pay_{next(payments)}"
        await self.keys.sell("dice", payment=payment, by="test", renew=self.key.id)
        async with self.campus.service.core.storage.write() as session:
            await self.keys.sales.deliver(session, payment)
            await self.keys.sales.deliver(session, payment)
        self.paid.append(payment)
        self.balance += SOLD

    async def release(self, _: int) -> None:
        payment = f"pay_{next(payments)}"
        await self.keys.sell("dice", payment=payment, by="test", renew=self.key.id)
        async with self.campus.service.core.storage.write() as session:
            await self.keys.sales.drop(session, payment)
            await self.keys.sales.deliver(session, payment)

    async def take_back(self, number: int) -> None:
        if number < len(self.paid):
            async with self.campus.service.core.storage.write() as session:
                await self.keys.sales.take_back(session, self.paid.pop(number))
            self.balance = max(self.balance - SOLD, 0)

    async def correct(self, amount: int) -> None:
        try:
            await self.keys.correct(self.key.id, amount, why="a test")
        except KeyRefused:
            assert self.balance + amount < 0
        else:
            self.balance += amount

    async def rotate(self, _: int) -> None:
        self.key, self.token = await self.keys.rotate(self.key.id)


@pytest.fixture
def portal() -> Iterator[BlockingPortal]:
    with start_blocking_portal() as portal:
        yield portal


@pytest.mark.both_databases
def test_every_balance_is_what_was_bought_and_corrected_without_what_was_delivered(portal: BlockingPortal, storage_url: str) -> None:
    dice = Dice()
    opened = open_campus(dice=dice.server(), storage=storage_url, tables={"products": {"dice": PRODUCT}})
    with portal.wrap_async_context_manager(opened) as campus:

        @given(st.lists(STEPS, min_size=5, max_size=15))
        @settings(max_examples=EXAMPLES, deadline=None, database=None, derandomize=EXAMPLES < 20)  # others with `make laws`
        def walk(steps: Sequence[tuple[str, int]]) -> None:
            portal.call(Walk(campus, dice).play, steps)

        walk()
