"""A campus with a checkout and a building that its keys unlock; with a real facilitator and chain, or with none that answer."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any, Literal

import pytest
from fastmcp import FastMCP

from buildings.checkout import building as checkout
from buildings.cve.building import building as cve
from buildings.gateway import building as gateway
from campus import access, free
from campus.features.chain import Chain, Facilitator, open_chain, open_facilitator
from campus.testing import Clock, Frame, TestCampus, open_campus

PAY_TO = "0x" + "11" * 20
NOWHERE = {"network": "eip155:8453", "pay_to": PAY_TO, "facilitators": ["http://127.0.0.1:9"], "rpc_url": "http://127.0.0.1:9"}
PRODUCTS = {
    "cve": {"scope": "cve", "price": "19", "term": "30 days"},
    "dice": {"scope": "dice", "price": "0.50", "term": "30 days"},
    "campus-pass": {"scope": "all", "price": "29", "term": "30 days"},
    "campus-pass-year": {"scope": "all", "price": "149", "term": "12 months"},
}
dice = FastMCP("Dice")


@dice.tool(annotations={"readOnlyHint": True}, meta=access())
async def roll() -> str:
    """Roll a die."""
    return "six"


@dice.tool(annotations={"readOnlyHint": True}, meta=free())
async def rules() -> str:
    """How to play."""
    return "one to six"


@pytest.fixture(scope="module")
def anyio_backend() -> Literal["asyncio"]:
    return "asyncio"


@pytest.fixture(scope="module")
async def its_campus() -> AsyncIterator[TestCampus]:
    tables = {"payments": NOWHERE, "products": PRODUCTS}
    buildings = {"checkout": checkout, "cve": cve, "dice": dice, "gateway": gateway}
    async with open_campus(settings={"grants": ["keys"]}, tables=tables, **buildings) as campus:
        yield campus


@pytest.fixture
def campus(its_campus: TestCampus, frame: Frame) -> TestCampus:
    """One for all tests of a module, which only ask."""
    return replace(its_campus, frame=frame)


@pytest.fixture(scope="module")
async def chain() -> AsyncIterator[Chain]:
    async with open_chain() as chain:
        yield chain


@pytest.fixture(scope="module")
async def facilitator(chain: Chain) -> AsyncIterator[Facilitator]:
    async with open_facilitator(chain) as facilitator:
        yield facilitator


OpenPaidCampus = Callable[..., AbstractAsyncContextManager[TestCampus]]


@pytest.fixture(scope="module")
def open_paid_campus(facilitator: Facilitator) -> OpenPaidCampus:
    def opened(
        storage: str | None = None, *, clock: Clock | None = None, **tables: Mapping[str, Any]
    ) -> AbstractAsyncContextManager[TestCampus]:
        said = {"payments": {**facilitator.table(PAY_TO), "chain_wait_seconds": 2}, "products": PRODUCTS, **tables}
        return open_campus(settings={"grants": ["keys"]}, storage=storage, clock=clock, tables=said, checkout=checkout, dice=dice)

    return opened
