"""The results of the checkout's tools: frozen models, with every field described for the agent that reads it."""

from typing import ClassVar, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field


class Result(BaseModel):
    """Base of all results."""

    model_config = ConfigDict(frozen=True)

    always_conforms: ClassVar[bool] = True


class ProductForSale(Result):
    """A key that can be bought here."""

    name: str = Field(description="Name of the product; pass it to buy_key as `product`.")
    scope: str = Field(description="Scope of the key: that of one server, or all.")
    price: str = Field(description="Price in US dollars, paid once, in USDC.")
    term: str = Field(description="How long the key is valid, counted from the purchase or, for a renewal, from the end of the key.")
    quota: str | None = Field(
        description="How many calls it opens in each calendar day or month (UTC), such as '500 calls a month'; null if unbounded."
    )
    opens: tuple[str, ...] = Field(description="Names of the servers whose paid tools it unlocks now.")


class Products(Result):
    """All keys for sale."""

    ok: Literal[True] = Field(default=True, description="Always true: a refused call returns an error instead.")
    count: int = Field(description="Number of products.")
    products: tuple[ProductForSale, ...] = Field(description="All keys that can be bought.")
    how_to_buy: tuple[str, ...] = Field(description="Steps of a purchase. Read them before you pay.")
    renewal: str = Field(description="How to extend a key.")
    terms: str = Field(description="Terms of a purchase.")


class Opens(Result):
    """A server that the key unlocks."""

    name: str = Field(description="Name of the server.")
    mcp: str = Field(description="Address to add to an MCP client (streamable HTTP), with the key in the Authorization header.")
    openapi: str = Field(description="Address of the OpenAPI document of its HTTP routes.")


class Usage(Result):
    """How a key is sent."""

    header: str = Field(description="Header of every request; replace KEY with the key.")
    http: str = Field(description="How to send it over HTTP.")
    mcp: str = Field(description="How to send it over MCP.")
    opens: tuple[Opens, ...] = Field(
        description="Servers whose paid tools it unlocks now; a key of scope all also unlocks servers added later."
    )


class Bought(Result):
    """A key that has been paid for."""

    ok: Literal[True] = Field(default=True, description="Always true: the key is paid for and valid.")
    action: Literal["new", "renewed"] = Field(description="new: a new key. renewed: more time for the key that you named.")
    key: str | None = Field(
        description="The key, a secret. Store it now: it is not shown again. Null for a renewal, which does not change the key."
    )
    key_id: str = Field(description="Id of the key, for renewals. It unlocks nothing and is not secret.")
    product: str = Field(description="Name of the product that was bought.")
    scope: str = Field(description="Scope of the key: that of one server, or all.")
    issued_at: AwareDatetime = Field(description="When the key was first bought (UTC).")
    valid_until: AwareDatetime = Field(
        description="End of its term (UTC); the key is valid before this time. For a renewal the end that the key had when it was charged."
    )
    use: Usage = Field(description="How to send it over HTTP and MCP.")
    renewal: str = Field(description="How to extend the key.")
    terms: str = Field(description="Terms of the purchase.")
