"""The local chain and its token: a signed transfer moves once, and only as it was signed."""

import time
from typing import Any

import pytest

from campus.features.chain import Chain, ChainError, Payer, new_wallet

pytestmark = pytest.mark.anyio


async def test_its_chain_id_is_that_of_base(chain: Chain) -> None:
    assert int(await chain.rpc("eth_chainId"), 16) == 8453
    assert await chain.rpc("net_version") == "8453"


async def test_what_is_minted_is_there_and_pays_no_gas(chain: Chain) -> None:
    wallet = new_wallet()
    await chain.mint(wallet.address, 1_500_000)
    assert await chain.balance(wallet.address) == 1_500_000
    assert await chain.gas(wallet.address) == 0


async def test_anybody_may_submit_an_authorization_once(chain: Chain, seller: Any, payer: Payer) -> None:
    payment = payer.payload(seller.terms)
    transaction = await chain.transfer_with_authorization(payment)
    with pytest.raises(ChainError, match="authorization is used or canceled"):
        await chain.transfer_with_authorization(payment)
    (moved,) = await chain.transfers(sender=payer.wallet.address, receiver=seller.wallet.address)
    assert (moved.amount, moved.transaction) == (20_000, transaction)
    assert await chain.is_used(payer.wallet.address, payment["payload"]["authorization"]["nonce"])


async def test_a_changed_authorization_is_not_what_was_signed(chain: Chain, seller: Any, payer: Payer) -> None:
    payment = payer.payload(seller.terms)
    payment["payload"]["authorization"]["value"] = "1"
    with pytest.raises(ChainError, match="invalid signature"):
        await chain.transfer_with_authorization(payment)
    assert await chain.balance(payer.wallet.address) == 5_000_000


async def test_a_cancelled_authorization_moves_nothing(chain: Chain, seller: Any, payer: Payer) -> None:
    payment = payer.payload(seller.terms)
    nonce = payment["payload"]["authorization"]["nonce"]
    await chain.cancel_authorization(payer.wallet, nonce)
    with pytest.raises(ChainError, match="authorization is used or canceled"):
        await chain.transfer_with_authorization(payment)
    assert await chain.is_used(payer.wallet.address, nonce)
    assert await chain.balance(payer.wallet.address) == 5_000_000


async def test_only_its_payer_cancels_an_authorization(chain: Chain, seller: Any, payer: Payer) -> None:
    nonce = payer.payload(seller.terms)["payload"]["authorization"]["nonce"]
    stranger = new_wallet()
    await chain.cancel_authorization(stranger, nonce)
    assert not await chain.is_used(payer.wallet.address, nonce)


async def test_nobody_can_pay_more_than_his_balance(chain: Chain, seller: Any) -> None:
    with pytest.raises(ChainError, match="transfer amount exceeds balance"):
        await chain.transfer_with_authorization(Payer(new_wallet()).payload(seller.terms))


async def test_an_authorization_begins_by_the_chains_clock(chain: Chain, seller: Any, payer: Payer) -> None:
    start = int(time.time()) + 600
    payment = payer.payload(seller.terms, valid_after=start, valid_before=start + 600)
    with pytest.raises(ChainError, match="authorization is not yet valid"):
        await chain.transfer_with_authorization(payment)
    await chain.advance(700)
    await chain.transfer_with_authorization(payment)
    assert await chain.balance(seller.wallet.address) == 20_000


async def test_an_authorization_ends_by_the_chains_clock(chain: Chain, seller: Any, payer: Payer) -> None:
    payment = payer.payload(seller.terms)
    before = await chain.time()
    await chain.advance(600)
    assert await chain.time() >= before + 600
    with pytest.raises(ChainError, match="authorization is expired"):
        await chain.transfer_with_authorization(payment)
