"""What each paid call costs, and its payment terms as x402 v2 and v1 spell them in a 402 answer. Pure: made from configuration alone."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from urllib.parse import quote, urlencode

from campus.caller import Frame
from campus.features.payments.bazaar import SHORTER, http_extension, legacy_schema, mcp_extension
from campus.features.payments.networks import Network, legacy_of
from campus.features.payments.payment import Sale, ServiceListing
from campus.features.payments.wire import PAYMENT_IDENTIFIER, TERMS_META, encoded, payment_identifier
from campus.idempotency_keys import HOW_TO_MAKE_A_KEY
from campus.pricing import Offer, Price, task_seconds
from campus.steps import Explained, price_of
from twins import FieldError, Operation, Problem, invalid_request, pointer_to

SCHEME = "exact"
TIMEOUT_SECONDS = 300
"""How long a payment may take from its signature to its settlement, without the time of a tool that may run as a task."""
JSON = "application/json"
LONGEST_VALUE = 200
LONGEST_QUERY = 600
LARGEST_HEADER = 2_750
"""In bytes, of PAYMENT-REQUIRED. A proxy's buffer for all headers of an answer may have 4,096: nginx answers 502 for one byte more."""
LONGEST_TEXT = 120
"""In characters, of an error or a description in a header that has no room for more."""
MCP = "mcp"
KEY_ARGUMENT = "idempotency_key"
RETRY_AFTER = {"payment_unverified": "5"}
"""Seconds after which the same payment is to be sent again, by problem code."""


