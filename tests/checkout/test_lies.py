"""Node and facilitator that lie, over both frames: no key before the chain shows its payment, and no paid key is lost."""

import secrets
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from checkout.conftest import OpenPaidCampus

from campus.features.chain import Chain, Facilitator, Payer, new_wallet, open_relay
from campus.testing import Clock, Frame, TestCampus

pytestmark = pytest.mark.anyio
DOLLAR = 1_000_000
ELSEWHERE = "0x" + "66" * 20
FRAMES: tuple[Frame, Frame] = ("http", "mcp")


async def buyer(chain: Chain) -> Payer:
    wallet = new_wallet()
    await chain.mint(wallet.address, 10 * DOLLAR)
    return Payer(wallet)


async def terms_at(campus: TestCampus) -> Mapping[str, Any]:
    unpaid = await campus.call("buy_key", product="dice")
    assert unpaid.terms is not None
    return unpaid.terms


async def test_a_foreign_transaction_buys_no_key(
    open_paid_campus: OpenPaidCampus, storage_url: str, chain: Chain, facilitator: Facilitator
) -> None:
    async with open_paid_campus(storage_url) as campus:
        for frame in FRAMES:
            payer, at = await buyer(chain), replace(campus, frame=frame)
            terms = await terms_at(at)
            foreign = await chain.transfer_with_authorization(payer.payload(terms, to=ELSEWHERE))
            facilitator.faults.unsent = {"success": True, "transaction": foreign, "network": "eip155:8453"}
            try:
                wanted = {"product": "dice", "idempotency_key": secrets.token_urlsafe(16)}
                reply = await at.call("buy_key", payment=payer.payload(terms), **wanted)
                assert (reply.status, reply.code) == (409, "payment_in_flight")
                assert "Retry-After" in reply.headers or frame == "mcp"
                assert await campus.service.keys.list() == ()
            finally:
                facilitator.faults.clear()


@pytest.mark.both_databases
async def test_a_charge_that_the_facilitator_denies_while_the_node_is_down_is_answered_when_it_is_up(
    open_paid_campus: OpenPaidCampus, storage_url: str, chain: Chain, facilitator: Facilitator
) -> None:
    clock = Clock()
    async with open_relay(chain) as relay:
        payments = {**facilitator.table("0x" + "11" * 20), "rpc_url": relay.url}
        async with open_paid_campus(storage_url, clock=clock, payments=payments) as campus:
            for frame in FRAMES:
                payer, at = await buyer(chain), replace(campus, frame=frame)
                wanted = {"product": "dice", "idempotency_key": secrets.token_urlsafe(16)}
                payment = payer.payload(await terms_at(at))
                facilitator.faults.lie = {"success": False, "errorReason": "insufficient_funds", "transaction": ""}
                relay.faults.down = True
                reply = await at.call("buy_key", payment=payment, **wanted)
                assert (reply.status, reply.code) == (409, "payment_in_flight")
                facilitator.faults.clear()
                relay.faults.clear()
                clock.move(timedelta(seconds=11))
                answered = await at.call("buy_key", payment=payment, **wanted)
                assert answered.status == 200, answered.data
                assert await chain.balance(payer.wallet.address) == 10 * DOLLAR - DOLLAR // 2
            assert len(await campus.service.keys.list()) == len(FRAMES)
