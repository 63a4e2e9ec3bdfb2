"""Payments that settled without a proof or vanished from the chain: looked for, reported to the operator, taken back."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from payments.shop import PRICE, Shop, open_shop
from sqlmodel import select

from campus.keys.keyring import KeyRing
from campus.keys.sales import Product, Term
from campus.keys.tables import KeyEvent
from campus.payments.audit import Findings
from campus.payments.payment import StoredAnswer
from campus.payments.reconciler import CONFIRMATIONS
from campus.testing.payments import Chain, Relay, new_wallet, open_chain, open_facilitator, open_relay

pytestmark = pytest.mark.anyio
KEY = "kvZ9w3Qp7LmX2sRt5YbN8c"
FALSE = {"success": True, "transaction": "0x" + "77" * 32, "network": "eip155:8453"}
TEN_MINUTES, HOUR = timedelta(minutes=10), timedelta(hours=1)


@pytest.fixture
async def relay(chain: Chain) -> AsyncIterator[Relay]:
    async with open_relay(chain) as relay:
        yield relay


@pytest.fixture
async def doubtful(shop: Shop, relay: Relay, storage_url: str) -> AsyncIterator[Shop]:
    """A shop whose node hides what it says."""
    async with shop.beside(storage_url, rpc_url=relay.url) as doubtful:
        yield doubtful


async def test_a_small_call_is_answered_without_its_proof_and_proven_later(doubtful: Shop, relay: Relay) -> None:
    relay.faults.hides_receipts = relay.faults.hides_logs = True
    payment = doubtful.pay()
    await doubtful.sell(payment)
    row = await doubtful.row(payment)
    assert (row.state, row.block, row.unproven_since) == ("settled", None, row.settled_at)
    assert await doubtful.payments.findings() == []
    relay.faults.clear()
    assert [(each.before, each.after) for each in await doubtful.payments.reconciler.resolve()] == [("unproven", "settled")]
    row = await doubtful.row(payment)
    assert (row.unproven_since, row.block is not None) == (None, True)
    assert await doubtful.events(payment) == ["admitted", "settled", "unproven", "proven"]
    assert await doubtful.payments.reconciler.resolve() == []


async def test_a_proof_that_the_chain_shows_at_once_takes_one_call(doubtful: Shop, relay: Relay) -> None:
    await doubtful.sell(doubtful.pay())
    assert relay.asked == ["eth_getTransactionReceipt"]


@pytest.mark.parametrize(("limit", "answered"), [("0.02", True), ("0.019999", False), ("0", False)])
async def test_a_call_above_the_limit_waits_for_its_proof(shop: Shop, relay: Relay, storage_url: str, limit: str, answered: bool) -> None:
    relay.faults.hides_receipts = relay.faults.hides_logs = True
    async with shop.beside(storage_url, rpc_url=relay.url, prove_above=limit) as careful:
        payment = careful.pay()
        if answered:
            await careful.sell(payment)
            return
        assert (await careful.refusal(payment)).code == "payment_in_flight"
        relay.faults.clear()
        careful.clock.ahead = timedelta(seconds=11)
        assert (await careful.sell(payment)).answer == StoredAnswer(b'{"answer": 1}')
        assert await shop.income() == PRICE


async def test_while_a_payment_stays_unproven_every_call_waits_until_the_operator_accepts_it(
    doubtful: Shop, relay: Relay, storage_url: str
) -> None:
    relay.faults.hides_receipts = relay.faults.hides_logs = True
    payment = doubtful.pay()
    await doubtful.sell(payment)
    doubtful.clock.ahead = TEN_MINUTES
    await doubtful.payments.reconciler.resolve()
    row = await doubtful.row(payment)
    for findings in (await doubtful.payments.findings(), await doubtful.payments.check()):
        assert row.id in findings[0]
        assert "campus ledger accept-unproven" in findings[0]
    async with doubtful.beside(storage_url, rpc_url=relay.url) as other:
        assert (await other.refusal(other.pay(valid_before=far(other)))).code == "payment_in_flight"
    relay.faults.clear()
    await doubtful.payments.reconciler.resolve()
    assert await doubtful.payments.findings() != [], "the operator has not looked into it"
    assert [each.id for each in await doubtful.payments.unproven.accept()] == [row.id]
    assert await doubtful.payments.findings() == []
    relay.faults.hides_receipts = relay.faults.hides_logs = True
    await doubtful.sell(doubtful.pay(valid_before=far(doubtful)))
    relay.faults.clear()


def far(shop: Shop) -> int:
    """An end by the shop's clock."""
    return int(shop.clock().timestamp()) + 600


