"""One payment is charged once and buys one answer: sent at once, again, from elsewhere, and when the tool fails."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any

import anyio
import pytest
from features.payments.seller import PRICE, URL, Seller, read

from campus.features.payments.payment import PaidAnswer, Payment, Sale, Verification
from twins import Problem

pytestmark = pytest.mark.anyio
KEY, OTHER_KEY = "k" * 22, "o" * 22


async def at_once(sellers: list[Seller], payment: Payment, *, times: int, run: Any = None) -> list[PaidAnswer | Problem]:
    found: list[PaidAnswer | Problem] = []

    async def present(seller: Seller) -> None:
        try:
            found.append(await seller.sell(payment, run=run or sellers[0].run))
        except Problem as problem:
            found.append(problem)

    async with anyio.create_task_group() as tasks:
        for number in range(times):
            tasks.start_soon(present, sellers[number % len(sellers)])
    return found


async def test_a_payment_buys_an_answer_at_exactly_the_price(seller: Seller) -> None:
    before, gas = await seller.income(), await seller.chain.gas(seller.wallet.address)
    purse = await seller.chain.balance(seller.wallet.address)
    payment = seller.pay()
    sold = await seller.sell(payment)
    assert sold.answer == b'{"answer": 1}'
    assert not sold.replayed
    row = await seller.row(payment)
    assert sold.receipt == {"success": True, "transaction": row.transaction, "network": "eip155:8453", "payer": payment.payer}
    assert await seller.income() == before + PRICE
    assert await seller.chain.balance(seller.wallet.address) == purse - PRICE
    assert await seller.chain.gas(seller.wallet.address) == gas
    assert await seller.events(payment) == ["admitted", "settled"]
    assert seller.bought.settled == [row.id] == seller.runs
    assert seller.bought.released == []


@pytest.mark.both_databases
async def test_the_same_payment_fifty_times_at_once_is_one_run_and_one_charge(seller: Seller) -> None:
    before = await seller.income()
    found = await at_once([seller], seller.pay(), times=50)
    answers = [each for each in found if isinstance(each, PaidAnswer)]
    assert {each.code for each in found if isinstance(each, Problem)} <= {"payment_in_flight"}
    assert {each.answer for each in answers} == {b'{"answer": 1}'}
    assert len({str(each.receipt) for each in answers}) == 1
    assert Counter(each.replayed for each in answers)[False] == 1
    assert len(seller.runs) == 1
    assert await seller.income() == before + PRICE


@pytest.mark.both_databases
async def test_two_processes_sell_one_answer(seller: Seller, other_seller: Seller) -> None:
    before = await seller.income()
    found = await at_once([seller, other_seller], seller.pay(), times=10)
    assert {each.answer for each in found if isinstance(each, PaidAnswer)} == {b'{"answer": 1}'}
    assert len(seller.runs) == 1
    assert await seller.income() == before + PRICE


async def test_a_payment_that_another_process_charges_during_its_check_gets_that_answer(seller: Seller, other_seller: Seller) -> None:
    payment = seller.pay()
    facilitator = await seller.way.facilitators.loaded()

    class Late:
        mismatch, is_signed, settle, count = facilitator.mismatch, facilitator.is_signed, facilitator.settle, facilitator.count

        async def verify(self, payment: Payment, sale: Sale) -> Verification:
            bought.append(await other_seller.sell(payment))
            return await facilitator.verify(payment, sale)

    bought = list[PaidAnswer]()
    seller.way.facilitators._loaded = Late()  # type: ignore[assignment]
    again = await seller.sell(payment)
    assert (again.replayed, again.answer, again.receipt) == (True, bought[0].answer, bought[0].receipt)
    assert seller.facilitator.outcomes("verify")[-2:] == ["valid", "invalid_exact_evm_nonce_already_used"]


async def test_the_answer_is_returned_again_for_fifteen_minutes_with_the_same_receipt(seller: Seller) -> None:
    payment = seller.pay()
    first = await seller.sell(payment)
    income = await seller.income()
    seller.clock.ahead = timedelta(minutes=14, seconds=50)
    again = await seller.sell(payment, seller.sale(frame="mcp"))
    assert (again.answer, again.receipt, again.replayed) == (first.answer, first.receipt, True)
    seller.clock.ahead = timedelta(minutes=15, seconds=1)
    assert (await seller.refusal(payment)).code == "payment_already_used"
    assert len(seller.runs) == 1
    assert await seller.income() == income
    assert await seller.events(payment) == ["admitted", "settled", "replayed"]
    assert [row.frame for row in await seller.ledger()] == ["http", "http", "mcp"]


async def test_an_answer_that_is_asked_for_again_and_again_is_one_ledger_row_per_flush(seller: Seller) -> None:
    payment = seller.pay()
    await seller.sell(payment)
    for frame in ("http", "http", "mcp"):
        await seller.sell(payment, seller.sale(frame=frame))
    lines = [(row.event, row.frame, row.quantity, row.payer) for row in await seller.ledger()]
    payer = payment.payer
    assert lines[-2:] == [("replayed", "http", 2, payer), ("replayed", "mcp", 1, payer)]
    assert len(lines) == 4


@pytest.mark.both_databases
async def test_old_answers_are_deleted_and_their_payments_are_not(seller: Seller) -> None:
    payment = seller.pay()
    await seller.sell(payment)
    await seller.job("wipe_answers")
    assert (await seller.row(payment)).answer is not None
    seller.clock.ahead = timedelta(days=2)
    await seller.job("wipe_answers")
    assert (await seller.row(payment)).answer is None
    assert (await seller.refusal(payment)).code == "payment_already_used"


async def test_a_clock_that_is_wrong_for_a_while_deletes_no_answer(seller: Seller) -> None:
    payment = seller.pay()
    await seller.sell(payment)
    for wrong in (timedelta(days=400), timedelta()):
        seller.clock.wrong = wrong
        await seller.job("wipe_answers")
    assert (await seller.sell(payment)).replayed
    seller.clock.ahead = timedelta(hours=2)
    await seller.job("wipe_answers")
    assert (await seller.row(payment)).answer is None


@pytest.mark.both_databases
async def test_a_payment_that_bought_nothing_is_deleted_a_day_after_its_end(seller: Seller) -> None:
    payment = seller.pay()

    async def fail(payment_id: str) -> bytes:
        raise Problem(503, "no_list_yet", "there is no list yet")

    assert (await seller.refusal(payment, run=fail)).code == "no_list_yet"
    seller.clock.ahead = timedelta(hours=23)
    await seller.job("wipe_answers")
    assert (await seller.row(payment)).state == "released"
    seller.clock.ahead = timedelta(hours=25)
    await seller.job("wipe_answers")
    assert await seller.rows() == []


@pytest.mark.parametrize("elsewhere", [f"{URL}?day=2026-08-20", "https://campus.example/v1/cve/fresh"])
async def test_a_payment_signed_for_one_call_buys_no_other(seller: Seller, elsewhere: str) -> None:
    before, payment = await seller.income(), seller.pay()
    assert (await seller.refusal(payment, seller.sale(elsewhere))).code == "payment_refused"
    await seller.sell(payment)
    assert (await seller.refusal(payment, seller.sale(elsewhere))).code == "payment_already_used"
    assert len(seller.runs) == 1
    assert await seller.income() == before + PRICE


async def test_a_payment_that_names_no_call_buys_the_one_it_was_first_presented_for(seller: Seller) -> None:
    signed = seller.sign()
    del signed["resource"]
    await seller.sell(read(signed))
    assert (await seller.refusal(read(signed), seller.sale(f"{URL}?day=2026-08-20"))).code == "payment_already_used"


async def test_another_payment_with_the_same_nonce_gets_nothing(seller: Seller) -> None:
    signed = seller.sign()
    nonce = signed["payload"]["authorization"]["nonce"]
    before = await seller.income()
    await seller.sell(read(signed))
    other = seller.pay(nonce=nonce, valid_before=int(seller.clock().timestamp()) + 200)
    assert (await seller.refusal(other)).code == "payment_already_used"
    assert await seller.income() == before + PRICE


async def test_while_a_call_runs_another_call_with_its_payment_is_refused_at_once(seller: Seller) -> None:
    payment = seller.pay()
    codes: list[str] = []

    async def run(payment_id: str) -> bytes:
        codes.append((await seller.refusal(payment, seller.sale("https://campus.example/v1/cve/fresh"))).code)
        return await seller.run(payment_id)

    await seller.sell(payment, run=run)
    assert codes == ["payment_already_used"]


async def test_a_resend_that_waits_too_long_gets_409_in_flight(impatient_seller: Seller) -> None:
    seller = impatient_seller
    payment = seller.pay()
    found: list[Problem] = []

    async def run(payment_id: str) -> bytes:
        found.append(await seller.refusal(payment))
        return await seller.run(payment_id)

    await seller.sell(payment, run=run)
    assert [(each.status, each.code) for each in found] == [(409, "payment_in_flight")]
    assert int(found[0].headers["Retry-After"]) > 0


@pytest.mark.parametrize("failure", [Problem(503, "no_list_yet", "there is no list yet"), RuntimeError("broken")])
async def test_a_call_that_fails_is_not_charged_and_the_payment_is_still_good(seller: Seller, failure: Exception) -> None:
    before, payment = await seller.income(), seller.pay()

    async def fail(payment_id: str) -> bytes:
        seller.runs.append(payment_id)
        raise failure

    with pytest.raises(type(failure)):
        await seller.sell(payment, run=fail)
    row = await seller.row(payment)
    assert (row.state, row.answer) == ("released", None)
    assert seller.bought.released == [row.id]
    assert await seller.income() == before
    await seller.sell(payment)
    assert await seller.income() == before + PRICE
    assert await seller.events(payment) == ["admitted", "failed", "admitted", "settled"]


async def test_when_the_first_call_fails_each_waiting_resend_may_try(seller: Seller) -> None:
    before = await seller.income()

    async def fail_once(payment_id: str) -> bytes:
        if not seller.runs:
            seller.runs.append(payment_id)
            raise RuntimeError("broken")
        return await seller.run(payment_id)

    payment = seller.pay()
    answers: list[PaidAnswer] = []

    async def present() -> None:
        try:
            answers.append(await seller.sell(payment, run=fail_once))
        except RuntimeError:
            return

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(present)
    assert len(answers) == 2
    assert len(seller.runs) == 2
    assert await seller.income() == before + PRICE


async def test_a_call_that_is_cancelled_while_its_tool_runs_is_not_charged(seller: Seller) -> None:
    before, payment = await seller.income(), seller.pay()
    with anyio.CancelScope() as scope:

        async def cancelled(payment_id: str) -> bytes:
            scope.cancel()
            await anyio.sleep_forever()
            raise AssertionError

        await seller.sell(payment, run=cancelled)
    assert scope.cancelled_caught
    assert (await seller.row(payment)).state == "released"
    assert await seller.income() == before


async def test_a_call_that_is_cancelled_after_its_tool_ran_is_charged_and_its_answer_is_stored(seller: Seller) -> None:
    before, payment = await seller.income(), seller.pay()
    with anyio.CancelScope() as scope:

        async def then_cancelled(payment_id: str) -> bytes:
            scope.cancel()
            return await seller.run(payment_id)

        await seller.sell(payment, run=then_cancelled)
    assert (await seller.row(payment)).state == "settled"
    assert (await seller.sell(payment)).replayed
    assert await seller.income() == before + PRICE


def keyed(seller: Seller, key: str | None) -> Sale:
    return seller.sale(idempotency_key=key)


async def test_a_secret_answer_is_stored_encrypted_and_only_its_key_decrypts_it(seller: Seller) -> None:
    payment = seller.pay()

    async def secret(payment_id: str) -> bytes:
        seller.runs.append(payment_id)
        return b'{"key": "campus_live_secret"}'

    first = await seller.sell(payment, keyed(seller, KEY), run=secret)
    row = await seller.row(payment)
    assert row.sealed
    assert b"campus_live" not in (row.answer or b"")
    assert (await seller.sell(payment, keyed(seller, KEY))).answer == first.answer
    for other in (OTHER_KEY, None):
        assert (await seller.refusal(payment, keyed(seller, other))).code == "payment_already_used"
    assert len(seller.runs) == 1


async def test_after_its_answer_is_deleted_the_same_idempotency_key_buys_again(seller: Seller) -> None:
    await seller.sell(seller.pay(), keyed(seller, KEY))
    seller.clock.ahead = timedelta(hours=24, seconds=1)
    await seller.job("wipe_answers")
    assert [(row.answer, row.purchase, row.client) for row in await seller.rows()] == [(None, None, None)]
    assert await seller.payments.processor.recall(keyed(seller, KEY)) is None
    sold = await seller.sell(seller.pay(valid_before=int(seller.clock().timestamp()) + 200), keyed(seller, KEY))
    assert not sold.replayed
    assert len(seller.runs) == 2


async def test_without_a_key_a_payment_finds_its_answer_only_from_the_address_that_bought_it(seller: Seller) -> None:
    payment, here, there = seller.pay(), replace(seller.sale(), client="192.0.2.7"), replace(seller.sale(), client="192.0.2.8")
    codes: list[str] = []

    async def run(payment_id: str) -> bytes:
        codes.append((await seller.refusal(payment, there)).code)
        return await seller.run(payment_id)

    first = await seller.sell(payment, here, run=run)
    assert (await seller.sell(payment, here)).answer == first.answer
    codes.append((await seller.refusal(payment, there)).code)
    assert codes == ["payment_used_elsewhere"] * 2
    seller.clock.ahead = timedelta(minutes=16)
    await seller.job("wipe_answers")
    assert (await seller.row(payment)).client is None
    assert (await seller.refusal(payment, there)).code == "payment_already_used"
