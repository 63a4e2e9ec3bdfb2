"""Contract wallets (EIP-1271), also those that are made by their first payment (EIP-6492): what they buy, and what a lie gets them."""

from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from typing import Any, Literal

import anyio
import httpx
import pytest
from features.payments.terms.paid_campus import DAY, PATH, PaidCampus, open_paid_campus
from features.payments.terms.samples import SENTINEL
from patience import patience

from campus.features.chain import PAYMENT, RECEIPT, ContractWallet, Payer, headers_of, new_wallet, receipt_of
from campus.testing import ORIGIN, Clock, Frame
from tests import patient

pytestmark = pytest.mark.anyio
PRICE, PURSE = 20_000, 1_000_000
FORMS = {
    "as long as an account's": {"is_short": True},
    "longer": {},
    "of a wallet that is made by it": {"is_deployed": False},
}
OF_NOBODY = "0x" + "11" * 97


@pytest.fixture(scope="module")
def anyio_backend() -> Literal["asyncio"]:
    return "asyncio"


@pytest.fixture(scope="module")
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="module")
async def campus(clock: Clock) -> AsyncIterator[PaidCampus]:
    async with open_paid_campus(clock=clock, chain_wait_seconds=2) as campus:
        yield campus


async def payer_with(campus: PaidCampus, **form: bool) -> Payer:
    wallet = await campus.chain.contract_wallet(**form)
    await campus.chain.mint(wallet.address, PURSE)
    return Payer(wallet)


def contract_of(payer: Payer) -> ContractWallet:
    assert isinstance(payer.wallet, ContractWallet)
    return payer.wallet


async def sent_from(campus: PaidCampus, address: str, payment: Mapping[str, Any]) -> httpx.Response:
    transport = httpx.ASGITransport(campus.campus.app, client=(address, 4000))
    async with patient.AsyncClient(transport=transport, base_url=ORIGIN, timeout=patience(120)) as client:
        return await client.get(PATH, headers=headers_of(payment))


async def spent_by(campus: PaidCampus, payer: Payer) -> int:
    return PURSE - await campus.chain.balance(payer.wallet.address)


@pytest.mark.parametrize("form", FORMS.values(), ids=list(FORMS))
async def test_a_contract_wallet_buys_a_call_over_either_frame_and_is_charged_once(campus: PaidCampus, form: dict[str, bool]) -> None:
    payer = await payer_with(campus, **form)
    payment = payer.payload(await campus.terms())
    answers = [await campus.campus.http.get(PATH, headers=headers_of(payment)) for _ in range(2)]
    assert [(answer.status_code, answer.json()["text"]) for answer in answers] == [(200, SENTINEL)] * 2
    assert receipt_of(answers[0]) == receipt_of(answers[1])
    assert receipt_of(answers[0])["payer"].lower() == payer.wallet.address.lower()
    async with campus.mcp() as client:
        again = await client.call_tool("text_of", DAY, meta={PAYMENT: payment}, raise_on_error=False)
        assert (again.meta or {})[RECEIPT] == receipt_of(answers[0])
        assert await spent_by(campus, payer) == PRICE
        bought = await payer.call_mcp(client, "text_of", DAY)
    assert (bought.structured_content or {})["text"] == SENTINEL
    assert await spent_by(campus, payer) == 2 * PRICE
    elsewhere = await sent_from(campus, "198.51.100.7", payment)
    assert (elsewhere.status_code, elsewhere.json()["code"]) == (409, "payment_used_elsewhere"), "everyone can read it on the chain"


async def test_another_signature_that_the_wallet_accepts_too_buys_nothing_more(campus: PaidCampus) -> None:
    payer = await payer_with(campus)
    payment = payer.payload(await campus.terms())
    assert (await campus.offer("http", payment))[0] == 200
    signature = payment["payload"]["signature"]
    payment["payload"]["signature"] = "0x" + "01" + signature[4:]  # it names another owner, whom this wallet does not look at
    for frame in ("http", "mcp"):
        status, said = await campus.offer(frame, payment)
        assert (status, said["code"]) == (409, "payment_already_used")
    assert await spent_by(campus, payer) == PRICE


async def test_a_wallet_that_accepts_every_signature_pays_for_what_anybody_signs(campus: PaidCampus) -> None:
    payer = await payer_with(campus)
    await campus.chain.let_answer(contract_of(payer), "accepts")
    assert (await campus.offer("http", payer.payload(await campus.terms(), signature=OF_NOBODY)))[0] == 200
    assert await spent_by(campus, payer) == PRICE


async def test_what_a_wallet_does_not_accept_is_refused_before_the_tool_runs_and_charges_nothing(campus: PaidCampus, frame: Frame) -> None:
    payer, poor = await payer_with(campus), Payer(await campus.chain.contract_wallet())
    strange = await payer_with(campus, is_deployed=False)
    terms = await campus.terms()
    of_another_factory = strange.payload(terms)
    signature = of_another_factory["payload"]["signature"]
    of_another_factory["payload"]["signature"] = signature.replace("5afe" * 10, "5bad" * 10)
    unmade = Payer(ContractWallet(new_wallet().address, new_wallet().key))
    payments = [payer.payload(terms, signature=OF_NOBODY), poor.payload(terms), of_another_factory, unmade.payload(terms)]
    reasons = ["signature", "insufficient_balance", "factory", "undeployed_smart_wallet"]
    for payment, reason in zip(payments, reasons, strict=True):
        status, said = await campus.offer(frame, payment)
        assert (status, said["code"]) == (402, "payment_refused")
        assert reason in said["detail"]
    signed = payer.payload(terms)
    for answer in ("refuses", "reverts", "burns gas"):
        await campus.chain.let_answer(contract_of(payer), answer)
        status, said = await campus.offer(frame, signed)
        assert (status, said["code"], "signature" in said["detail"]) == (402, "payment_refused", True)
    assert await spent_by(campus, payer) == await spent_by(campus, strange) == 0
    await campus.chain.let_answer(contract_of(payer), "checks")
    assert (await campus.offer(frame, signed))[0] == 200, "nothing of it was used"


async def test_a_wallet_that_says_yes_and_then_no_gets_no_answer_until_it_pays(campus: PaidCampus, clock: Clock) -> None:
    payer, answers = await payer_with(campus), list[tuple[int, dict[str, Any]]]()
    payment = payer.payload(await campus.terms())
    settled = len(campus.facilitator.outcomes("settle"))

    async def call() -> None:
        answers.append(await campus.offer("http", payment))

    with campus.facilitator.hold("settle") as hold:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await hold.reached()
            await campus.chain.let_answer(contract_of(payer), "burns gas")
            hold.release()
    (status, said), *_ = answers
    assert (status, said["code"]) == (409, "payment_in_flight")
    assert SENTINEL not in str(said)
    assert "settled" not in campus.facilitator.outcomes("settle")[settled:]
    assert await spent_by(campus, payer) == 0
    await campus.chain.let_answer(contract_of(payer), "checks")
    clock.move(timedelta(seconds=11))  # when a payment in doubt may be asked about again
    assert (await campus.offer("http", payment))[1]["text"] == SENTINEL
    assert await spent_by(campus, payer) == PRICE
