"""The start page, with a card of each building; and /connect, with every MCP client."""

from buildings.gateway.clients import clients_of
from buildings.gateway.server import HowToConnect, buildings_of
from campus import Request, Response, Site


async def home(request: Request, site: Site) -> Response:
    """The start page; as JSON the same as list_buildings."""
    directory = site.directory
    seller = directory.seller()
    return site.page(
        "home.html",
        request,
        data=buildings_of(directory),
        highlights=tuple((await site.highlights(request)).items()),
        buildings=directory.buildings(),
        own={site.name, *([seller[0].name] if seller else [])},  # what serves the others has no card
        pays_per_call=directory.payment is not None,
        products=directory.products,
        trial=directory.trial,
    )


async def connect(request: Request, site: Site) -> Response:
    """How to add the servers to every client; as JSON the same as how_to_connect."""
    clients = clients_of(site.directory)
    data = HowToConnect(clients=clients)
    headers = {"Cache-Control": "public, max-age=300"}
    return site.page("connect.html", request, data=data, headers=headers, clients=clients, products=site.directory.products)
