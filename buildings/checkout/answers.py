"""What the checkout answers: frozen models, every field described for the agent that reads it."""

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Part(BaseModel):
    """Base of everything that is answered."""

    model_config = ConfigDict(frozen=True)


class ProductForSale(Part):
    """A key that can be bought here."""

    name: str = Field(description="What buy_key takes as `product`.")
    scope: str = Field(description="The scope of the key: a server's, or all.")
    price: str = Field(description="US dollars, paid once, in USDC.")
    term: str = Field(description="How long the key is valid, from the purchase or, for a renewal, from the key's end.")
    opens: tuple[str, ...] = Field(description="The servers of this campus whose paid tools it opens now.")


class Products(Part):
    """Everything that is for sale."""

    ok: Literal[True] = Field(default=True, description="True: the call did what it says.")
    count: int = Field(description="How many products there are.")
    products: tuple[ProductForSale, ...] = Field(description="Every key that can be bought.")
    how_to_buy: tuple[str, ...] = Field(description="What to do, step by step. Read it before you pay.")
    renewal: str = Field(description="How a key gets more time.")
    terms: str = Field(description="What a purchase means.")


class Opens(Part):
    """A server that the key opens."""

    name: str = Field(description="The server's name.")
    mcp: str = Field(description="The address to add to an MCP client (streamable HTTP), with the key as its Authorization header.")
    openapi: str = Field(description="Its HTTP routes, each the twin of a tool, as an OpenAPI document.")


class Usage(Part):
    """How a key is sent."""

    header: str = Field(description="The header that goes with every request; KEY stands for the key.")
    http: str = Field(description="Over HTTP.")
    mcp: str = Field(description="Over MCP.")
    opens: tuple[Opens, ...] = Field(description="The servers whose paid tools it opens now; a key of scope all opens later ones too.")


class Bought(Part):
    """A key that is paid for."""

    ok: Literal[True] = Field(default=True, description="True: the key is paid for and valid.")
    action: Literal["new", "renewed"] = Field(description="Whether this is a new key, or more time for one that you named.")
    key: str | None = Field(
        description="The key itself, a secret. Keep it now: it is shown here and nowhere else. Null for a renewal: yours stays as it is."
    )
    key_id: str = Field(description="Names the key where it is renewed; it opens nothing and is no secret.")
    product: str = Field(description="What was bought.")
    scope: str = Field(description="What the key opens: a server's scope, or all.")
    issued_at: datetime = Field(description="When the key was first bought.")
    valid_until: datetime = Field(
        description="The end of its term: the key is valid before, and not from then on. For a renewal the new end; "
        "other renewals at the same time can only make it later."
    )
    use: Usage = Field(description="How to use it over HTTP and MCP.")
    renewal: str = Field(description="How the key gets more time.")
    terms: str = Field(description="What the purchase means.")
