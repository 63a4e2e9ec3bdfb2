"""A price that an argument sets: a base and so much for each, the same in every document, and paid on a real chain to the smallest unit."""

from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any

import pytest
from fastmcp import FastMCP
from features.payments.terms.paid_campus import PaidCampus, open_paid_campus
from features.payments.terms.samples import PAYMENTS
from pydantic import Field

from campus import Building, access, route
from campus.errors import LoadError
from campus.features.chain import PAYMENT, headers_of, terms_of
from campus.pricing import Offer, Price, read_access
from campus.testing import ORIGIN, open_campus

pytestmark = pytest.mark.anyio
BY_IDS = {"base": "0.01", "per": "ids", "each": "0.0002"}
PATH = "/v1/stall/verdicts"
WORDS = "$0.01 and $0.0002 for each of ids"


def counting() -> Building:
    mcp: FastMCP[Any] = FastMCP("Seller", instructions="Sells verdicts.")

    @mcp.tool(meta=route(f"POST {PATH}") | access(price=BY_IDS))
    async def verdicts(ids: list[str] | None = None) -> dict[str, int]:
        """Judge some."""
        return {"judged": len(ids or [])}

    @mcp.tool(annotations={"readOnlyHint": True}, meta=route("GET /v1/stall/pages/{count}") | access(price=BY_IDS | {"per": "count"}))
    async def pages(count: int) -> dict[str, int]:
        """Some pages."""
        return {"pages": count}

    return Building(mcp)


@pytest.fixture(scope="module")
async def its_paid() -> AsyncIterator[PaidCampus]:
    async with open_paid_campus(counting()) as paid:
        yield paid


@pytest.fixture
async def paid(its_paid: PaidCampus, address: str) -> AsyncIterator[PaidCampus]:
    async with its_paid.as_new(address) as paid:
        yield paid


async def http_amount(paid: PaidCampus, ids: list[str]) -> str:
    terms = terms_of(await paid.campus.http.post(PATH, json={"ids": ids}))
    amount: str = terms["accepts"][0]["amount"]
    return amount


async def test_a_call_is_offered_and_charged_at_its_base_and_so_much_for_each_over_both_frames(paid: PaidCampus) -> None:
    async with paid.mcp() as client:
        for ids in ([], ["a"], ["a", "b", "c"]):
            assert await http_amount(paid, ids) == str(10_000 + 200 * len(ids))
        payment = paid.payer.payload(terms_of(await paid.campus.http.post(PATH, json={"ids": ["a", "b", "c"]})))
        answer = await paid.campus.http.post(PATH, json={"ids": ["a", "b", "c"]}, headers=headers_of(payment))
        assert (answer.status_code, answer.json(), await paid.earned()) == (200, {"judged": 3}, 10_600)
        bought = await paid.payer.call_mcp(client, "verdicts", {"ids": ["a", "b"]})
        assert (bought.structured_content, await paid.earned()) == ({"judged": 2}, 10_600 + 10_400)
        async with paid.paying() as paying:
            assert (await paying.get("/v1/stall/pages/5")).json() == {"pages": 5}
        assert await paid.earned() == 10_600 + 10_400 + 11_000


async def test_a_payment_for_three_does_not_buy_four_over_either_frame_and_charges_nothing(paid: PaidCampus) -> None:
    async with paid.mcp() as client:
        three, four = {"ids": ["a", "b", "c"]}, {"ids": ["a", "b", "c", "d"]}
        terms = terms_of(await paid.campus.http.post(PATH, json=three))
        unread = terms | {"resource": terms["resource"] | {"url": f"{ORIGIN}{PATH}"}}  # as of a body that was not read
        for payment in (paid.payer.payload(terms), paid.payer.payload(unread)):
            refused = await paid.campus.http.post(PATH, json=four, headers=headers_of(payment))
            assert (refused.status_code, refused.json()["code"]) == (402, "payment_refused")
            assert terms_of(refused)["accepts"][0]["amount"] == "10800"
            over_mcp = await client.call_tool("verdicts", four, meta={PAYMENT: payment}, raise_on_error=False)
            assert (over_mcp.structured_content or {})["status"] == 402
        assert (paid.facilitator.calls, await paid.earned()) == ([], 0)


