"""What the checkout says to an agent at its first visit: prices, the steps of a purchase, and why an unpaid call is refused."""

import re

import httpx
import pytest
from x402 import x402Client

from campus.testing import TestCampus

pytestmark = pytest.mark.anyio


async def test_every_product_is_listed_with_its_price_term_and_what_it_opens(campus: TestCampus) -> None:
    reply, plain = await campus.call("list_products"), {"allowance": None, "credits": None}
    assert reply.status == 200
    assert reply.data["count"] == 4
    assert reply.data["products"] == [
        {"name": "cve", "scope": "cve", "price": "19", "term": "30 days", "opens": ["cve"]} | plain,
        {"name": "dice", "scope": "dice", "price": "0.50", "term": "30 days", "opens": ["dice"]} | plain,
        {"name": "campus-pass", "scope": "all", "price": "29", "term": "30 days", "opens": ["cve", "dice"]} | plain,
        {"name": "campus-pass-year", "scope": "all", "price": "149", "term": "12 months", "opens": ["cve", "dice"]} | plain,
    ]


async def test_the_steps_say_what_must_be_known_before_paying(campus: TestCampus) -> None:
    data = (await campus.call("list_products")).data
    steps = " ".join(data["how_to_buy"])
    for said in (
        "22 to 255 random characters",
        "Idempotency-Key",
        "idempotency_key",
        "refuse payments above $1",
        "POST http://campus.test/v1/checkout/keys",
    ):
        assert said in steps
    assert "within 24 hours" in steps
    assert "shown there and nowhere else" in steps
    assert "renew=KEY_ID" in data["renewal"]
    assert data["terms"].startswith("Sales are final.")


async def test_the_code_that_raises_the_spending_limit_works_in_the_client(its_campus: TestCampus) -> None:
    steps = " ".join((await its_campus.call("list_products")).data["how_to_buy"])
    said = re.search(r'set_spend_controls\(\{"(\w+)": "(\$\d+)"\}\)', steps)
    assert said is not None
    assert said.groups() == ("max_amount_per_payment", "$149")
    client = x402Client()
    assert client.set_spend_controls({"max_amount_per_payment": said[2]}) is client


async def test_the_refusal_of_an_unpaid_purchase_has_the_price_of_its_product(campus: TestCampus) -> None:
    reply = await campus.call("buy_key", product="campus-pass-year")
    assert reply.data["code"] == "access_required"
    amounts = [one.get("amount") or one["maxAmountRequired"] for one in reply.data["accepts"]]
    assert amounts == ["149000000"]


async def test_without_a_readable_product_the_refusal_has_each_price_the_lowest_first(campus: TestCampus) -> None:
    reply = await campus.call("buy_key")
    amounts = [int(one.get("amount") or one["maxAmountRequired"]) for one in reply.data["accepts"]]
    assert amounts == [500_000, 19_000_000, 29_000_000, 149_000_000]


async def test_no_key_unlocks_the_purchase(campus: TestCampus) -> None:
    reply = await campus.call("buy_key", product="cve", key="campus-pass")
    assert reply.data["code"] == "access_required"
    assert [one.get("amount") or one["maxAmountRequired"] for one in reply.data["accepts"]] == ["19000000"]


async def test_refusals_elsewhere_say_where_keys_are_sold(campus: TestCampus) -> None:
    refused = await campus.call("cve_verdict", building="cve", cve_id="CVE-2026-1")
    keys = [one for one in refused.data["unlock"] if "product" in one]
    assert [one["product"] for one in keys] == ["cve", "campus-pass", "campus-pass-year"]
    for one in keys:
        assert "POST http://campus.test/v1/checkout/keys" in one["get"]
        assert "http://campus.test/checkout/mcp" in one["get"]
    paying = await campus.call("how_to_pay", building="gateway")
    assert "/v1/checkout/keys" in str(paying.data)


async def test_the_answer_of_a_purchase_is_described_to_the_agent_field_by_field(its_campus: TestCampus) -> None:
    document = (await its_campus.http.get("/checkout/openapi.json")).json()
    operation = document["paths"]["/v1/checkout/keys"]["post"]
    assert "Idempotency-Key" in operation["description"]
    answer = operation["responses"]["200"]["content"]["application/json"]["schema"]
    schema = document["components"]["schemas"][answer["$ref"].rpartition("/")[2]] if "$ref" in answer else answer
    assert {"key", "key_id", "product", "scope", "valid_until", "use", "renewal", "terms"} <= schema["properties"].keys()
    assert all("description" in one or "$ref" in str(one) for one in schema["properties"].values())


async def test_the_http_routes_are_where_the_documents_say(its_campus: TestCampus) -> None:
    found: httpx.Response = await its_campus.http.get("/v1/checkout/products")
    assert found.status_code == 200
    assert (await its_campus.http.get("/v1/checkout/keys")).status_code == 405
