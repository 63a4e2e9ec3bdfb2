"""What a person sees who pays by card: the way to Stripe, the page to return to, which shows the key; and where Stripe sends its webhooks.

The key is sealed under a secret in the cookie of the browser that buys: that browser is shown it for a day, and no other ever is.
"""

import logging
from collections.abc import Collection, Mapping

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp

from campus.addresses import network_of
from campus.catalog.plan import Plan
from campus.context import context_of
from campus.features.cards.sales import SHOWN, CardSales
from campus.features.cards.stripe_api import StripeUnavailable, WebhookRefused
from campus.features.cards.tables import CardSale
from campus.http.service_routes import not_found, own_page
from campus.http_parts import HttpPart
from campus.layout.forms import local_path
from campus.paywall.admission import ALL
from campus.pricing import Price
from twins import Problem, RouteEntry

PATH = "/pricing/card"
WEBHOOK = "/v1/cards/webhook"
RENEWED = ("valid", "expired")  # The states of a key that its holder may renew.
NOT_STORED = {"Cache-Control": "private, no-store"}
log = logging.getLogger(__name__)


class CardPages(HttpPart):
    places: Mapping[str, str] = {"card": "/pricing/{product}/card"}

    @property
    def sales(self) -> CardSales:
        sales: CardSales = self.site.state
        return sales

    def routes(self, plan: Plan, servers: Mapping[str, ASGIApp]) -> Collection[RouteEntry]:
        return [
            own_page(["POST"], "/pricing/{product}/card", self.buy),
            own_page(["GET"], f"{PATH}/{{sale}}", self.show),
            own_page(["GET"], f"{PATH}/{{sale}}/pay", self.pay),
            own_page(["POST"], WEBHOOK, self.hear),
        ]

    async def buy(self, request: Request) -> Response:
        """Begin a sale, and lead to its page. The field `renew` prolongs the visitor's own key: no link or form can name another's."""
        form = await self.pages.layout.checked_form(request)
        name = request.path_params["product"]
        if (product := self.campus.plan.config.products.get(name)) is None:
            raise not_found(self.directory)
        renews = None
        if "renew" in form:
            if (key := (await self.visitors.credential(request)).renewable_key) is None:
                return RedirectResponse("/keys", 303, headers=NOT_STORED)
            renews = key.id
        cookies = self.pages.layout.cookies_of(request)
        response = RedirectResponse("/", 303, headers=NOT_STORED)
        secret = cookies.own_secret(request, response)
        client = network_of(request.client.host if request.client else "")
        sale = await self.sales.begin(name, product.price, renews=renews, client=client, secret=secret)
        try:
            back = _address(sale, local_path(form.get("next", "")))
            sale = await self.sales.lead(sale, title=self.pages.layout.product(name), description=product.description, back=back)
        except StripeUnavailable as error:
            log.warning("no sale by card: %s", error)
            detail = "Cards cannot be taken at the moment. Nothing was charged; send the form again."
            raise Problem(503, "cards_unavailable", detail, headers={"Retry-After": "30"}) from None
        response.headers["location"] = _address(sale, local_path(form.get("next", "")), "/pay")
        return response

    async def pay(self, request: Request) -> Response:
        """Lead to Stripe's page: not by a redirect, to which the policy of the form's page would be held."""
        sale = await self._sale(request)
        if sale.state != "open" or sale.url is None or self._token(request, sale) is None:
            return RedirectResponse(_address(sale, local_path(request.query_params.get("next", ""))), 303, headers=NOT_STORED)
        return self._page(request, sale, headers={"Refresh": f"0; url={sale.url}"})

    async def show(self, request: Request) -> Response:
        sale = await self._sale(request)
        is_silent = False
        if self._token(request, sale) is not None:
            try:
                sale = await self.sales.ask(sale) or _unknown()
            except StripeUnavailable as error:
                log.warning("sale by card not looked up: %s", error, extra={"sale": sale.id})
                is_silent = True
        return self._page(request, sale, is_silent=is_silent)

    async def hear(self, request: Request) -> Response:
        """Webhooks of Stripe; it sends again what is not answered with 200."""
        try:
            event = self.sales.stripe.event(await request.body(), request.headers.get("stripe-signature"))
        except WebhookRefused as refused:
            raise Problem(400, "webhook_refused", f"This is not a webhook that Stripe signed for this service: {refused}.") from None
        try:
            is_used = await self.sales.hear(event)
        except StripeUnavailable as error:
            raise Problem(503, "cards_unavailable", f"{error}; send it again.", headers={"Retry-After": "30"}) from None
        self.site.count("webhooks", kind="used" if is_used else "unused")
        return JSONResponse({"ok": True})

    async def _sale(self, request: Request) -> CardSale:
        return await self.sales.find(request.path_params["sale"]) or _unknown()

    def _token(self, request: Request, sale: CardSale) -> str | None:
        return self.sales.token_for(sale, self.pages.layout.cookies_of(request).secrets_of(request))

    def _page(self, request: Request, sale: CardSale, *, is_silent: bool = False, headers: Mapping[str, str] | None = None) -> Response:
        context_of(request.scope).is_personal = True
        token, table = self._token(request, sale), self.campus.plan.config.products.get(sale.product)
        scope = table.scope if table else None
        return self.pages.page(
            "card.html",
            request,
            data={"ok": True, "state": sale.state, "product": sale.product, "amount": str(Price(sale.amount))},
            headers={**NOT_STORED, **(headers or {})},
            sale=sale,
            is_buyer=token is not None,
            token=token or "",
            price=Price(sale.amount),
            opens=[one for one in self.directory.buildings() if scope and one.key_scope and scope in (one.key_scope, ALL)],
            is_silent=is_silent,
            next_path=local_path(request.query_params.get("next", "")),
            shown_until=sale.started_at + SHOWN,
        )


def _address(sale: CardSale, next_path: str, rest: str = "") -> str:
    """A page of a sale; `next_path` is where its buyer goes on with the key."""
    return f"{PATH}/{sale.id}{rest}{f'?next={next_path}' if next_path else ''}"


def _unknown() -> CardSale:
    raise Problem(
        404,
        "sale_unknown",
        "There is no sale at this address. One that is not paid within an hour ends, and is forgotten; if Stripe sent you a receipt, show"
        " it to the seller.",
    )
