"""A price is the same wherever it is written: interface table, code, campus.toml, OpenAPI, well-known document, directory and 402."""

import json
import re
import tomllib
from base64 import b64decode
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import openapi_spec_validator
import pytest
from features.payments.terms.samples import Shop, shipped

from buildings.cve.building import building as cve
from campus import Building
from campus.pricing import Price, access_of
from campus.testing import ORIGIN

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).parents[4]
INTERFACE = {
    "top_cves_today": ("/v1/brief/today", "0.02"),
    "kev_fresh": ("/v1/kev/fresh", "0.01"),
    "cve_verdict": ("/v1/cve/{cve_id}", "0.005"),
    "cve_history": ("/v1/cve/{cve_id}/history", "0.01"),
    "archived_brief": ("/v1/archive/{date}", "0.05"),
    "next_in_kev": ("/v1/next", "0.02"),
    "brief_changes": ("/v1/brief/changes", "0.02"),
    "cve_verdicts": ("/v1/cve/verdicts", "0.10"),
    "search_cves": ("/v1/cves", "0.01"),
}
PRODUCTS = {"cve": "19", "recorder": "19", "campus-pass": "29", "campus-pass-year": "149"}
ARGUMENTS = {"cve_id": "CVE-2026-1234", "date": "2026-08-19"}


def atomic(dollars: str) -> int:
    exact = Decimal(dollars) * 10**6
    assert exact == int(exact)
    return int(exact)


async def tools_of(building: Building) -> Mapping[str, Any]:
    server: Any = building.server
    return {tool.name: tool for tool in await server.list_tools()}


async def test_every_price_per_call_agrees_to_the_smallest_unit(shop: Shop) -> None:
    in_code = {name: access_of(tool.meta) for name, tool in (await tools_of(cve)).items()}
    campus, http = shop
    document = (await http.get("/openapi.json")).json()
    terms = {entry["tool"]: entry for entry in (await http.get("/.well-known/x402")).json()["terms"]}
    directory = {tool["name"]: tool for tool in (await http.get("/v1/cve")).json()["tools"]}
    assert {name for name, one in in_code.items() if one and one.price} == INTERFACE.keys()
    for tool, (path, dollars) in INTERFACE.items():
        filled = re.sub(r"{(\w+)}", lambda match: ARGUMENTS[match[1]], path)
        answer = await http.get(filled)
        v2 = json.loads(b64decode(answer.headers["payment-required"]))
        body = answer.json()
        said = in_code[tool]
        assert said is not None
        assert said.price is not None
        found = {
            "code": said.price.atomic,
            "offer": campus.plan.opened[1].offers[tool].price.atomic,  # type: ignore[union-attr]  # it has a price, as its author says
            "openapi": atomic(document["paths"][path]["get"]["x-payment-info"]["price"]["amount"]),
            "well-known": int(terms[tool]["amount"]),
            "well-known dollars": atomic(terms[tool]["price"]),
            "directory": atomic(directory[tool]["price"]),
            "directory tier": atomic(re.findall(r"\$([\d.]+) per call", directory[tool]["tier"])[0]),
            "402 v2": int(v2["accepts"][0]["amount"]),
            "402 v1": int(body["accepts"][0]["maxAmountRequired"]),
            "402 unlock": atomic(body["unlock"][-1]["per_call"]),
            "402 words": atomic(re.findall(r"Pay \$([\d.]+) for this call", body["detail"])[0]),
        }
        assert set(found.values()) == {atomic(dollars)}, (tool, found)
        assert v2["resource"]["url"] == f"{ORIGIN}{filled}"
        assert "402" in document["paths"][path]["get"]["responses"]
    assert set(terms) == {*INTERFACE, "buy_key"}


