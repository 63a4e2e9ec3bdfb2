"""What happens to a payment if the facilitator fails, lies or is anticipated: charged and answered, or neither."""

from datetime import timedelta
from typing import Any

import pytest
from payments.shop import PRICE, Shop, read

from campus.payments.facilitator import X402Facilitator
from campus.payments.payment import StoredAnswer
from campus.testing.payments import new_wallet

pytestmark = pytest.mark.anyio
LATER = timedelta(seconds=11)
"""When a payment in doubt may be asked about again."""
SIGNED = {"signature", "sender"}
"""Members that only a check of the signature finds wrong."""


async def test_a_payer_without_funds_is_refused_before_the_tool_runs(shop: Shop) -> None:
    payment = shop.pay(by=new_wallet())
    problem = await shop.refusal(payment)
    assert (problem.status, problem.code) == (402, "payment_refused")
    assert "insufficient_balance" in problem.detail
    assert shop.runs == []


@pytest.mark.parametrize("fault", [{}, {"verify_status": 500}], ids=["no money", "no facilitator"])
async def test_a_payer_without_funds_leaves_one_ledger_row_per_flush_however_often_he_tries(shop: Shop, fault: dict[str, Any]) -> None:
    for name, value in fault.items():
        setattr(shop.facilitator.faults, name, value)
    nobody = new_wallet()
    for _ in range(5):
        await shop.refusal(shop.pay(by=nobody))
    assert await shop.rows() == []
    assert [(row.event, row.quantity) for row in await shop.ledger()] == [("failed" if fault else "refused", 5)]
    assert shop.released == []


@pytest.mark.parametrize(
    "changes",
    [
        {"signature": "0x" + "11" * 65},
        {"sender": "0x" + "22" * 20},
        {"extra": {"name": "Another Coin", "version": "2"}},
        {"amount": "19999"},
        {"amount": "19999", "value": 19_999},
        {"value": 19_999},
        {"to": "0x" + "33" * 20},
        {"network": "eip155:84532"},
        {"asset": "0x" + "44" * 20},
        {"valid_before": 1},
        {"valid_after": 2**40},
        {"valid_before": 2**40},
        {"resource": "https://campus.example/v1/cve/fresh"},
    ],
    ids=str,
)
async def test_a_payment_that_does_not_fit_the_call_is_refused_and_not_charged(shop: Shop, changes: dict[str, Any]) -> None:
    before = await shop.income()
    payment = shop.pay(**changes)
    problem = await shop.refusal(payment)
    assert (problem.status, problem.code) == (402, "payment_refused")
    assert problem.detail
    assert shop.runs == []
    assert await shop.income() == before
    asked = [call.operation for call in shop.facilitator.calls if call.nonce == payment.nonce]
    assert asked == (["verify"] if changes.keys() <= SIGNED else []), "only what cannot be checked here is sent to the facilitator"


async def test_terms_that_cannot_be_read_are_refused(shop: Shop) -> None:
    signed = shop.sign()
    del signed["accepted"]["maxTimeoutSeconds"]
    assert (await shop.refusal(read(signed))).code == "payment_refused"


async def test_refusals_without_a_request_are_counted_together(shop: Shop) -> None:
    for _ in range(3):
        await shop.refusal(shop.pay(value=19_999))
    await shop.job("campus.flush_ledger")
    assert [(row.event, row.quantity) for row in await shop.ledger()] == [("refused", 3)]
    assert await shop.rows() == []


async def test_a_facilitator_that_is_down_charges_nothing_and_the_payment_stays_good(shop: Shop) -> None:
    payment = shop.pay()
    shop.facilitator.faults.down = True
    problem = await shop.refusal(payment)
    assert (problem.status, problem.code) == (402, "payment_unverified")
    assert "the same payment" in problem.detail
    assert shop.runs == []
    assert len(await shop.payments.findings()) == 1
    assert "facilitator" in (await shop.payments.findings())[0]
    shop.facilitator.faults.clear()
    await shop.sell(payment)
    assert await shop.payments.findings() == []
    assert await shop.events(payment) == ["admitted", "settled"]


