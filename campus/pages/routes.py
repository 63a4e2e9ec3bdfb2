"""The routes of campus's own pages."""

from collections.abc import Callable
from pathlib import Path

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from campus.directory import Directory
from campus.http.pages import not_found, own_page
from campus.layout.accept import form_for
from campus.layout.renderer import Layout
from campus.pages.tools import ToolPages
from campus.pages.visitors import Visitors
from twins import RouteEntry, RouteTable

TEMPLATES = Path(__file__).parent / "templates"
API = "/docs/api"


def own_entries(
    directory: Directory, visitors: Visitors, layout: Layout, *, table: Callable[[], RouteTable], start: str | None
) -> list[RouteEntry]:
    """Campus's own pages and static files. `start` is the address of the start page if no building has one: it leads to the tools."""
    tools = ToolPages(layout.pages_of([TEMPLATES]), directory, visitors, table)
    entries = [
        own_page(["GET"], API, tools.api, layout),
        own_page(["GET"], "/tools/{building}/{tool}", tools.tool, layout),
        own_page(["POST"], "/tools/{building}/{tool}", tools.call, layout),
        *(asset.route for asset in layout.assets.values()),
    ]

    async def to_api(request: Request) -> Response:
        """Leads browsers to the list of tools."""
        if form_for(request, ("json", "html")) == "json":
            raise not_found(directory)
        return RedirectResponse(API, status_code=303)

    return [*entries, own_page(["GET"], start, to_api, layout)] if start else entries
