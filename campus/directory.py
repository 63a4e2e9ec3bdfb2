"""The directory: every open building with its tools, prices and addresses, as agents and pages are shown them."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["BuildingEntry", "Directory", "ProductEntry", "ToolEntry"]

GUIDE = "how_to_pay"  # The tool that explains payment, as the interface names it.


class Entry(BaseModel):
    """Base of the directory's entries."""

    model_config = ConfigDict(frozen=True)


class ToolEntry(Entry):
    """One tool."""

    name: str = Field(description="Name of the MCP tool.")
    summary: str = Field(description="What it does, in one sentence.")
    tier: str = Field(description="What a call needs: free, key, or a price per call, by payment or by a key's credits.")
    free: bool = Field(description="True if it needs neither key nor payment.")
    price: str | None = Field(description="Price per call in US dollars; null if calls cannot be paid for one by one.")
    price_per: str | None = Field(
        default=None, description="What an argument adds to the price, such as '$0.0002 for each of cve_ids'. Else null."
    )
    sells: str | None = Field(default=None, description="For a tool that sells keys: the argument that names the product. Else null.")
    key_scope: str | None = Field(
        description="Key scope that unlocks it or adds to what it does; a key of scope all works too. Null if no key does."
    )
    http: tuple[str, ...] = Field(
        description="HTTP routes of the same tool: method and address, such as 'GET https://host/v1/brief/today'."
    )

    @property
    def cost(self) -> str:
        """The price of a call in words: $0.02, or $0.01 and $0.0002 for each of cve_ids."""
        return f"${self.price}" if self.price_per is None else f"${self.price} and {self.price_per}"


class ProductEntry(Entry):
    """A key that can be bought."""

    name: str = Field(description="Name of the product.")
    scope: str = Field(description="Scope of the key: that of one server, or all.")
    price: str = Field(description="Price in US dollars, paid once; nothing renews automatically.")
    term: str = Field(description="How long the key is valid, counted from the purchase.")
    allowance: str | None = Field(
        default=None,
        description="How many calls it opens in each calendar day or month (UTC), such as '500 calls a month'; null without a bound.",
    )
    credits: str | None = Field(
        default=None, description="US dollars that the key spends on calls, at the price of each; null if calls are not counted against it."
    )
    get: str = Field(description="Where it can be bought.")

    def __str__(self) -> str:
        """In a few words: cve ($19, 30 days, 10,000 calls a month)."""
        return f"{self.name} ({self.terms})"

    @property
    def terms(self) -> str:
        """Price, term, allowance and credits: $19, 30 days, 10,000 calls a month, $5 of credits."""
        spent = self.credits and f"${self.credits} of credits"
        return ", ".join(one for one in (f"${self.price}", self.term, self.allowance, spent) if one)

    def to_unlock(self) -> dict[str, Any]:
        """As a refusal lists it among the ways to unlock a tool."""
        return {"product": self.name, **self.model_dump(exclude={"name"}, exclude_none=True)}


class BuildingEntry(Entry):
    """One server."""

    name: str = Field(description="Name of the server.")
    title: str = Field(description="Title of the server.")
    about: str = Field(description="What it does, and where its data comes from.")
    mcp: str = Field(description="Address to add to an MCP client (streamable HTTP).")
    description: str = Field(description="Address of this entry as JSON.")
    openapi: str = Field(description="Address of the OpenAPI 3.0.3 document of its HTTP routes.")
    key_scope: str | None = Field(description="Key scope that unlocks its paid tools; null if all are free.")
    unlocked_by: tuple[str, ...] = Field(description="Names of the products whose key unlocks it.")
    free_tier: str = Field(description="Names of the tools that need neither key nor payment.")
    tools: tuple[ToolEntry, ...] = Field(description="All its tools.")


class SellerEntry(Entry):
    """Who offers the service."""

    name: str
    address: str | None
    contact: str | None
    """Where people write to them: an address that begins with mailto:, tel: or https:."""
    pages: Mapping[str, str]
    """Paths by label: the seller, and the terms, privacy and refunds that are given."""
    is_final: bool = Field(default=True, exclude=True)
    """Whether sales are final; else the seller's own page, /refunds, says what becomes of one."""

    def sentence(self, url: str) -> str:
        """Who sells, and where the terms are, for answers that have no page."""
        return f"Sold by {self.name} ({', '.join(f'{url}{path}' for path in self.pages.values())})."


class PaymentNetwork(Entry):
    """A network on which calls are paid."""

    network: str = Field(description="Network id (CAIP-2).")
    network_name: str = Field(description="Name of the network.")
    asset: str = Field(description="Contract address of the accepted token.")
    pay_to: str = Field(description="Address that receives the payment.")


class PaymentEntry(Entry):
    """How calls are paid for, without a key."""

    scheme: str = Field(description="x402 payment scheme.")
    networks: tuple[PaymentNetwork, ...] = Field(description="The networks, of which the payer chooses one.")

    @property
    def names(self) -> str:
        """The networks in words: Base or Base Sepolia."""
        return " or ".join(one.network_name for one in self.networks)


class Directory:
    """The entries of all open buildings. `payment` is None if only keys are accepted.

    `sign_in` has, by name, the addresses of servers for clients that send no key of their own: there a person enters the key once.
    `sold_by` is who sells, if known.
    """

    def __init__(
        self,
        name: str,
        url: str,
        products: Sequence[ProductEntry],
        payment: PaymentEntry | None = None,
        sign_in: Mapping[str, str] | None = None,
        sold_by: SellerEntry | None = None,
    ) -> None:
        self.name = name
        self.url = url
        self.products = tuple(products)
        self.payment = payment
        self.sign_in = dict(sign_in or {})
        self.sold_by = sold_by
        self._buildings: dict[str, BuildingEntry] = {}

    def add(self, entry: BuildingEntry) -> None:
        """Add a building's entry."""
        self._buildings[entry.name] = entry

    def take(self, other: "Directory") -> None:
        """Replace the entries with those of another directory, after a building was opened late."""
        self._buildings = dict(other._buildings)
        self.sign_in = other.sign_in

    def buildings(self) -> tuple[BuildingEntry, ...]:
        """Every open building, in the order of campus.toml."""
        return tuple(self._buildings.values())

    def building(self, name: str) -> BuildingEntry | None:
        """One building."""
        return self._buildings.get(name)

    def tool(self, building: str, tool: str) -> ToolEntry | None:
        """One tool of one building, or None if it is not open."""
        entry = self._buildings.get(building)
        return next((one for one in entry.tools if one.name == tool), None) if entry else None

    def seller(self) -> tuple[BuildingEntry, ToolEntry] | None:
        """The tool that sells keys, with its building; None if there is none, or if payments are not accepted."""
        if self.payment is None:
            return None
        return next(((entry, tool) for entry in self._buildings.values() for tool in entry.tools if tool.sells), None)

    @property
    def finality(self) -> str:
        """Whether sales are final, in a sentence."""
        return "Sales are final." if self.sold_by is None or self.sold_by.is_final else "What is refunded, the seller's page /refunds says."

    def with_seller(self, terms: str) -> str:
        """Terms of a purchase, with whether it is final, and who sells."""
        terms = f"{self.finality} {terms}"
        return f"{terms} {self.sold_by.sentence(self.url)}" if self.sold_by else terms

    def guide(self) -> str | None:
        """A sentence that says where paying is explained over MCP; None if no open building explains it."""
        found = (entry.mcp for entry in self._buildings.values() for tool in entry.tools if tool.name == GUIDE and tool.free)
        address = next(found, None)
        return address and f"The tool {GUIDE} at {address} has the steps."
