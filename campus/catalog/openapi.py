"""What campus adds to twins' OpenAPI documents: 402 and 403, the key, the price per call; and the document of payment terms."""

from collections.abc import Callable, Mapping
from typing import Any

from campus.payments.pricing import PaidTool, Pricing
from campus.tool_access import Offer
from twins import Operation
from twins.openapi import problem_response

OPENAPI_VERSION = "0.2.0"
Offers = Mapping[str, Mapping[str, Offer]]

NO_KEY = "No valid key was sent. The body lists the keys that unlock the tool, their prices, and where to buy them."
NO_PAYMENT = "No valid key and no acceptable payment was sent. The body lists the keys that unlock the tool, and the price of this call."
KEY = {"type": "http", "scheme": "bearer", "description": "A key, bought once, valid for a fixed term."}
TERMS_HEADER = {
    "PAYMENT-REQUIRED": {"description": "Payment terms of x402 v2, as base64-encoded JSON.", "schema": {"type": "string"}},
    "WWW-Authenticate": {"description": "Says that a key unlocks it too.", "schema": {"type": "string"}},
}
TERMS = {
    "allOf": [
        {"$ref": "#/components/schemas/Problem"},
        {
            "type": "object",
            "required": ["x402Version", "accepts", "error"],
            "properties": {
                "unlock": {"type": "array", "items": {"type": "object"}, "description": "The ways to unlock the tool, with prices."},
                "x402Version": {"type": "integer", "enum": [1], "description": "The payment terms in this body are those of x402 v1."},
                "error": {"type": "string", "description": "Why, as a code or a sentence."},
                "accepts": {
                    "type": "array",
                    "items": {"type": "object"},
                    "description": "Accepted payments: amount, recipient, token and network.",
                },
            },
        },
    ]
}
TERMS_RESPONSE = {
    "description": NO_PAYMENT,
    "headers": TERMS_HEADER,
    "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/PaymentRequired"}}},
}
INSTRUCTIONS = (
    "Call a resource without payment: the 402 response contains the terms of that call, and they apply where they differ from this list. "
    "Sign them (scheme exact, EIP-3009, no gas) and send the same request again with PAYMENT-SIGNATURE, or X-PAYMENT for x402 v1. "
    "A call that fails is not charged. The same payment sent again within 15 minutes returns the same answer."
)
KEYS_ONLY = "Payments per call are not available here. A paid resource returns which keys unlock it, and where to buy them."


def components(pricing: Pricing | None) -> dict[str, Any]:
    """The key, and the shape of a refusal that asks for payment."""
    return {"securitySchemes": {"key": KEY}} | ({} if pricing is None else {"schemas": {"PaymentRequired": TERMS}})


def responses(offers: Offers, pricing: Pricing | None) -> Callable[[Operation], dict[str, Any]]:
    """402 where a tool is not free; every other refusal is the document's default response."""

    def of(operation: Operation) -> dict[str, Any]:
        offer = offers[operation.server][operation.name]
        if offer.access.is_free:
            return {}
        return {"402": TERMS_RESPONSE if pricing and pricing.sells(offer) else problem_response(NO_KEY)}

    return of


def extras(offers: Offers, pricing: Pricing | None) -> Callable[[Operation], dict[str, Any]]:
    """How a tool is unlocked, where it is not free, and what a call costs where it can be paid for.

    A payment is no `security`, and needs none beside it: so crawlers read `x-payment-info`.
    """

    def of(operation: Operation) -> dict[str, Any]:
        offer = offers[operation.server][operation.name]
        sold = pricing is not None and pricing.sells(offer)
        security: list[dict[str, list[str]]] = [] if offer.access.key == "never" else [{"key": []}]
        if security and (sold or offer.access.is_free):
            security.append({})
        return {"security": security} | ({"x-payment-info": _payment_info(offer, pricing)} if sold and pricing else {})

    return of


def _payment_info(offer: Offer, pricing: Pricing) -> dict[str, Any]:
    return {"protocols": [{"x402": {}}], "price": _price(offer, pricing)}


def _price(offer: Offer, pricing: Pricing) -> dict[str, str]:
    """The price as crawlers read it: US dollars, decimal."""
    if offer.price:
        return {"mode": "fixed", "currency": "USD", "amount": str(offer.price)}
    prices = pricing.prices(offer)
    return {"mode": "dynamic", "currency": "USD", "min": str(prices[0]), "max": str(prices[-1])}


def payment_terms(name: str, url: str, pricing: Pricing | None) -> dict[str, Any]:
    """/.well-known/x402: every resource that can be paid for, and its terms. A placeholder stands as `:name`."""
    if pricing is None:
        return {"version": 1, "name": name, "url": url, "resources": [], "terms": [], "instructions": KEYS_ONLY}
    terms = [entry for paid_tool in pricing.paid_tools() for entry in _terms(paid_tool, pricing)]
    resources = list(dict.fromkeys(entry["resource"] for entry in terms))
    return {"version": 1, "name": name, "url": url, "resources": resources, "terms": terms, "instructions": INSTRUCTIONS}


def _terms(paid_tool: PaidTool, pricing: Pricing) -> list[dict[str, Any]]:
    """One entry for each price that a call can have."""
    said = {
        "resource": pricing.resource(paid_tool.offer, None),
        "methods": list(paid_tool.operation.methods),
        "tool": paid_tool.offer.tool,
        "building": paid_tool.offer.building,
        "description": paid_tool.description,
    }
    return [
        {**said, "price": str(price), "currency": "USD", **pricing.payee.requirements(price)} for price in pricing.prices(paid_tool.offer)
    ]
