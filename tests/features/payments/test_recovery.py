"""What is left by a process that stopped anywhere ends as charged and answered, or as not charged; and so does what nobody asks about."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import anyio
import pytest
from features.payments.seller import PRICE, Seller, open_seller
from patience import patience
from sqlalchemy import update
from sqlmodel import col

from campus.features.chain import new_wallet, open_chain, open_facilitator, open_relay
from campus.features.chain.listener import Answered, Asked, Listener
from campus.features.payments.audit import Findings
from campus.features.payments.payment import PaidAnswer, Payment
from campus.features.payments.reservations import Leases, Reservations
from campus.features.payments.settlement import ChainTimeouts
from campus.features.payments.tables import PaymentRow
from campus.storage.leases import Lease

pytestmark = pytest.mark.anyio
KEY = "kvZ9w3Qp7LmX2sRt5YbN8c"
LATER = timedelta(seconds=11)
"""When the lease of a process that is gone is past."""

REFUSED = {"success": False, "errorReason": "insufficient_funds", "transaction": ""}
"""A facilitator that charged, and says that it never sent the payment."""


async def die_in_the_tool(seller: Seller, payment: Payment) -> None:
    processor = seller.payments.processor
    assert await processor.reservations.reserve(payment, seller.sale()) is not None


async def die_before_settling(seller: Seller, payment: Payment) -> None:
    await die_in_the_tool(seller, payment)
    row = await seller.row(payment)
    signed = (await seller.way.facilitators.loaded()).signed(payment, seller.sale())
    await seller.payments.processor.reservations.store(row.id, await seller.run(row.id), seller.sale(), signed)


async def die_after_settling(seller: Seller, payment: Payment) -> None:
    await die_before_settling(seller, payment)
    facilitator = await seller.way.facilitators.loaded()
    outcome = await facilitator.settle(facilitator.signed(payment, seller.sale()))
    assert outcome.state == "settled"


async def test_a_payment_whose_process_stopped_in_the_tool_is_taken_over_by_a_resend(seller: Seller) -> None:
    before, payment = await seller.income(), seller.pay()
    await die_in_the_tool(seller, payment)
    abandoned = (await seller.row(payment)).id
    seller.clock.ahead = LATER
    await seller.sell(payment)
    row = await seller.row(payment)
    assert row.id != abandoned
    assert seller.bought.released == [abandoned]
    assert seller.bought.settled == [row.id]
    assert await seller.income() == before + PRICE
    assert await seller.events(payment) == ["admitted", "released", "admitted", "settled"]


async def test_a_payment_whose_process_stopped_in_the_tool_is_released_without_a_resend(seller: Seller) -> None:
    payment = seller.pay()
    await die_in_the_tool(seller, payment)
    assert await seller.payments.resolve() == []
    seller.clock.ahead = LATER
    [resolution] = await seller.payments.resolve()
    assert (resolution.before, resolution.after) == ("reserved", "released")
    assert len(seller.bought.released) == 1
    assert await seller.payments.resolve() == []


async def test_a_payment_whose_process_stopped_before_settling_is_charged_by_a_resend(seller: Seller) -> None:
    before, payment = await seller.income(), seller.pay()
    await die_before_settling(seller, payment)
    seller.clock.ahead = LATER
    sold = await seller.sell(payment)
    assert sold.answer == b'{"answer": 1}'
    assert len(seller.runs) == 1
    assert await seller.income() == before + PRICE
    assert await seller.events(payment) == ["admitted", "unknown", "settled"]


async def test_a_payment_whose_process_stopped_before_settling_is_charged_once_without_a_resend_and_its_answer_waits(
    seller: Seller, other_seller: Seller
) -> None:
    before, payment = await seller.income(), seller.pay()
    await die_before_settling(seller, payment)
    kept = (await seller.row(payment)).signed
    assert kept is not None
    assert payment.nonce[2:].encode() not in kept, "it is sealed"
    seller.clock.ahead = LATER
    async with anyio.create_task_group() as tasks:
        for process in (seller, other_seller):
            tasks.start_soon(process.payments.resolve)
    assert ((await seller.row(payment)).state, (await seller.row(payment)).signed) == ("settled", None)
    assert [call.outcome for call in seller.facilitator.calls if call.nonce == payment.nonce] == ["settled"]
    assert await seller.income() == before + PRICE
    assert await seller.audit() == Findings()
    sold = await seller.sell(payment)
    assert (sold.replayed, sold.answer) == (True, b'{"answer": 1}')
    assert len(seller.runs) == 1


async def test_a_sale_is_not_lost_by_a_failure_that_says_nothing_of_the_payment(seller: Seller) -> None:
    failures: tuple[tuple[str, Any], ...] = (
        ("settle_status_before", 503),
        ("settle_status_before", 429),
        ("settle_status_before", 400),
        ("down", True),
        ("unsent", {}),
    )
    for number, (name, value) in enumerate(failures, start=1):

        async def run(payment_id: str, name: str = name, value: Any = value) -> bytes:
            setattr(seller.facilitator.faults, name, value)
            return await seller.run(payment_id)

        payment = seller.pay()
        assert (await seller.refusal(payment, run=run)).code == "payment_in_flight", (name, value)
        seller.clock.ahead += LATER
        assert [each.after for each in await seller.payments.resolve()] == ["unknown"], "the failure goes on"
        seller.facilitator.faults.clear()
        seller.clock.ahead += LATER
        assert [each.after for each in await seller.payments.resolve()] == ["settled"], (name, value)
        assert (await seller.sell(payment)).replayed
        assert (len(seller.runs), await seller.income()) == (number, number * PRICE), (name, value)


async def test_a_call_waits_out_a_short_failure_of_the_facilitator(seller: Seller, storage_url: str) -> None:
    patient = ChainTimeouts(proof=0.3, strict=patience(60), search=0.3)
    async with seller.beside(storage_url, timeouts=patient) as waiting:
        seller.facilitator.faults.settle_status_before = 503

        async def recover() -> None:
            with anyio.fail_after(patience(60)):
                while "503" not in seller.facilitator.outcomes("settle"):  # noqa: ASYNC110  # the facilitator says nothing when it is asked
                    await anyio.sleep(0.01)
            seller.facilitator.faults.clear()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(recover)
            sold = await waiting.sell(waiting.pay())
    assert (sold.replayed, sold.answer) == (False, b'{"answer": 1}')


async def test_a_call_submits_nothing_again_once_what_it_buys_cannot_be_delivered(seller: Seller, storage_url: str) -> None:
    async def objection(*_: object) -> str:
        return "the key was revoked"

    patient = ChainTimeouts(proof=0.3, strict=patience(60), search=0.3)
    async with seller.beside(storage_url, timeouts=patient) as waiting:
        seller.facilitator.faults.settle_status_before, payment = 503, waiting.pay()

        async def revoke() -> None:
            with anyio.fail_after(patience(60)):
                while payment.nonce not in [call.nonce for call in seller.facilitator.calls if call.operation == "settle"]:  # noqa: ASYNC110  # it says nothing
                    await anyio.sleep(0.01)
            waiting.bought.objection = objection  # type: ignore[method-assign]
            seller.facilitator.faults.clear()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(revoke)
            assert (await waiting.refusal(payment)).code == "payment_in_flight"
    calls = [call.outcome for call in seller.facilitator.calls if call.operation == "settle" and call.nonce == payment.nonce]
    assert calls == ["503"]


async def test_a_payment_that_the_facilitator_refuses_for_good_is_submitted_once_more_only_by_its_payer(seller: Seller) -> None:
    before, payment = await seller.income(), seller.pay()
    seller.facilitator.faults.unsent = REFUSED | {"network": seller.chain.network}
    assert (await seller.refusal(payment)).code == "payment_in_flight"
    assert (await seller.row(payment)).signed is None
    seller.facilitator.faults.clear()
    seller.clock.ahead = LATER
    assert [each.after for each in await seller.payments.resolve()] == ["unknown"]
    assert [call.outcome for call in seller.facilitator.calls if call.operation == "settle" and call.nonce == payment.nonce] == ["unsent"]
    seller.clock.ahead *= 2
    assert (await seller.sell(payment)).answer == b'{"answer": 1}'
    assert await seller.income() == before + PRICE


async def test_a_payment_whose_process_stopped_after_settling_is_found_by_the_reconciler(seller: Seller) -> None:
    before, payment = await seller.income(), seller.pay()
    await die_after_settling(seller, payment)
    seller.clock.ahead = LATER
    [resolution] = await seller.payments.resolve()
    assert (resolution.before, resolution.after) == ("settling", "settled")
    row = await seller.row(payment)
    assert resolution.transaction == row.transaction
    assert seller.bought.settled == [row.id]
    assert (await seller.sell(payment)).replayed
    assert len(seller.runs) == 1
    assert await seller.income() == before + PRICE
    assert await seller.audit() == Findings()


async def test_a_payment_whose_process_stopped_after_settling_is_found_by_a_resend(seller: Seller) -> None:
    before, payment = await seller.income(), seller.pay()
    await die_after_settling(seller, payment)
    seller.clock.ahead = LATER
    assert (await seller.sell(payment)).answer == b'{"answer": 1}'
    assert len(seller.runs) == 1
    assert await seller.income() == before + PRICE


async def test_a_resend_waits_for_the_lease_of_a_dead_process(seller: Seller) -> None:
    payment = seller.pay()
    await die_after_settling(seller, payment)
    reservations, found, happened = seller.payments.processor.reservations, anyio.Event(), list[str]()
    find = reservations.find

    async def found_twice(*arguments: Any) -> Any:
        if happened:
            found.set()
        happened.append("looked")
        return await find(*arguments)

    async def sell() -> None:
        await seller.sell(payment)
        happened.append("sold")

    reservations.find = found_twice  # type: ignore[method-assign]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sell)
        await found.wait()
        assert (await seller.row(payment)).state == "settling"
        assert "sold" not in happened
        seller.clock.ahead = LATER
    assert happened[-1] == "sold"
    assert len(seller.runs) == 1


async def test_a_process_that_hung_while_another_took_over_charges_nothing(seller: Seller, other_seller: Seller) -> None:
    before, payment = await seller.income(), seller.pay()

    async def stand_still(payment_id: str) -> bytes:
        seller.runs.append(payment_id)
        seller.clock.ahead = LATER
        await other_seller.sell(payment)
        return b'{"answer": "late"}'

    problem = await seller.refusal(payment, run=stand_still)
    assert problem.code == "payment_in_flight"
    assert await seller.income() == before + PRICE
    assert seller.bought.released == seller.runs  # what was prepared in the late run is dropped
    assert (await seller.sell(payment)).answer == b'{"answer": 1}'


@pytest.mark.both_databases
async def test_a_process_that_hung_before_it_charged_finds_that_another_charged(seller: Seller, other_seller: Seller) -> None:
    before, payment = await seller.income(), seller.pay()
    await die_before_settling(seller, payment)
    late = await seller.row(payment)
    seller.clock.ahead = LATER
    sold = await other_seller.sell(payment)
    again = await seller.payments.processor.ways[seller.chain.network].settlement.settle(late, sold.answer, payment, seller.sale())
    assert again.receipt == sold.receipt
    assert await seller.income() == before + PRICE
    assert [seller.bought.settled, other_seller.bought.settled] == [[], [late.id]]
    assert (await seller.events(payment)).count("settled") == 1


async def test_a_process_that_comes_too_late_neither_releases_nor_doubts_a_charge(seller: Seller) -> None:
    payment = seller.pay()
    await seller.sell(payment)
    row, reservations = await seller.row(payment), seller.payments.processor.reservations
    assert await reservations.release(row.id, "refused", "late") is None
    assert await reservations.doubt(row, "late") is None
    assert await reservations.settle(row.id, "0x" + "77" * 32, block=None) is None
    assert (await seller.sell(payment)).receipt["transaction"] == row.transaction
    assert seller.bought.released == []


@pytest.mark.both_databases
async def test_of_many_resends_one_at_a_time_asks_the_chain(seller: Seller) -> None:
    before, payment = await seller.income(), seller.pay()
    await die_before_settling(seller, payment)
    seller.clock.ahead = LATER
    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(seller.sell, payment)
    settled = [call for call in seller.facilitator.calls if call.operation == "settle" and call.nonce == payment.nonce]
    assert len(settled) == 1
    assert await seller.income() == before + PRICE


async def test_the_lease_of_a_running_call_is_renewed_before_it_ends(seller: Seller) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        """Let the clock, not the test, pass; the lease is looked at before its renewal."""
        if waits:
            assert seller.clock() < (await seller.row(payment)).lease_until
        waits.append(seconds)
        if len(waits) > 20:
            raise Enough
        seller.clock.ahead += timedelta(seconds=seconds)

    payment = seller.pay()
    leases = Leases(seller.storage, process="one", now=seller.clock)
    row = await Reservations(seller.storage, leases, seller.bought, now=seller.clock).reserve(payment, seller.sale())
    assert row is not None
    with leases.kept(row), pytest.raises(Enough):
        await leases.lease.keep(leases.renew, of="payments", sleep=sleep)
    assert sum(waits) > 60


class Enough(Exception):
    """The test has seen what it wanted."""


async def test_a_tool_that_takes_longer_than_a_lease_keeps_its_reservation(seller: Seller, storage_url: str) -> None:
    payment = seller.pay()
    async with seller.beside(storage_url, lease=Lease(timedelta(seconds=1.5))) as slow:

        async def take_long(payment_id: str) -> bytes:
            first = (await seller.row(payment)).lease_until
            with anyio.fail_after(patience(60)):
                while (await seller.row(payment)).lease_until == first:  # noqa: ASYNC110  # it is another task's to write
                    await anyio.sleep(0.1)
            return await slow.run(payment_id)

        await slow.sell(payment, run=take_long)
    assert slow.runs == slow.bought.settled


async def test_a_lease_that_was_lost_is_not_renewed_and_not_ended(seller: Seller, other_seller: Seller) -> None:
    """Nor by another call of the same process."""
    for winner in (seller, other_seller):
        payment = seller.pay()
        await die_before_settling(seller, payment)
        lost, leases = await seller.row(payment), seller.payments.processor.reservations.leases
        with leases.kept(lost):
            seller.clock.ahead += LATER
            taken = await winner.payments.processor.reservations.take_up(lost.id)
            assert taken is not None
            seller.clock.ahead += timedelta(seconds=2)
            await leases.renew()
        assert await seller.payments.processor.reservations.doubt(lost, "late") is None
        row = await seller.row(payment)
        assert (row.holder, row.lease_until, row.reason) == (
            taken.holder,
            taken.lease_until,
            "its process stopped while it was being charged",
        )


async def test_a_late_refusal_neither_releases_a_payment_nor_ends_the_lease_that_replaced_it(seller: Seller, other_seller: Seller) -> None:
    payment = seller.pay()
    seller.facilitator.faults.unsent = REFUSED
    with seller.facilitator.hold("settle") as hold:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(seller.refusal, payment)
            await hold.reached(seconds=patience(30))
            seller.clock.ahead = LATER
            taken = await other_seller.payments.processor.reservations.take_up((await seller.row(payment)).id)
            assert taken is not None
            hold.release()
    row = await seller.row(payment)
    assert (row.state, row.holder, row.lease_until) == ("unknown", taken.holder, taken.lease_until)
    assert row.answer is not None
    assert seller.bought.released == []


async def test_a_node_that_is_down_is_asked_once_however_many_payments_are_in_doubt(seller: Seller, storage_url: str) -> None:
    asked: list[Any] = []

    def nonsense(request: Asked) -> Answered:
        asked.append(request.body)
        return Answered(200, {})

    with Listener(nonsense, keep_alive=False) as listener:
        async with seller.beside(storage_url, rpc_url=listener.url) as blind:
            for _ in range(3):
                await die_before_settling(seller, seller.pay())
            seller.clock.ahead = LATER
            await blind.payments.resolve()
    assert len(asked) == 1


@pytest.mark.both_databases
async def test_what_follows_from_a_settlement_is_in_its_transaction(seller: Seller) -> None:
    payment = seller.pay()
    await die_after_settling(seller, payment)
    seller.clock.ahead = LATER

    async def fail(session: object, payment_id: str) -> None:
        raise RuntimeError("the key cannot be written")

    seller.bought.deliver = fail  # type: ignore[method-assign]
    [resolution] = await seller.payments.resolve()
    assert resolution.after == "unknown"
    assert "settled" not in await seller.events(payment)
    del seller.bought.deliver
    seller.clock.ahead *= 2
    [resolution] = await seller.payments.resolve()
    assert resolution.after == "settled"


async def test_a_payment_that_cannot_be_concluded_does_not_stop_the_others(seller: Seller) -> None:
    first, second = seller.pay(), seller.pay()
    for payment in (first, second):
        await die_after_settling(seller, payment)
    stubborn = (await seller.row(first)).id

    async def fail_for_one(session: object, payment_id: str) -> None:
        if payment_id == stubborn:
            raise RuntimeError("the key cannot be written")

    seller.clock.ahead = LATER
    seller.bought.deliver = fail_for_one  # type: ignore[method-assign]
    found = await seller.payments.resolve()
    assert {each.payment_id: each.after for each in found}[(await seller.row(second)).id] == "settled"


async def test_payments_on_a_network_that_campus_toml_no_longer_names_are_left_alone_and_named_by_the_check(
    own_chain_seller: Seller,
) -> None:
    seller = own_chain_seller
    former, current = seller.pay(), seller.pay()
    for payment in (former, current):
        await die_before_settling(seller, payment)
        seller.clock.ahead += timedelta(seconds=1)
    async with seller.storage.write() as session:
        row = await session.get_one(PaymentRow, (await seller.row(former)).id)
        row.network, row.asset = "eip155:84532", "0x036cbd53842c5426634e7929541ec2318f3dcf7e"
    await seller.chain.advance(1_000)
    seller.clock.ahead = timedelta(minutes=20)
    assert [each.after for each in await seller.payments.resolve()] == ["released"]
    assert await seller.payments.findings() == []
    assert (await seller.row(former)).state == "settling"
    [finding] = await seller.payments.check()
    assert "payments on eip155:84532 are in doubt" in finding


async def test_payments_of_a_process_that_died_while_its_clock_was_ahead_do_not_wait_for_that_time(seller: Seller) -> None:
    before, looked_for, sent_again = await seller.income(), seller.pay(), seller.pay()
    seller.clock.wrong = timedelta(days=1)
    for payment in (looked_for, sent_again):
        await die_after_settling(seller, payment)
    seller.clock.wrong = timedelta()
    assert (await seller.sell(sent_again)).answer == b'{"answer": 2}'
    assert [each.after for each in await seller.payments.resolve()] == ["settled"]
    assert await seller.income() == before + 2 * PRICE


async def test_a_round_looks_for_a_bounded_number_of_payments_those_that_waited_longest_first(seller: Seller) -> None:
    payments = [seller.pay() for _ in range(3)]
    for payment in payments:
        await die_in_the_tool(seller, payment)
        seller.clock.ahead += timedelta(seconds=1)
    seller.clock.ahead += LATER
    found = await seller.payments.processor.reservations.overdue(seller.chain.network, most=2)
    assert [row.nonce for row in found] == [payment.nonce for payment in payments[:2]]


async def test_the_audit_names_what_the_chain_does_not_have(seller: Seller) -> None:
    genuine, forged, other = seller.pay(), seller.pay(), seller.pay()
    transactions = [str((await seller.sell(each)).receipt["transaction"]) for each in (genuine, forged, other)]
    assert await seller.audit() == Findings()
    rows = [await seller.row(each) for each in (genuine, forged, other)]
    for row, transaction in ((rows[1], "0x" + "77" * 32), (rows[2], transactions[0])):
        async with seller.storage.write() as session:
            change = update(PaymentRow).where(col(PaymentRow.id) == row.id).values(transaction=transaction)
            await (await session.connection()).execute(change)
    found = await seller.audit()
    assert {each.payment_id: each.reason for each in found.missing} == {
        rows[1].id: "the chain has no such transaction",
        rows[2].id: "the transaction is not this payment",
    }
    assert {each.transaction: each.payment_id for each in found.unclaimed} == {transactions[1]: rows[1].id, transactions[2]: rows[2].id}
    assert sum(each.amount for each in found.missing) == sum(each.amount for each in found.unclaimed) == 2 * PRICE
    assert [(each.before, each.after) for each in await seller.payments.resolve()] == [("unproven", "settled")] * 2
    assert await seller.audit() == Findings()


async def test_a_refusal_of_a_resend_proves_nothing_about_the_first_submission(seller: Seller) -> None:
    before, payment = await seller.income(), seller.pay()
    await die_before_settling(seller, payment)
    seller.clock.ahead = LATER
    seller.facilitator.faults.settle_status_before = 500
    assert (await seller.refusal(payment)).code == "payment_in_flight"
    seller.clock.ahead *= 2
    seller.facilitator.faults.clear()
    seller.facilitator.faults.lie = REFUSED
    assert (await seller.sell(payment)).answer == b'{"answer": 1}'
    assert await seller.income() == before + PRICE


async def test_a_payment_that_is_refused_when_sent_again_stays_unknown(seller: Seller) -> None:
    payment = seller.pay()
    await die_before_settling(seller, payment)
    seller.clock.ahead = LATER
    purse = await seller.chain.balance(seller.wallet.address)
    await seller.chain.transfer_with_authorization(seller.sign(to="0x" + "66" * 20, value=purse))
    assert (await seller.refusal(payment)).code == "payment_in_flight"
    assert (await seller.row(payment)).state == "unknown"


@pytest.fixture
async def own_chain_seller(storage_url: str) -> AsyncIterator[Seller]:
    """A seller on a chain of its own, whose clock may be set forward."""
    async with open_chain() as chain, open_facilitator(chain) as facilitator:
        wallet = new_wallet()
        await chain.mint(wallet.address, 1_000_000)
        async with open_seller(chain, facilitator, storage_url, wallet=wallet) as seller:
            yield seller


async def test_a_payment_that_was_never_charged_is_released_once_it_expired_on_the_chain(own_chain_seller: Seller) -> None:
    seller = own_chain_seller
    payment = seller.pay()
    await die_before_settling(seller, payment)
    seller.clock.ahead = timedelta(minutes=10)  # this machine's clock alone ends nothing
    assert [each.after for each in await seller.payments.resolve()] == ["unknown"]
    assert seller.facilitator.outcomes("settle") == [], "it is not submitted after its time"
    await seller.job("wipe_answers")
    assert (await seller.row(payment)).signed is None
    await seller.chain.advance(400)
    seller.clock.ahead *= 2
    [resolution] = await seller.payments.resolve()
    assert (resolution.before, resolution.after) == ("unknown", "released")
    assert await seller.audit() == Findings()
    assert await seller.income() == 0
    assert await seller.events(payment) == ["admitted", "unknown", "released"]
    assert (await seller.refusal(payment)).code == "payment_refused"
    assert len(seller.bought.released) == 1


async def test_the_chains_clock_alone_releases_nothing(own_chain_seller: Seller) -> None:
    seller = own_chain_seller
    payment = seller.pay()
    await die_before_settling(seller, payment)
    await seller.chain.advance(4_000)
    seller.clock.ahead = LATER
    assert [each.after for each in await seller.payments.resolve()] == ["unknown"]
    assert (await seller.row(payment)).answer is not None
    seller.clock.ahead = timedelta(minutes=7)
    assert [each.after for each in await seller.payments.resolve()] == ["released"]


@pytest.mark.parametrize("way", ["cancelled", "another transfer"])
async def test_a_nonce_that_was_taken_otherwise_releases_a_payment_when_its_time_is_over(own_chain_seller: Seller, way: str) -> None:
    seller = own_chain_seller
    payment = seller.pay()
    await die_before_settling(seller, payment)
    if way == "cancelled":
        await seller.chain.cancel_authorization(seller.wallet, payment.nonce)
    else:
        await seller.chain.transfer_with_authorization(seller.sign(to=seller.wallet.address, nonce=payment.nonce))
    seller.clock.ahead = LATER
    assert [each.after for each in await seller.payments.resolve()] == ["unknown"]
    await seller.chain.advance(400)
    seller.clock.ahead = timedelta(minutes=7)
    [resolution] = await seller.payments.resolve()
    assert (resolution.after, way in resolution.reason) == ("released", True)
    assert (await seller.refusal(payment)).code == "payment_refused"
    assert await seller.income() == 0


async def test_a_call_whose_settlement_is_reported_by_nobody_is_held_until_the_chain_shows_it(seller: Seller, storage_url: str) -> None:
    patient = ChainTimeouts(proof=0, strict=patience(60), search=0)
    async with open_relay(seller.chain) as relay, seller.beside(storage_url, rpc_url=relay.url, timeouts=patient) as held:
        relay.faults.hides_logs = relay.faults.hides_receipts = True
        seller.facilitator.faults.settle_status = 500
        sold: list[PaidAnswer] = []

        async def call() -> None:
            sold.append(await held.sell(held.pay()))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            with anyio.fail_after(patience(60)):
                while relay.asked.count("eth_getLogs") < 3:  # noqa: ASYNC110  # a relay says nothing when it is asked
                    await anyio.sleep(0.01)
            relay.faults.clear()
        assert [one.replayed for one in sold] == [False]


async def test_a_call_with_the_key_of_a_purchase_that_is_being_settled_waits_for_its_answer(seller: Seller) -> None:
    sale = seller.sale(idempotency_key=KEY)
    bought: list[PaidAnswer | None] = []

    async def ask_again(payment_id: str) -> bytes:
        async def recall() -> None:
            bought.append(await seller.payments.processor.recall(sale))

        tasks.start_soon(recall)
        await anyio.sleep(0.2)
        return await seller.run(payment_id)

    async with anyio.create_task_group() as tasks:
        sold = await seller.sell(seller.pay(sale), sale, ask_again)
    assert [one and (one.answer, one.replayed) for one in bought] == [(sold.answer, True)]
