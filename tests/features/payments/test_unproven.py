"""Payments that settled without a proof or vanished from the chain: looked for, reported to the operator, taken back."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

import pytest
from features.payments.seller import PRICE, Seller, open_seller
from sqlmodel import select

from campus.features.chain import Chain, Relay, new_wallet, open_chain, open_facilitator, open_relay
from campus.features.payments.audit import Findings
from campus.features.payments.reconciler import CONFIRMATIONS
from campus.keys.keyring import KeyRing
from campus.keys.sales import Product, Term
from campus.keys.tables import KeyEvent

pytestmark = pytest.mark.anyio
KEY = "kvZ9w3Qp7LmX2sRt5YbN8c"
FALSE = {"success": True, "transaction": "0x" + "77" * 32, "network": "eip155:8453"}
TEN_MINUTES, HOUR = timedelta(minutes=10), timedelta(hours=1)


@pytest.fixture
async def relay(chain: Chain) -> AsyncIterator[Relay]:
    async with open_relay(chain) as relay:
        yield relay


@pytest.fixture
async def doubtful(seller: Seller, relay: Relay, storage_url: str) -> AsyncIterator[Seller]:
    """A seller whose node hides what it says."""
    async with seller.beside(storage_url, rpc_url=relay.url) as doubtful:
        yield doubtful


async def test_a_small_call_is_answered_without_its_proof_and_proven_later(doubtful: Seller, relay: Relay) -> None:
    relay.faults.hides_receipts = relay.faults.hides_logs = True
    payment = doubtful.pay()
    await doubtful.sell(payment)
    row = await doubtful.row(payment)
    assert (row.state, row.block, row.unproven_since) == ("settled", None, row.settled_at)
    assert await doubtful.payments.findings() == []
    relay.faults.clear()
    assert [(each.before, each.after) for each in await doubtful.payments.resolve()] == [("unproven", "settled")]
    row = await doubtful.row(payment)
    assert (row.unproven_since, row.block is not None) == (None, True)
    assert await doubtful.events(payment) == ["admitted", "settled", "unproven", "proven"]
    assert await doubtful.payments.resolve() == []


async def test_a_proof_that_the_chain_shows_at_once_takes_one_call(doubtful: Seller, relay: Relay) -> None:
    await doubtful.sell(doubtful.pay())
    assert relay.asked == ["eth_getTransactionReceipt"]


@pytest.mark.parametrize(("limit", "answered"), [("0.02", True), ("0.019999", False), ("0", False)])
async def test_a_call_above_the_limit_waits_for_its_proof(
    seller: Seller, relay: Relay, storage_url: str, limit: str, answered: bool
) -> None:
    relay.faults.hides_receipts = relay.faults.hides_logs = True
    async with seller.beside(storage_url, rpc_url=relay.url, prove_above=limit) as careful:
        payment = careful.pay()
        if answered:
            await careful.sell(payment)
            return
        assert (await careful.refusal(payment)).code == "payment_in_flight"
        relay.faults.clear()
        careful.clock.ahead = timedelta(seconds=11)
        assert (await careful.sell(payment)).answer == b'{"answer": 1}'
        assert await seller.income() == PRICE


@pytest.mark.parametrize("accepted", [False, True], ids=["proven at last", "accepted"])
async def test_while_a_payment_stays_unproven_every_call_waits_until_the_chain_proves_it_or_the_operator_accepts_it(
    doubtful: Seller, relay: Relay, storage_url: str, accepted: bool
) -> None:
    relay.faults.hides_receipts = relay.faults.hides_logs = True
    payment = doubtful.pay()
    await doubtful.sell(payment)
    doubtful.clock.ahead = TEN_MINUTES
    await doubtful.payments.resolve()
    row = await doubtful.row(payment)
    for findings in (await doubtful.payments.findings(), await doubtful.payments.check()):
        assert row.id in findings[0]
        assert "campus ledger accept-unproven" in findings[0]
    async with doubtful.beside(storage_url, rpc_url=relay.url) as other:
        assert (await other.refusal(other.pay(valid_before=far(other)))).code == "payment_in_flight"
    if accepted:
        assert [each.id for each in await doubtful.payments.unproven.accept()] == [row.id]
    else:
        relay.faults.clear()
        await doubtful.payments.resolve()
    assert await doubtful.payments.findings() == []
    relay.faults.hides_receipts = relay.faults.hides_logs = True
    await doubtful.sell(doubtful.pay(valid_before=far(doubtful)))
    relay.faults.clear()


def far(seller: Seller) -> int:
    return int(seller.clock().timestamp()) + 600


@asynccontextmanager
async def own_seller(storage_url: str) -> AsyncIterator[tuple[Seller, Relay, KeyRing]]:
    async with open_chain() as chain, open_facilitator(chain) as facilitator, open_relay(chain) as relay:
        wallet = new_wallet()
        await chain.mint(wallet.address, 1_000_000)
        pay_to = new_wallet().address
        async with open_seller(chain, facilitator, storage_url, wallet=wallet, pay_to=pay_to, rpc_url=relay.url) as seller:
            ring = KeyRing(seller.storage, {"dice": Product("dice", "dice", "0.02", Term.parse("30 days"), None)}, now=seller.clock)
            seller.bought.keys = ring
            yield seller, relay, ring


async def test_a_settlement_that_never_happened_is_reversed_in_the_ledger_and_reported(storage_url: str) -> None:
    async with own_seller(storage_url) as (seller, _, _ring):
        seller.facilitator.faults.unsent = FALSE
        payment = seller.pay()
        await seller.sell(payment)
        assert (await seller.claimed(), await seller.income()) == (PRICE, 0)
        [missing] = (await seller.audit()).missing
        assert (missing.amount, missing.transaction) == (PRICE, FALSE["transaction"])
        await seller.chain.advance(1_000)
        seller.clock.ahead = TEN_MINUTES
        assert [each.after for each in await seller.payments.resolve()] == ["reversed"]
        assert (await seller.claimed(), await seller.income()) == (0, 0)
        assert await seller.audit() == Findings()
        assert await seller.events(payment) == ["admitted", "settled", "unproven", "reversed"]
        assert "reversed" in (await seller.payments.findings())[0]
        assert (await seller.refusal(payment)).code == "payment_already_used"


async def bought_key(seller: Seller, ring: KeyRing) -> str:
    tokens: list[str] = []

    async def run(payment_id: str) -> bytes:
        tokens.append(str((await ring.sell("dice", payment=payment_id, by="test")).token))
        return b"{}"

    sale = seller.sale(idempotency_key=KEY)
    await seller.sell(seller.pay(sale), sale, run)
    assert (await ring.tokens.find(tokens[0])).state == "valid"
    return tokens[0]


@pytest.mark.both_databases
async def test_a_reorganized_payment_revokes_the_key_that_it_bought(storage_url: str) -> None:
    async with own_seller(storage_url) as (seller, _, ring):
        before = await seller.chain.rpc("evm_snapshot")
        token = await bought_key(seller, ring)
        await seller.chain.rpc("evm_revert", before)
        await seller.chain.mine(CONFIRMATIONS + 10)
        await seller.chain.advance(1_000)
        assert await seller.income() == 0
        [missing] = (await seller.audit()).missing
        seller.clock.ahead = HOUR - timedelta(seconds=30)
        assert [each.after for each in await seller.payments.resolve()] == ["unproven"]
        assert (await ring.tokens.find(token)).state == "valid", "a node may be wrong for a while"
        seller.clock.ahead = HOUR + timedelta(seconds=30)
        assert [each.after for each in await seller.payments.resolve()] == ["reversed"]
        assert (await ring.tokens.find(token)).state == "revoked"
        assert await seller.claimed() == await seller.income() == 0
        async with seller.storage.read() as session:
            events = (await session.exec(select(KeyEvent).order_by(KeyEvent.id))).all()
        assert [(event.action, event.by) for event in events] == [("issued", "test"), ("revoked", "campus")]
        assert missing.payment_id in events[1].detail


async def test_a_node_that_is_wrong_for_a_while_revokes_no_key(storage_url: str) -> None:
    async with own_seller(storage_url) as (seller, relay, ring):
        token = await bought_key(seller, ring)
        await seller.chain.mine(CONFIRMATIONS + 10)
        await seller.chain.advance(1_000)
        for lies in (("hides_receipts", "hides_logs", "says_unused"), ("removed",), ("foreign",)):
            for lie in lies:
                setattr(relay.faults, lie, True)
            assert len((await seller.audit()).missing) == 1, lies
            for minutes in (1, 4, 50):
                seller.clock.ahead += timedelta(minutes=minutes)
                await seller.payments.resolve()
            relay.faults.clear()
            seller.clock.ahead += HOUR
            assert [(each.before, each.after) for each in await seller.payments.resolve()] == [("unproven", "settled")], lies
            assert (await ring.tokens.find(token)).state == "valid", lies
            assert await seller.audit() == Findings()


async def test_a_proof_that_is_not_deep_enough_or_a_node_that_lags_revokes_no_key(storage_url: str) -> None:
    async with own_seller(storage_url) as (seller, relay, ring):
        token = await bought_key(seller, ring)
        await seller.chain.mine(CONFIRMATIONS - 5)
        await seller.chain.advance(1_000)
        relay.faults.hides_receipts = relay.faults.hides_logs = relay.faults.says_unused = True
        assert len((await seller.audit()).missing) == 1
        seller.clock.ahead = 2 * HOUR
        assert [each.after for each in await seller.payments.resolve()] == ["unproven"]
        assert (await ring.tokens.find(token)).state == "valid"


async def test_a_charge_that_appears_after_its_release_is_unclaimed_and_names_its_payment(storage_url: str) -> None:
    async with own_seller(storage_url) as (seller, relay, _):
        payment = seller.pay()
        relay.faults.hides_logs = relay.faults.says_unused = True
        seller.facilitator.faults.settle_status = 500
        assert (await seller.refusal(payment)).code == "payment_in_flight"
        await seller.chain.advance(1_000)
        seller.clock.ahead = TEN_MINUTES
        assert [each.after for each in await seller.payments.resolve()] == ["released"], "a node can lie for ever"
        relay.faults.clear()
        [late] = (await seller.audit()).unclaimed
        row = await seller.row(payment)
        assert (late.payment_id, late.amount, late.payer) == (row.id, PRICE, payment.payer)
        assert "released" in late.reason
        assert late.transaction == (await seller.chain.transfers(receiver=seller.pay_to))[0].transaction
        assert await seller.claimed() + late.amount == await seller.income()


@pytest.mark.parametrize("key", [None, KEY], ids=["from its address", "by its key"])
async def test_a_charge_that_appears_after_its_release_buys_what_it_paid_for_and_is_never_called_expired(
    storage_url: str, key: str | None
) -> None:
    async with own_seller(storage_url) as (seller, relay, _):
        sale = seller.sale(idempotency_key=key)
        payment = seller.pay(sale)
        relay.faults.hides_logs = relay.faults.hides_receipts = relay.faults.says_unused = True
        seller.facilitator.faults.settle_status = 500
        assert (await seller.refusal(payment, sale)).code == "payment_in_flight"
        await seller.chain.advance(1_000)
        seller.clock.ahead = TEN_MINUTES
        assert [each.after for each in await seller.payments.resolve()] == ["released"]
        assert "expired" in (await seller.refusal(payment, sale)).detail, "the chain says the same"
        relay.faults.clear()
        another = replace(sale, client="192.0.2.1") if key is None else seller.sale(idempotency_key=KEY[::-1])
        assert "expired" in (await seller.refusal(payment, another)).detail, "a stranger who read it on the chain"
        assert (await seller.sell(payment, sale)).answer == b'{"answer": 2}'
        assert (await seller.sell(payment, sale)).replayed
        assert await seller.audit() == Findings()
        assert await seller.claimed() == await seller.income() == PRICE
        assert len(seller.facilitator.outcomes("settle")) == 1


async def test_the_daily_audit_says_what_reached_the_wallet_unclaimed(seller: Seller) -> None:
    await seller.sell(seller.pay())
    await seller.job("audit_payments")
    assert await seller.payments.findings() == []
    await seller.chain.mint(seller.pay_to, 7)
    await seller.job("audit_payments")
    [finding] = await seller.payments.findings()
    assert "no payment of this ledger claims (1 on eip155:8453, $0.000007)" in finding
    assert await seller.claimed() + 7 == await seller.income()


async def test_a_node_that_shows_transfers_without_amounts_is_named_by_the_check(storage_url: str) -> None:
    async with own_seller(storage_url) as (seller, relay, _):
        await seller.sell(seller.pay())
        relay.faults.empty = True
        assert "without an amount" in " ".join(await seller.payments.check())
        relay.faults.clear()
        assert "could not be compared" not in " ".join(await seller.payments.check())