@asynccontextmanager
async def own_shop(storage_url: str) -> AsyncIterator[tuple[Shop, Relay, KeyRing]]:
    """A shop that sells keys, on a chain of its own, whose clock may be set forward and whose blocks may be taken back."""
    async with open_chain() as chain, open_facilitator(chain) as facilitator, open_relay(chain) as relay:
        wallet = new_wallet()
        await chain.mint(wallet.address, 1_000_000)
        pay_to = new_wallet().address
        async with open_shop(chain, facilitator, storage_url, wallet=wallet, pay_to=pay_to, rpc_url=relay.url) as shop:
            ring = KeyRing(shop.storage, {"dice": Product("dice", "dice", "0.02", Term.parse("30 days"), None)}, now=shop.clock)
            shop.follow(ring.deliver, ring.drop, ring.take_back)
            yield shop, relay, ring


async def test_a_settlement_that_never_happened_is_reversed_in_the_ledger_and_reported(storage_url: str) -> None:
    async with own_shop(storage_url) as (shop, _, _ring):
        shop.facilitator.faults.unsent = FALSE
        payment = shop.pay()
        await shop.sell(payment)
        assert (await shop.claimed(), await shop.income()) == (PRICE, 0)
        [missing] = (await shop.audit()).missing
        assert (missing.amount, missing.transaction) == (PRICE, FALSE["transaction"])
        await shop.chain.advance(1_000)
        shop.clock.ahead = TEN_MINUTES
        assert [each.after for each in await shop.payments.reconciler.resolve()] == ["reversed"]
        assert (await shop.claimed(), await shop.income()) == (0, 0)
        assert await shop.audit() == Findings()
        assert await shop.events(payment) == ["admitted", "settled", "unproven", "reversed"]
        assert "reversed" in (await shop.payments.findings())[0]
        assert (await shop.refusal(payment)).code == "payment_already_used"


async def bought_key(shop: Shop, ring: KeyRing) -> str:
    """A key, and that it is good."""
    tokens: list[str] = []

    async def run(payment_id: str) -> StoredAnswer:
        tokens.append(str((await ring.sell("dice", payment=payment_id, by="test")).token))
        return StoredAnswer(b"{}")

    sale = shop.sale(idempotency_key=KEY)
    await shop.sell(shop.pay(sale), sale, run)
    assert (await ring.find(tokens[0])).state == "valid"
    return tokens[0]


async def test_a_reorganized_payment_revokes_the_key_that_it_bought(storage_url: str) -> None:
    async with own_shop(storage_url) as (shop, _, ring):
        before = await shop.chain.rpc("evm_snapshot")
        token = await bought_key(shop, ring)
        await shop.chain.rpc("evm_revert", before)
        await shop.chain.mine(CONFIRMATIONS + 10)
        await shop.chain.advance(1_000)
        assert await shop.income() == 0
        [missing] = (await shop.audit()).missing
        shop.clock.ahead = HOUR - timedelta(seconds=30)
        assert [each.after for each in await shop.payments.reconciler.resolve()] == ["unproven"]
        assert (await ring.find(token)).state == "valid", "a node may be wrong for a while"
        shop.clock.ahead = HOUR + timedelta(seconds=30)
        assert [each.after for each in await shop.payments.reconciler.resolve()] == ["reversed"]
        assert (await ring.find(token)).state == "revoked"
        assert await shop.claimed() == await shop.income() == 0
        async with shop.storage.read() as session:
            events = (await session.exec(select(KeyEvent).order_by(KeyEvent.id))).all()
        assert [(event.action, event.by) for event in events] == [("issued", "test"), ("revoked", "campus")]
        assert missing.payment_id in events[1].detail