@dataclass(frozen=True, slots=True)
class Payee:
    """Who is paid: an address on a network, in that network's token."""

    network: Network
    address: str

    def requirements(self, price: Price, *, task_seconds: int = 0) -> dict[str, Any]:
        """One entry of x402 v2's `accepts`; a payment is charged at the end of its call, which may be a task of so many seconds."""
        return {
            "scheme": SCHEME,
            "network": self.network.id,
            "asset": self.network.asset,
            "amount": str(price.atomic),
            "payTo": self.address,
            "maxTimeoutSeconds": TIMEOUT_SECONDS + task_seconds,
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

    `resource` is the call's canonical URL, `accepts` are v2 requirements, `extensions` x402's, such as bazaar; `shorter` are the same with
    less, the last with nothing that a payer can do without. `service` is what catalogs show of the seller.
    """

    frame: Frame
    resource: str
    description: str
    accepts: Sequence[Mapping[str, Any]]
    extensions: Mapping[str, Any]
    service: ServiceListing | None = None
    shorter: Sequence[Mapping[str, Any]] = ()

    def rendered(self, error: str) -> RenderedTerms:
        """The terms for the frame: over HTTP v2 in a header and v1 as members of the body; over MCP v2 as members of the body."""
        if self.frame == "mcp":
            return RenderedTerms({}, self.required(error))
        return RenderedTerms({"PAYMENT-REQUIRED": self.header(error)}, self.legacy(error))

    def header(self, error: str) -> str:
        """x402 v2's PaymentRequired as a header: the most complete of its forms that fits."""
        texts = map(encoded, self._forms(error))
        return next((text for text in texts if len(text) <= LARGEST_HEADER), "") or encoded(list(self._forms(error))[-1])

    def _forms(self, error: str) -> Iterator[dict[str, Any]]:
        """PaymentRequired, each form shorter than the one before: with less for crawlers, then with fewer words, then with fewer prices."""
        complete = self.required(error)
        yield complete
        yield from (complete | {"extensions": dict(one)} for one in self.shorter)
        resource = {"url": self.resource, "description": self.description[:LONGEST_TEXT], "mimeType": JSON}
        short = complete | {"error": error[:LONGEST_TEXT], "resource": resource, "extensions": dict([*self.shorter, self.extensions][-1])}
        yield from (short | {"accepts": list(self.accepts[:count])} for count in range(max(len(self.accepts), 1), 0, -1))

    def required(self, error: str) -> dict[str, Any]:
        return {
            "x402Version": 2,
            "error": error,
            "resource": {"url": self.resource, "description": self.description, "mimeType": JSON, **catalog_entry(self.service)},
            "accepts": list(self.accepts),
            "extensions": dict(self.extensions),
        }

    def legacy(self, error: str) -> dict[str, Any]:
        return {"x402Version": 1, "error": error, "accepts": [self._legacy_entry(accept) for accept in self.accepts]}

    def _legacy_entry(self, requirements: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "scheme": requirements["scheme"],
            "network": legacy_of(requirements["network"]),
            "maxAmountRequired": requirements["amount"],
            "resource": self.resource,
            "description": self.description,
            "mimeType": JSON,
            "payTo": requirements["payTo"],
            "maxTimeoutSeconds": requirements["maxTimeoutSeconds"],
            "asset": requirements["asset"],
            "extra": requirements["extra"],
            "outputSchema": legacy_schema(self.extensions),
        }


def catalog_entry(service: ServiceListing | None) -> dict[str, Any]:
    if service is None:
        return {}
    return {"serviceName": service.name, "tags": list(service.tags), "iconUrl": service.icon_url}


class PaymentRequired(Explained):
    """A 402 that carries the terms."""

    def meta(self, body: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """What a client needs to sign a payment, and no more: Cloudflare's reads only `_meta`. The terms for HTTP have none."""
        if "resource" not in body:  # those for HTTP, of a task begun there
            return None
        return {TERMS_META: {"x402Version": body["x402Version"], "resource": {"url": body["resource"]["url"]}, "accepts": body["accepts"]}}

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


def without_terms(refusal: Problem, url: str, description: str, *, per_call: bool) -> PaymentRequired:
    """The refusal over HTTP of a call that only a key opens, as x402's clients read it: nothing to sign, and the sentence why.

    The body is that of a plain refusal unless other calls can be paid for here (`per_call`).
    """
    terms = PaymentTerms("http", url, description, accepts=(), extensions={})
    rendered = terms.rendered(refusal.detail)
    return PaymentRequired(refusal, rendered if per_call else RenderedTerms(rendered.headers, {}))


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
        path = path.replace(f"{{{name}}}", _quoted(sent.pop(name)) if name in sent else f":{name}")
    if not sent:
        return f"{url}{path}"
    query = urlencode(sorted((operation.place_of(name, operation.methods[0])[1], text) for name, text in sent.items()))
    if len(query) > LONGEST_QUERY:
        query = f"arguments={long_text_digest(query)}"
    return f"{url}{path}?{query}"


def argument_text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text if len(text) <= LONGEST_VALUE else long_text_digest(text)


def _quoted(text: str) -> str:
    quoted = quote(text, safe="")
    return quoted if len(quoted) <= LONGEST_VALUE else long_text_digest(text)


def long_text_digest(text: str) -> str:
    """The SHA-256 that replaces a text that is too long."""
    return f"sha256:{sha256(text.encode()).hexdigest()}"


@dataclass(frozen=True)
class PaidTool:
    """A tool that is sold per call. `extensions` are those of x402, by HTTP method, and one for MCP; `shorter` those of HTTP with less.

    `service` is the seller.
    """

    offer: Offer
    operation: Operation
    description: str
    extensions: Mapping[str, Mapping[str, Any]]
    shorter: Mapping[str, Sequence[Mapping[str, Any]]]
    service: ServiceListing | None = None


def paid_tool_of(offer: Offer, operation: Operation, description: str, service: ServiceListing | None = None) -> PaidTool:
    """The paid tool, with the extensions of its terms. A tool whose answer is a secret requires a payment identifier."""
    identifier = payment_identifier(required=offer.access.sells is not None)
    extensions = {method: http_extension(operation, method) | identifier for method in operation.methods}
    extensions[MCP] = mcp_extension(operation, description) | identifier
    shorter = {
        method: [*(http_extension(operation, method, largest=largest) | identifier for largest in SHORTER), identifier]
        for method in operation.methods
    }
    return PaidTool(offer, operation, description, extensions, shorter, service)


class Pricing:
    """Knows every paid tool and its price, and who is paid for it, on each network.

    `products` are the prices of the products in campus.toml, `url` is the public address.
    """

    by = "x402"

    def __init__(
        self, payees: Sequence[Payee], *, url: str, paid_tools: Mapping[tuple[str, str], PaidTool], products: Mapping[str, Price]
    ) -> None:
        self.payees = payees
        self.url = url
        self._paid_tools = paid_tools
        self._products = products
        self._rendered: dict[tuple[str, str, Frame, str, str], RenderedTerms] = {}  # bounded by tools, methods and problem codes

    def sells(self, offer: Offer) -> bool:
        return (offer.building, offer.tool) in self._paid_tools

    def paid_tools(self) -> Iterator[PaidTool]:
        return iter(self._paid_tools.values())

    def names_purchase(self, offer: Offer, arguments: Mapping[str, Any]) -> bool:
        """Whether the price is known: it does not depend on the arguments, or they name a product or can be counted."""
        with suppress(ValueError):
            offer.price_for(arguments)
            return offer.access.sells is None or str(arguments.get(offer.access.sells)) in self._products
        return False

    def prices(self, offer: Offer, arguments: Mapping[str, Any] | None = None) -> list[Price]:
        """What a call costs: its base price while its arguments cannot be counted.

        If it depends on a product that the arguments do not name, every possible price, the lowest first.
        """
        if offer.price:
            with suppress(ValueError):
                return [offer.price_for(arguments or {}) or offer.price]
            return [offer.price]
        named = self._products.get(str((arguments or {}).get(offer.access.sells or "")))
        return [named] if named else sorted(set(self._products.values()))

    def resource(self, offer: Offer, arguments: Mapping[str, Any] | None) -> str:
        """The canonical URL of a call, without the caller's Idempotency-Key, which is a secret."""
        paid_tool = self._paid_tools[offer.building, offer.tool]
        return resource_of(paid_tool.operation, self.url, arguments, without=(KEY_ARGUMENT,) if offer.access.sells else ())

    def accepts(self, offer: Offer, arguments: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """Each way to pay for a call: the cheapest price first, on every network."""
        seconds = task_seconds(self._paid_tools[offer.building, offer.tool].operation.tool)
        return [payee.requirements(price, task_seconds=seconds) for price in self.prices(offer, arguments) for payee in self.payees]

    def terms(self, offer: Offer, arguments: Mapping[str, Any] | None, *, frame: Frame, method: str) -> PaymentTerms:
        """The terms of a call. `arguments` is None if they cannot be read; `method` is the HTTP method."""
        paid_tool = self._paid_tools[offer.building, offer.tool]
        return PaymentTerms(
            frame,
            self.resource(offer, arguments),
            paid_tool.description,
            self.accepts(offer, arguments),
            paid_tool.extensions[MCP if frame == "mcp" else method],
            paid_tool.service,
            paid_tool.shorter[method],
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
        network: str | None = None,
        idempotency_key: str | None = None,
        client: str = "",
    ) -> Sale:
        """The sale of a call from the address `client`, paid for on `network`; on the first of the terms if that is none of them.

        Its answer can be found again by the `idempotency_key`, which the caller checks.

        Problem 400 `idempotency_key_required` if the answer is a secret and there is no key; Problem 422 if the arguments name no product,
        or cannot be counted for their price.
        """
        price_of(offer, arguments)
        if offer.access.sells:
            self._check_product(offer.access.sells, arguments, frame)
            if not idempotency_key:
                raise key_required()
        terms = self.terms(offer, arguments, frame=frame, method=method)

        def refused(code: str, reason: str) -> PaymentRequired:
            headers = {"Retry-After": RETRY_AFTER[code]} if code in RETRY_AFTER else {}
            return PaymentRequired(Problem(402, code, reason, headers=headers), terms.rendered(reason))

        requirements = next((one for one in terms.accepts if one["network"] == network), terms.accepts[0])
        return Sale(
            building=offer.building,
            tool=offer.tool,
            frame=frame,
            resource=terms.resource,
            route=self.resource(offer, None),
            asset=requirements["asset"].lower(),
            amount=int(requirements["amount"]),
            requirements=requirements,
            refused=refused,
            idempotency_key=idempotency_key,
            client=client,
            description=terms.description,
            service=terms.service,
            extensions=terms.extensions,
            networks=[one["network"] for one in terms.accepts],
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
        "over HTTP as the header Idempotency-Key, over MCP as the argument idempotency_key or in _meta, or within the payment as the id of "
        f"x402's extension {PAYMENT_IDENTIFIER}: the same call with the same key returns the answer again if it is lost. "
        f"{HOW_TO_MAKE_A_KEY}. Nothing is charged.",
    )
