"""How to pay: the steps to unlock paid tools with a key or with a payment per call, and the configuration of common MCP clients."""

from collections.abc import Mapping
from decimal import Decimal

from pydantic import Field

from buildings.gateway.clients import ClientId, Part, clients_of
from campus.directory import Directory, PaymentEntry
from campus.idempotency_keys import HOW_TO_MAKE_A_KEY

SPEND_LIMIT, LEGACY_SPEND_LIMIT = Decimal("1"), Decimal("0.10")
"""US dollars: the default limit per payment of x402's own clients, and of those of its first version."""
MOST_USED: frozenset[ClientId] = frozenset({"claude-code", "cursor", "vscode", "gemini-cli", "codex"})
WHO_PAYS = (
    "Over HTTP, x402 client libraries do this for you (Python: wrapHttpxWithPayment of x402.http.clients.httpx; TypeScript: "
    "wrapFetchWithPayment of @x402/fetch); give each call headers={'Idempotency-Key': a new random UUID}. Over MCP, a client pays only if "
    "its own code signs the payment and sends it in _meta['x402/payment'], such as withX402Client of Cloudflare's agents; "
    "common MCP hosts, such as those under `clients`, do not. If yours does not, ask your user to add a key to this "
    "server's configuration, or call the HTTP route with an x402 client library."
)


class AccessMethod(Part):
    """One way to unlock paid tools."""

    name: str = Field(description="key or x402.")
    open: bool = Field(description="Whether this way is open here.")
    how: str = Field(description="What to do, step by step.")


def access_by_key(directory: Directory) -> AccessMethod:
    return AccessMethod(
        name="key",
        open=True,
        how="Buy one of the products, then send 'Authorization: Bearer KEY' with every HTTP request, or give it to your MCP client "
        "as a header of the server. A key of scope all opens every server, also those added while it is valid."
        + _purchase_by_agents(directory),
    )


def _purchase_by_agents(directory: Directory) -> str:
    if (seller := directory.seller()) is None:
        return ""
    entry, tool = seller
    return (
        f" An agent can buy one itself: {tool.name} at {entry.mcp}, or {tool.http[0]}; name the product in '{tool.sells}'. An "
        "Idempotency-Key is required with the payment, and it is a secret: anyone who has it can read the answer. Over HTTP send it as the "
        "header Idempotency-Key, over MCP as the argument idempotency_key, or in the payment as the id of x402's extension "
        "payment-identifier. The same call with the same Idempotency-Key returns the key "
        f"again for 24 hours if the answer is lost. {HOW_TO_MAKE_A_KEY}. {_limits({one.name: one.price for one in directory.products})}"
    )


def payment_per_call(directory: Directory) -> AccessMethod:
    if (payment := directory.payment) is None:
        return AccessMethod(
            name="x402",
            open=False,
            how="A payment per call in USDC with the x402 protocol. It is not available here: this service accepts keys only.",
        )
    return AccessMethod(
        name="x402",
        open=True,
        how=f"A payment per call in USDC on {_networks(payment)}, by the x402 protocol; the payer needs no gas. "
        "Call a tool without payment: over HTTP the answer is 402 with the terms in the header "
        "PAYMENT-REQUIRED (v2) and in its body (v1); over MCP they are the tool's result. Sign them (scheme exact) and make the same "
        "call again, over HTTP with PAYMENT-SIGNATURE (v2) or X-PAYMENT (v1), over MCP with the payment in _meta['x402/payment']. "
        f"{WHO_PAYS} A call that fails is not charged. If the answer is lost, send the same payment again from the same network address "
        "within 15 minutes. Set your client's timeout to 90 seconds: one that hangs up may have paid, and would pay again. Better send "
        "an Idempotency-Key (over HTTP as a header, over MCP in _meta['idempotency-key'], or in the payment as the id of x402's extension "
        "payment-identifier), a secret of 22 or more random characters: the "
        "same call with it returns its answer again for 24 hours, from any address and with any payment of the same wallet. "
        f"Every price: {directory.url}/.well-known/x402. {_limits(_prices(directory))}",
    )


def _networks(payment: PaymentEntry) -> str:
    return ", or on ".join(f"{one.network_name} ({one.network}, token {one.asset}) to {one.pay_to}" for one in payment.networks)


def _prices(directory: Directory) -> dict[str, str]:
    calls = {tool.name: tool.price for entry in directory.buildings() for tool in entry.tools if tool.price}
    products = {one.name: one.price for one in directory.products} if directory.seller() else {}
    return calls | products


def _limits(prices: Mapping[str, str]) -> str:
    limits = f"x402 clients pay at most ${SPEND_LIMIT} per payment by default, those of v1, such as x402-fetch, ${LEGACY_SPEND_LIMIT}"
    above = {name: price for name, price in prices.items() if Decimal(price) > SPEND_LIMIT}
    if not above:
        return f"{limits}; no price here is above ${SPEND_LIMIT}."
    listed = ", ".join(f"{name} ${price}" for name, price in above.items())
    highest = max(above.values(), key=Decimal)
    return (
        f"{limits}. Above ${SPEND_LIMIT}: {listed}. Raise the limit to the price that you mean to pay, up to ${highest} here. Python: "
        f'x402Client().set_spend_controls({{"max_amount_per_payment": "${highest}"}}); '
        f'TypeScript: new x402Client().setSpendControls({{ maxAmountPerPayment: "${highest}" }}).'
    )


class ClientSetup(Part):
    """The configuration of one MCP client with a key."""

    client: str = Field(description="Name of the client.")
    where: str = Field(description="Where the text goes: shell, or a file path.")
    text: str = Field(description="The command to run, or the text to write to the file.")


def client_setups(directory: Directory) -> tuple[ClientSetup, ...]:
    """The configuration with a key of the clients that most callers use; how_to_connect has every client."""
    return tuple(
        ClientSetup(client=one.name, where=one.with_key.where, text=one.with_key.text)
        for one in clients_of(directory)
        if one.id in MOST_USED
    )
