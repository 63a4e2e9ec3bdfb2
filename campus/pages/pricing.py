"""What people buy: /pricing has a card of each product, and the prices of single calls."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from campus.catalog.server import OpenBuilding
from campus.config import ProductTable
from campus.directory import BuildingEntry, Directory
from campus.layout.renderer import Pages
from campus.pages.visitors import Visitors
from campus.paywall.admission import ALL

PATH = "/pricing"


class Card(NamedTuple):
    """One product as a person sees it. `includes` are a few words each, such as "20 monitors"."""

    name: str
    table: ProductTable
    opens: tuple[BuildingEntry, ...]
    includes: tuple[str, ...]


@dataclass(frozen=True)
class PricingPages:
    """The page."""

    pages: Pages
    directory: Directory
    visitors: Visitors
    products: Mapping[str, ProductTable]

    async def show(self, request: Request) -> Response:
        priced = tuple((one, tool) for one in self.directory.buildings() for tool in one.tools if tool.price and not tool.sells)
        return self.pages.page(
            "pricing.html",
            request,
            data={"ok": True, "products": self.directory.products, "calls": {tool.name: tool.price for _, tool in priced}},
            cards=tuple(card_of(name, table, self.directory, self.visitors.buildings) for name, table in self.products.items()),
            priced=priced,
            seller=self.directory.seller(),
            payment=self.directory.payment,
        )


def card_of(name: str, table: ProductTable, directory: Directory, buildings: Mapping[str, OpenBuilding]) -> Card:
    """The card of a product."""
    opens = tuple(one for one in directory.buildings() if one.key_scope and table.scope in (one.key_scope, ALL))
    loaded = [buildings[one.name].loaded for one in opens]
    return Card(name, table, opens, tuple(each for one in loaded for each in one.building.includes))