async def test_no_argument_makes_a_price_too_large_or_less_than_its_base(paid: PaidCampus) -> None:
    terms = terms_of(await paid.campus.http.get("/v1/stall/pages/1"))
    for count, amount in ((-5, "10000"), (0, "10000"), (10**12, "200000000010000"), (10**16, "10000")):
        quoted = await paid.campus.http.get(f"/v1/stall/pages/{count}")
        assert (quoted.status_code, terms_of(quoted)["accepts"][0]["amount"]) == (402, amount)
    payment = paid.payer.payload(terms, value=10_000, amount=10_000, resource=f"{ORIGIN}/v1/stall/pages/{10**16}")
    refused = await paid.campus.http.get(f"/v1/stall/pages/{10**16}", headers=headers_of(payment))
    assert (refused.status_code, refused.json()["errors"][0]["code"]) == (422, "no_price")
    assert await paid.earned() == 0


async def test_whoever_has_sent_no_arguments_is_told_the_base_and_on_what_it_depends(paid: PaidCampus) -> None:
    unread = await paid.campus.http.post(PATH, content=b"{", headers={"Content-Type": "application/json"})
    assert (unread.status_code, terms_of(unread)["accepts"][0]["amount"]) == (402, "10000")
    assert WORDS in terms_of(unread)["resource"]["description"]
    assert f"Pay {WORDS} for this call" in unread.json()["detail"]
    assert {"per_call": "0.01", "per": "ids", "each": "0.0002"}.items() <= unread.json()["unlock"][-1].items()
    [entry] = [one for one in (await paid.campus.http.get("/.well-known/x402")).json()["terms"] if one["tool"] == "verdicts"]
    assert (entry["price"], entry["per"], entry["each"]) == ("0.01", "ids", "0.0002")
    document = (await paid.campus.http.get("/stall/openapi.json")).json()["paths"][PATH]["post"]["x-payment-info"]["price"]
    assert document == {"mode": "dynamic", "currency": "USD", "min": "0.01", "per": "ids", "each": "0.0002"}
    [tool] = [one for one in (await paid.campus.http.get("/v1/stall")).json()["tools"] if one["name"] == "verdicts"]
    assert (tool["price"], tool["price_per"]) == ("0.01", "$0.0002 for each of ids")
    assert tool["tier"] == "key or $0.01 per call and $0.0002 for each of ids"
    assert "$0.01 and $0.0002 for each of ids" in (await paid.campus.http.get("/pricing", headers={"Accept": "text/html"})).text


def as_a_float(ids: float) -> None: ...
def as_text(ids: str) -> None: ...
def either(ids: list[str] | str) -> None: ...
def with_a_default(ids: int = 10) -> None: ...
def with_a_made_default(ids: Annotated[list[str], Field(default_factory=lambda: ["a"])]) -> None: ...
def under_another_name(keys: list[str]) -> None: ...


@pytest.mark.parametrize("function", [as_a_float, as_text, either, with_a_default, with_a_made_default, under_another_name])
async def test_an_argument_that_cannot_be_counted_is_refused_at_load_in_code_and_in_campus_toml(function: Callable[..., None]) -> None:
    for meta, tools in ((access(price=BY_IDS), {}), (None, {function.__name__: {"price": BY_IDS}})):
        mcp: FastMCP[Any] = FastMCP("Seller", instructions="Sells.")
        mcp.tool(function, meta=meta)
        with pytest.raises(LoadError, match=f"tool {function.__name__!r} .* has a price per 'ids', "):
            async with open_campus(tables=PAYMENTS, tools=tools, stall=Building(mcp)):
                pass


@pytest.mark.parametrize(
    ("price", "sentence"),
    [
        ({"base": "0", "per": "ids", "each": "1"}, "not above zero"),
        ({"base": "1", "per": "ids", "each": "0.0000001"}, "finer than"),
        ({"base": "1", "per": "ids"}, "three members"),
        ({"base": "1", "per": "ids", "each": "1", "most": "9"}, "three members"),
    ],
)
def test_a_price_by_argument_that_is_none_is_refused_with_a_sentence(price: dict[str, str], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        read_access({"price": price})


@pytest.mark.parametrize("counted", ["5", True, 5.5, {"a": 1}])
def test_what_another_servers_tool_was_sent_and_cannot_be_counted_has_no_price(counted: Any) -> None:
    offer = Offer("seller", "verdicts", read_access({"price": BY_IDS}), "seller")
    assert [offer.price_for(sent) for sent in ({}, {"ids": None}, {"ids": [1]}, {"ids": 2})] == [
        *map(Price, (10_000, 10_000, 10_200, 10_400))
    ]
    with pytest.raises(ValueError, match="neither a list nor a whole number"):
        offer.price_for({"ids": counted})
