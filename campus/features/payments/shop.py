"""The pages on which a wallet buys: /pricing/<product> takes its payment, and /keys/receipt proves it.

The wallet's page calls the tool that sells keys, as an agent does: the key is in that answer, and in no page of the server.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp

from campus.catalog.plan import Plan
from campus.features.payments.receipts import receipts_of
from campus.features.payments.states import not_sold
from campus.http.service_routes import not_found, own_page
from campus.http_parts import HttpPart
from campus.keys.repository import other_product
from campus.layout.renderer import Pages
from campus.pages.pricing import PATH as PRICING
from campus.pages.pricing import card_of
from campus.pricing import Price
from twins import RouteEntry

TEMPLATES = Path(__file__).parent / "templates"
RECEIPT = "/keys/receipt"


class Shop(HttpPart):
    """The pages; also without [payments], where nothing is sold and earlier receipts are shown."""

    @cached_property
    def _pages(self) -> Pages:
        return self.campus.layout.pages_of([TEMPLATES])

    def routes(self, plan: Plan, servers: Mapping[str, ASGIApp]) -> Sequence[RouteEntry]:
        """Both pages."""
        return [own_page(["GET"], f"{PRICING}/{{product}}", self.buy), own_page(["GET"], RECEIPT, self.receipt)]

    async def buy(self, request: Request) -> Response:
        """One product, to be paid for by a wallet; `?renew` prolongs the visitor's own key. Problem 404 where no tool sells it."""
        directory, products = self.campus.plan.directory, self.campus.plan.config.products
        name, seller, payment = request.path_params["product"], directory.seller(), directory.payment
        if seller is None or payment is None or name not in products:
            raise not_found(directory)
        renew = ""
        if "renew" in request.query_params:  # never a key that the address names: a link could make people pay for another's
            credential = await self.visitors.credential(request)
            if credential.state != "valid" or credential.key is None:
                return sign_in_first("/keys")
            if (own := credential.key.product) != name:
                raise not_sold(other_product(credential.key.id, own, name))
            renew = credential.key.id
        return self._pages.page(
            "buy.html",
            request,
            renew=renew,
            card=card_of(name, products[name], directory, self.visitors.buildings),
            action=seller[1].http[0].partition(" ")[2].removeprefix(directory.url),
            argument=seller[1].sells,
            amount=Price.parse(products[name].price).atomic,
            payment=payment,
        )

    async def receipt(self, request: Request) -> Response:
        """The payments for the visitor's key. Visitors without a key sign in first."""
        credential = await self.visitors.credential(request)
        if credential.state != "valid" or credential.key is None:
            return sign_in_first(RECEIPT)
        found = await receipts_of(self.site.storage, credential.key.lineage)
        data = {"ok": True, "receipts": [asdict(one) for one in found]}
        return self._pages.page("receipt.html", request, data=data, receipts=found, key=credential.key)


def sign_in_first(path: str) -> Response:
    """Leads a visitor without a key to the form that asks for it, and then to `path`."""
    return RedirectResponse(f"/keys?next={path}", status_code=303, headers={"Cache-Control": "private, no-store"})
