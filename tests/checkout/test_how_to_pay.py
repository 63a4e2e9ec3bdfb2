"""What an agent reads before it pays: each limit, the Idempotency-Key that a purchase needs, and which hosts can pay at all."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from checkout.conftest import NOWHERE, PRODUCTS
from fastmcp import FastMCP

from buildings.checkout import building as checkout
from buildings.gateway import building as gateway
from campus import Building, access
from campus.testing import TestCampus, open_campus

pytestmark = pytest.mark.anyio
ABOVE = ("$19", "$29", "$149")
"""The prices of PRODUCTS that a stock client refuses."""


def paid_tools(**prices: str) -> Building:
    mcp: FastMCP[Any] = FastMCP("PaidCampus")
    for name, price in prices.items():

        async def sold() -> str:
            return "sold"

        mcp.tool(sold, name=name, annotations={"readOnlyHint": True}, meta=access(price=price))
    return Building(mcp)


@asynccontextmanager
async def opened(**more: Any) -> AsyncIterator[TestCampus]:
    buildings = {"paid_tools": paid_tools(dear="2.50", cheap="0.02"), "gateway": gateway}
    async with open_campus(tables={"payments": NOWHERE, "products": PRODUCTS}, **more, **buildings) as campus:
        yield campus


@pytest.fixture(scope="module")
async def its_campus() -> AsyncIterator[TestCampus]:
    async with opened(settings={"grants": ["keys"]}, checkout=checkout) as campus:
        yield campus


async def methods_of(campus: TestCampus) -> dict[str, str]:
    said = (await campus.call("how_to_pay", building="gateway")).data
    return {method["name"]: method["how"] for method in said["doors"]}


async def test_every_price_above_a_clients_limit_is_named_with_the_way_to_raise_it(campus: TestCampus) -> None:
    how = await methods_of(campus)
    for price in ABOVE:
        assert price in how["key"], price
        assert price in how["x402"], price
    assert "dear $2.50" in how["x402"]
    assert "campus-pass-year $149" in how["x402"]
    assert "cheap" not in how["x402"]
    assert "dice $" not in how["x402"], "half a dollar is paid without a word"
    assert '"max_amount_per_payment": "$149"' in how["x402"]
    assert "$0.10" in how["x402"], "the limit of clients of the first version"


async def test_prices_of_products_count_only_where_an_agent_can_buy_them() -> None:
    async with opened() as campus:
        how = await methods_of(campus)
    assert "dear $2.50" in how["x402"]
    assert "$149" not in how["x402"] + how["key"]


async def test_the_texts_say_that_a_purchase_needs_a_secret_idempotency_key_and_how_to_send_it(campus: TestCampus) -> None:
    how = (await methods_of(campus))["key"]
    steps = " ".join((await campus.call("list_products")).data["how_to_buy"])
    refused = (await campus.call("buy_key", product="cve")).data["detail"]
    for words in ("required", "secret", "header Idempotency-Key", "idempotency_key", "token_urlsafe"):
        assert words in how, words
        assert words in steps, words
    for words in ("list_products", "header Idempotency-Key", "argument idempotency_key", "secret", "more than $1"):
        assert words in refused, words


async def test_the_texts_say_that_over_mcp_only_a_client_that_signs_payments_can_pay(campus: TestCampus) -> None:
    how = (await methods_of(campus))["x402"]
    steps = " ".join((await campus.call("list_products")).data["how_to_buy"])
    assert "Any x402 client" not in how
    for text in (how, steps):
        assert "Over MCP" in text
        assert "_meta['x402/payment']" in text
        assert "ask your user" in text
        assert "wrapHttpxWithPayment" in text
