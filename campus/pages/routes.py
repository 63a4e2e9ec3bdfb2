"""The routes of campus's own pages."""

from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from campus.config import ProductTable
from campus.directory import Directory
from campus.http.service_routes import not_found, own_page
from campus.keys.connected_clients import ConnectedClients
from campus.keys.sign_ins import SignInLimit
from campus.keys.usage import KeyUsage
from campus.layout.accept import form_for
from campus.layout.renderer import Layout
from campus.pages.documents import DocumentPages
from campus.pages.keys import PATH, KeyPages
from campus.pages.pricing import PATH as PRICING
from campus.pages.pricing import PricingPages
from campus.pages.tools import ToolPages
from campus.pages.visitors import Visitors
from twins import RouteEntry

TEMPLATES = Path(__file__).parent / "templates"
API = "/docs/api"


def own_entries(
    directory: Directory,
    visitors: Visitors,
    layout: Layout,
    *,
    start: str | None,
    now: Callable[[], datetime],
    clients: ConnectedClients,
    usage: KeyUsage,
    sign_ins: SignInLimit,
    products: Mapping[str, ProductTable],
) -> list[RouteEntry]:
    """Campus's own pages and static files. `start` is the address of the start page if no building has one: it leads to the tools.

    `sign_ins` limits how often an address tries to sign in.
    """
    templates = layout.pages_of([TEMPLATES])
    tools = ToolPages(templates, directory, visitors)
    keys = KeyPages(templates, directory, visitors, visitors.sessions, clients, usage, sign_ins, now)
    shop = PricingPages(templates, directory, visitors, products)
    entries = [
        own_page(["GET"], API, tools.api),
        *DocumentPages(templates, directory).entries(),
        own_page(["GET"], "/tools/{building}/{tool}", tools.tool),
        own_page(["POST"], "/tools/{building}/{tool}", tools.call),
        own_page(["GET"], PRICING, shop.show),
        own_page(["GET"], PATH, keys.show),
        own_page(["POST"], PATH, keys.sign_in),
        own_page(["POST"], f"{PATH}/sign-out", keys.sign_out),
        own_page(["POST"], f"{PATH}/disconnect", keys.disconnect),
        own_page(["POST"], f"{PATH}/holdings", keys.change),
        *(asset.route for asset in layout.assets.values()),
    ]

    async def to_api(request: Request) -> Response:
        """Leads browsers to the list of tools, also those whose address was cut at its end."""
        if form_for(request, ("json", "html")) == "json":
            raise not_found(directory)
        return RedirectResponse(API, status_code=303)

    above = ("/tools", "/tools/{building}", *([start] if start else []))
    return [*entries, *(own_page(["GET"], path, to_api) for path in above)]
