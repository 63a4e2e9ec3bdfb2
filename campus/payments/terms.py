"""Payment terms: what must be paid for which call, as x402 v2 and v1 spell it; makes the 402 answer that carries them. Pure."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from urllib.parse import quote, urlencode

from campus.caller import Frame
from campus.payments.networks import Network
from campus.payments.wire import encoded
from campus.tool_access import Price
from twins import Operation, Problem

SCHEME = "exact"
TIMEOUT_SECONDS = 300
"""How long a payment may take from its signature to its settlement."""
JSON = "application/json"
LONGEST_VALUE = 200
LONGEST_QUERY = 1_000


@dataclass(frozen=True, slots=True)
class Payee:
    """Who is paid: an address on a network, in that network's token."""

    network: Network
    address: str

    def requirements(self, price: Price) -> dict[str, Any]:
        """One entry of x402 v2's `accepts`."""
        return {
            "scheme": SCHEME,
            "network": self.network.id,
            "asset": self.network.asset,
            "amount": str(price.atomic),
            "payTo": self.address,
            "maxTimeoutSeconds": TIMEOUT_SECONDS,
            "extra": {"name": self.network.name, "version": self.network.version},
        }


@dataclass(frozen=True, slots=True)
class RenderedTerms:
    """PaymentTerms as a refusal carries them: headers, which go out over HTTP alone, and members of its body."""

    headers: Mapping[str, str]
    members: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PaymentTerms:
    """The terms of one call: what is called, and each way to pay for it, the cheapest first.

    `resource` is the call's canonical URL, `accepts` are v2 requirements, `extensions` x402's, such as bazaar.
    """

    frame: Frame
    resource: str
    description: str
    accepts: Sequence[Mapping[str, Any]]
    legacy_network: str
    extensions: Mapping[str, Any]

    def rendered(self, error: str) -> RenderedTerms:
        """The terms for the frame: over HTTP v2 in a header and v1 as members of the body; over MCP v2 as members of the body."""
        if self.frame == "mcp":
            return RenderedTerms({}, self.required(error))
        return RenderedTerms({"PAYMENT-REQUIRED": encoded(self.required(error))}, self.legacy(error))

    def required(self, error: str) -> dict[str, Any]:
        """x402 v2's PaymentRequired."""
        return {
            "x402Version": 2,
            "error": error,
            "resource": {"url": self.resource, "description": self.description, "mimeType": JSON},
            "accepts": list(self.accepts),
            "extensions": dict(self.extensions),
        }

    def legacy(self, error: str) -> dict[str, Any]:
        """The same in x402 v1."""
        return {"x402Version": 1, "error": error, "accepts": [self._legacy_entry(one) for one in self.accepts]}

    def _legacy_entry(self, requirements: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "scheme": requirements["scheme"],
            "network": self.legacy_network,
            "maxAmountRequired": requirements["amount"],
            "resource": self.resource,
            "description": self.description,
            "mimeType": JSON,
            "payTo": requirements["payTo"],
            "maxTimeoutSeconds": requirements["maxTimeoutSeconds"],
            "asset": requirements["asset"],
            "extra": requirements["extra"],
        }


class PaymentRequired(Problem):
    """A 402 that carries the terms."""

    def __init__(self, refusal: Problem, rendered: RenderedTerms) -> None:
        super().__init__(
            402,
            refusal.code,
            refusal.detail,
            errors=refusal.errors,
            headers={**refusal.headers, **rendered.headers},
            **refusal.more,
            **rendered.members,
        )


def resource_of(operation: Operation, url: str, arguments: Mapping[str, Any] | None, *, without: Collection[str] = ()) -> str:
    """The canonical URL of a call, the same over HTTP and MCP: what a payment is for.

    `url` is the public address. `arguments` are canonical, or None if they cannot be read. The URL is the path of the HTTP route with its
    placeholders filled, and every other argument as a sorted query parameter, whatever the method. A string is used as it is, any other
    value as compact JSON, and a long one is replaced by its SHA-256. A placeholder without a value stays as `:name`. The arguments named
    in `without` are left out.
    """
    sent = {name: argument_text(value) for name, value in (arguments or {}).items() if name not in without}
    path = operation.path
    for name in operation.route.placeholders:
        path = path.replace(f"{{{name}}}", quote(sent.pop(name), safe="") if name in sent else f":{name}")
    if not sent:
        return f"{url}{path}"
    query = urlencode(sorted((operation.place_of(name, operation.methods[0])[1], text) for name, text in sent.items()))
    if len(query) > LONGEST_QUERY:
        query = f"arguments={long_text_digest(query)}"
    return f"{url}{path}?{query}"


def argument_text(value: Any) -> str:
    """One argument as text."""
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text if len(text) <= LONGEST_VALUE else long_text_digest(text)


def long_text_digest(text: str) -> str:
    """The SHA-256 that replaces a text that is too long."""
    return f"sha256:{sha256(text.encode()).hexdigest()}"
