"""What happens to a payment if the facilitator fails, lies or is anticipated: charged and answered, or neither."""

import re
from datetime import timedelta
from typing import Any

import pytest
from features.payments.seller import PRICE, Seller, read
from patience import patience

from campus.errors import StorageUnavailable
from campus.features.chain import new_wallet
from campus.features.payments.facilitator import X402Facilitator
from campus.features.payments.payment import PaymentOutcome
from campus.features.payments.queue import QueueLimits
from campus.features.payments.settlement import ChainTimeouts

pytestmark = pytest.mark.anyio
LATER = timedelta(seconds=11)
"""When a payment in doubt may be asked about again."""
OF_A_CONTRACT = "0x" + "11" * 97
"""A signature longer than an account's: only a contract wallet could accept it, so only the facilitator can check it."""


async def test_a_payer_without_funds_is_refused_before_the_tool_runs(seller: Seller) -> None:
    payment = seller.pay(by=new_wallet())
    problem = await seller.refusal(payment)
    assert (problem.status, problem.code) == (402, "payment_refused")
    assert "insufficient_balance" in problem.detail
    assert seller.runs == []


async def test_a_refusal_is_one_whatever_status_the_facilitator_gives_it_and_its_own_failure_is_none(seller: Seller) -> None:
    for status, code in ((400, "payment_refused"), (500, "payment_unverified")):
        seller.facilitator.faults.invalid_status = status
        problem = await seller.refusal(seller.pay(by=new_wallet()))
        assert problem.code == code
        assert ("insufficient_balance" in problem.detail, len(await seller.payments.findings())) == ((True, 0), (False, 1))[status == 500]


@pytest.mark.parametrize("fault", [{}, {"verify_status": 500}], ids=["no money", "no facilitator"])
async def test_a_payer_without_funds_leaves_one_ledger_row_per_flush_however_often_he_tries(seller: Seller, fault: dict[str, Any]) -> None:
    for name, value in fault.items():
        setattr(seller.facilitator.faults, name, value)
    nobody = new_wallet()
    for _ in range(5):
        await seller.refusal(seller.pay(by=nobody))
    assert await seller.rows() == []
    assert [(row.event, row.quantity) for row in await seller.ledger()] == [("failed" if fault else "refused", 5)]
    assert seller.bought.released == []


UNFIT: tuple[dict[str, Any], ...] = (
    {"signature": OF_A_CONTRACT},
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
)


async def test_a_payment_that_does_not_fit_the_call_is_refused_and_not_charged(seller: Seller) -> None:
    before = await seller.income()
    for changes in UNFIT:
        payment = seller.pay(**changes)
        problem = await seller.refusal(payment)
        assert (problem.status, problem.code) == (402, "payment_refused"), changes
        assert problem.detail, changes
        asked = [call.operation for call in seller.facilitator.calls if call.nonce == payment.nonce]
        to_ask = ["verify"] if changes == {"signature": OF_A_CONTRACT} else []
        assert asked == to_ask, f"only what cannot be checked here is sent to the facilitator: {changes}"
    assert (seller.runs, await seller.income()) == ([], before)


async def test_a_payer_whose_clock_is_wrong_is_told_so_with_the_clocks_that_it_differs_from(seller: Seller) -> None:
    # slow; so fast that it is seen here; so fast that the facilitator says so
    for ahead, is_asked, said in ((-330, False, "slow"), (700, False, "fast"), (600, True, "fast")):
        signed_at = int(seller.clock().timestamp()) + ahead
        early = 310 if is_asked else 600  # clients sign payments as valid since some minutes, each its own number
        payment = seller.pay(valid_after=signed_at - early, valid_before=signed_at + 300)
        problem = await seller.refusal(payment)
        assert problem.code == "payment_refused"
        assert [call.operation for call in seller.facilitator.calls if call.nonce == payment.nonce] == ["verify"] * is_asked, ahead
        found = re.search(
            r"from (\d+) to (\d+), and it is (\d+) by .* clock and (\d+) by the chain's, .* about (\d+) seconds (\w+)", problem.detail
        )
        assert found is not None, problem.detail
        since, until, own, chain, off = map(int, found.groups()[:5])
        assert (since, until, found[6]) == (payment.valid_after, payment.valid_before, said)
        assert abs(own - (signed_at - ahead)) < patience(30)
        assert off == abs(until - 300 - chain), "the chain's clock judges"


