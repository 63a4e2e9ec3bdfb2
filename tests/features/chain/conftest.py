"""A chain, a facilitator, a seller that is paid, and a payer with five dollars."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import httpx
import pytest
from patience import patience

from campus.features.chain import Chain, Facilitator, Payer, Wallet, new_wallet, open_chain, open_facilitator
from tests import patient

PRICE = 20_000


@dataclass(frozen=True)
class Seller:
    """A seller that calls the facilitator."""

    facilitator: Facilitator
    wallet: Wallet

    @property
    def terms(self) -> dict[str, Any]:
        asked = {
            "scheme": "exact",
            "network": "eip155:8453",
            "asset": "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913",
            "amount": str(PRICE),
            "payTo": self.wallet.address,
            "maxTimeoutSeconds": 300,
            "extra": {"name": "USD Coin", "version": "2"},
        }
        return {"x402Version": 2, "resource": {"url": "https://seller.test/thing"}, "accepts": [asked]}

    async def ask(self, operation: str, payment: dict[str, Any], *, seconds: float = 20, token: str = "") -> httpx.Response:
        body = {"x402Version": 2, "paymentPayload": payment, "paymentRequirements": self.terms["accepts"][0]}
        headers = {"authorization": f"Bearer {token}"} if token else {}
        async with patient.AsyncClient(timeout=httpx.Timeout(seconds, connect=patience(20)), headers=headers) as client:
            return await client.post(f"{self.facilitator.url}/{operation}", json=body)


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
def facilitator(its_facilitator: Facilitator) -> Iterator[Facilitator]:
    """One that nobody has called yet, without a fault."""
    its_facilitator.calls.clear()
    yield its_facilitator
    its_facilitator.faults.clear()


@pytest.fixture
def seller(facilitator: Facilitator) -> Seller:
    return Seller(facilitator, new_wallet())


@pytest.fixture
async def payer(chain: Chain) -> Payer:
    wallet = new_wallet()
    await chain.mint(wallet.address, 5_000_000)
    return Payer(wallet)
