"""The MCP server of the checkout: the tools that list the keys for sale and sell them, with HTTP routes under /v1/checkout."""

import re
from decimal import Decimal
from importlib.metadata import version
from typing import Annotated, ClassVar, Literal

from fastmcp import FastMCP
from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field

from buildings.checkout.guidance import BEFORE_PAYING, RENEWAL, TERMS, how_to_buy
from campus import Caller, CurrentCaller, CurrentSite, Problem, Site, access, free, route
from campus.directory import BuildingEntry
from campus.errors import KeyRefused


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
    allowance: str | None = Field(
        description="How many calls it opens in each calendar day or month (UTC), such as '500 calls a month'; null without a bound."
    )
    credits: str | None = Field(
        description="US dollars that the key spends on calls, at the price of each; null if calls are not counted against it."
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


PURCHASE = "/v1/checkout/keys"
KEY_ID = "^key_[0-9A-Za-z]{12}$"
READS = {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}
BUYS = {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": False, "openWorldHint": False}

mcp = FastMCP(
    "Checkout",
    version=version("mcp-campus"),
    instructions="Sells keys for the paid tools of this service, paid in USDC with x402; no account, and nothing renews automatically. "
    "Call list_products first: it returns the keys, their prices, what each unlocks, and what to set up before you pay.",
)


def is_key_id(text: str | None) -> str | None:
    """The text if it is a key id; ValueError for anything else, such as the key itself, with what to send instead."""
    if text is not None and not re.fullmatch(KEY_ID, text):
        raise ValueError("is not a key id: a key id is key_ and 12 characters, as returned by buy_key; never send the key itself here")
    return text


ProductName = Annotated[str, Field(min_length=1, max_length=64, description="Name of the product to buy, from list_products.")]
KeyId = Annotated[
    str | None,
    AfterValidator(is_key_id),
    Field(
        json_schema_extra={"pattern": KEY_ID},
        description="Id of a key to extend instead of buying a new one: key_ and 12 characters, from buy_key. Never the key itself.",
    ),
]
IdempotencyKey = Annotated[
    str | None,
    Field(
        max_length=255,
        description="Required with a payment: a secret of at least 128 random bits that you made for this purchase, 22 to 255 characters. "
        "Over HTTP, send it as the header Idempotency-Key instead.",
    ),
]


@mcp.tool(title="List the keys for sale", annotations=READS, meta=route("GET /v1/checkout/products") | free())
async def list_products(site: Site = CurrentSite()) -> Products:
    """List the keys that can be bought: name, scope, price, term and the servers that each unlocks.

    Call it before buy_key. `how_to_buy` has the steps of a purchase, including the settings that your x402 client needs.
    """
    products = tuple(
        ProductForSale(
            name=one.name,
            scope=one.scope,
            price=one.price,
            term=one.term,
            allowance=one.allowance,
            credits=one.credits,
            opens=tuple(each.name for each in opened_by(one.name, site)),
        )
        for one in site.directory.products
    )
    highest = max((one.price for one in products), key=Decimal, default="0")
    return Products(
        count=len(products),
        products=products,
        how_to_buy=how_to_buy(f"{site.url}{PURCHASE}", highest),
        renewal=RENEWAL,
        terms=site.directory.with_seller(TERMS),
    )


@mcp.tool(
    title="Buy or renew a key",
    annotations=BUYS,
    meta=route(f"POST {PURCHASE}") | access(sells="product", renews="renew", ends="valid_until", key="never", advice=BEFORE_PAYING),
)
async def buy_key(
    product: ProductName,
    renew: KeyId = None,
    idempotency_key: IdempotencyKey = None,
    site: Site = CurrentSite(),
    caller: Caller = CurrentCaller(),
) -> Bought:
    """Buy a key with one x402 payment in USDC, or extend the key whose id is `renew`. The key is shown only once, in the answer.

    Costs the product's price, once. x402 clients refuse more than $1 per payment until you raise their limit: list_products shows
    prices and how. A payment needs an Idempotency-Key, a secret of at least 128 random bits that you make and keep: with it the same
    call returns a lost answer again within 24 hours and charges nothing. A refused call costs nothing; whether sales are final, the
    `terms` of list_products say.
    """
    if caller.payment is None:
        raise Problem(402, "access_required", "buy_key needs a payment (x402), and this call contained none.")
    try:
        sold = await site.keys.sell(product, payment=caller.payment, renew=renew)
    except KeyRefused as refused:
        raise Problem(409, "key_not_sold", f"{refused}. Nothing was charged.") from None
    return Bought(
        action="new" if sold.token else "renewed",
        key=sold.token,
        key_id=sold.key.id,
        product=sold.key.product,
        scope=sold.key.scope,
        issued_at=sold.key.issued_at,
        valid_until=sold.key.expires_at,
        use=usage_of(sold.key.product, site),
        renewal=RENEWAL,
        terms=site.directory.with_seller(TERMS),
    )


def usage_of(product: str, site: Site) -> Usage:
    return Usage(
        header="Authorization: Bearer KEY",
        http="Send this header with every request to the routes of the servers below.",
        mcp="Add the server's address to your MCP client with this header; the client then sends the key with every call.",
        opens=tuple(Opens(name=one.name, mcp=one.mcp, openapi=one.openapi) for one in opened_by(product, site)),
    )


def opened_by(product: str, site: Site) -> list[BuildingEntry]:
    return [one for one in site.directory.buildings() if product in one.unlocked_by]
