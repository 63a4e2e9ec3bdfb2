"""A real campus whose facilitator is down, hangs, lies or fails after the charge: paid calls answer as designed, others as usual.

Run by `make faults`; in `make test` tests/features/payments/test_settlement.py and test_lies.py show the same of a processor.
"""

from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import httpx
import pytest
from fastmcp import Client
from features.payments.seller import PRICE
from patience import patience
from serving import Served, serving

from campus.features.chain import (
    PAYMENT,
    RECEIPT,
    Chain,
    Facilitator,
    Payer,
    Wallet,
    headers_of,
    new_wallet,
    open_chain,
    open_facilitator,
    receipt_of,
    terms_of,
)
from campus.testing import Frame
from tests import patient

pytestmark = [pytest.mark.anyio, pytest.mark.faults("facilitator")]
CONFIG = """
openapi = "slow"
[payments]
network = "{network}"
pay_to = "{pay_to}"
facilitators = ["{facilitators[0]}"]
rpc_url = "{rpc_url}"
chain_wait_seconds = 10
[products.slow]
scope = "slow"
price = "19"
term = "30 days"
[buildings.slow]
server = "features.payments.slow_tool:mcp"
tools = {{ "*" = {{ price = "0.02" }} }}
[buildings.open]
server = "features.payments.slow_tool:mcp"
"""
FRAMES: tuple[Frame, ...] = ("http", "mcp")
FREE_CALL = -1
"""The number that is asked for when nobody pays."""
"""As clients wait."""
QUIET: Mapping[str, Mapping[str, Any]] = {
    "500 after the charge": {"settle_status": 500},
    "a page after the charge": {"garbled": ("settle",)},
    "another network after the charge": {"lie": {"network": "eip155:1"}},
    "no transaction after the charge": {"lie": {"transaction": ""}},
    "a refusal after the charge": {"lie": {"success": False, "errorReason": "invalid_exact_evm_nonce_already_used", "transaction": ""}},
}
MUTE: Mapping[str, Mapping[str, Any]] = {
    "500 instead of a verdict": {"verify_status": 500},
    "a page instead of a verdict": {"garbled": ("verify",)},
    "a verdict on another's payment": {"verify_lie": {"payer": "0x" + "55" * 20}},
}


@dataclass(frozen=True)
class Said:
    """The answer to a call, over either frame, with the receipt if it was paid."""

    status: int
    data: Mapping[str, Any]
    receipt: Mapping[str, Any] | None = None

    @property
    def code(self) -> str | None:
        return self.data.get("code")


@dataclass
class Stand:
    """A campus that sells a number, its free twin, and a key."""

    served: Served
    folder: Path
    key: str
    http: httpx.AsyncClient
    payer: Payer
    pay_to: str
    numbers: Iterator[int]

    async def sign(self, number: int) -> dict[str, Any]:
        answer = await self.http.get(f"/v1/slow/count?number={number}")
        assert (answer.status_code, answer.json()["code"]) == (402, "access_required")
        return self.payer.payload(terms_of(answer))

    async def pay(self, frame: Frame, number: int, payment: Mapping[str, Any]) -> Said:
        """One paid call."""
        if frame == "http":
            answer = await self.http.get(f"/v1/slow/count?number={number}", headers=headers_of(payment))
            return Said(answer.status_code, answer.json(), receipt_of(answer) if answer.is_success else None)
        async with Client(f"{self.served.url}/slow/mcp") as client:
            result = await client.call_tool("count", {"number": number}, meta={PAYMENT: payment}, raise_on_error=False)
        data = result.structured_content or {}
        return Said(data.get("status", 0) if result.is_error else 200, data, (result.meta or {}).get(RECEIPT))

    async def troubles(self) -> list[str]:
        await anyio.sleep(1.1)
        ready = await self.http.get(f"{self.served.admin}/readyz")
        assert ready.status_code == 200, "keys and free tools do without a facilitator"
        found: list[str] = ready.json()["checks"]["payments"]
        return found

    async def assert_the_rest_is_as_ever(self) -> None:
        free = await self.http.get(f"/v1/open/count?number={FREE_CALL}")
        by_key = await self.http.get(f"/v1/slow/count?number={FREE_CALL}", headers={"Authorization": f"Bearer {self.key}"})
        for answer in (free, by_key):
            assert (answer.status_code, answer.json()) == (200, {"number": FREE_CALL})
        async with Client(f"{self.served.url}/open/mcp") as client:
            assert (await client.call_tool("count", {"number": FREE_CALL})).structured_content == {"number": FREE_CALL}
        assert await self.sign(FREE_CALL)

    def runs(self, number: int) -> int:
        return Counter((self.folder / "runs").read_text().split())[str(number)]


