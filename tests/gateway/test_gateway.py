"""The gateway's directory describes the open buildings, without code for any of them."""

from typing import Any

import pytest
from fastmcp import FastMCP

from buildings.gateway import building as gateway
from campus import Building, access, free
from campus.testing import open_campus

pytestmark = pytest.mark.anyio


def library() -> Building:
    mcp: FastMCP[Any] = FastMCP("Library", instructions="Lends books, from the city's catalogue.")

    @mcp.tool(annotations={"readOnlyHint": True}, meta=free())
    async def shelves() -> list[str]:
        """The shelves. There are many."""
        return ["a"]

    @mcp.tool(annotations={"readOnlyHint": True}, meta=access(price="0.25"))
    async def book(title: str) -> str:
        """A book."""
        return title

    return Building(mcp)


async def test_every_building_is_listed_with_tools_prices_and_addresses() -> None:
    async with open_campus(gateway=gateway, library=library()) as campus:
        both = (await campus.call("list_buildings")).data
    assert (both["count"], [one["name"] for one in both["buildings"]]) == (2, ["gateway", "library"])
    found = both["buildings"][1]
    assert (found["title"], found["about"]) == ("Library", "Lends books, from the city's catalogue.")
    assert (found["mcp"], found["key_scope"], found["free_tier"]) == ("http://campus.test/library/mcp", "library", "shelves")
    assert found["unlocked_by"] == ["library", "all"]
    tools = {tool["name"]: tool for tool in found["tools"]}
    assert (tools["book"]["tier"], tools["book"]["price"]) == ("key", None)
    assert tools["book"]["http"] == ["GET http://campus.test/v1/library/book"]
    assert tools["shelves"]["summary"] == "The shelves."


async def test_how_to_pay_names_both_access_methods_every_product_and_the_clients() -> None:
    async with open_campus(gateway=gateway, library=library()) as campus:
        said = (await campus.call("how_to_pay")).data
    assert [(door["name"], door["open"]) for door in said["doors"]] == [("key", True), ("x402", False)]
    assert {product["name"]: product["scope"] for product in said["products"]} == {"gateway": "gateway", "library": "library", "all": "all"}
    claude = next(client["text"] for client in said["clients"] if client["client"] == "Claude Code")
    assert "library http://campus.test/library/mcp --header 'Authorization: Bearer ${CAMPUS_KEY}'" in claude
    assert "gateway http://campus.test/gateway/mcp\n" in claude


async def test_about_service_says_what_is_sold_and_where_data_comes_from() -> None:
    async with open_campus(gateway=gateway, library=library()) as campus:
        said = (await campus.call("about_service")).data
    sold = {one["name"]: one for one in said["sold"]}
    assert "city's catalogue" in sold["library"]["about"]
    assert (sold["library"]["free"], sold["library"]["paid"]) == (["shelves"], ["book: key"])
    assert "final" in said["terms"]
