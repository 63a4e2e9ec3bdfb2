"""What campus adds to the OpenAPI documents of twins, for each building and for all: keys and 402, and what features add."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from typing import Any

from campus.catalog.parts import PlanPart
from campus.catalog.server import HOW_TO_HIDE, OpenBuilding
from campus.config import Config
from campus.errors import ConfigError, LoadError
from campus.pricing import Offer
from twins import Operation, openapi, problem_response

Offers = Mapping[str, Mapping[str, Offer]]
Operations = Iterable[Operation] | Mapping[str, Iterable[Operation]]

NO_KEY = "No valid key was sent. The body lists the keys that unlock the tool, their prices, and where to buy them."
KEY = {"type": "http", "scheme": "bearer", "description": "A key, bought once, valid for a fixed term."}


def documents_of(config: Config, opened: Sequence[OpenBuilding], parts: Sequence[PlanPart] = ()) -> dict[str, dict[str, Any]]:
    offers = {one.name: one.offers for one in opened}
    shared: dict[str, Any] = {
        "servers": [config.url],
        "responses": _responses(offers, parts),
        "extras": _extras(offers, parts),
        "components": _components(parts),
        "conversions": {},
    }

    def document(operations: Operations, title: str, description: str, version: str | None = None) -> dict[str, Any]:
        try:
            return openapi(operations, title=title, version=version or metadata.version("mcp-campus"), description=description, **shared)
        except (LookupError, AttributeError, TypeError, ValueError) as error:  # the schemas of another server's tools may be anything
            raise LoadError(f"{title!r}: the schemas of its tools cannot be read ({error!r}); {HOW_TO_HIDE}") from None

    operations = {one.name: tuple(one.operations.values()) for one in opened}
    by_name = {one.name: document(operations[one.name], one.title, one.about, one.version) for one in opened}
    for one in opened:
        by_name[one.name]["paths"] |= {path: item for part in parts for path, item in part.paths(one, grouped=False).items()}
    documents = {f"/{name}/openapi.json": found for name, found in by_name.items()}
    documents["/v1/openapi.json"] = every = document(operations, config.server.name, "Every tool of every building.")
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
    for found in documents.values():
        found["info"] |= _seller_info(config, parts)
    return documents | {path: found for part in parts for path, found in part.documents().items()}


def _seller_info(config: Config, parts: Sequence[PlanPart]) -> dict[str, Any]:
    """Who offers the service, as OpenAPI spells it."""
    sold_by = next((part.sold_by for part in parts if part.sold_by is not None), None)
    if sold_by is None:
        return {}
    scheme, _, address = (sold_by.contact or "").partition(":")
    reached = {"mailto": {"email": address.partition("?")[0]}, "https": {"url": f"{scheme}:{address}"}}.get(scheme, {})
    terms = sold_by.pages.get("Terms")
    return {"contact": {"name": sold_by.name, **reached}} | ({"termsOfService": f"{config.url}{terms}"} if terms else {})


def short_form(operations: Iterable[Operation], offers: Mapping[str, Offer]) -> list[Operation]:
    """What /openapi.json describes of a building: what GET serves. Where calls are sold, without the tools that only a key opens."""
    sells = any(offer.is_sold_per_call for offer in offers.values())
    shown = [one for one in operations if "GET" in one.methods and not (sells and offers[one.name].is_for_keys_alone)]
    return [replace(one, route=replace(one.route, methods=("GET",))) for one in shown]


def _components(parts: Sequence[PlanPart]) -> dict[str, Any]:
    schemas = {name: schema for part in parts for name, schema in part.schemas.items()}
    return {"securitySchemes": {"key": KEY}} | ({"schemas": schemas} if schemas else {})


def _responses(offers: Offers, parts: Sequence[PlanPart]) -> Callable[[Operation], dict[str, Any]]:
    def of(operation: Operation) -> dict[str, Any]:
        offer = offers[operation.server][operation.name]
        found = {} if offer.access.is_free else {"402": problem_response(NO_KEY)}
        found |= {status: response for part in parts for status, response in part.responses(operation, offer).items()}
        return dict(sorted(found.items()))

    return of


def _extras(offers: Offers, parts: Sequence[PlanPart]) -> Callable[[Operation], dict[str, Any]]:
    """How a tool that is not free is unlocked. A payment is not a `security` scheme and needs none."""

    def of(operation: Operation) -> dict[str, Any]:
        offer = offers[operation.server][operation.name]
        sold = any(part.seller and part.seller.sells(offer) for part in parts)
        security: list[dict[str, list[str]]] = [] if offer.access.key == "never" else [{"key": []}]
        if security and (sold or offer.access.is_free):
            security.append({})
        return {"security": security} | {name: value for part in parts for name, value in part.extras(operation, offer).items()}

    return of
