"""One payment is charged once and buys one answer: sent at once, again, from elsewhere, and when the tool fails."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any

import anyio
import pytest
from payments.shop import PRICE, URL, Shop, read

from campus.payments.payment import PaidAnswer, Payment, Sale, StoredAnswer
from campus.testing.payments import Chain, new_wallet
from twins import Problem

pytestmark = pytest.mark.anyio
KEY, OTHER_KEY = "k" * 22, "o" * 22


async def at_once(shops: list[Shop], payment: Payment, *, times: int, run: Any = None) -> list[PaidAnswer | Problem]:
    """The same payment presented many times, in turn to each of the processes."""
    found: list[PaidAnswer | Problem] = []

    async def present(shop: Shop) -> None:
        try:
            found.append(await shop.sell(payment, run=run or shops[0].run))
        except Problem as problem:
            found.append(problem)

    async with anyio.create_task_group() as tasks:
        for number in range(times):
            tasks.start_soon(present, shops[number % len(shops)])
    return found


async def test_a_payment_buys_an_answer_at_exactly_the_price(shop: Shop) -> None:
    before, gas = await shop.income(), await shop.chain.gas(shop.wallet.address)
    purse = await shop.chain.balance(shop.wallet.address)
    payment = shop.pay()
    sold = await shop.sell(payment)
    assert sold.answer == StoredAnswer(b'{"answer": 1}')
    assert not sold.replayed
    row = await shop.row(payment)
    assert sold.receipt == {"success": True, "transaction": row.transaction, "network": "eip155:8453", "payer": payment.payer}
    assert await shop.income() == before + PRICE
    assert await shop.chain.balance(shop.wallet.address) == purse - PRICE
    assert await shop.chain.gas(shop.wallet.address) == gas
    assert await shop.events(payment) == ["admitted", "settled"]
    assert shop.settled == [row.id] == shop.runs
    assert shop.released == []


async def test_the_same_payment_fifty_times_at_once_is_one_run_and_one_charge(shop: Shop) -> None:
    before = await shop.income()
    found = await at_once([shop], shop.pay(), times=50)
    answers = [each for each in found if isinstance(each, PaidAnswer)]
    assert {each.code for each in found if isinstance(each, Problem)} <= {"payment_in_flight"}
    assert {each.answer.body for each in answers} == {b'{"answer": 1}'}
    assert len({str(each.receipt) for each in answers}) == 1
    assert Counter(each.replayed for each in answers)[False] == 1
    assert len(shop.runs) == 1
    assert await shop.income() == before + PRICE


async def test_two_processes_sell_one_answer(shop: Shop, other_shop: Shop) -> None:
    before = await shop.income()
    found = await at_once([shop, other_shop], shop.pay(), times=10)
    assert {each.answer.body for each in found if isinstance(each, PaidAnswer)} == {b'{"answer": 1}'}
    assert len(shop.runs) == 1
    assert await shop.income() == before + PRICE


async def test_the_answer_is_returned_again_for_fifteen_minutes_with_the_same_receipt(shop: Shop) -> None:
    payment = shop.pay()
    first = await shop.sell(payment)
    income = await shop.income()
    shop.clock.ahead = timedelta(minutes=14, seconds=50)
    again = await shop.sell(payment, shop.sale(frame="mcp"))
    assert (again.answer, again.receipt, again.replayed) == (first.answer, first.receipt, True)
    shop.clock.ahead = timedelta(minutes=15, seconds=1)
    assert (await shop.refusal(payment)).code == "payment_already_used"
    assert len(shop.runs) == 1
    assert await shop.income() == income
    assert await shop.events(payment) == ["admitted", "settled", "replayed"]
    assert [row.frame for row in await shop.ledger()] == ["http", "http", "mcp"]


async def test_an_answer_that_is_asked_for_again_and_again_is_one_ledger_row_per_flush(shop: Shop) -> None:
    payment = shop.pay()
    await shop.sell(payment)
    for frame in ("http", "http", "mcp"):
        await shop.sell(payment, shop.sale(frame=frame))
    lines = [(row.event, row.frame, row.quantity, row.payer) for row in await shop.ledger()]
    payer = payment.payer
    assert lines[-2:] == [("replayed", "http", 2, payer), ("replayed", "mcp", 1, payer)]
    assert len(lines) == 4


async def test_old_answers_are_deleted_and_their_payments_are_not(shop: Shop) -> None:
    payment = shop.pay()
    await shop.sell(payment)
    await shop.job("campus.wipe_answers")
    assert (await shop.row(payment)).answer is not None
    shop.clock.ahead = timedelta(days=2)
    await shop.job("campus.wipe_answers")
    assert (await shop.row(payment)).answer is None
    assert (await shop.refusal(payment)).code == "payment_already_used"


async def test_a_clock_that_is_wrong_for_a_while_deletes_no_answer(shop: Shop) -> None:
    payment = shop.pay()
    await shop.sell(payment)
    for wrong in (timedelta(days=400), timedelta()):
        shop.clock.wrong = wrong
        await shop.job("campus.wipe_answers")
    assert (await shop.sell(payment)).replayed
    shop.clock.ahead = timedelta(hours=2)
    await shop.job("campus.wipe_answers")
    assert (await shop.row(payment)).answer is None


async def test_a_payment_that_bought_nothing_is_deleted_a_day_after_its_end(shop: Shop) -> None:
    payment = shop.pay()

    async def fail(payment_id: str) -> StoredAnswer:
        raise Problem(503, "no_list_yet", "there is no list yet")

    assert (await shop.refusal(payment, run=fail)).code == "no_list_yet"
    shop.clock.ahead = timedelta(hours=23)
    await shop.job("campus.wipe_answers")
    assert (await shop.row(payment)).state == "released"
    shop.clock.ahead = timedelta(hours=25)
    await shop.job("campus.wipe_answers")
    assert await shop.rows() == []


@pytest.mark.parametrize("elsewhere", [f"{URL}?day=2026-08-20", "https://campus.example/v1/cve/fresh"])
async def test_a_payment_signed_for_one_call_buys_no_other(shop: Shop, elsewhere: str) -> None:
    before, payment = await shop.income(), shop.pay()
    assert (await shop.refusal(payment, shop.sale(elsewhere))).code == "payment_refused"
    await shop.sell(payment)
    assert (await shop.refusal(payment, shop.sale(elsewhere))).code == "payment_already_used"
    assert len(shop.runs) == 1
    assert await shop.income() == before + PRICE


async def test_a_payment_that_names_no_call_buys_the_one_it_was_first_presented_for(shop: Shop) -> None:
    signed = shop.sign()
    del signed["resource"]
    await shop.sell(read(signed))
    assert (await shop.refusal(read(signed), shop.sale(f"{URL}?day=2026-08-20"))).code == "payment_already_used"


async def test_another_payment_with_the_same_nonce_gets_nothing(shop: Shop) -> None:
    signed = shop.sign()
    nonce = signed["payload"]["authorization"]["nonce"]
    before = await shop.income()
    await shop.sell(read(signed))
    other = shop.pay(nonce=nonce, valid_before=int(shop.clock().timestamp()) + 200)
    assert (await shop.refusal(other)).code == "payment_already_used"
    assert await shop.income() == before + PRICE


async def test_while_a_call_runs_another_call_with_its_payment_is_refused_at_once(shop: Shop) -> None:
    payment = shop.pay()
    codes: list[str] = []

    async def run(payment_id: str) -> StoredAnswer:
        codes.append((await shop.refusal(payment, shop.sale("https://campus.example/v1/cve/fresh"))).code)
        return await shop.run(payment_id)

    await shop.sell(payment, run=run)
    assert codes == ["payment_already_used"]


async def test_a_resend_that_waits_too_long_gets_409_in_flight(impatient_shop: Shop) -> None:
    shop = impatient_shop
    payment = shop.pay()
    found: list[Problem] = []

    async def run(payment_id: str) -> StoredAnswer:
        found.append(await shop.refusal(payment))
        return await shop.run(payment_id)

    await shop.sell(payment, run=run)
    assert [(each.status, each.code) for each in found] == [(409, "payment_in_flight")]
    assert int(found[0].headers["Retry-After"]) > 0


@pytest.mark.parametrize("failure", [Problem(503, "no_list_yet", "there is no list yet"), RuntimeError("broken")])
async def test_a_call_that_fails_is_not_charged_and_the_payment_is_still_good(shop: Shop, failure: Exception) -> None:
    before, payment = await shop.income(), shop.pay()

    async def fail(payment_id: str) -> StoredAnswer:
        shop.runs.append(payment_id)
        raise failure

    with pytest.raises(type(failure)):
        await shop.sell(payment, run=fail)
    row = await shop.row(payment)
    assert (row.state, row.answer) == ("released", None)
    assert shop.released == [row.id]
    assert await shop.income() == before
    await shop.sell(payment)
    assert await shop.income() == before + PRICE
    assert await shop.events(payment) == ["admitted", "failed", "admitted", "settled"]


async def test_when_the_first_call_fails_each_waiting_resend_may_try(shop: Shop) -> None:
    before = await shop.income()

    async def fail_once(payment_id: str) -> StoredAnswer:
        if not shop.runs:
            shop.runs.append(payment_id)
            raise RuntimeError("broken")
        return await shop.run(payment_id)

    payment = shop.pay()
    answers: list[PaidAnswer] = []

    async def present() -> None:
        try:
            answers.append(await shop.sell(payment, run=fail_once))
        except RuntimeError:
            return

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(present)
    assert len(answers) == 2
    assert len(shop.runs) == 2
    assert await shop.income() == before + PRICE


async def test_a_call_that_is_cancelled_while_its_tool_runs_is_not_charged(shop: Shop) -> None:
    before, payment = await shop.income(), shop.pay()
    with anyio.CancelScope() as scope:

        async def cancelled(payment_id: str) -> StoredAnswer:
            scope.cancel()
            await anyio.sleep_forever()
            raise AssertionError

        await shop.sell(payment, run=cancelled)
    assert scope.cancelled_caught
    assert (await shop.row(payment)).state == "released"
    assert await shop.income() == before


async def test_a_call_that_is_cancelled_after_its_tool_ran_is_charged_and_its_answer_is_stored(shop: Shop) -> None:
    before, payment = await shop.income(), shop.pay()
    with anyio.CancelScope() as scope:

        async def then_cancelled(payment_id: str) -> StoredAnswer:
            scope.cancel()
            return await shop.run(payment_id)

        await shop.sell(payment, run=then_cancelled)
    assert (await shop.row(payment)).state == "settled"
    assert (await shop.sell(payment)).replayed
    assert await shop.income() == before + PRICE


def keyed(shop: Shop, key: str | None) -> Sale:
    return shop.sale(idempotency_key=key)


async def test_a_secret_answer_is_stored_encrypted_and_only_its_key_decrypts_it(shop: Shop) -> None:
    payment = shop.pay()

    async def secret(payment_id: str) -> StoredAnswer:
        shop.runs.append(payment_id)
        return StoredAnswer(b'{"key": "campus_live_secret"}')

    first = await shop.sell(payment, keyed(shop, KEY), run=secret)
    row = await shop.row(payment)
    assert row.sealed
    assert b"campus_live" not in (row.answer or b"")
    assert (await shop.sell(payment, keyed(shop, KEY))).answer == first.answer
    for other in (OTHER_KEY, None):
        assert (await shop.refusal(payment, keyed(shop, other))).code == "payment_already_used"
    assert len(shop.runs) == 1


async def test_after_its_answer_is_deleted_the_same_idempotency_key_buys_again(shop: Shop) -> None:
    await shop.sell(shop.pay(), keyed(shop, KEY))
    shop.clock.ahead = timedelta(hours=24, seconds=1)
    await shop.job("campus.wipe_answers")
    assert [(row.answer, row.purchase, row.client) for row in await shop.rows()] == [(None, None, None)]
    assert await shop.payments.processor.recall(keyed(shop, KEY)) is None
    sold = await shop.sell(shop.pay(valid_before=int(shop.clock().timestamp()) + 200), keyed(shop, KEY))
    assert not sold.replayed
    assert len(shop.runs) == 2


async def test_an_idempotency_key_finds_the_purchase_of_its_payer_and_of_no_other(shop: Shop, chain: Chain) -> None:
    other, before = new_wallet(), await shop.income()
    await chain.mint(other.address, PRICE)
    first = await shop.sell(shop.pay(), keyed(shop, KEY))
    assert (await shop.payments.processor.recall(keyed(shop, KEY))) is not None
    second = await shop.sell(shop.pay(by=other), keyed(shop, KEY))
    assert (first.answer, second.answer, second.replayed) == (StoredAnswer(b'{"answer": 1}'), StoredAnswer(b'{"answer": 2}'), False)
    assert await shop.income() == before + 2 * PRICE
    assert (await shop.sell(shop.pay(), keyed(shop, KEY))).answer == first.answer
    with pytest.raises(Problem) as refused:
        await shop.payments.processor.recall(keyed(shop, KEY))
    assert (refused.value.status, refused.value.code) == (409, "idempotency_key_ambiguous")


async def test_without_a_key_a_payment_finds_its_answer_only_from_the_address_that_bought_it(shop: Shop) -> None:
    payment, here, there = shop.pay(), replace(shop.sale(), client="192.0.2.7"), replace(shop.sale(), client="192.0.2.8")
    codes: list[str] = []

    async def run(payment_id: str) -> StoredAnswer:
        codes.append((await shop.refusal(payment, there)).code)
        return await shop.run(payment_id)

    first = await shop.sell(payment, here, run=run)
    assert (await shop.sell(payment, here)).answer == first.answer
    codes.append((await shop.refusal(payment, there)).code)
    assert codes == ["payment_used_elsewhere"] * 2
    shop.clock.ahead = timedelta(minutes=16)
    await shop.job("campus.wipe_answers")
    assert (await shop.row(payment)).client is None
    assert (await shop.refusal(payment, there)).code == "payment_already_used"