async def test_every_price_of_a_key_agrees_to_the_smallest_unit(shop: Shop) -> None:
    campus, http = shop
    every = [entry for entry in (await http.get("/.well-known/x402")).json()["terms"] if entry["tool"] == "buy_key"]
    assert sorted(int(entry["amount"]) for entry in every) == sorted({atomic(price) for price in PRODUCTS.values()})
    directory = (await http.get("/v1/gateway/how_to_pay")).json()["products"]
    listed = (await http.get("/v1/checkout/products")).json()["products"]
    for product, dollars in PRODUCTS.items():
        answer = await http.post("/v1/checkout/keys", json={"product": product})
        v2 = json.loads(b64decode(answer.headers["payment-required"]))
        found = {
            "campus.toml": Price.parse(campus.plan.config.products[product].price).atomic,
            "directory": atomic(next(one["price"] for one in directory if one["name"] == product)),
            "list_products": atomic(next(one["price"] for one in listed if one["name"] == product)),
            "402 v2": int(v2["accepts"][0]["amount"]),
            "402 v1": int(answer.json()["accepts"][0]["maxAmountRequired"]),
        }
        assert set(found.values()) == {atomic(dollars)}, (product, found)
        assert len(v2["accepts"]) == 1
    price = (await http.get("/checkout/openapi.json")).json()["paths"]["/v1/checkout/keys"]["post"]["x-payment-info"]["price"]
    assert (atomic(price["min"]), atomic(price["max"])) == (19_000_000, 149_000_000)


async def test_every_document_is_valid_openapi_and_declares_the_402_with_its_headers(shop: Shop) -> None:
    campus, http = shop
    for path in campus.plan.documents:
        if not path.endswith("openapi.json"):
            continue
        document = (await http.get(path)).json()
        openapi_spec_validator.validate(document)
        for operations in document["paths"].values():
            for operation in operations.values():
                is_sold = "x-payment-info" in operation
                assert {"key": []} not in operation["security"] or is_sold <= ({} in operation["security"])
                refused = operation["responses"].get("402", operation["responses"]["default"])["$ref"].rpartition("/")[2]
                response = document["components"]["responses"][refused]
                assert is_sold == response["content"]["application/problem+json"]["schema"]["$ref"].endswith("/PaymentRequired")
                assert ("PAYMENT-REQUIRED" in response.get("headers", {})) >= is_sold


async def test_the_operators_price_overrides_the_authors_everywhere(tmp_path: Path) -> None:
    data = tomllib.loads((ROOT / "campus.toml").read_text())["buildings"]
    buildings = data | {"cve": data["cve"] | {"tools": {"kev_fresh": {"price": "0.123456"}}}}
    async with shipped(tmp_path, buildings=buildings) as (_, http):
        answer = await http.get("/v1/kev/fresh")
        v2 = json.loads(b64decode(answer.headers["payment-required"]))
        document = (await http.get("/openapi.json")).json()["paths"]["/v1/kev/fresh"]["get"]["x-payment-info"]
        entry = next(one for one in (await http.get("/.well-known/x402")).json()["terms"] if one["tool"] == "kev_fresh")
    assert {v2["accepts"][0]["amount"], answer.json()["accepts"][0]["maxAmountRequired"], entry["amount"]} == {"123456"}
    assert document["price"]["amount"] == "0.123456"


async def test_refusals_point_to_the_checkout_when_it_is_open(shop: Shop) -> None:
    _, http = shop
    for entry in (await http.get("/v1/brief/today")).json()["unlock"][:-1]:
        assert f"POST {ORIGIN}/v1/checkout/keys" in entry["get"]
    doors = {door["name"]: door for door in (await http.get("/v1/gateway/how_to_pay")).json()["doors"]}
    assert doors["x402"]["open"] is True
    assert "eip155:8453" in doors["x402"]["how"]
    for words in ("buy_key", f"POST {ORIGIN}/v1/checkout/keys", "Idempotency-Key", "set_spend_controls", "setSpendControls", "$149"):
        assert words in doors["key"]["how"], words
