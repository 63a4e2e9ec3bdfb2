"""What campus adds to twins' OpenAPI documents: 402 and 403 on what is not free, and the key as a security scheme."""

from collections.abc import Callable, Mapping
from typing import Any

from campus.access import Offer
from twins import Operation
from twins.openapi import problem_response

OPENAPI_VERSION = "0.2.0"
Offers = Mapping[str, Mapping[str, Offer]]

PAYMENT_REQUIRED = "No valid key and no payment: the body says which keys open it, their prices, and where to get them."
COMPONENTS = {"securitySchemes": {"key": {"type": "http", "scheme": "bearer", "description": "A key, bought once for a fixed term."}}}


def responses(offers: Offers) -> Callable[[Operation], dict[str, Any]]:
    """402 where a tool is not free; every other refusal is the document's default response."""

    def of(operation: Operation) -> dict[str, Any]:
        free = offers[operation.server][operation.name].access.is_free
        return {} if free else {"402": problem_response(PAYMENT_REQUIRED)}

    return of


def extras(offers: Offers) -> Callable[[Operation], dict[str, Any]]:
    """How a tool is unlocked, where it is not free."""

    def of(operation: Operation) -> dict[str, Any]:
        access = offers[operation.server][operation.name].access
        if access.key == "optional":
            return {"security": [{"key": []}, {}]}
        return {} if access.is_free else {"security": [{"key": []}]}

    return of