@asynccontextmanager
async def open_stand(folder: Path, facilitator: Facilitator, wallet: Wallet) -> AsyncIterator[Stand]:
    (folder / "runs").touch()
    environ = {"PYTHONPATH": str(Path(__file__).parents[2]), "SLOW_TOOL_FOLDER": str(folder)}
    pay_to = new_wallet().address  # one wallet belongs to one database
    with serving(folder, CONFIG.format(**facilitator.table(pay_to)), environ=environ) as served:
        async with patient.AsyncClient(base_url=served.url, timeout=patience(90)) as http:
            yield Stand(served, folder, served.key("slow"), http, Payer(wallet), pay_to, count(1))
        compared = await anyio.to_thread.run_sync(served.command, "ledger", "reconcile")
        assert (compared.returncode, compared.stdout) == (0, "all is well\n"), "the ledger is the chain's, to the smallest unit"


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def chain() -> AsyncIterator[Chain]:
    async with open_chain() as chain:
        yield chain


@pytest.fixture(scope="module")
async def its_facilitator(chain: Chain) -> AsyncIterator[Facilitator]:
    async with open_facilitator(chain) as facilitator:
        yield facilitator


@pytest.fixture
async def facilitator(its_facilitator: Facilitator) -> AsyncIterator[Facilitator]:
    """Well again after each test."""
    yield its_facilitator
    its_facilitator.faults.clear()


@pytest.fixture(scope="module")
async def stand(tmp_path_factory: pytest.TempPathFactory, chain: Chain, its_facilitator: Facilitator) -> AsyncIterator[Stand]:
    """One for all tests, for it takes a while to open; the facilitator is well again after each."""
    wallet = new_wallet()
    await chain.mint(wallet.address, 100 * PRICE)
    async with open_stand(tmp_path_factory.mktemp("stand"), its_facilitator, wallet) as stand:
        yield stand


async def test_with_its_facilitator_down_a_campus_starts_and_paid_calls_work_once_it_is_up(
    tmp_path: Path, chain: Chain, facilitator: Facilitator
) -> None:
    facilitator.faults.down, wallet = True, new_wallet()
    await chain.mint(wallet.address, 100 * PRICE)
    async with open_stand(tmp_path, facilitator, wallet) as stand:
        assert await stand.troubles() == []
        payments = {frame: (number, await stand.sign(number)) for frame, number in zip(FRAMES, stand.numbers, strict=False)}
        for frame, (number, payment) in payments.items():
            said = await stand.pay(frame, number, payment)
            assert (said.status, said.code, stand.runs(number)) == (402, "payment_unverified", 0)
            assert "the same payment" in said.data["detail"]
            assert said.data["accepts"]
            await stand.assert_the_rest_is_as_ever()
        [trouble] = await stand.troubles()
        assert "facilitator" in trouble
        facilitator.faults.down = False
        for frame, (number, payment) in payments.items():
            said = await stand.pay(frame, number, payment)
            assert (said.status, said.data, stand.runs(number)) == (200, {"number": number}, 1)
        assert await stand.troubles() == []
    assert await chain.balance(stand.pay_to) == len(FRAMES) * PRICE


