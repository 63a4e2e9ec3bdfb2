"""What is left by a process that stopped anywhere ends as charged and answered, or as not charged; and so does what nobody asks about."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import anyio
import pytest
from patience import patience
from payments.shop import PRICE, Shop, open_shop
from sqlalchemy import update
from sqlmodel import col

from campus.payments.audit import Findings
from campus.payments.payment import Payment, StoredAnswer
from campus.payments.reservations import Leases, Reservations
from campus.payments.tables import PaymentRow
from campus.storage import Lease
from campus.testing.listener import Answered, Asked, Listener
from campus.testing.payments import new_wallet, open_chain, open_facilitator

pytestmark = pytest.mark.anyio
LATER = timedelta(seconds=11)
"""When the lease of a process that is gone is past."""

REFUSED = {"success": False, "errorReason": "insufficient_funds", "transaction": ""}
"""A facilitator that charged, and says that it never sent the payment."""


async def die_in_the_tool(shop: Shop, payment: Payment) -> None:
    """Reserve, and stop."""
    processor = shop.payments.processor
    assert await processor._reservations.reserve(payment, shop.sale()) is not None


async def die_before_settling(shop: Shop, payment: Payment) -> None:
    """Reserve, run the tool, store its answer, and stop."""
    await die_in_the_tool(shop, payment)
    row = await shop.row(payment)
    await shop.payments.processor._reservations.store(row.id, await shop.run(row.id), shop.sale())


async def die_after_settling(shop: Shop, payment: Payment) -> None:
    """The same, and have the payment charged."""
    await die_before_settling(shop, payment)
    outcome = await shop.payments.processor._facilitator.settle(payment, shop.sale())
    assert outcome.state == "settled"


async def test_a_payment_whose_process_stopped_in_the_tool_is_taken_over_by_a_resend(shop: Shop) -> None:
    before, payment = await shop.income(), shop.pay()
    await die_in_the_tool(shop, payment)
    abandoned = (await shop.row(payment)).id
    shop.clock.ahead = LATER
    await shop.sell(payment)
    row = await shop.row(payment)
    assert row.id != abandoned
    assert shop.released == [abandoned]
    assert shop.settled == [row.id]
    assert await shop.income() == before + PRICE
    assert await shop.events(payment) == ["admitted", "released", "admitted", "settled"]


async def test_a_payment_whose_process_stopped_in_the_tool_is_released_without_a_resend(shop: Shop) -> None:
    payment = shop.pay()
    await die_in_the_tool(shop, payment)
    assert await shop.payments.reconciler.resolve() == []
    shop.clock.ahead = LATER
    [resolution] = await shop.payments.reconciler.resolve()
    assert (resolution.before, resolution.after) == ("reserved", "released")
    assert len(shop.released) == 1
    assert await shop.payments.reconciler.resolve() == []


async def test_a_payment_whose_process_stopped_before_settling_is_charged_by_a_resend(shop: Shop) -> None:
    before, payment = await shop.income(), shop.pay()
    await die_before_settling(shop, payment)
    shop.clock.ahead = LATER
    sold = await shop.sell(payment)
    assert sold.answer == StoredAnswer(b'{"answer": 1}')
    assert len(shop.runs) == 1
    assert await shop.income() == before + PRICE
    assert await shop.events(payment) == ["admitted", "unknown", "settled"]


async def test_the_reconciler_never_charges(shop: Shop) -> None:
    before, payment = await shop.income(), shop.pay()
    await die_before_settling(shop, payment)
    shop.clock.ahead = LATER
    [resolution] = await shop.payments.reconciler.resolve()
    assert (resolution.before, resolution.after) == ("settling", "unknown")
    assert await shop.income() == before
    assert [call for call in shop.facilitator.calls if call.nonce == payment.nonce] == []


async def test_a_payment_whose_process_stopped_after_settling_is_found_by_the_reconciler(shop: Shop) -> None:
    before, payment = await shop.income(), shop.pay()
    await die_after_settling(shop, payment)
    shop.clock.ahead = LATER
    [resolution] = await shop.payments.reconciler.resolve()
    assert (resolution.before, resolution.after) == ("settling", "settled")
    row = await shop.row(payment)
    assert resolution.transaction == row.transaction
    assert shop.settled == [row.id]
    assert (await shop.sell(payment)).replayed
    assert len(shop.runs) == 1
    assert await shop.income() == before + PRICE
    assert await shop.audit() == Findings()


async def test_a_payment_whose_process_stopped_after_settling_is_found_by_a_resend(shop: Shop) -> None:
    before, payment = await shop.income(), shop.pay()
    await die_after_settling(shop, payment)
    shop.clock.ahead = LATER
    assert (await shop.sell(payment)).answer == StoredAnswer(b'{"answer": 1}')
    assert len(shop.runs) == 1
    assert await shop.income() == before + PRICE


async def test_a_resend_waits_for_the_lease_of_a_dead_process(shop: Shop) -> None:
    payment = shop.pay()
    await die_after_settling(shop, payment)
    reservations, found, happened = shop.payments.processor._reservations, anyio.Event(), list[str]()
    find = reservations.find

    async def found_twice(*arguments: Any) -> Any:
        if happened:
            found.set()
        happened.append("looked")
        return await find(*arguments)

    async def sell() -> None:
        await shop.sell(payment)
        happened.append("sold")

    reservations.find = found_twice  # type: ignore[method-assign]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sell)
        await found.wait()
        assert (await shop.row(payment)).state == "settling"
        assert "sold" not in happened
        shop.clock.ahead = LATER
    assert happened[-1] == "sold"
    assert len(shop.runs) == 1


async def test_a_process_that_hung_while_another_took_over_charges_nothing(shop: Shop, other_shop: Shop) -> None:
    before, payment = await shop.income(), shop.pay()

    async def stand_still(payment_id: str) -> StoredAnswer:
        shop.runs.append(payment_id)
        shop.clock.ahead = LATER
        await other_shop.sell(payment)
        return StoredAnswer(b'{"answer": "late"}')

    problem = await shop.refusal(payment, run=stand_still)
    assert problem.code == "payment_in_flight"
    assert await shop.income() == before + PRICE
    assert shop.released == shop.runs  # what was prepared in the late run is dropped
    assert (await shop.sell(payment)).answer == StoredAnswer(b'{"answer": 1}')


async def test_a_process_that_hung_before_it_charged_finds_that_another_charged(shop: Shop, other_shop: Shop) -> None:
    before, payment = await shop.income(), shop.pay()
    await die_before_settling(shop, payment)
    late = await shop.row(payment)
    shop.clock.ahead = LATER
    sold = await other_shop.sell(payment)
    again = await shop.payments.processor._settlement.settle(late, sold.answer, payment, shop.sale())
    assert again.receipt == sold.receipt
    assert await shop.income() == before + PRICE
    assert [shop.settled, other_shop.settled] == [[], [late.id]]
    assert (await shop.events(payment)).count("settled") == 1


async def test_a_process_that_comes_too_late_neither_releases_nor_doubts_a_charge(shop: Shop) -> None:
    payment = shop.pay()
    await shop.sell(payment)
    row, reservations = await shop.row(payment), shop.payments.processor._reservations
    assert await reservations.release(row.id, "refused", "late") is None
    assert await reservations.doubt(row, "late") is None
    assert await reservations.settle(row.id, "0x" + "77" * 32, block=None) is None
    assert (await shop.sell(payment)).receipt["transaction"] == row.transaction
    assert shop.released == []


async def test_of_many_resends_one_at_a_time_asks_the_chain(shop: Shop) -> None:
    before, payment = await shop.income(), shop.pay()
    await die_before_settling(shop, payment)
    shop.clock.ahead = LATER
    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(shop.sell, payment)
    settled = [call for call in shop.facilitator.calls if call.operation == "settle" and call.nonce == payment.nonce]
    assert len(settled) == 1
    assert await shop.income() == before + PRICE


async def test_the_lease_of_a_running_call_is_renewed_before_it_ends(shop: Shop) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        """Let the clock, not the test, pass; the lease is looked at before its renewal."""
        if waits:
            assert shop.clock() < (await shop.row(payment)).lease_until
        waits.append(seconds)
        if len(waits) > 20:
            raise Enough
        shop.clock.ahead += timedelta(seconds=seconds)

    payment = shop.pay()
    leases = Leases(shop.storage, process="one", now=shop.clock, sleep=sleep)
    row = await Reservations(shop.storage, leases, now=shop.clock, on_settled=shop.on_settled, on_released=shop.on_released).reserve(
        payment, shop.sale()
    )
    assert row is not None
    leases.hold(row)
    with pytest.raises(Enough):
        await leases.keep()
    assert sum(waits) > 60


class Enough(Exception):
    """The test has seen what it wanted."""


async def test_a_tool_that_takes_longer_than_a_lease_keeps_its_reservation(shop: Shop, storage_url: str) -> None:
    payment = shop.pay()
    async with shop.beside(storage_url, lease=Lease(timedelta(seconds=1.5))) as slow:

        async def take_long(payment_id: str) -> StoredAnswer:
            first = (await shop.row(payment)).lease_until
            with anyio.fail_after(patience(60)):
                while (await shop.row(payment)).lease_until == first:  # noqa: ASYNC110  # it is another task's to write
                    await anyio.sleep(0.1)
            return await slow.run(payment_id)

        await slow.sell(payment, run=take_long)
    assert slow.runs == slow.settled


async def test_a_lease_that_was_lost_is_not_renewed_and_not_ended(shop: Shop, other_shop: Shop) -> None:
    """Nor by another call of the same process."""
    for winner in (shop, other_shop):
        payment = shop.pay()
        await die_before_settling(shop, payment)
        lost, leases = await shop.row(payment), shop.payments.processor._leases
        leases.hold(lost)
        shop.clock.ahead += LATER
        taken = await winner.payments.processor._reservations.take_up(lost.id)
        assert taken is not None
        shop.clock.ahead += timedelta(seconds=2)
        await leases.renew()
        assert await shop.payments.processor._reservations.doubt(lost, "late") is None
        row = await shop.row(payment)
        assert (row.holder, row.lease_until, row.reason) == (
            taken.holder,
            taken.lease_until,
            "its process stopped while it was being charged",
        )
        leases.let_go(lost)


async def test_a_late_refusal_neither_releases_a_payment_nor_ends_the_lease_that_replaced_it(shop: Shop, other_shop: Shop) -> None:
    payment = shop.pay()
    shop.facilitator.faults.unsent = REFUSED
    with shop.facilitator.hold("settle") as hold:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(shop.refusal, payment)
            await hold.reached()
            shop.clock.ahead = LATER
            taken = await other_shop.payments.processor._reservations.take_up((await shop.row(payment)).id)
            assert taken is not None
            hold.release()
    row = await shop.row(payment)
    assert (row.state, row.holder, row.lease_until) == ("unknown", taken.holder, taken.lease_until)
    assert row.answer is not None
    assert shop.released == []


async def test_a_node_that_is_down_is_asked_once_however_many_payments_are_in_doubt(shop: Shop, storage_url: str) -> None:
    asked: list[Any] = []

    def nonsense(request: Asked) -> Answered:
        asked.append(request.body)
        return Answered(200, {})

    listener = Listener(nonsense, keep_alive=False)
    listener.open()
    try:
        async with shop.beside(storage_url, rpc_url=listener.url) as blind:
            for _ in range(3):
                await die_before_settling(shop, shop.pay())
            shop.clock.ahead = LATER
            await blind.payments.reconciler.resolve()
    finally:
        listener.close()
    assert len(asked) == 1


async def test_what_follows_from_a_settlement_is_in_its_transaction(shop: Shop) -> None:
    payment = shop.pay()
    await die_after_settling(shop, payment)
    shop.clock.ahead = LATER

    async def fail(session: object, payment_id: str) -> None:
        raise RuntimeError("the key cannot be written")

    shop.payments.processor._reservations._on_settled = fail
    [resolution] = await shop.payments.reconciler.resolve()
    assert resolution.after == "unknown"
    assert "settled" not in await shop.events(payment)
    shop.payments.processor._reservations._on_settled = shop.on_settled
    shop.clock.ahead *= 2
    [resolution] = await shop.payments.reconciler.resolve()
    assert resolution.after == "settled"


async def test_a_payment_that_cannot_be_concluded_does_not_stop_the_others(shop: Shop) -> None:
    first, second = shop.pay(), shop.pay()
    for payment in (first, second):
        await die_after_settling(shop, payment)
    stubborn = (await shop.row(first)).id

    async def fail_for_one(session: object, payment_id: str) -> None:
        if payment_id == stubborn:
            raise RuntimeError("the key cannot be written")

    shop.clock.ahead = LATER
    shop.payments.processor._reservations._on_settled = fail_for_one
    found = await shop.payments.reconciler.resolve()
    assert {each.payment_id: each.after for each in found}[(await shop.row(second)).id] == "settled"


async def test_the_audit_names_what_the_chain_does_not_have(shop: Shop) -> None:
    genuine, forged, other = shop.pay(), shop.pay(), shop.pay()
    transactions = [str((await shop.sell(each)).receipt["transaction"]) for each in (genuine, forged, other)]
    assert await shop.audit() == Findings()
    rows = [await shop.row(each) for each in (genuine, forged, other)]
    for row, transaction in ((rows[1], "0x" + "77" * 32), (rows[2], transactions[0])):
        async with shop.storage.write() as session:
            change = update(PaymentRow).where(col(PaymentRow.id) == row.id).values(transaction=transaction)
            await (await session.connection()).execute(change)
    found = await shop.audit()
    assert {each.payment_id: each.reason for each in found.missing} == {
        rows[1].id: "the chain has no such transaction",
        rows[2].id: "the transaction is not this payment",
    }
    assert {each.transaction: each.payment_id for each in found.unclaimed} == {transactions[1]: rows[1].id, transactions[2]: rows[2].id}
    assert sum(each.amount for each in found.missing) == sum(each.amount for each in found.unclaimed) == 2 * PRICE
    assert [(each.before, each.after) for each in await shop.payments.reconciler.resolve()] == [("unproven", "settled")] * 2
    assert await shop.audit() == Findings()


async def test_a_refusal_of_a_resend_proves_nothing_about_the_first_submission(shop: Shop) -> None:
    before, payment = await shop.income(), shop.pay()
    await die_before_settling(shop, payment)
    shop.clock.ahead = LATER
    shop.facilitator.faults.settle_status_before = 500
    assert (await shop.refusal(payment)).code == "payment_in_flight"
    shop.clock.ahead *= 2
    shop.facilitator.faults.clear()
    shop.facilitator.faults.lie = REFUSED
    assert (await shop.sell(payment)).answer == StoredAnswer(b'{"answer": 1}')
    assert await shop.income() == before + PRICE


async def test_a_payment_that_is_refused_when_sent_again_stays_unknown(shop: Shop) -> None:
    payment = shop.pay()
    await die_before_settling(shop, payment)
    shop.clock.ahead = LATER
    purse = await shop.chain.balance(shop.wallet.address)
    await shop.chain.transfer_with_authorization(shop.sign(to="0x" + "66" * 20, value=purse))
    assert (await shop.refusal(payment)).code == "payment_in_flight"
    assert (await shop.row(payment)).state == "unknown"


@pytest.fixture
async def own_chain_shop(storage_url: str) -> AsyncIterator[Shop]:
    """A shop on a chain of its own, whose clock may be set forward."""
    async with open_chain() as chain, open_facilitator(chain) as facilitator:
        wallet = new_wallet()
        await chain.mint(wallet.address, 1_000_000)
        async with open_shop(chain, facilitator, storage_url, wallet=wallet) as shop:
            yield shop


async def test_a_payment_that_was_never_charged_is_released_once_it_expired_on_the_chain(own_chain_shop: Shop) -> None:
    shop = own_chain_shop
    payment = shop.pay()
    await die_before_settling(shop, payment)
    shop.clock.ahead = timedelta(minutes=10)  # this machine's clock alone ends nothing
    assert [each.after for each in await shop.payments.reconciler.resolve()] == ["unknown"]
    await shop.chain.advance(400)
    shop.clock.ahead *= 2
    [resolution] = await shop.payments.reconciler.resolve()
    assert (resolution.before, resolution.after) == ("unknown", "released")
    assert await shop.audit() == Findings()
    assert await shop.income() == 0
    assert await shop.events(payment) == ["admitted", "unknown", "released"]
    assert (await shop.refusal(payment)).code == "payment_refused"
    assert len(shop.released) == 1


async def test_the_chains_clock_alone_releases_nothing(own_chain_shop: Shop) -> None:
    shop = own_chain_shop
    payment = shop.pay()
    await die_before_settling(shop, payment)
    await shop.chain.advance(4_000)
    shop.clock.ahead = LATER
    assert [each.after for each in await shop.payments.reconciler.resolve()] == ["unknown"]
    assert (await shop.row(payment)).answer is not None
    shop.clock.ahead = timedelta(minutes=7)
    assert [each.after for each in await shop.payments.reconciler.resolve()] == ["released"]


@pytest.mark.parametrize("way", ["cancelled", "another transfer"])
async def test_a_nonce_that_was_taken_otherwise_releases_a_payment_when_its_time_is_over(own_chain_shop: Shop, way: str) -> None:
    shop = own_chain_shop
    payment = shop.pay()
    await die_before_settling(shop, payment)
    if way == "cancelled":
        await shop.chain.cancel_authorization(shop.wallet, payment.nonce)
    else:
        await shop.chain.transfer_with_authorization(shop.sign(to=shop.wallet.address, nonce=payment.nonce))
    shop.clock.ahead = LATER
    assert [each.after for each in await shop.payments.reconciler.resolve()] == ["unknown"]
    await shop.chain.advance(400)
    shop.clock.ahead = timedelta(minutes=7)
    [resolution] = await shop.payments.reconciler.resolve()
    assert (resolution.after, way in resolution.reason) == ("released", True)
    assert (await shop.refusal(payment)).code == "payment_refused"
    assert await shop.income() == 0