async def test_a_payer_whose_clock_is_right_is_told_nothing_of_clocks(seller: Seller, storage_url: str) -> None:
    assert "clock" not in (await seller.refusal(seller.pay(by=new_wallet()))).detail
    async with seller.beside(storage_url, rpc_url="http://127.0.0.1:9") as blind:
        payment = blind.pay(valid_before=int(seller.clock().timestamp()) - 30)
        detail = (await blind.refusal(payment)).detail
    found = re.search(r"it is (\d+) by this service's clock, .* about (\d+) seconds slow", detail)
    assert found is not None, detail
    own, off = map(int, found.groups())
    assert off == own - (payment.valid_before - 300), "a second may have passed since it was signed"
    assert "chain's" not in detail, "its node cannot be asked"


async def test_terms_that_cannot_be_read_are_refused(seller: Seller) -> None:
    signed = seller.sign()
    del signed["accepted"]["maxTimeoutSeconds"]
    assert (await seller.refusal(read(signed))).code == "payment_refused"


async def test_refusals_without_a_request_are_counted_together(seller: Seller) -> None:
    for _ in range(3):
        await seller.refusal(seller.pay(value=19_999))
    await seller.payments.ledger.flush()
    assert [(row.event, row.quantity) for row in await seller.ledger()] == [("refused", 3)]
    assert await seller.rows() == []


async def test_a_facilitator_that_is_down_charges_nothing_and_the_payment_stays_good(seller: Seller) -> None:
    payment = seller.pay()
    seller.facilitator.faults.down = True
    problem = await seller.refusal(payment)
    assert (problem.status, problem.code) == (402, "payment_unverified")
    assert "the same payment" in problem.detail
    assert seller.runs == []
    assert len(await seller.payments.findings()) == 1
    assert "facilitator" in (await seller.payments.findings())[0]
    seller.facilitator.faults.clear()
    await seller.sell(payment)
    assert await seller.payments.findings() == []
    assert await seller.events(payment) == ["admitted", "settled"]


async def test_with_a_senseless_answer_from_the_facilitator_nothing_is_charged(seller: Seller) -> None:
    senseless: tuple[tuple[str, Any], ...] = (
        ("verify_status", 500),
        ("garbled", ("verify",)),
        ("verify_lie", {"payer": "0x" + "55" * 20}),
    )
    for name, value in senseless:
        setattr(seller.facilitator.faults, name, value)
        assert (await seller.refusal(seller.pay())).code == "payment_unverified", name
        seller.facilitator.faults.clear()
    assert (await seller.rows(), seller.runs) == ([], [])


async def test_a_charge_that_the_facilitator_does_not_report_is_found_on_the_chain_and_answered(seller: Seller) -> None:
    unreported: tuple[tuple[str, Any], ...] = (
        ("settle_status", 500),
        ("garbled", ("settle",)),
        ("lie", {"network": "eip155:1"}),
        ("lie", {"success": False, "errorReason": "insufficient_funds", "transaction": ""}),
    )
    for number, (name, value) in enumerate(unreported, start=1):
        payment = seller.pay()
        setattr(seller.facilitator.faults, name, value)
        sold = await seller.sell(payment)
        seller.facilitator.faults.clear()
        transfers = await seller.chain.transfers(sender=seller.wallet.address, receiver=seller.pay_to)
        assert (len(transfers), await seller.income()) == (number, number * PRICE), (name, value)
        assert sold.receipt["transaction"] == transfers[-1].transaction
        assert (await seller.sell(payment)).replayed
        assert len(seller.runs) == len(seller.bought.settled) == number
        mine = (await seller.row(payment)).id
        events = [row.event for row in await seller.ledger() if row.payment_id == mine]
        assert events == ["admitted", "unknown", "settled", "replayed"], (name, value)


async def test_a_charge_that_the_chain_has_not_confirmed_yet_is_sent_once(seller: Seller) -> None:
    payment = seller.pay()
    seller.facilitator.faults.lie = {"success": False, "errorReason": "settlement_pending"}
    await seller.sell(payment)
    assert len([call for call in seller.facilitator.calls if call.operation == "settle" and call.nonce == payment.nonce]) == 1


