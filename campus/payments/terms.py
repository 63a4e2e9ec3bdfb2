"""What must be paid for a call, in the words of x402 v2 and v1, and the refusal that carries them. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from campus.caller import Frame
from campus.payments.networks import Network
from campus.payments.wire import encoded
from campus.tool_access import Price
from twins import Problem

SCHEME = "exact"
TIMEOUT_SECONDS = 300
"""How long a payment may take from being signed to being settled."""
JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Payee:
    """Where payments go: a network with its token, and an address on it."""

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
    """The terms of one call: what it is, and each way to pay for it, the cheapest first.

    `resource` is the call's canonical URL, `accepts` are v2 requirements, `extensions` x402's, such as bazaar.
    """

    frame: Frame
    resource: str
    description: str
    accepts: Sequence[Mapping[str, Any]]
    legacy_network: str
    extensions: Mapping[str, Any]

    def rendered(self, error: str) -> RenderedTerms:
        """Over HTTP v2's in a header and v1's as members of the body, over MCP v2's as members of the body."""
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
    """402 with the terms: a refusal, and what it tells of them."""

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
