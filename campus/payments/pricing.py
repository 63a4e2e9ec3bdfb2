"""Pricing: what each paid call costs, and its payment terms. Pure: made from configuration, so a 402 waits for no other service."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from campus.caller import Frame
from campus.idempotency import HOW_TO_MAKE_A_KEY, check_idempotency_key
from campus.payments.bazaar import http_extension, mcp_extension
from campus.payments.payment import Sale
from campus.payments.terms import Payee, PaymentRequired, PaymentTerms, RenderedTerms, resource_of
from campus.tool_access import Offer, Price
from twins import FieldError, Operation, Problem, invalid_request, pointer_to

MCP = "mcp"
KEY_ARGUMENT = "idempotency_key"
RETRY_AFTER = {"payment_unverified": "5"}
"""Seconds after which the same payment is to be sent again, by problem code."""


@dataclass(frozen=True)
class PaidTool:
    """A tool that is sold per call. `extensions` are those of x402, by HTTP method, and one for MCP."""

    offer: Offer
    operation: Operation
    description: str
    extensions: Mapping[str, Mapping[str, Any]]


def paid_tool_of(offer: Offer, operation: Operation, description: str) -> PaidTool:
    """The paid tool, with the extensions of its terms."""
    by_method = {method: http_extension(operation, method) for method in operation.methods}
    return PaidTool(offer, operation, description, {**by_method, MCP: mcp_extension(operation, description)})


class Pricing:
    """Knows every paid tool and its price. `products` are the prices of the products in campus.toml, `url` is the public address."""

    def __init__(self, payee: Payee, *, url: str, paid_tools: Mapping[tuple[str, str], PaidTool], products: Mapping[str, Price]) -> None:
        self.payee = payee
        self.url = url
        self._paid_tools = paid_tools
        self._products = products
        self._rendered: dict[tuple[str, str, Frame, str, str], RenderedTerms] = {}  # bounded by tools, methods and problem codes

    def sells(self, offer: Offer) -> bool:
        """Whether a call of the tool can be paid for."""
        return (offer.building, offer.tool) in self._paid_tools

    def paid_tools(self) -> Iterator[PaidTool]:
        """Every tool that is sold per call."""
        return iter(self._paid_tools.values())

    def names_purchase(self, offer: Offer, arguments: Mapping[str, Any]) -> bool:
        """Whether the price is known: it does not depend on the arguments, or they name a product."""
        return offer.access.sells is None or str(arguments.get(offer.access.sells)) in self._products

    def prices(self, offer: Offer, arguments: Mapping[str, Any] | None = None) -> list[Price]:
        """What a call costs. If that depends on a product that the arguments do not name, every possible price, the lowest first."""
        if offer.price:
            return [offer.price]
        named = self._products.get(str((arguments or {}).get(offer.access.sells or "")))
        return [named] if named else sorted(set(self._products.values()))

    def resource(self, offer: Offer, arguments: Mapping[str, Any] | None) -> str:
        """The canonical URL of a call, without the caller's Idempotency-Key, which is a secret."""
        paid_tool = self._paid_tools[offer.building, offer.tool]
        return resource_of(paid_tool.operation, self.url, arguments, without=(KEY_ARGUMENT,) if offer.access.sells else ())

    def terms(self, offer: Offer, arguments: Mapping[str, Any] | None, *, frame: Frame, method: str) -> PaymentTerms:
        """The terms of a call. `arguments` is None if they cannot be read; `method` is the HTTP method."""
        paid_tool = self._paid_tools[offer.building, offer.tool]
        network = self.payee.network
        return PaymentTerms(
            frame,
            self.resource(offer, arguments),
            paid_tool.description,
            [self.payee.requirements(price) for price in self.prices(offer, arguments)],
            network.legacy or network.id,
            paid_tool.extensions[MCP if frame == "mcp" else method],
        )

    def refusal(self, refusal: Problem, offer: Offer, arguments: Mapping[str, Any] | None, *, frame: Frame, method: str) -> PaymentRequired:
        """The paywall's refusal with the terms. Those of a call without arguments are the same for every caller, and made once."""
        if arguments:
            return PaymentRequired(refusal, self.terms(offer, arguments, frame=frame, method=method).rendered(refusal.code))
        key = offer.building, offer.tool, frame, method, refusal.code
        if (rendered := self._rendered.get(key)) is None:
            rendered = self._rendered[key] = self.terms(offer, None, frame=frame, method=method).rendered(refusal.code)
        return PaymentRequired(refusal, rendered)

    def sale(
        self,
        offer: Offer,
        arguments: Mapping[str, Any],
        *,
        frame: Frame,
        method: str,
        idempotency_key: str | None = None,
        client: str = "",
    ) -> Sale:
        """The sale of a call that came with a payment from the address `client`. Its answer can be found again by the `idempotency_key`.

        Problem 400 `idempotency_key_required` if the answer is a secret and there is no key, `weak_idempotency_key` for one that others may
        send too; Problem 422 if the arguments name no product.
        """
        if offer.access.sells:
            self._check_product(offer.access.sells, arguments, frame)
            if not idempotency_key:
                raise key_required()
        if idempotency_key is not None:
            check_idempotency_key(idempotency_key)
        terms = self.terms(offer, arguments, frame=frame, method=method)

        def refused(code: str, reason: str) -> PaymentRequired:
            headers = {"Retry-After": RETRY_AFTER[code]} if code in RETRY_AFTER else {}
            return PaymentRequired(Problem(402, code, reason, headers=headers), terms.rendered(reason))

        requirements = terms.accepts[0]
        return Sale(
            building=offer.building,
            tool=offer.tool,
            frame=frame,
            resource=terms.resource,
            asset=requirements["asset"].lower(),
            amount=int(requirements["amount"]),
            requirements=requirements,
            refused=refused,
            idempotency_key=idempotency_key,
            client=client,
            description=terms.description,
            extensions=terms.extensions,
        )

    def _check_product(self, argument: str, arguments: Mapping[str, Any], frame: Frame) -> None:
        if str(arguments.get(argument)) not in self._products:
            pointer = pointer_to("arguments" if frame == "mcp" else "body", argument)
            raise invalid_request(
                [FieldError(pointer, "unknown_product", f"is not a product; the products are: {', '.join(self._products)}")]
            )


def key_required() -> Problem:
    """400: without a key, anyone who reads the payment on the chain could get the answer."""
    return Problem(
        400,
        "idempotency_key_required",
        "The answer to this call is a secret, and its payment can be read on chain by anyone. Send an Idempotency-Key that only you know, "
        "over HTTP as the header Idempotency-Key, over MCP as the argument idempotency_key or in _meta: the same call with the same key "
        f"returns the answer again if it is lost. {HOW_TO_MAKE_A_KEY}. Nothing is charged.",
    )
