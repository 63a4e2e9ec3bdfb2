"""The start page, with today's highlights, the tools and their prices, clients and payment; and /connect, with every MCP client."""

from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

from buildings.gateway.clients import clients_of
from buildings.gateway.how_to_pay import access_methods
from buildings.gateway.server import Buildings, HowToConnect
from campus import BuildingEntry, Directory, Request, Response, Site

_made: WeakKeyDictionary[Directory, tuple[tuple[BuildingEntry, ...], Mapping[str, Any]]] = WeakKeyDictionary()
"""What each directory's start page shows, made once for its entries, so that the rendered page can be used again."""


async def home(request: Request, site: Site) -> Response:
    """The start page; as JSON the same as list_buildings."""
    return site.page("home.html", request, highlights=tuple(await site.highlights(request)), **_shown(site.directory))


async def connect(request: Request, site: Site) -> Response:
    """How to add the servers to every client; as JSON the same as how_to_connect."""
    clients = clients_of(site.directory)
    data = HowToConnect(clients=clients)
    headers = {"Cache-Control": "public, max-age=300"}
    return site.page("connect.html", request, data=data, headers=headers, clients=clients, products=site.directory.products)


def _shown(directory: Directory) -> Mapping[str, Any]:
    entries = directory.buildings()
    known, shown = _made.get(directory, ((), {}))
    if len(known) != len(entries) or any(one is not other for one, other in zip(known, entries, strict=True)):
        shown = {
            "data": Buildings(name=directory.name, url=directory.url, count=len(entries), buildings=entries),
            "buildings": entries,
            "clients": clients_of(directory),
            "ways": access_methods(directory),
            "products": directory.products,
            "trial": directory.trial,
        }
        _made[directory] = entries, shown
    return shown
