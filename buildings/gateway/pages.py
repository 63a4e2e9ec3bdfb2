"""The start page: what this service is, today's highlights, its tools and prices, how to add it to a client, and how to pay."""

from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

from buildings.gateway.how_to_pay import access_methods, client_setups
from buildings.gateway.server import Buildings
from campus import BuildingEntry, Directory, Request, Response, Site

_made: WeakKeyDictionary[Directory, tuple[tuple[BuildingEntry, ...], Mapping[str, Any]]] = WeakKeyDictionary()
"""What each directory's start page shows, made once for its entries, so that the rendered page can be used again."""


async def home(request: Request, site: Site) -> Response:
    """The start page; as JSON the same as list_buildings."""
    return site.page("home.html", request, highlights=tuple(await site.highlights(request)), **_shown(site.directory))


def _shown(directory: Directory) -> Mapping[str, Any]:
    entries = directory.buildings()
    known, shown = _made.get(directory, ((), {}))
    if len(known) != len(entries) or any(one is not other for one, other in zip(known, entries, strict=True)):
        shown = {
            "data": Buildings(name=directory.name, url=directory.url, count=len(entries), buildings=entries),
            "buildings": entries,
            "clients": client_setups(entries),
            "ways": access_methods(directory),
            "products": directory.products,
            "trial": directory.trial,
        }
        _made[directory] = entries, shown
    return shown
