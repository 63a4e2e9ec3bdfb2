"""What campus adds to twins' OpenAPI documents: 402 and 403, the key, the price per call; and the document of payment terms."""

from collections.abc import Callable, Mapping
from typing import Any

from campus.access import Offer
from campus.payments.cashier import Cashier, Ware
from twins import Operation
from twins.openapi import problem_response

OPENAPI_VERSION = "0.2.0"
Offers = Mapping[str, Mapping[str, Offer]]

NO_KEY = "No valid key was sent. The body lists the keys that unlock the tool, their prices, and where to buy them."
NO_PAYMENT = "No valid key and no acceptable payment was sent. The body lists the keys that unlock the tool, and the price of this call."
KEY = {"type": "http", "scheme": "bearer", "description": "A key, bought once, valid for a fixed term."}
PAYMENT = {
    "type": "apiKey",
    "in": "header",
    "name": "PAYMENT-SIGNATURE",
    "description": "x402 v2: the payment signed for the terms of the 402, as base64-encoded JSON. X-PAYMENT of x402 v1 is accepted too.",
}
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


def components(cashier: Cashier | None) -> dict[str, Any]:
    """The ways to be let in, and the shape of a refusal that asks for payment."""
    if cashier is None:
        return {"securitySchemes": {"key": KEY}}
    return {"securitySchemes": {"key": KEY, "x402": PAYMENT}, "schemas": {"PaymentRequired": TERMS}}


def responses(offers: Offers, cashier: Cashier | None) -> Callable[[Operation], dict[str, Any]]:
    """402 where a tool is not free; every other refusal is the document's default response."""

    def of(operation: Operation) -> dict[str, Any]:
        offer = offers[operation.server][operation.name]
        if offer.access.is_free:
            return {}
        return {"402": TERMS_RESPONSE if cashier and cashier.sells(offer) else problem_response(NO_KEY)}

    return of


def extras(offers: Offers, cashier: Cashier | None) -> Callable[[Operation], dict[str, Any]]:
    """How a tool is unlocked, where it is not free, and what a call costs where it can be paid for."""

    def of(operation: Operation) -> dict[str, Any]:
        offer = offers[operation.server][operation.name]
        access = offer.access
        if access.key == "optional":
            return {"security": [{"key": []}, {}]}
        if access.is_free:
            return {"security": []}
        by_key: list[dict[str, list[str]]] = [] if access.key == "never" else [{"key": []}]
        if cashier is None or not cashier.sells(offer):
            return {"security": by_key} if by_key else {}
        return {"security": [*by_key, {"x402": []}], "x-payment-info": {"protocols": ["x402"], "price": _price(offer, cashier)}}

    return of


def _price(offer: Offer, cashier: Cashier) -> dict[str, str]:
    """The price as crawlers read it: US dollars, decimal."""
    if offer.price:
        return {"mode": "fixed", "currency": "USD", "amount": str(offer.price)}
    prices = cashier.prices(offer)
    return {"mode": "dynamic", "currency": "USD", "min": str(prices[0]), "max": str(prices[-1])}


def payment_terms(name: str, url: str, cashier: Cashier | None) -> dict[str, Any]:
    """/.well-known/x402: every resource that can be paid for, and its terms. A placeholder stands as `:name`."""
    if cashier is None:
        return {"version": 1, "name": name, "url": url, "resources": [], "terms": [], "instructions": KEYS_ONLY}
    terms = [entry for ware in cashier.wares() for entry in _terms(ware, cashier)]
    resources = list(dict.fromkeys(entry["resource"] for entry in terms))
    return {"version": 1, "name": name, "url": url, "resources": resources, "terms": terms, "instructions": INSTRUCTIONS}


def _terms(ware: Ware, cashier: Cashier) -> list[dict[str, Any]]:
    """One entry for each price that a call can have."""
    said = {
        "resource": cashier.resource(ware.offer, None),
        "methods": list(ware.operation.methods),
        "tool": ware.offer.tool,
        "building": ware.offer.building,
        "description": ware.description,
    }
    return [{**said, "price": str(price), "currency": "USD", **cashier.payee.requirements(price)} for price in cashier.prices(ware.offer)]
