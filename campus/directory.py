"""What is open here: every building, its tools, prices and addresses, as agents and pages are told."""

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, Field


class Entry(BaseModel):
    """Base of the directory's entries."""

    model_config = ConfigDict(frozen=True)


class ToolEntry(Entry):
    """One tool."""

    name: str = Field(description="The tool's name over MCP.")
    summary: str = Field(description="What it does, in a sentence.")
    tier: str = Field(description="How it may be called: free, key, or a price per call.")
    free: bool = Field(description="Whether it answers without a key or payment.")
    price: str | None = Field(description="US dollars per call; payable where the tier says so.")
    sells: str | None = Field(
        default=None, description="The argument that names the product which a call buys, for a tool that sells keys."
    )
    key_scope: str | None = Field(description="The key scope that unlocks it or gives more; a key of scope all does too.")
    http: tuple[str, ...] = Field(description="Its HTTP twin: method and address, as in 'GET https://host/v1/brief/today'.")


class ProductEntry(Entry):
    """A key that can be bought."""

    name: str = Field(description="The product's name.")
    scope: str = Field(description="The scope of the key: a building's, or all.")
    price: str = Field(description="US dollars, once; nothing renews by itself.")
    term: str = Field(description="How long the key is valid, from purchase.")
    get: str = Field(description="Where it can be bought.")


class BuildingEntry(Entry):
    """One server."""

    name: str = Field(description="The building's name.")
    title: str = Field(description="What it calls itself.")
    about: str = Field(description="What it offers, and where its data comes from.")
    mcp: str = Field(description="The address to add to an MCP client (streamable HTTP).")
    description: str = Field(description="This entry as JSON.")
    openapi: str = Field(description="Its HTTP routes as an OpenAPI 3.0.3 document.")
    key_scope: str | None = Field(description="The key scope that unlocks its paid tools; null when all are free.")
    unlocked_by: tuple[str, ...] = Field(description="The products whose key unlocks it.")
    free_tier: str = Field(description="What can be had without a key.")
    tools: tuple[ToolEntry, ...] = Field(description="Every tool.")


class PaymentEntry(Entry):
    """How a call is paid for."""

    scheme: str = Field(description="x402's scheme.")
    network: str = Field(description="The network, in CAIP-2.")
    network_name: str = Field(description="The network's name.")
    asset: str = Field(description="The contract of the token that is taken.")
    pay_to: str = Field(description="Who is paid.")


class Directory:
    """The entries of all open buildings; made once, when the campus opens. `payment` is None where only keys are taken."""

    def __init__(self, name: str, url: str, products: Sequence[ProductEntry], payment: PaymentEntry | None = None) -> None:
        self.name = name
        self.url = url
        self.products = tuple(products)
        self.payment = payment
        self._buildings: dict[str, BuildingEntry] = {}

    def add(self, entry: BuildingEntry) -> None:
        """List one more building."""
        self._buildings[entry.name] = entry

    def buildings(self) -> tuple[BuildingEntry, ...]:
        """Every open building, in the order of campus.toml."""
        return tuple(self._buildings.values())

    def building(self, name: str) -> BuildingEntry | None:
        """One building."""
        return self._buildings.get(name)

    def tool(self, building: str, tool: str) -> ToolEntry | None:
        """One tool of one building; None when it is not open."""
        entry = self._buildings.get(building)
        return next((one for one in entry.tools if one.name == tool), None) if entry else None

    def seller(self) -> tuple[BuildingEntry, ToolEntry] | None:
        """The tool that sells keys, with its building; None where none does, or payments are not open."""
        if self.payment is None:
            return None
        return next(((entry, tool) for entry in self._buildings.values() for tool in entry.tools if tool.sells), None)

    def price(self, building: str, tool: str) -> str | None:
        """US dollars per call, such as "0.02"; None when the tool is not open or not sold per call."""
        entry = self.tool(building, tool)
        return entry.price if entry else None