@pytest.mark.parametrize("fault", [{"verify_status": 500}, {"garbled": ("verify",)}, {"verify_lie": {"payer": "0x" + "55" * 20}}], ids=str)
async def test_with_a_senseless_answer_from_the_facilitator_nothing_is_charged(shop: Shop, fault: dict[str, Any]) -> None:
    payment = shop.pay()
    for name, value in fault.items():
        setattr(shop.facilitator.faults, name, value)
    assert (await shop.refusal(payment)).code == "payment_unverified"
    assert await shop.rows() == []
    assert shop.runs == []


@pytest.mark.parametrize(
    "fault",
    [
        {"settle_status": 500},
        {"garbled": ("settle",)},
        {"lie": {"network": "eip155:1"}},
        {"lie": {"success": False, "errorReason": "insufficient_funds", "transaction": ""}},
    ],
    ids=str,
)
async def test_a_charge_that_the_facilitator_does_not_report_is_found_on_the_chain_and_answered(shop: Shop, fault: dict[str, Any]) -> None:
    before, payment = await shop.income(), shop.pay()
    for name, value in fault.items():
        setattr(shop.facilitator.faults, name, value)
    sold = await shop.sell(payment)
    assert await shop.income() == before + PRICE
    [transfer] = await shop.chain.transfers(sender=shop.wallet.address, receiver=shop.pay_to)
    assert sold.receipt["transaction"] == transfer.transaction
    assert (await shop.sell(payment)).replayed
    assert len(shop.runs) == len(shop.settled) == 1
    assert await shop.events(payment) == ["admitted", "unknown", "settled", "replayed"]


async def test_a_charge_that_the_chain_has_not_confirmed_yet_is_sent_once(shop: Shop) -> None:
    payment = shop.pay()
    shop.facilitator.faults.lie = {"success": False, "errorReason": "settlement_pending"}
    await shop.sell(payment)
    assert len([call for call in shop.facilitator.calls if call.operation == "settle" and call.nonce == payment.nonce]) == 1


async def test_a_charge_that_did_not_happen_is_made_when_the_payment_is_sent_again(shop: Shop) -> None:
    before, payment = await shop.income(), shop.pay()
    shop.facilitator.faults.settle_status_before = 500
    problem = await shop.refusal(payment)
    assert (problem.status, problem.code) == (409, "payment_in_flight")
    assert int(problem.headers["Retry-After"]) > 0
    assert (await shop.row(payment)).state == "unknown"
    assert await shop.income() == before
    shop.facilitator.faults.clear()
    shop.clock.ahead = LATER
    sold = await shop.sell(payment)
    assert await shop.income() == before + PRICE
    assert sold.answer == StoredAnswer(b'{"answer": 1}')
    assert len(shop.runs) == 1
    assert await shop.events(payment) == ["admitted", "unknown", "settled"]


async def test_a_payment_in_doubt_is_charged_at_the_price_at_which_it_was_taken(shop: Shop) -> None:
    before, payment = await shop.income(), shop.pay()
    shop.facilitator.faults.settle_status_before = 500
    assert (await shop.refusal(payment)).code == "payment_in_flight"
    shop.facilitator.faults.clear()
    shop.clock.ahead = LATER
    sold = await shop.sell(payment, shop.sale(amount=2 * PRICE))
    assert sold.answer == StoredAnswer(b'{"answer": 1}')
    assert await shop.income() == before + PRICE


async def test_a_facilitator_that_goes_away_before_it_charges_leaves_the_payment_in_doubt_and_no_new_terms(shop: Shop) -> None:
    payment = shop.pay()

    async def run(payment_id: str) -> StoredAnswer:
        shop.facilitator.faults.down = True
        return await shop.run(payment_id)

    for _ in range(2):
        assert (await shop.refusal(payment, run=run)).code == "payment_in_flight"
        shop.clock.ahead += LATER
    assert len(shop.runs) == 1
    shop.facilitator.faults.clear()
    await shop.sell(payment)
    assert len(shop.runs) == 1


