"""The MCP server of the gateway: tools that describe the open buildings, how to pay and how to add them to a client; and two pages."""

from importlib.metadata import version
from typing import Annotated, ClassVar

from fastmcp import FastMCP
from pydantic import BeforeValidator, Field

from buildings.gateway.clients import ClientId, McpClient, Part, clients_of, read_client
from buildings.gateway.how_to_pay import AccessMethod, ClientSetup, access_by_key, client_setups, payment_per_call
from campus import CurrentSite, Request, Response, Site, free
from campus.directory import BuildingEntry, Directory, ProductEntry

mcp = FastMCP(
    "Gateway",
    version=version("mcp-campus"),
    instructions="Directory of this service: its servers and tools, what they cost, and how to pay. Start with list_buildings; "
    "how_to_connect adds the servers to a client.",
)

TERMS = "There are no accounts, and nothing renews automatically. A key is valid from purchase until its term ends."
READ_ONLY = {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}


class Result(Part):
    """Base of the gateway's answers."""

    always_conforms: ClassVar[bool] = True

    ok: bool = Field(default=True, description="Always true: a refused call returns an error instead.")


class Buildings(Result):
    """Every server of this service."""

    name: str = Field(description="Name of this service.")
    url: str = Field(description="Public address of this service.")
    count: int = Field(description="Number of servers.")
    buildings: tuple[BuildingEntry, ...] = Field(description="All servers with their tools and prices.")


class HowToPay(Result):
    """The ways to unlock paid tools, and what they cost."""

    doors: tuple[AccessMethod, ...] = Field(description="The two ways to unlock paid tools: a key, or a payment per call (x402).")
    products: tuple[ProductEntry, ...] = Field(description="All keys that can be bought.")
    clients: tuple[ClientSetup, ...] = Field(
        description="How to add each server with a key to the MCP clients in widest use; how_to_connect has the others."
    )


class HowToConnect(Result):
    """How to add the servers to MCP clients."""

    clients: tuple[McpClient, ...] = Field(description="The client that was named, or all.")


class Offering(Part):
    """One server in a few words."""

    name: str = Field(description="Name of the server.")
    title: str = Field(description="Title of the server.")
    about: str = Field(description="What it does, and where its data comes from.")
    free: tuple[str, ...] = Field(description="Names of its free tools.")
    paid: tuple[str, ...] = Field(description="Its paid tools, each with what it needs.")


class AboutService(Result):
    """What this service is."""

    name: str = Field(description="Name of this service.")
    url: str = Field(description="Public address of this service.")
    sold: tuple[Offering, ...] = Field(
        description="All servers: what each does, where its data comes from, which tools are free and which paid."
    )
    how_agents_buy: str = Field(description="How an agent unlocks paid tools.")
    terms: str = Field(description="Terms of a purchase.")


@mcp.tool(title="List servers, tools and prices", annotations=READ_ONLY, meta=free())
async def list_buildings(site: Site = CurrentSite()) -> Buildings:
    """List all servers (buildings) of this service with their tools and prices. Call it first to find a tool.

    Returns for each server its MCP address, the key scope that unlocks it, and its tools; for each tool a summary, what it
    costs, whether it is free, and its HTTP route. Next: add a server's address to your MCP client or call a route, and call
    how_to_pay for tools that are not free.
    """
    return buildings_of(site.directory)


def buildings_of(directory: Directory) -> Buildings:
    entries = directory.buildings()
    return Buildings(name=directory.name, url=directory.url, count=len(entries), buildings=entries)


@mcp.tool(title="How to unlock paid tools", annotations=READ_ONLY, meta=free())
async def how_to_pay(site: Site = CurrentSite()) -> HowToPay:
    """Explain how to unlock paid tools: with a key, or with a payment per call (x402) where payments are open.

    Call it after a tool was refused, or before you buy. Returns the steps of each way, all keys with price and term, and
    the configuration that adds each server with a key to common MCP clients.
    """
    directory = site.directory
    doors = access_by_key(directory), payment_per_call(directory)
    return HowToPay(doors=doors, products=directory.products, clients=client_setups(directory))


@mcp.tool(title="How to add the servers to a client", annotations=READ_ONLY, meta=free())
async def how_to_connect(
    client: Annotated[
        ClientId | None,
        BeforeValidator(read_client),
        Field(description="The MCP client that your user works with; without it, all clients are returned, which is long."),
    ] = None,
    site: Site = CurrentSite(),
) -> HowToConnect:
    """Return the exact commands, files and links that add every server of this service to an MCP client, without a key and with one.

    Call it when your user wants these tools in another client, or has bought a key and does not know where to put it. Show the
    text as it is. With a key, the text names an environment variable or the client's own secret storage, never the key: tell your
    user to set it there, and not to send it to you.
    """
    return HowToConnect(clients=tuple(each for each in clients_of(site.directory) if client in (None, each.id)))


@mcp.tool(title="About this service", annotations=READ_ONLY, meta=free())
async def about_service(site: Site = CurrentSite()) -> AboutService:
    """Describe this service: what each server does, where its data comes from, how agents buy access, and on what terms.

    Use it to decide whether this service is useful to you; list_buildings has the details.
    """
    return AboutService(
        name=site.directory.name,
        url=site.url,
        sold=tuple(offering(entry) for entry in site.directory.buildings()),
        how_agents_buy=how_agents_buy(per_call=site.directory.payment is not None),
        terms=site.directory.with_seller(TERMS),
    )


def how_agents_buy(*, per_call: bool) -> str:
    first = (
        "Call a free tool first. A paid tool that is called without access returns which keys unlock it, their prices and where to buy "
        "them; how_to_pay lists them all. Buy a key and send it with every call"
    )
    return f"{first}, or pay for each call: the same error contains the x402 payment terms." if per_call else f"{first}."


def offering(entry: BuildingEntry) -> Offering:
    return Offering(
        name=entry.name,
        title=entry.title,
        about=entry.about,
        free=tuple(tool.name for tool in entry.tools if tool.free),
        paid=tuple(f"{tool.name}: {tool.tier}" for tool in entry.tools if not tool.free),
    )


async def home(request: Request, site: Site) -> Response:
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
    )


async def connect(request: Request, site: Site) -> Response:
    clients = clients_of(site.directory)
    data = HowToConnect(clients=clients)
    headers = {"Cache-Control": "public, max-age=300"}
    own = site.directory.tool(site.name, "list_buildings")  # which answers also while other servers have no data yet
    trial = own.http[0].partition(" ")[2] if own and own.free else ""
    return site.page("connect.html", request, data=data, headers=headers, clients=clients, trial=trial)
