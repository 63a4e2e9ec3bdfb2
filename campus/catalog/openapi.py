"""What campus adds to the OpenAPI documents of twins, for each building and for all: keys and refusals, and what features add."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from campus.catalog.parts import PlanPart
from campus.catalog.server import HOW_TO_HIDE, OpenBuilding
from campus.config import Config
from campus.directory import ProductEntry, SellerEntry
from campus.errors import ConfigError, LoadError
from campus.installed import own_version
from campus.paywall.admission import Refusals
from campus.pricing import Offer
from campus.problems import EXPLAINED_AT
from twins import Operation, Problem, openapi, problem_response, problem_schema

Offers = Mapping[str, Mapping[str, Offer]]
Maker = Callable[[], dict[str, Any]]
Operations = Iterable[Operation] | Mapping[str, Iterable[Operation]]

NO_KEY = "No valid key was sent. The body lists the keys that unlock the tool, their prices, and where to buy them."
WRONG_SCOPE = "The key that was sent is for other tools. The body lists the keys that unlock this one."
REFUSALS = {"402": NO_KEY, "403": WRONG_SCOPE}
SHORT_FORM = ("402", "default")
"""The refusals that /openapi.json lists by their status; its `default` has the others."""
KEY = {"type": "http", "scheme": "bearer", "description": "A key, bought once, valid for a fixed term."}
TEXT, NUMBER = {"type": "string"}, {"type": "integer"}
UNLOCK: dict[str, Any] = {
    "type": "object",
    "description": "A way to unlock a tool: the key of a product, or a payment for one call. Members that do not apply are left out.",
    "required": ["get"],
    "properties": {
        "product": TEXT | {"description": "Name of the product."},
        **{name: TEXT | {"description": each.description} for name, each in ProductEntry.model_fields.items() if name != "name"},
        "per_call": TEXT | {"description": "Price of one call in US dollars, without a key."},
        "per": TEXT | {"description": "The argument that adds to the price of a call."},
        "each": TEXT | {"description": "What each value of that argument adds, in US dollars."},
    },
}
LIMIT: dict[str, Any] = {
    "type": "object",
    "description": "The limit that was reached. Members that do not apply are left out.",
    "required": ["name"],
    "properties": {
        "name": TEXT | {"description": "Name of the limit, as in the header RateLimit."},
        "calls": NUMBER | {"description": "How many calls it allows."},
        "seconds": NUMBER | {"description": "In how many seconds it allows them."},
        "per": TEXT | {"description": "In which calendar period it allows them."},
        "ends_at": TEXT | {"format": "date-time", "description": "When that period ends."},
    },
}
PROBLEM_MEMBERS: dict[str, Any] = {
    "unlock": {
        "type": "array",
        "items": {"$ref": "#/components/schemas/Unlock"},
        "description": "The ways to unlock the tool, with prices.",
    },
    "retry_after": NUMBER | {"description": "Seconds to wait before the call is sent again, as in the header Retry-After."},
    "limit": {"$ref": "#/components/schemas/Limit"},
    "balance": TEXT | {"description": "What the credits of the key are, in US dollars, where they do not pay for the call."},
}


def documents_of(
    config: Config,
    opened: Sequence[OpenBuilding],
    products: Sequence[ProductEntry],
    parts: Sequence[PlanPart],
    sold_by: SellerEntry | None,
) -> dict[str, Maker]:
    """What makes each document, by path: that takes longer than all else that a start does, and many processes are asked for none."""
    refusals = Refusals(products, unlocks=[part.unlocks for part in parts if part.unlocks])
    additions = Additions({one.name: one.offers for one in opened}, refusals, parts)
    shared: dict[str, Any] = {
        "servers": [config.url],
        "extras": additions.extras,
        "components": _components(parts),
        "conversions": {},
        "problem_types": EXPLAINED_AT,
    }

    def document(
        operations: Operations, title: str, description: str, version: str | None = None, *, is_short: bool = False
    ) -> dict[str, Any]:
        responses = additions.short_responses if is_short else additions.responses
        version = version or own_version()
        try:
            made = openapi(operations, title=title, version=version, description=description, responses=responses, **shared)
        except (LookupError, AttributeError, TypeError, ValueError) as error:  # the schemas of another server's tools may be anything
            raise LoadError(f"{title!r}: the schemas of its tools cannot be read ({error!r}); {HOW_TO_HIDE}") from None
        made["info"] |= _seller_info(config, sold_by)
        return made

    def of_one(one: OpenBuilding) -> dict[str, Any]:
        made = document(operations[one.name], one.title, one.about, one.version)
        made["paths"] |= {path: item for part in parts for path, item in part.paths(one, grouped=False).items()}
        return made

    def of_all() -> dict[str, Any]:
        made = document(operations, config.server.name, "Every tool of every building.")
        made["paths"] |= {path: item for one in opened for part in parts for path, item in part.paths(one, grouped=True).items()}
        return made

    def short(one: OpenBuilding) -> dict[str, Any]:
        return document(short_form(operations[one.name], one.offers), one.title, one.about, one.version, is_short=True)

    operations = {one.name: tuple(one.operations.values()) for one in opened}
    documents: dict[str, Maker] = {f"/{one.name}/openapi.json": partial(of_one, one) for one in opened}
    documents["/v1/openapi.json"] = of_all
    by_name = {one.name: one for one in opened}
    if config.server.openapi in by_name:
        documents["/openapi.json"] = partial(short, by_name[config.server.openapi])
    elif "openapi" in config.server.model_fields_set and config.server.openapi not in config.buildings:
        names = ", ".join(by_name)
        raise ConfigError(f"[server] openapi = {config.server.openapi!r} is not an open building; the open buildings are: {names}")
    return documents | {path: make for part in parts for path, make in part.documents().items()}


def _seller_info(config: Config, sold_by: SellerEntry | None) -> dict[str, Any]:
    """Who offers the service, as OpenAPI spells it."""
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
    problem = problem_schema()
    problem["properties"] |= PROBLEM_MEMBERS
    found: dict[str, Any] = {"securitySchemes": {"key": KEY}, "schemas": {"Problem": problem, "Unlock": UNLOCK, "Limit": LIMIT}}
    for kind, named in (each for part in parts for each in part.components.items()):
        found[kind] = found.get(kind, {}) | named
    return found


@dataclass(frozen=True)
class Additions:
    """What campus adds to the operations of all documents. An example of a refusal is that of its building's first tool of a kind."""

    offers: Offers
    refusals: Refusals
    parts: Sequence[PlanPart]
    _examples: dict[tuple[Any, ...], Problem] = field(default_factory=dict)

    def responses(self, operation: Operation) -> Iterator[Mapping[str, Any]]:
        offer = self._offer(operation)
        for refusal in self._refused(operation, offer):
            status = str(refusal.status)
            yield {status: problem_response(REFUSALS[status], refusal, types=EXPLAINED_AT)}
        yield from (part.responses(operation, offer) for part in self.parts)

    def short_responses(self, operation: Operation) -> Iterator[Mapping[str, Any]]:
        """The same, with refusals other than 402 within `default`."""
        for each in self.responses(operation):
            for status, response in each.items():
                if status in SHORT_FORM or int(status) < 400:
                    yield {status: response}
                else:
                    yield {"default": {name: value for name, value in response.items() if name != "description"}}

    def extras(self, operation: Operation) -> dict[str, Any]:
        """How a tool that is not free is unlocked. A payment is not a `security` scheme and needs none."""
        offer = self._offer(operation)
        security: list[dict[str, list[str]]] = [] if offer.access.key == "never" else [{"key": []}]
        if security and (self._is_sold(offer) or offer.access.is_free):
            security.append({})
        return {"security": security} | {name: value for part in self.parts for name, value in part.extras(operation, offer).items()}

    def _refused(self, operation: Operation, offer: Offer) -> Iterator[Problem]:
        for refusal in self.refusals.examples(offer):
            kind = offer.building, offer.scope, refusal.status, refusal.status == 402 and self._is_sold(offer)
            if kind not in self._examples:
                self._examples[kind] = self._worded(refusal, operation, offer)
            yield self._examples[kind]

    def _worded(self, refusal: Problem, operation: Operation, offer: Offer) -> Problem:
        for part in self.parts:
            refusal = part.worded(refusal, operation, offer)
        return refusal

    def _is_sold(self, offer: Offer) -> bool:
        return any(part.seller and part.seller.sells(offer) for part in self.parts)

    def _offer(self, operation: Operation) -> Offer:
        return self.offers[operation.server][operation.name]