@pytest.mark.parametrize("lies", [("hides_receipts", "hides_logs", "says_unused"), ("removed",), ("foreign",)], ids=str)
async def test_a_node_that_is_wrong_for_a_while_revokes_no_key(storage_url: str, lies: tuple[str, ...]) -> None:
    async with own_shop(storage_url) as (shop, relay, ring):
        token = await bought_key(shop, ring)
        await shop.chain.mine(CONFIRMATIONS + 10)
        await shop.chain.advance(1_000)
        for lie in lies:
            setattr(relay.faults, lie, True)
        assert len((await shop.audit()).missing) == 1
        for minutes in (1, 5, 55):
            shop.clock.ahead = timedelta(minutes=minutes)
            await shop.payments.reconciler.resolve()
        relay.faults.clear()
        shop.clock.ahead = 2 * HOUR
        assert [(each.before, each.after) for each in await shop.payments.reconciler.resolve()] == [("unproven", "settled")]
        assert (await ring.find(token)).state == "valid"
        assert await shop.audit() == Findings()


async def test_a_proof_that_is_not_deep_enough_or_a_node_that_lags_revokes_no_key(storage_url: str) -> None:
    async with own_shop(storage_url) as (shop, relay, ring):
        token = await bought_key(shop, ring)
        await shop.chain.mine(CONFIRMATIONS - 5)
        await shop.chain.advance(1_000)
        relay.faults.hides_receipts = relay.faults.hides_logs = relay.faults.says_unused = True
        assert len((await shop.audit()).missing) == 1
        shop.clock.ahead = 2 * HOUR
        assert [each.after for each in await shop.payments.reconciler.resolve()] == ["unproven"]
        assert (await ring.find(token)).state == "valid"


async def test_a_charge_that_appears_after_its_release_is_unclaimed_and_names_its_payment(storage_url: str) -> None:
    async with own_shop(storage_url) as (shop, relay, _):
        payment = shop.pay()
        relay.faults.hides_logs = relay.faults.says_unused = True
        shop.facilitator.faults.settle_status = 500
        assert (await shop.refusal(payment)).code == "payment_in_flight"
        await shop.chain.advance(1_000)
        shop.clock.ahead = TEN_MINUTES
        assert [each.after for each in await shop.payments.reconciler.resolve()] == ["released"], "a node can lie for ever"
        relay.faults.clear()
        [late] = (await shop.audit()).unclaimed
        row = await shop.row(payment)
        assert (late.payment_id, late.amount, late.payer) == (row.id, PRICE, payment.payer)
        assert "released" in late.reason
        assert late.transaction == (await shop.chain.transfers(receiver=shop.pay_to))[0].transaction
        assert await shop.claimed() + late.amount == await shop.income()


async def test_the_daily_audit_says_what_reached_the_wallet_unclaimed(shop: Shop) -> None:
    await shop.sell(shop.pay())
    await shop.job("campus.audit_payments")
    assert await shop.payments.findings() == []
    await shop.chain.mint(shop.pay_to, 7)
    await shop.job("campus.audit_payments")
    [finding] = await shop.payments.findings()
    assert "no payment of this ledger claims (1, $0.000007)" in finding
    assert await shop.claimed() + 7 == await shop.income()


async def test_a_node_that_shows_transfers_without_amounts_is_named_by_the_check(storage_url: str) -> None:
    async with own_shop(storage_url) as (shop, relay, _):
        await shop.sell(shop.pay())
        relay.faults.empty = True
        assert "without an amount" in " ".join(await shop.payments.check())
        relay.faults.clear()
        assert "could not be compared" not in " ".join(await shop.payments.check())
