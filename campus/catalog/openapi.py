"""What campus adds to the OpenAPI documents of twins: keys, prices and 402, for each building and for all; and /.well-known/x402."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from typing import Any

from campus.catalog.parts import PlanPart
from campus.catalog.server import HOW_TO_HIDE, OpenBuilding, summary_of
from campus.features.tasks.documents import TASK_SCHEMA, accepted_response, task_paths
from campus.config import Config
from campus.errors import ConfigError, LoadError
from campus.layout.assets import icon_path
from campus.features.payments.bazaar import http_extension
from campus.features.payments.payment import ServiceListing
from campus.features.payments.terms import PaidTool, Pricing, catalog_entry, resource_of
from campus.pricing import Offer, task_seconds
from twins import Operation, openapi, problem_response

SERVICE_NAME = re.compile(r"[ -~]{1,32}")
"""What catalogs of paid services accept as a name."""
Offers = Mapping[str, Mapping[str, Offer]]
Operations = Iterable[Operation] | Mapping[str, Iterable[Operation]]

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


def documents_of(
    config: Config, opened: Sequence[OpenBuilding], pricing: Pricing | None, parts: Sequence[PlanPart] = ()
) -> dict[str, dict[str, Any]]:
    """The documents by path: OpenAPI of each building, of all, and a short form for the one that campus.toml names; the payment terms."""
    offers = {one.name: one.offers for one in opened}
    shared: dict[str, Any] = {
        "servers": [config.url],
        "responses": _responses(offers, pricing, parts),
        "extras": _extras(offers, pricing, parts),
        "components": _components(pricing, parts, has_tasks=any(one.has_tasks for one in opened)),
        "conversions": {},
    }

    def document(operations: Operations, title: str, description: str, version: str | None = None) -> dict[str, Any]:
        try:
            return openapi(operations, title=title, version=version or metadata.version("mcp-campus"), description=description, **shared)
        except (LookupError, AttributeError, TypeError, ValueError) as error:  # the schemas of another server's tools may be anything
            raise LoadError(f"{title!r}: the schemas of its tools cannot be read ({error!r}); {HOW_TO_HIDE}") from None

    operations = {one.name: tuple(one.operations.values()) for one in opened}
    by_name = {one.name: document(operations[one.name], one.title, one.about, one.version) for one in opened}
    with_tasks = [one.name for one in opened if one.has_tasks]
    for name in with_tasks:
        by_name[name]["paths"] |= task_paths([name], grouped=False)
    for one in opened:
        by_name[one.name]["paths"] |= {path: item for part in parts for path, item in part.paths(one, grouped=False).items()}
    documents = {f"/{name}/openapi.json": found for name, found in by_name.items()}
    documents["/.well-known/x402"] = _payment_terms(config.server.name, config.url, pricing) | {"free": free_tools(opened, url=config.url)}
    documents["/v1/openapi.json"] = every = document(operations, config.server.name, "Every tool of every building.")
    every["paths"] |= task_paths(with_tasks, grouped=True)
    every["paths"] |= {path: item for one in opened for part in parts for path, item in part.paths(one, grouped=True).items()}
    if config.server.openapi in by_name:
        named = next(one for one in opened if one.name == config.server.openapi)
        documents["/openapi.json"] = document(
            short_form(operations[named.name], offers[named.name]),
            named.title,
            named.about,
            named.version,
        )
    elif "openapi" in config.server.model_fields_set and config.server.openapi not in config.buildings:
        names = ", ".join(by_name)
        raise ConfigError(f"[server] openapi = {config.server.openapi!r} is not an open building; the open buildings are: {names}")
    return documents | {path: found for part in parts for path, found in part.documents().items()}


def short_form(operations: Iterable[Operation], offers: Mapping[str, Offer]) -> list[Operation]:
    """What /openapi.json describes of a building: what GET serves. Where calls are sold, without the tools that only a key opens."""
    sells = any(offer.is_sold_per_call for offer in offers.values())
    shown = [one for one in operations if "GET" in one.methods and not (sells and offers[one.name].is_for_keys_alone)]
    return [replace(one, route=replace(one.route, methods=("GET",))) for one in shown]


def _components(pricing: Pricing | None, parts: Sequence[PlanPart], *, has_tasks: bool) -> dict[str, Any]:
    """The key, and the schemas of a 402 that asks for payment and of a task."""
    schemas = ({"PaymentRequired": TERMS} if pricing else {}) | ({"Task": TASK_SCHEMA} if has_tasks else {})
    schemas |= {name: schema for part in parts for name, schema in part.schemas.items()}
    return {"securitySchemes": {"key": KEY}} | ({"schemas": schemas} if schemas else {})


def _responses(offers: Offers, pricing: Pricing | None, parts: Sequence[PlanPart]) -> Callable[[Operation], dict[str, Any]]:
    """402 for a tool that is not free, 202 for one that runs as a task; every other problem is the document's default response."""

    def of(operation: Operation) -> dict[str, Any]:
        offer = offers[operation.server][operation.name]
        accepted = accepted_response(operation)
        added = {status: response for part in parts for status, response in part.responses(operation, offer).items()}
        if offer.access.is_free:
            return accepted | added
        return accepted | added | {"402": TERMS_RESPONSE if pricing and pricing.sells(offer) else problem_response(NO_KEY)}

    return of