async def test_while_it_hangs_only_paid_calls_wait_and_each_answer_says_whether_it_was_charged(
    stand: Stand, chain: Chain, facilitator: Facilitator
) -> None:
    before = await chain.balance(stand.pay_to)
    unchecked, charged = ({frame: next(stand.numbers) for frame in FRAMES} for _ in range(2))
    payments = {number: await stand.sign(number) for number in (*unchecked.values(), *charged.values())}
    answers: dict[int, Said] = {}

    async def pay(frame: Frame, number: int) -> None:
        answers[number] = await stand.pay(frame, number, payments[number])

    with ExitStack() as hanging:  # nobody is let go before campus has given up on them all
        after_the_charge = hanging.enter_context(facilitator.hold("settled"))
        async with anyio.create_task_group() as tasks:
            for call in charged.items():
                tasks.start_soon(pay, *call)
            await after_the_charge.reached(len(FRAMES), seconds=patience(90))
            at_the_check = hanging.enter_context(facilitator.hold("verify"))
            for call in unchecked.items():
                tasks.start_soon(pay, *call)
            await at_the_check.reached(len(FRAMES), seconds=patience(90))
            await stand.assert_the_rest_is_as_ever()
            assert answers == {}
    for number in unchecked.values():
        assert (answers[number].status, answers[number].code, stand.runs(number)) == (402, "payment_unverified", 0)
    for number in charged.values():
        assert (answers[number].status, answers[number].data, stand.runs(number)) == (200, {"number": number}, 1)
    assert "facilitator" in (await stand.troubles())[0]
    assert await chain.balance(stand.pay_to) == before + len(FRAMES) * PRICE


async def test_a_charge_that_it_does_not_report_is_answered_with_a_receipt_from_the_chain(
    stand: Stand, chain: Chain, facilitator: Facilitator
) -> None:
    for case, faults in QUIET.items():
        for frame in FRAMES:
            number = next(stand.numbers)
            payment = await stand.sign(number)
            before = await chain.balance(stand.pay_to)
            faulty(facilitator, faults)
            said = await stand.pay(frame, number, payment)
            assert (said.status, said.data) == (200, {"number": number}), (case, frame)
            assert said.receipt is not None
            assert said.receipt["transaction"] == (await chain.transfers(receiver=stand.pay_to))[-1].transaction, (case, frame)
            again = await stand.pay("mcp" if frame == "http" else "http", number, payment)
            assert (again.status, again.data, again.receipt) == (200, said.data, said.receipt), (case, frame)
            assert (stand.runs(number), await chain.balance(stand.pay_to)) == (1, before + PRICE), (case, frame)
            await stand.assert_the_rest_is_as_ever()
        assert "facilitator" in (await stand.troubles())[0], case
        facilitator.faults.clear()


async def test_with_a_senseless_answer_to_verify_the_tool_does_not_run_and_nothing_is_charged(
    stand: Stand, chain: Chain, facilitator: Facilitator
) -> None:
    before = await chain.balance(stand.pay_to)
    for case, faults in MUTE.items():
        faulty(facilitator, faults)
        for frame in FRAMES:
            number = next(stand.numbers)
            said = await stand.pay(frame, number, await stand.sign(number))
            assert (said.status, said.code, stand.runs(number)) == (402, "payment_unverified", 0), (case, frame)
        await stand.assert_the_rest_is_as_ever()
        assert "facilitator" in (await stand.troubles())[0], case
        facilitator.faults.clear()
    assert await chain.balance(stand.pay_to) == before


async def test_a_payment_that_it_did_not_charge_gets_409_and_is_charged_once_when_sent_again(
    stand: Stand, chain: Chain, facilitator: Facilitator
) -> None:
    before = await chain.balance(stand.pay_to)
    payments = {frame: (number, await stand.sign(number)) for frame, number in zip(FRAMES, stand.numbers, strict=False)}
    facilitator.faults.settle_status_before = 500

    async def assert_it_is_asked_to_come_back(frame: Frame, number: int, payment: Mapping[str, Any]) -> None:
        said = await stand.pay(frame, number, payment)
        assert (said.status, said.code) == (409, "payment_in_flight")
        assert "accepts" not in said.data, "a caller who gets new terms would pay twice"

    async with anyio.create_task_group() as calls:  # at once: each waits for the chain
        for frame, (number, payment) in payments.items():
            calls.start_soon(assert_it_is_asked_to_come_back, frame, number, payment)
    await stand.assert_the_rest_is_as_ever()
    assert await chain.balance(stand.pay_to) == before
    facilitator.faults.clear()
    with anyio.fail_after(patience(90)):
        for frame, (number, payment) in payments.items():
            while (said := await stand.pay(frame, number, payment)).status == 409:
                pass  # the chain is slow on a busy machine
            assert (said.status, said.data, stand.runs(number)) == (200, {"number": number}, 1)
    assert await chain.balance(stand.pay_to) == before + len(FRAMES) * PRICE


def faulty(facilitator: Facilitator, faults: Mapping[str, Any]) -> None:
    for name, value in faults.items():
        setattr(facilitator.faults, name, value)
