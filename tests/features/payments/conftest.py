"""One chain and one facilitator per module, and a seller on either database per test."""

from collections.abc import AsyncIterator
from typing import Literal

import pytest
from features.payments.seller import Seller, open_seller

from campus.features.chain import Chain, Facilitator, Wallet, new_wallet, open_chain, open_facilitator

PURSE = 1_000_000


@pytest.fixture(scope="module")
def anyio_backend() -> Literal["asyncio"]:
    return "asyncio"


@pytest.fixture(scope="module")
async def chain() -> AsyncIterator[Chain]:
    async with open_chain() as chain:
        yield chain


@pytest.fixture(scope="module")
async def its_facilitator(chain: Chain) -> AsyncIterator[Facilitator]:
    async with open_facilitator(chain) as facilitator:
        yield facilitator


@pytest.fixture
async def facilitator(its_facilitator: Facilitator) -> AsyncIterator[Facilitator]:
    """Well again after each test."""
    yield its_facilitator
    its_facilitator.faults.clear()


@pytest.fixture
async def wallet(chain: Chain) -> Wallet:
    wallet = new_wallet()
    await chain.mint(wallet.address, PURSE)
    return wallet


@pytest.fixture
async def seller(chain: Chain, facilitator: Facilitator, wallet: Wallet, storage_url: str) -> AsyncIterator[Seller]:
    pay_to = new_wallet().address  # one wallet belongs to one database
    async with open_seller(chain, facilitator, storage_url, wallet=wallet, pay_to=pay_to) as seller:
        yield seller
        await seller.assert_the_ledger_is_the_chains()


@pytest.fixture
async def other_seller(seller: Seller, storage_url: str) -> AsyncIterator[Seller]:
    async with seller.beside(storage_url) as other:
        yield other


@pytest.fixture
async def impatient_seller(seller: Seller, storage_url: str) -> AsyncIterator[Seller]:
    async with seller.beside(storage_url, wait_seconds=0.3) as other:
        yield other
