"""What documents say of payments: the 402 and the price of a tool in OpenAPI, and /.well-known/x402."""

import re
from collections.abc import Sequence
from typing import Any

from campus.catalog.server import OpenBuilding, summary_of
from campus.config import Config
from campus.features.payments.bazaar import http_extension
from campus.features.payments.payment import ServiceListing
from campus.features.payments.terms import PaidTool, Pricing, catalog_entry, resource_of
from campus.layout.assets import icons_of
from campus.pricing import Offer, task_seconds
from twins import Operation

SERVICE_NAME = re.compile(r"[ -~]{1,32}")
"""What catalogs of paid services accept as a name."""
NO_PAYMENT = "No valid key and no acceptable payment was sent. The body lists the keys that unlock the tool, and the price of this call."
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


def payment_info(offer: Offer, pricing: Pricing) -> dict[str, Any]:
    return {"protocols": [{"x402": {}}], "price": _price(offer, pricing)}


def _price(offer: Offer, pricing: Pricing) -> dict[str, str]:
    """The price in the form that crawlers read: US dollars, decimal."""
    if offer.price:
        return {"mode": "fixed", "currency": "USD", "amount": str(offer.price)}
    prices = pricing.prices(offer)
    return {"mode": "dynamic", "currency": "USD", "min": str(prices[0]), "max": str(prices[-1])}


def payment_terms(name: str, url: str, pricing: Pricing | None) -> dict[str, Any]:
    """/.well-known/x402: every resource that can be paid for, and its terms. A placeholder is written as `:name`."""
    if pricing is None:
        return {"version": 1, "name": name, "url": url, "resources": [], "terms": [], "instructions": KEYS_ONLY}
    terms = [entry for paid_tool in pricing.paid_tools() for entry in _terms(paid_tool, pricing)]
    resources = list(dict.fromkeys(entry["resource"] for entry in terms))
    return {"version": 1, "name": name, "url": url, "resources": resources, "terms": terms, "instructions": INSTRUCTIONS}


def service_of(opened: OpenBuilding, config: Config) -> ServiceListing:
    """A building as catalogs of paid services show it: under its title, by its seller, or less where that is too long for them."""
    by = getattr(getattr(config, "seller", None), "name", None)
    names = (f"{opened.title} by {by}" if by else "", opened.title, opened.name[:32])
    tags = opened.loaded.building.tags or (opened.name[:32],)
    return ServiceListing(next(filter(SERVICE_NAME.fullmatch, names)), tuple(tags), f"{config.url}{icons_of(config.logo)[0][0]}")


def free_tools(opened: Sequence[OpenBuilding], config: Config) -> list[dict[str, Any]]:
    """Every tool that is free, described as the terms of a paid one describe it: it answers no 402 that a crawler could read."""
    return [
        {
            "resource": resource_of(operation, config.url, None),
            "methods": list(operation.methods),
            "tool": name,
            "building": one.name,
            "description": summary_of(operation.tool),
            "mimeType": "application/json",
            **catalog_entry(service),
            "extensions": _how_to_call(operation),
        }
        for one in opened
        for service in [service_of(one, config)]
        for name, operation in one.operations.items()
        if one.offers[name].access.is_free
    ]


def _how_to_call(operation: Operation) -> dict[str, Any]:
    """The bazaar extension of a free tool; nothing for another server's tool whose schemas cannot be read: it is served all the same."""
    try:
        return http_extension(operation, operation.methods[0])
    except (LookupError, AttributeError, TypeError, ValueError):
        return {}


def _terms(paid_tool: PaidTool, pricing: Pricing) -> list[dict[str, Any]]:
    """One entry for each price that a call can have."""
    shared = {
        "resource": pricing.resource(paid_tool.offer, None),
        "methods": list(paid_tool.operation.methods),
        "tool": paid_tool.offer.tool,
        "building": paid_tool.offer.building,
        "description": paid_tool.description,
        **catalog_entry(paid_tool.service),
        "extensions": paid_tool.extensions[paid_tool.operation.methods[0]],
    }
    return [
        {
            **shared,
            "price": str(price),
            "currency": "USD",
            **pricing.payee.requirements(price, task_seconds=task_seconds(paid_tool.operation.tool)),
        }
        for price in pricing.prices(paid_tool.offer)
    ]
