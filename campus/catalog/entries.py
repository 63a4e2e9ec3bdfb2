"""The directory's entries, made from open buildings: buildings, tools, products, where keys are sold, and how calls are paid for."""

from collections.abc import Mapping, Sequence

from campus.catalog.server import OpenBuilding, summary_of
from campus.config import ProductTable
from campus.directory import BuildingEntry, ProductEntry, ToolEntry
from campus.paywall.admission import ALL
from campus.pricing import Offer
from twins import Operation


def product_entries(products: Mapping[str, ProductTable], ways: Sequence[str] = (), contact: str | None = None) -> list[ProductEntry]:
    """`ways` say where all of them are sold."""
    return [
        ProductEntry(
            name=name,
            scope=table.scope,
            price=table.price,
            term=table.term,
            allowance=None if table.allowance is None else str(table.allowance),
            credits=table.credits,
            get=_where_sold(table, ways, contact),
        )
        for name, table in products.items()
    ]


def _where_sold(table: ProductTable, ways: Sequence[str], contact: str | None) -> str:
    operator = f"from the operator of this service{f': {contact}' if contact else ''}"
    return "; or ".join([*ways, *filter(None, [table.url])]) or operator


def seller_of(opened: Sequence[OpenBuilding], *, url: str, by: str) -> str | None:
    """Where keys are sold for a payment: the route and the MCP endpoint of the first tool that sells them."""
    for one in opened:
        for name, operation in one.operations.items():
            if one.offers[name].access.sells:
                twin = f"{operation.methods[0]} {url}{operation.path}"
                return f"{twin}, paid by {by}; over MCP the tool {operation.name} at {url}{one.mcp_path}"
    return None


def building_entry(opened: OpenBuilding, *, url: str, products: Sequence[ProductEntry], per_call: bool) -> BuildingEntry:
    spend = {one.scope for one in products if one.credits}
    offers = [(operation, opened.offers[name]) for name, operation in opened.operations.items()]
    tools = tuple(_tool_entry(each, of, url=url, per_call=per_call, has_credits=bool(spend & {of.scope, ALL})) for each, of in offers)
    unlockable = any(tool.key_scope for tool in tools)
    return BuildingEntry(
        name=opened.name,
        title=opened.title,
        about=opened.about,
        mcp=f"{url}{opened.mcp_path}",
        description=f"{url}/v1/{opened.name}",
        openapi=f"{url}/{opened.name}/openapi.json",
        key_scope=opened.scope if unlockable else None,
        unlocked_by=tuple(one.name for one in products if unlockable and one.scope in (opened.scope, ALL)),
        free_tier=_free_tier(tools),
        tools=tools,
    )


def _tool_entry(operation: Operation, offer: Offer, *, url: str, per_call: bool, has_credits: bool) -> ToolEntry:
    return ToolEntry(
        name=operation.name,
        summary=summary_of(operation.tool),
        tier=offer.tier(per_call=per_call, has_credits=has_credits),
        free=offer.access.is_free,
        price=str(offer.price) if offer.price and per_call else None,
        price_per=str(offer.access.per) if offer.access.per and per_call else None,
        sells=offer.access.sells,
        key_scope=None if offer.access.key == "never" else offer.scope,
        http=tuple(f"{method} {url}{operation.path}" for method in operation.methods),
    )


def _free_tier(tools: Sequence[ToolEntry]) -> str:
    free = [tool.name for tool in tools if tool.free]
    if len(free) == len(tools):
        return "everything"
    return ", ".join(free) or "nothing"