async def test_without_facilitator_and_chain_a_payment_stays_unknown_until_one_answers(shop: Shop, storage_url: str) -> None:
    before, payment = await shop.income(), shop.pay()
    shop.facilitator.faults.settle_status = 500
    async with shop.beside(storage_url, rpc_url="http://127.0.0.1:9") as blind:
        assert (await blind.refusal(payment)).code == "payment_in_flight"
        assert [each.partition(" is in trouble")[0] for each in await blind.payments.findings()] == ["the facilitator", "the chain"]
        shop.clock.ahead = LATER
        assert [each.after for each in await blind.payments.reconciler.resolve()] == ["unknown"]
    shop.clock.ahead += LATER
    assert [each.after for each in await shop.payments.reconciler.resolve()] == ["settled"]
    assert (await shop.sell(payment)).replayed
    assert await shop.income() == before + PRICE


async def test_a_facilitator_that_hangs_is_not_waited_for(shop: Shop) -> None:
    engine = X402Facilitator(
        shop.payments.client, url=shop.facilitator.url, network=shop.chain.network, verify_seconds=0.2, settle_seconds=0.2
    )
    shop.facilitator.faults.hang_seconds = 60
    verdict = await engine.verify(shop.pay(), shop.sale())
    assert (verdict.valid, verdict.reachable) == (False, False)
    assert (await engine.settle(shop.pay(), shop.sale())).state == "unknown"
    assert "in time" in (engine.trouble or "")


async def test_while_its_outcome_is_unknown_no_other_call_gets_the_payment(shop: Shop) -> None:
    payment = shop.pay()
    shop.facilitator.faults.settle_status_before = 500
    await shop.refusal(payment)
    assert (await shop.refusal(payment, shop.sale("https://campus.example/v1/cve/fresh"))).code == "payment_already_used"


async def forestalled(shop: Shop, act: Any) -> Any:
    """A call during whose tool the payer acts."""
    signed = shop.sign()

    async def run(payment_id: str) -> StoredAnswer:
        await act(signed)
        return await shop.run(payment_id)

    return read(signed), run


async def test_a_nonce_that_the_payer_spends_on_himself_meanwhile_buys_nothing(shop: Shop) -> None:
    before = await shop.income()

    async def pay_himself(signed: dict[str, Any]) -> None:
        nonce = signed["payload"]["authorization"]["nonce"]
        await shop.chain.transfer_with_authorization(shop.sign(to=shop.wallet.address, nonce=nonce))

    payment, run = await forestalled(shop, pay_himself)
    assert (await shop.refusal(payment, run=run)).code == "payment_in_flight"
    assert await shop.income() == before
    row = await shop.row(payment)
    assert (row.state, "another transfer" in row.reason) == ("unknown", True)
    assert await shop.events(payment) == ["admitted", "unknown"]


async def test_an_authorization_that_the_payer_cancels_meanwhile_buys_nothing(shop: Shop) -> None:
    before = await shop.income()

    async def cancel(signed: dict[str, Any]) -> None:
        await shop.chain.cancel_authorization(shop.wallet, signed["payload"]["authorization"]["nonce"])

    payment, run = await forestalled(shop, cancel)
    assert (await shop.refusal(payment, run=run)).code == "payment_in_flight"
    assert "cancelled" in (await shop.row(payment)).reason
    assert await shop.income() == before


async def test_a_payment_that_a_watcher_submits_meanwhile_is_one_charge_and_answered(shop: Shop) -> None:
    before = await shop.income()
    payment, run = await forestalled(shop, shop.chain.transfer_with_authorization)
    sold = await shop.sell(payment, run=run)
    assert sold.answer == StoredAnswer(b'{"answer": 1}')
    assert await shop.income() == before + PRICE


async def test_a_payer_who_moves_his_funds_away_meanwhile_is_not_charged_and_gets_nothing(shop: Shop) -> None:
    before = await shop.income()

    async def move_away(signed: dict[str, Any]) -> None:
        purse = await shop.chain.balance(shop.wallet.address)
        await shop.chain.transfer_with_authorization(shop.sign(to="0x" + "66" * 20, value=purse))

    payment, run = await forestalled(shop, move_away)
    problem = await shop.refusal(payment, run=run)
    assert problem.code in ("payment_refused", "payment_in_flight")
    assert await shop.income() == before
    assert shop.settled == []