def _extras(offers: Offers, pricing: Pricing | None, parts: Sequence[PlanPart]) -> Callable[[Operation], dict[str, Any]]:
    """How a tool that is not free is unlocked, and what a call costs if it can be paid for.

    A payment is not a `security` scheme and needs none: crawlers read `x-payment-info`.
    """

    def of(operation: Operation) -> dict[str, Any]:
        offer = offers[operation.server][operation.name]
        sold = pricing is not None and pricing.sells(offer)
        security: list[dict[str, list[str]]] = [] if offer.access.key == "never" else [{"key": []}]
        if security and (sold or offer.access.is_free):
            security.append({})
        added = {name: value for part in parts for name, value in part.extras(operation, offer).items()}
        return {"security": security} | ({"x-payment-info": _payment_info(offer, pricing)} if sold and pricing else {}) | added

    return of


def _payment_info(offer: Offer, pricing: Pricing) -> dict[str, Any]:
    return {"protocols": [{"x402": {}}], "price": _price(offer, pricing)}


def _price(offer: Offer, pricing: Pricing) -> dict[str, str]:
    """The price in the form that crawlers read: US dollars, decimal."""
    if offer.price:
        return {"mode": "fixed", "currency": "USD", "amount": str(offer.price)}
    prices = pricing.prices(offer)
    return {"mode": "dynamic", "currency": "USD", "min": str(prices[0]), "max": str(prices[-1])}


def _payment_terms(name: str, url: str, pricing: Pricing | None) -> dict[str, Any]:
    """/.well-known/x402: every resource that can be paid for, and its terms. A placeholder is written as `:name`."""
    if pricing is None:
        return {"version": 1, "name": name, "url": url, "resources": [], "terms": [], "instructions": KEYS_ONLY}
    terms = [entry for paid_tool in pricing.paid_tools() for entry in _terms(paid_tool, pricing)]
    resources = list(dict.fromkeys(entry["resource"] for entry in terms))
    return {"version": 1, "name": name, "url": url, "resources": resources, "terms": terms, "instructions": INSTRUCTIONS}


def service_of(opened: OpenBuilding, *, url: str) -> ServiceListing:
    """A building as catalogs of paid services show it: under its title, or its name where the title is too long for them."""
    title = opened.title
    tags = opened.loaded.building.tags or (opened.name[:32],)
    return ServiceListing(title if SERVICE_NAME.fullmatch(title) else opened.name[:32], tuple(tags), f"{url}{icon_path()}")


def free_tools(opened: Sequence[OpenBuilding], *, url: str) -> list[dict[str, Any]]:
    """Every tool that is free, described as the terms of a paid one describe it: it answers no 402 that a crawler could read."""
    return [
        {
            "resource": resource_of(operation, url, None),
            "methods": list(operation.methods),
            "tool": name,
            "building": one.name,
            "description": summary_of(operation.tool),
            "mimeType": "application/json",
            **catalog_entry(service),
            "extensions": _how_to_call(operation),
        }
        for one in opened
        for service in [service_of(one, url=url)]
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
