"""What people buy: /pricing has a card of each product, /pricing/<product> takes the payment, and /keys/receipt proves it.

The wallet's page calls the tool that sells keys, as an agent does: the key is in that answer, and in no page of the server.
"""

from collections.abc import Collection, Mapping
from dataclasses import asdict
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp

from campus.app import Campus
from campus.catalog.plan import Plan
from campus.config import ProductTable
from campus.directory import BuildingEntry
from campus.features.payments.receipts import receipts_of
from campus.features.payments.states import not_sold
from campus.http.service_routes import not_found, own_page
from campus.http_parts import HttpPart
from campus.keys.repository import other_product
from campus.layout.forms import local_path
from campus.layout.renderer import Link
from campus.paywall.admission import ALL
from campus.pricing import Price
from campus.site import Site
from twins import RouteEntry

PATH = "/pricing"
RECEIPT = "/keys/receipt"


class Card(NamedTuple):
    """One product as a person sees it. `includes` is what its buyer has afterwards, a few words each, such as "20 monitors"."""

    name: str
    table: ProductTable
    opens: tuple[BuildingEntry, ...]
    includes: tuple[str, ...]


class PricingPages(HttpPart):
    notices = True
    places: Mapping[str, str] = {"prices": PATH, "product": f"{PATH}/{{product}}", "receipt": RECEIPT}

    def __init__(self, campus: Campus, site: Site[Any, Any]) -> None:
        super().__init__(campus, site)
        self.products = campus.plan.config.products
        self.navigation = (Link(PATH, "Pricing", place=1),) if self.products else ()

    def routes(self, plan: Plan, servers: Mapping[str, ASGIApp]) -> Collection[RouteEntry]:
        return [
            own_page(["GET"], PATH, self.show),
            own_page(["GET"], f"{PATH}/{{product}}", self.buy),
            own_page(["GET"], RECEIPT, self.receipt),
        ]

    async def show(self, request: Request) -> Response:
        priced = tuple((one, tool) for one in self.directory.buildings() for tool in one.tools if tool.price and not tool.sells)
        return self.pages.page(
            "pricing.html",
            request,
            data={"ok": True, "products": self.directory.products, "calls": {tool.name: tool.price for _, tool in priced}},
            cards=tuple(map(self._card, self.products)),
            free=self._without_key(),
            priced=priced,
            seller=self.directory.seller(),
            payment=self.directory.payment,
        )

    async def buy(self, request: Request) -> Response:
        """One product, with all ways to pay for it; `?renew` prolongs the visitor's own key. Problem 404 for what is not sold."""
        name = request.path_params["product"]
        if name not in self.products:
            raise not_found(self.directory)
        renew = ""
        if "renew" in request.query_params:  # never a key that the address names: a link could make people pay for another's
            if (key := (await self.visitors.credential(request)).renewable_key) is None:
                return sign_in_first("/keys")
            if key.product != name:
                raise not_sold(other_product(key.id, key.product, name))
            renew = key.id
        seller = self.directory.seller()
        return self.pages.page(
            "buy.html",
            request,
            renew=renew,
            next_path=local_path(request.query_params.get("next", "")),
            card=self._card(name),
            seller=seller,
            action=seller[1].http[0].partition(" ")[2].removeprefix(self.directory.url) if seller else "",
            argument=seller[1].sells if seller else "",
            amount=Price.parse(self.products[name].price).atomic,
            payment=self.directory.payment,
        )

    async def receipt(self, request: Request) -> Response:
        if (key := (await self.visitors.credential(request)).renewable_key) is None:
            return sign_in_first(RECEIPT)
        found = await receipts_of(self.campus.core.storage, key.lineage)
        data = {"ok": True, "seller": self.directory.sold_by, "receipts": [asdict(one) for one in found]}
        return self.pages.page("receipt.html", request, data=data, receipts=found, key=key)

    def _card(self, name: str) -> Card:
        table = self.products[name]
        opens = tuple(one for one in self.directory.buildings() if one.key_scope and table.scope in (one.key_scope, ALL))
        loaded = [self.visitors.buildings[one.name].loaded for one in opens]
        included = [asked(one.settings, name) if callable(asked := one.building.includes) else asked for one in loaded]
        outcomes = [words or (entry.title,) for entry, words in zip(opens, included, strict=True)]
        return Card(name, table, opens, tuple(each for one in outcomes for each in one))

    def _without_key(self) -> tuple[str, ...]:
        """What everybody has for nothing: in the words of each building, else the names of its free tools."""
        words = {one: self.visitors.buildings[one.name].loaded.building.without_key for one in self.directory.buildings()}
        named = [
            ((f"{one.title}: {one.free_tier}",) if one.free_tier != "nothing" else ()) if own is None else own for one, own in words.items()
        ]
        return tuple(each for one in named for each in one)


def sign_in_first(path: str) -> Response:
    """Leads a visitor without a key to the form that asks for it, and then to `path`."""
    return RedirectResponse(f"/keys?next={path}", status_code=303, headers={"Cache-Control": "private, no-store"})
