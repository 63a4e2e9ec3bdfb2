"""The test facilitator settles as x402 does, and its faults do what they say."""

from typing import Any

import anyio
import httpx
import pytest
from patience import patience

from campus.features.chain import Chain, Facilitator, Payer, new_wallet, open_facilitator

pytestmark = pytest.mark.anyio


async def test_a_payment_moves_exactly_the_price_and_costs_the_payer_no_gas(
    chain: Chain, facilitator: Facilitator, seller: Any, payer: Payer
) -> None:
    payment = payer.payload(seller.terms)
    assert (await seller.ask("verify", payment)).json() == {"isValid": True, "payer": payer.wallet.address}
    settled = (await seller.ask("settle", payment)).json()
    (moved,) = await chain.transfers(receiver=seller.wallet.address)
    assert settled == {"success": True, "payer": payer.wallet.address, "transaction": moved.transaction, "network": "eip155:8453"}
    assert (await chain.balance(payer.wallet.address), await chain.balance(seller.wallet.address)) == (4_980_000, 20_000)
    assert await chain.gas(payer.wallet.address) == 0
    nonce = payment["payload"]["authorization"]["nonce"]
    assert facilitator.calls == [
        ("verify", payer.wallet.address, nonce, "valid"),
        ("settle", payer.wallet.address, nonce, "settled"),
    ]


async def test_payments_at_once_are_each_settled(chain: Chain, facilitator: Facilitator, seller: Any, payer: Payer) -> None:
    async with anyio.create_task_group() as tasks:
        for _ in range(8):
            tasks.start_soon(seller.ask, "settle", payer.payload(seller.terms))
    assert facilitator.outcomes("settle") == ["settled"] * 8
    assert await chain.balance(seller.wallet.address) == 160_000


async def test_one_payment_is_settled_once(chain: Chain, facilitator: Facilitator, seller: Any, payer: Payer) -> None:
    payment = payer.payload(seller.terms)
    await seller.ask("settle", payment)
    assert not (await seller.ask("settle", payment)).json()["success"]
    assert await chain.balance(seller.wallet.address) == 20_000


async def test_down_refuses_connections_until_it_is_up_again(facilitator: Facilitator, seller: Any, payer: Payer) -> None:
    payment = payer.payload(seller.terms)
    facilitator.faults.down = True
    with pytest.raises(httpx.ConnectError):
        await seller.ask("verify", payment)
    facilitator.faults.down = False
    assert (await seller.ask("verify", payment)).json()["isValid"]


async def test_a_settlement_that_hangs_is_on_the_chain(chain: Chain, facilitator: Facilitator, seller: Any, payer: Payer) -> None:
    facilitator.faults.hang_seconds = 60
    with pytest.raises(httpx.ReadTimeout):
        await seller.ask("settle", payer.payload(seller.terms), seconds=patience(1))
    assert facilitator.outcomes("settle") == ["settled"]
    assert await chain.balance(seller.wallet.address) == 20_000


async def test_a_status_before_settling_moves_nothing_and_one_after_it_does(
    chain: Chain, facilitator: Facilitator, seller: Any, payer: Payer
) -> None:
    facilitator.faults.settle_status_before = 503
    assert (await seller.ask("settle", payer.payload(seller.terms))).status_code == 503
    assert await chain.balance(seller.wallet.address) == 0
    facilitator.faults.clear()
    facilitator.faults.settle_status = 500
    assert (await seller.ask("settle", payer.payload(seller.terms))).status_code == 500
    assert await chain.balance(seller.wallet.address) == 20_000
    assert facilitator.outcomes("settle") == ["503", "settled"]


async def test_a_status_instead_of_verifying(facilitator: Facilitator, seller: Any, payer: Payer) -> None:
    facilitator.faults.verify_status = 500
    assert (await seller.ask("verify", payer.payload(seller.terms))).status_code == 500
    assert facilitator.outcomes("verify") == ["500"]


async def test_a_lie_overrides_members_of_the_answer(facilitator: Facilitator, seller: Any, payer: Payer) -> None:
    facilitator.faults.lie = {"network": "eip155:1"}
    facilitator.faults.verify_lie = {"isValid": True}
    settled = (await seller.ask("settle", payer.payload(seller.terms))).json()
    assert (settled["success"], settled["network"]) == (True, "eip155:1")
    assert (await seller.ask("verify", Payer(new_wallet()).payload(seller.terms))).json()["isValid"]
    assert facilitator.outcomes("verify") == ["invalid_exact_evm_insufficient_balance"]


async def test_a_garbled_answer_is_no_json(chain: Chain, facilitator: Facilitator, seller: Any, payer: Payer) -> None:
    facilitator.faults.garbled = ("settle",)
    answer = await seller.ask("settle", payer.payload(seller.terms))
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html")
    assert await chain.balance(seller.wallet.address) == 20_000


async def test_a_held_call_continues_when_it_is_released(chain: Chain, facilitator: Facilitator, seller: Any, payer: Payer) -> None:
    async with anyio.create_task_group() as tasks:
        with facilitator.hold("settle") as hold:
            tasks.start_soon(seller.ask, "settle", payer.payload(seller.terms))
            await hold.reached()
            assert await chain.balance(seller.wallet.address) == 0
    assert (hold.hits, await chain.balance(seller.wallet.address)) == (1, 20_000)


async def test_a_held_settlement_whose_reply_is_dropped_is_on_the_chain(
    chain: Chain, facilitator: Facilitator, seller: Any, payer: Payer
) -> None:
    with facilitator.hold("settled") as hold:
        hold.drop()
        with pytest.raises(httpx.RemoteProtocolError):
            await seller.ask("settle", payer.payload(seller.terms))
    assert await chain.balance(seller.wallet.address) == 20_000


async def test_a_call_that_is_dropped_before_its_work_moves_nothing(
    chain: Chain, facilitator: Facilitator, seller: Any, payer: Payer
) -> None:
    with facilitator.hold("settle") as hold:
        hold.drop()
        with pytest.raises(httpx.RemoteProtocolError):
            await seller.ask("settle", payer.payload(seller.terms))
    assert facilitator.calls == []
    assert await chain.balance(seller.wallet.address) == 0


async def test_waiting_at_a_point_that_no_call_reaches_times_out(facilitator: Facilitator) -> None:
    with facilitator.hold("verify") as hold, pytest.raises(TimeoutError, match="0 of 1 calls"):
        await hold.reached(seconds=0.01)


async def test_with_a_token_it_answers_only_callers_that_send_it(chain: Chain, seller: Any, payer: Payer) -> None:
    async with open_facilitator(chain, token="secret") as guarded:
        here = type(seller)(guarded, seller.wallet)
        assert (await here.ask("verify", payer.payload(here.terms))).status_code == 401
        assert (await here.ask("verify", payer.payload(here.terms), token="secret")).json()["isValid"]


async def test_an_unreadable_payment_is_a_bad_request(seller: Any, payer: Payer) -> None:
    answer = await seller.ask("verify", {"x402Version": 2})
    assert answer.status_code == 400
