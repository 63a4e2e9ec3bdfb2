"""The ways to unlock paid tools, as far as they are open here, step by step."""

from pydantic import BaseModel, ConfigDict, Field

from campus import Directory

CAP = 1
"""US dollars: what a stock x402 client pays at most per payment, unless its user says otherwise."""


class Door(BaseModel):
    """One way to unlock paid tools."""

    model_config = ConfigDict(frozen=True)

    name: str = Field(description="key or x402.")
    open: bool = Field(description="Whether this way is open here.")
    how: str = Field(description="What to do, step by step.")


def doors(directory: Directory) -> tuple[Door, Door]:
    """The key, and the payment per call."""
    return key_door(directory), payment_door(directory)


def key_door(directory: Directory) -> Door:
    """The first way in."""
    return Door(
        name="key",
        open=True,
        how="Buy one of the products, then send 'Authorization: Bearer KEY' with every HTTP request, or give it to your MCP client "
        "as a header of the server. A key of scope all opens every server, also those added while it is valid."
        + _at_the_counter(directory),
    )


def _at_the_counter(directory: Directory) -> str:
    """Where an agent buys a key itself, and what stands in its way."""
    if (seller := directory.seller()) is None:
        return ""
    entry, tool = seller
    dearest = max((float(one.price) for one in directory.products), default=0.0)
    return (
        f" An agent can buy one itself: {tool.name} at {entry.mcp}, or {tool.http[0]}; name the product in '{tool.sells}' and send an "
        "Idempotency-Key of 22 or more random characters, so that the key can be had again if the answer is lost."
        + (f" {_lifting_the_cap(dearest)}" if dearest > CAP else "")
    )


def _lifting_the_cap(dollars: float) -> str:
    return (
        f"x402 clients refuse to pay more than ${CAP} at once unless told otherwise. Python: "
        f'x402Client().set_spend_controls({{"max_amount_per_payment": "${dollars:g}"}}); '
        f'TypeScript: new x402Client().setSpendControls({{ maxAmountPerPayment: "${dollars:g}" }}).'
    )


def payment_door(directory: Directory) -> Door:
    """The second way in."""
    if (payment := directory.payment) is None:
        return Door(
            name="x402",
            open=False,
            how="A payment per call in USDC with the x402 protocol. It is not available here: this service accepts keys only.",
        )
    return Door(
        name="x402",
        open=True,
        how=f"A payment per call in USDC on {payment.network_name} ({payment.network}, token {payment.asset}) to {payment.pay_to}, by the "
        "x402 protocol; the payer needs no gas. Call a tool without payment: over HTTP the answer is 402 with the terms in the header "
        "PAYMENT-REQUIRED (v2) and in its body (v1); over MCP they are the tool's result. Sign them (scheme exact) and make the same "
        "call again, over HTTP with PAYMENT-SIGNATURE (v2) or X-PAYMENT (v1), over MCP with the payment in _meta['x402/payment']. "
        "Any x402 client does this by itself. A call that fails is not charged; if the answer is lost, send the same payment again within "
        "15 minutes. Give your client 90 seconds: one that hangs up may have paid, and would pay anew. With an Idempotency-Key of 22 or "
        "more random characters the same call finds its answer again for 24 hours, whatever payment it comes with. "
        f"Every price: {directory.url}/.well-known/x402. {_dear_calls(directory)}",
    )


def _dear_calls(directory: Directory) -> str:
    """How to pay for what costs more than clients pay by themselves."""
    prices = [float(tool.price) for entry in directory.buildings() for tool in entry.tools if tool.price]
    if directory.seller():
        prices += [float(product.price) for product in directory.products]
    if max(prices, default=0.0) <= CAP:
        return f"Clients pay up to ${CAP} per payment by themselves; nothing here costs more."
    return _lifting_the_cap(max(prices))