async def test_a_charge_that_did_not_happen_is_made_when_the_payment_is_sent_again(seller: Seller) -> None:
    before, payment = await seller.income(), seller.pay()
    seller.facilitator.faults.settle_status_before = 500
    problem = await seller.refusal(payment)
    assert (problem.status, problem.code) == (409, "payment_in_flight")
    assert int(problem.headers["Retry-After"]) > 0
    assert (await seller.row(payment)).state == "unknown"
    assert await seller.income() == before
    seller.facilitator.faults.clear()
    seller.clock.ahead = LATER
    sold = await seller.sell(payment)
    assert await seller.income() == before + PRICE
    assert sold.answer == b'{"answer": 1}'
    assert len(seller.runs) == 1
    assert await seller.events(payment) == ["admitted", "unknown", "settled"]


async def test_a_payment_in_doubt_is_charged_at_the_price_at_which_it_was_taken(seller: Seller) -> None:
    before, payment = await seller.income(), seller.pay()
    seller.facilitator.faults.settle_status_before = 500
    assert (await seller.refusal(payment)).code == "payment_in_flight"
    seller.facilitator.faults.clear()
    seller.clock.ahead = LATER
    sold = await seller.sell(payment, seller.sale(amount=2 * PRICE))
    assert sold.answer == b'{"answer": 1}'
    assert await seller.income() == before + PRICE


async def test_a_facilitator_that_goes_away_before_it_charges_leaves_the_payment_in_doubt_and_no_new_terms(seller: Seller) -> None:
    payment = seller.pay()

    async def run(payment_id: str) -> bytes:
        seller.facilitator.faults.down = True
        return await seller.run(payment_id)

    for _ in range(2):
        assert (await seller.refusal(payment, run=run)).code == "payment_in_flight"
        seller.clock.ahead += LATER
    assert len(seller.runs) == 1
    seller.facilitator.faults.clear()
    await seller.sell(payment)
    assert len(seller.runs) == 1


async def test_without_facilitator_and_chain_a_payment_stays_unknown_until_one_answers(seller: Seller, storage_url: str) -> None:
    before, payment = await seller.income(), seller.pay()
    seller.facilitator.faults.settle_status = 500
    async with seller.beside(storage_url, rpc_url="http://127.0.0.1:9") as blind:
        assert (await blind.refusal(payment)).code == "payment_in_flight"
        assert [each.partition(" is in trouble")[0] for each in await blind.payments.findings()] == [
            f"the facilitator at {seller.facilitator.url.removeprefix('http://')}",
            "the chain",
        ]
        seller.clock.ahead = LATER
        assert [each.after for each in await blind.payments.resolve()] == ["unknown"]
    seller.clock.ahead += LATER
    assert [each.after for each in await seller.payments.resolve()] == ["settled"]
    assert (await seller.sell(payment)).replayed
    assert await seller.income() == before + PRICE


async def test_a_facilitator_that_hangs_is_not_waited_for(seller: Seller) -> None:
    engine = X402Facilitator(
        seller.way.facilitators.clients[0][1],
        url=seller.facilitator.url,
        network=seller.chain.network,
        verify_seconds=0.2,
        settle_seconds=0.2,
    )
    seller.facilitator.faults.hang_seconds = 60
    verdict = await engine.verify(seller.pay(), seller.sale())
    assert (verdict.valid, verdict.reachable) == (False, False)
    assert (await engine.settle(engine.signed(seller.pay(), seller.sale()))).state == "unknown"
    assert "in time" in (engine.trouble or "")


async def test_while_its_outcome_is_unknown_no_other_call_gets_the_payment(seller: Seller) -> None:
    payment = seller.pay()
    seller.facilitator.faults.settle_status_before = 500
    await seller.refusal(payment)
    assert (await seller.refusal(payment, seller.sale("https://campus.example/v1/cve/fresh"))).code == "payment_already_used"


