"""Keys and prices in tools' descriptions and refusals: those of campus.toml, and no price that cannot be paid."""

import json
from dataclasses import replace
from typing import Any

import pytest
from fastmcp import FastMCP
from features.payments.terms.samples import PAYMENTS
from service.conftest import UNLIMITED

from buildings.checkout import building as checkout
from buildings.cve.building import building as cve
from buildings.gateway import building as gateway
from campus import Building, access, free
from campus.testing import TestCampus, open_campus

pytestmark = pytest.mark.anyio

WAYS = {
    "open_shelf": "Free.",
    "both": "Needs a key of scope library, or $0.25 per call.",
    "key_only": "Needs a key of scope library.",
    "paid_only": "Costs $0.05 per call.",
    "more_with_one": "Free; a key of scope library adds more.",
    "says_it_itself": "Free.",
    "undescribed": "Free.",
}
WITHOUT_PAYMENTS = WAYS | {"both": "Needs a key of scope library.", "paid_only": "Sold per call only, and payments are not available here."}


def library() -> Building:
    mcp: FastMCP[Any] = FastMCP("Library")

    def add(name: str, text: str, meta: dict[str, Any]) -> None:
        def tool() -> str:
            return name

        tool.__doc__ = text
        mcp.tool(tool, name=name, annotations={"readOnlyHint": True}, meta=meta)

    add("open_shelf", "The open shelf.", free())
    add("both", "A book. And more.", access(price="0.25"))
    add("key_only", "A card.", access())
    add("paid_only", "A copy.", access(price="0.05", key="never"))
    add("more_with_one", "A seat.", access(key="optional"))
    add("says_it_itself", "A seat; by the window with a key.", access(key="optional"))
    add("undescribed", "", free())
    return Building(mcp)


async def listed(campus: TestCampus, building: str | None = None) -> dict[str, str]:
    async with campus.mcp(building) as client:
        tools = await client.list_tools()
    assert not [tool for tool in tools if (tool.meta or {}).keys() & {"campus", "twins"}], "what an author declares is not for callers"
    return {tool.name: tool.description or "" for tool in tools}


@pytest.mark.parametrize(("tables", "expected"), [(None, WITHOUT_PAYMENTS), (PAYMENTS, WAYS)], ids=["keys only", "payments"])
async def test_a_tools_description_ends_with_what_a_call_needs(tables: Any, expected: dict[str, str]) -> None:
    async with open_campus(library=library(), tables=tables) as campus:
        texts = await listed(campus)
        assert {name: text.rpartition("\n\n")[2] for name, text in texts.items()} == expected
        document = (await campus.http.get("/library/openapi.json")).json()
        written = {said["operationId"]: said["description"] for path in document["paths"].values() for said in path.values()}
        assert written == texts
        entries = (await campus.http.get("/v1/library")).json()["tools"]
    assert {one["name"]: one["summary"] for one in entries} | {"undescribed": ""} == {
        "open_shelf": "The open shelf.",
        "both": "A book.",
        "key_only": "A card.",
        "paid_only": "A copy.",
        "more_with_one": "A seat.",
        "says_it_itself": "A seat; by the window with a key.",
        "undescribed": "",
    }


async def test_the_operators_word_is_what_the_description_says() -> None:
    words = {"open_shelf": {"price": "0.50"}, "both": {"free": True}, "key_only": {"scope": "cards"}}
    building = library()
    async with open_campus(library=building, tools=words, tables=PAYMENTS) as campus:
        texts = await listed(campus)
    assert texts["open_shelf"] == "The open shelf.\n\nNeeds a key of scope library, or $0.50 per call."
    assert texts["both"].endswith("\n\nFree.")
    assert texts["key_only"].endswith("\n\nNeeds a key of scope cards.")
    own = await building.server.get_tool("both")  # type: ignore[union-attr]  # it is a server, not a factory
    assert own is not None
    assert own.description == "A book. And more."


async def test_a_refusal_says_over_mcp_whom_an_agent_asks_that_sets_no_headers_and_over_http_only_names_the_header() -> None:
    async with open_campus(frame="mcp", library=library(), other=library(), gateway=gateway) as campus:
        for key, tool in ((None, "both"), ("other", "both"), (None, "key_only"), ("campus_live_" + "a" * 38, "both")):
            said = (await campus.call(tool, key=key)).data["detail"]
            assert "ask your user to add the key to this server's configuration" in said
            assert "'Authorization: Bearer KEY'" in said
            assert "The tool how_to_pay at http://campus.test/gateway/mcp has the steps." in said
        assert "how_to_pay" in (await campus.call("paid_only")).data["detail"]
        said = (await replace(campus, frame="http").call("both")).data["detail"]
    assert "'Authorization: Bearer KEY'" in said
    assert "ask your user" not in said


async def test_how_to_pay_is_pointed_to_only_where_it_is_open() -> None:
    async with open_campus(frame="mcp", gateway=gateway, library=library(), tools={"how_to_pay": {"hidden": True}}) as campus:
        assert "how_to_pay" not in (await campus.call("both", building="library")).data["detail"]


async def everything_said(campus: TestCampus) -> str:
    paths = ["/openapi.json", "/v1/openapi.json", "/.well-known/x402", *campus.service.plan.documents]
    paths += [f"/v1/{one.name}" for one in campus.service.plan.opened]
    texts = [(await campus.http.get(path)).text for path in paths]
    for one in campus.service.plan.opened:
        texts.append(json.dumps(await listed(campus, one.name)))
        for operation in one.operations.values():
            arguments = dict.fromkeys(operation.route.placeholders, "2026-01-02")
            for over in (campus, replace(campus, frame="mcp")):
                reply = await over.call(operation.name, building=one.name, **arguments)
                texts.append(f"{reply.data} {dict(reply.headers)}")
    return "\n".join(texts)


async def test_no_price_per_call_is_named_while_payments_are_off() -> None:
    prices = ["0.25", "0.05", "0.02", "0.01", "0.005"]
    async with open_campus(cve=cve, gateway=gateway, library=library(), tables=UNLIMITED) as campus:
        said = await everything_said(campus)
    assert [price for price in prices if f'"{price}"' in said or f"'{price}'" in said or f"${price}" in said] == []
    assert "apply once payments are open" not in said


async def test_each_price_per_call_is_named_while_payments_are_on() -> None:
    selling = {**PAYMENTS, **UNLIMITED, "buildings": {"cve": {}, "gateway": {}, "checkout": {"grants": ["keys"]}}}
    async with open_campus(cve=cve, gateway=gateway, checkout=checkout, tables=selling) as campus:
        said = await everything_said(campus)
    assert all(f"${price} per call" in said for price in ("0.02", "0.01", "0.005", "0.05"))
