"""What documents say of payments: the 402 and the price of a tool in OpenAPI, and /.well-known/x402."""

import re
from collections.abc import Sequence
from typing import Any

from campus.catalog.server import OpenBuilding, summary_of
from campus.config import Config
from campus.features.payments.bazaar import http_extension
from campus.features.payments.payment import ServiceListing
from campus.features.payments.queue import too_many_of_one, too_many_worthless
from campus.features.payments.states import already_used, in_flight, key_ambiguous, not_sold, used_elsewhere
from campus.features.payments.terms import PaidTool, Pricing, catalog_entry, resource_of
from campus.features.payments.wire import encoded
from campus.idempotency_keys import HOW_TO_MAKE_A_KEY, LONGEST_KEY, SHORTEST_KEY
from campus.layout.assets import icons_of
from campus.pricing import Offer, Price
from campus.problems import EXPLAINED_AT
from twins import Operation, problem_response

TEXT = {"type": "string"}
SERVICE_NAME = re.compile(r"[ -~]{1,32}")
"""What catalogs of paid services accept as a name."""
NO_PAYMENT = "No valid key and no acceptable payment was sent. The body lists the keys that unlock the tool, and the price of this call."
ADDRESS = {"type": "string", "pattern": "^0x[0-9a-fA-F]{40}$"}
TERMS: dict[str, Any] = {
    "type": "object",
    "description": "One way to pay, as x402 v1 spells it. The header PAYMENT-REQUIRED has the same for x402 v2.",
    "required": ["scheme", "network", "maxAmountRequired", "payTo", "asset", "maxTimeoutSeconds", "resource"],
    "properties": {
        "scheme": TEXT | {"description": "Scheme of the payment: exact is a signed transfer of exactly this amount (EIP-3009)."},
        "network": TEXT | {"description": "Name of the network."},
        "maxAmountRequired": TEXT | {"description": "What is paid, in the smallest unit of the token."},
        "payTo": ADDRESS | {"description": "Who is paid."},
        "asset": ADDRESS | {"description": "Address of the token."},
        "maxTimeoutSeconds": {"type": "integer", "description": "How long a payment may take from its signature to its settlement."},
        "resource": TEXT | {"description": "Address of the call that is paid for, with its arguments."},
        "description": TEXT | {"description": "What the tool does."},
        "mimeType": TEXT | {"description": "Media type of the answer."},
        "extra": {"type": "object", "description": "Name and version of the token, which are signed too."},
        "outputSchema": {"type": "object", "description": "How to make the call, with an example of its answer, for crawlers."},
    },
}
TERMS_BODY: dict[str, Any] = {
    "allOf": [
        {"$ref": "#/components/schemas/Problem"},
        {
            "type": "object",
            "required": ["x402Version", "accepts", "error"],
            "properties": {
                "x402Version": {"type": "integer", "enum": [1], "description": "The payment terms in this body are those of x402 v1."},
                "error": TEXT | {"description": "Why, as a code or a sentence."},
                "accepts": {
                    "type": "array",
                    "items": {"$ref": "#/components/schemas/PaymentTerms"},
                    "description": "Accepted payments: amount, recipient, token and network.",
                },
            },
        },
    ]
}
RECEIPT = {"success": True, "transaction": f"0x{'ab' * 32}", "network": "eip155:8453", "payer": f"0x{'cd' * 20}"}
COMPONENTS: dict[str, dict[str, Any]] = {
    "schemas": {"PaymentRequired": TERMS_BODY, "PaymentTerms": TERMS},
    "headers": {
        "PAYMENT-REQUIRED": {"description": "Payment terms of x402 v2, as base64-encoded JSON.", "schema": TEXT},
        "PAYMENT-RESPONSE": {
            "description": "Receipt of x402, as base64-encoded JSON: success, transaction, network, payer. Sent if the call was paid for.",
            "schema": TEXT,
            "example": encoded(RECEIPT),
        },
    },
    "parameters": {
        "Payment": {
            "name": "PAYMENT-SIGNATURE",
            "in": "header",
            "required": False,
            "description": "A payment of x402 v2 for this call, as base64-encoded JSON; its terms are in the header PAYMENT-REQUIRED of"
            " a 402. Not needed with a key. Clients of x402 v1 send theirs as X-PAYMENT.",
            "schema": TEXT,
        },
        "IdempotencyKey": {
            "name": "Idempotency-Key",
            "in": "header",
            "required": False,
            "description": "For calls with a payment or a key with credits: the same call with the same key returns the same answer again"
            f" for 24 hours, from any address, and is charged once. {HOW_TO_MAKE_A_KEY}.",
            "schema": TEXT | {"minLength": SHORTEST_KEY, "maxLength": LONGEST_KEY},
        },
    },
}
PARAMETERS = [{"$ref": f"#/components/parameters/{name}"} for name in COMPONENTS["parameters"]]
CONFLICT = (
    "The payment was used before, or it is not known yet whether it was charged: `code` and `detail` say whether to send the same payment"
    " again. For payment_in_flight do not sign a new one: it would be charged too."
)
TOO_MANY = "More calls or payments than are answered; nothing was done or charged."


def responses_of(operation: Operation, offer: Offer) -> dict[str, Any]:
    """What the responses of a tool that is sold per call have besides; the examples are the problems that are sent."""
    conflicts = [in_flight(), already_used(), used_elsewhere(), key_ambiguous()]
    if offer.access.renews:
        conflicts.append(not_sold("The key has ended"))
    return {
        str(operation.status): {"headers": {"PAYMENT-RESPONSE": {"$ref": "#/components/headers/PAYMENT-RESPONSE"}}},
        "402": problem_response(NO_PAYMENT, schema="PaymentRequired"),
        "409": problem_response(CONFLICT, *conflicts, types=EXPLAINED_AT),
        "429": problem_response(TOO_MANY, too_many_of_one(), too_many_worthless(60), types=EXPLAINED_AT),
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
    if (per := offer.access.per) is not None:
        return {"mode": "dynamic", "currency": "USD", "min": str(offer.price), **per.as_data()}
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
    """One entry for each price that a call can have, on each network."""
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
            "price": str(Price(int(accepted["amount"]))),
            "currency": "USD",
            **(per.as_data() if (per := paid_tool.offer.access.per) else {}),
            **accepted,
        }
        for accepted in pricing.accepts(paid_tool.offer)
    ]
