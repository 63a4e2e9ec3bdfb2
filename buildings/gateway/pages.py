"""The start page: what this service is, today's highlights, its tools and prices, how to add it to a client, and how to pay."""

from buildings.gateway.how_to_pay import access_methods, client_setups
from buildings.gateway.server import Buildings
from campus import Request, Response, Site


async def home(request: Request, site: Site) -> Response:
    """The start page; as JSON the same as list_buildings."""
    directory, entries = site.directory, site.directory.buildings()
    return site.page(
        "home.html",
        request,
        data=Buildings(name=directory.name, url=site.url, count=len(entries), buildings=entries),
        buildings=entries,
        highlights=tuple(await site.highlights(request)),
        clients=client_setups(entries),
        ways=access_methods(directory),
        products=directory.products,
        trial=directory.trial,
    )