@pytest.mark.parametrize("is_in_doubt", [False, True], ids=["sent for the first time", "sent again after a doubt"])
async def test_when_the_charge_cannot_be_recorded_the_caller_is_told_to_send_the_same_payment_again(
    seller: Seller, is_in_doubt: bool
) -> None:
    before, payment, reservations = await seller.income(), seller.pay(), seller.payments.processor.reservations
    facilitator = await seller.way.facilitators.loaded()
    if is_in_doubt:
        seller.facilitator.faults.settle_status_before = 500
        assert (await seller.refusal(payment)).code == "payment_in_flight"
        seller.facilitator.faults.clear()
        seller.clock.ahead = LATER

    class FullDisk:
        read = seller.storage.read

        def write(self) -> Any:
            raise StorageUnavailable("the disk is full")

    class Full:
        mismatch, is_signed, verify, signed = facilitator.mismatch, facilitator.is_signed, facilitator.verify, facilitator.signed
        count = facilitator.count

        async def settle(self, signed: bytes, *, turn: int = 0) -> PaymentOutcome:
            reservations._storage = FullDisk()  # type: ignore[assignment]
            return await facilitator.settle(signed)

    seller.way.facilitators._loaded = Full()  # type: ignore[assignment]
    problem = await seller.refusal(payment)
    assert (problem.status, problem.code) == (409, "payment_in_flight")
    seller.way.facilitators._loaded, reservations._storage = facilitator, seller.storage
    seller.clock.ahead += LATER
    await seller.sell(payment)
    assert len(seller.runs) == 1
    assert await seller.income() == before + PRICE


async def forestalled(seller: Seller, act: Any) -> Any:
    signed = seller.sign()

    async def run(payment_id: str) -> bytes:
        await act(signed)
        return await seller.run(payment_id)

    return read(signed), run


async def test_a_nonce_that_the_payer_spends_on_himself_meanwhile_buys_nothing(seller: Seller) -> None:
    before = await seller.income()

    async def pay_himself(signed: dict[str, Any]) -> None:
        nonce = signed["payload"]["authorization"]["nonce"]
        await seller.chain.transfer_with_authorization(seller.sign(to=seller.wallet.address, nonce=nonce))

    payment, run = await forestalled(seller, pay_himself)
    assert (await seller.refusal(payment, run=run)).code == "payment_in_flight"
    assert await seller.income() == before
    row = await seller.row(payment)
    assert (row.state, "another transfer" in row.reason) == ("unknown", True)
    assert await seller.events(payment) == ["admitted", "unknown"]


async def test_an_authorization_that_the_payer_cancels_meanwhile_buys_nothing(seller: Seller) -> None:
    before = await seller.income()

    async def cancel(signed: dict[str, Any]) -> None:
        await seller.chain.cancel_authorization(seller.wallet, signed["payload"]["authorization"]["nonce"])

    payment, run = await forestalled(seller, cancel)
    assert (await seller.refusal(payment, run=run)).code == "payment_in_flight"
    assert "cancelled" in (await seller.row(payment)).reason
    assert await seller.income() == before


async def test_a_payment_that_a_watcher_submits_meanwhile_is_one_charge_and_answered(seller: Seller) -> None:
    before = await seller.income()
    payment, run = await forestalled(seller, seller.chain.transfer_with_authorization)
    sold = await seller.sell(payment, run=run)
    assert sold.answer == b'{"answer": 1}'
    assert await seller.income() == before + PRICE


async def test_a_payer_who_moves_his_funds_away_meanwhile_is_not_charged_and_gets_nothing(seller: Seller) -> None:
    before = await seller.income()

    async def move_away(signed: dict[str, Any]) -> None:
        purse = await seller.chain.balance(seller.wallet.address)
        await seller.chain.transfer_with_authorization(seller.sign(to="0x" + "66" * 20, value=purse))

    payment, run = await forestalled(seller, move_away)
    problem = await seller.refusal(payment, run=run)
    assert problem.code in ("payment_refused", "payment_in_flight")
    assert await seller.income() == before
    assert seller.bought.settled == []


async def test_a_wallet_whose_payments_cannot_be_charged_soon_has_no_more_tools_run_for_it(seller: Seller, storage_url: str) -> None:
    refused = {"success": False, "errorReason": "insufficient_funds", "transaction": "", "network": "eip155:8453"}
    most, at_once = QueueLimits().worthless_per_payer, ChainTimeouts(proof=0, strict=0, search=0)
    async with seller.beside(storage_url, timeouts=at_once) as hurried:
        hurried.facilitator.faults.unsent = refused
        codes = [(await hurried.refusal(hurried.pay())).code for _ in range(most + 1)]
        assert codes == [*["payment_in_flight"] * most, "too_many_worthless_payments"]
        assert len(hurried.runs) == most
