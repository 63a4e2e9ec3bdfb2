"""The gateway's three tools; every answer is made from the buildings that are open and from campus.toml."""

from fastmcp import FastMCP
from pydantic import BaseModel, ConfigDict, Field

from buildings.gateway.clients import ClientSetup, client_setups
from buildings.gateway.doors import Door, doors
from campus import BuildingEntry, CurrentSite, ProductEntry, Site, free

mcp = FastMCP("Campus gateway", instructions="The directory: what is open here, what it costs and how to pay. Start with list_buildings.")

READ_ONLY = {"readOnlyHint": True, "idempotentHint": True, "openWorldHint": False}


class Result(BaseModel):
    """Base of the gateway's answers."""

    model_config = ConfigDict(frozen=True)

    ok: bool = Field(default=True, description="Always true.")


class Buildings(Result):
    """Every server of this campus."""

    name: str = Field(description="What this service is called.")
    url: str = Field(description="Its public address.")
    count: int = Field(description="How many servers are open.")
    buildings: tuple[BuildingEntry, ...] = Field(description="Every server with its tools and prices.")


class HowToPay(Result):
    """The ways to unlock paid tools, and what they cost."""

    doors: tuple[Door, ...] = Field(description="The key, and the payment per call (x402).")
    products: tuple[ProductEntry, ...] = Field(description="Every key that can be bought.")
    clients: tuple[ClientSetup, ...] = Field(description="How to add a server with a key to common MCP clients; KEY stands for your key.")


class Offering(BaseModel):
    """One server in a few words."""

    model_config = ConfigDict(frozen=True)

    name: str = Field(description="The building's name.")
    title: str = Field(description="What it calls itself.")
    about: str = Field(description="What it offers, and where its data comes from.")
    free: tuple[str, ...] = Field(description="Its free tools.")
    paid: tuple[str, ...] = Field(description="Its paid tools, each with how it opens.")


class AboutService(Result):
    """What this service is."""

    name: str = Field(description="What this service is called.")
    url: str = Field(description="Its public address.")
    sold: tuple[Offering, ...] = Field(description="Every server: what it does, where its data comes from, what is free.")
    how_agents_buy: str = Field(description="How an agent gets at paid tools.")
    terms: str = Field(description="What a purchase means.")


@mcp.tool(annotations=READ_ONLY, meta=free())
async def list_buildings(site: Site = CurrentSite()) -> Buildings:
    """List every server (building) of this campus: its tools, what each costs, what is free,
    which key scope unlocks it, its MCP address and the HTTP twin of each tool. Free."""
    entries = site.directory.buildings()
    return Buildings(name=site.directory.name, url=site.url, count=len(entries), buildings=entries)


@mcp.tool(annotations=READ_ONLY, meta=free())
async def how_to_pay(site: Site = CurrentSite()) -> HowToPay:
    """Explain the two ways to use paid tools, a key or a payment per call (x402), list every key
    that can be bought with price and term, and show how to add a key to common MCP clients. Free."""
    entries = site.directory.buildings()
    return HowToPay(doors=doors(site.directory), products=site.directory.products, clients=client_setups(entries))


@mcp.tool(annotations=READ_ONLY, meta=free())
async def about_service(site: Site = CurrentSite()) -> AboutService:
    """Say what is sold here, how agents buy it, where the data comes from, and what a purchase means. Free."""
    return AboutService(
        name=site.directory.name,
        url=site.url,
        sold=tuple(offering(entry) for entry in site.directory.buildings()),
        how_agents_buy=how_agents_buy(per_call=site.directory.payment is not None),
        terms="No accounts and nothing that renews by itself. A key is valid from purchase until its term ends. Sales are final.",
    )


def how_agents_buy(*, per_call: bool) -> str:
    """The way from a free call to a paid one."""
    first = (
        "Call a free tool first. A paid tool called without access answers which keys open it, at what price and where to get them; "
        "how_to_pay says the same for all. Then send the key with every call"
    )
    return f"{first}, or pay call by call: the same answer holds the x402 terms." if per_call else f"{first}."


def offering(entry: BuildingEntry) -> Offering:
    """One server in a few words."""
    return Offering(
        name=entry.name,
        title=entry.title,
        about=entry.about,
        free=tuple(tool.name for tool in entry.tools if tool.free),
        paid=tuple(f"{tool.name}: {tool.tier}" for tool in entry.tools if not tool.free),
    )
