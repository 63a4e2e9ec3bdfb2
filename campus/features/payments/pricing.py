"""What payments add to the plan: the prices of tools, checked against campus.toml and against what each tool declares; documents."""

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from campus.catalog.parts import PlanPart
from campus.catalog.server import OpenBuilding, summary_of
from campus.config import Config
from campus.directory import Directory, PaymentEntry, PaymentNetwork, SellerEntry
from campus.errors import ConfigError, LoadError
from campus.features.payments.authentication import authentication_of
from campus.features.payments.documents import COMPONENTS, PARAMETERS, free_tools, payment_info, payment_terms, responses_of, service_of
from campus.features.payments.feature import PaymentsTable
from campus.features.payments.networks import with_checksum
from campus.features.payments.sale import unlock_per_call
from campus.features.payments.terms import KEY_ARGUMENT, SCHEME, PaidTool, Payee, Pricing, paid_tool_of, resource_of, without_terms
from campus.features.payments.ways import secrets_of, ways_of
from campus.paywall.admission import ALL
from campus.pricing import Offer, Price
from twins import Operation, Problem

NEEDED = ("x402", "web3")
MOST_NAMED = 3  # tools whose price cannot be paid


class PaymentsPlan(PlanPart):
    """The part of one plan; without `settings`, those of [payments], only documents say that no payments are taken."""

    def __init__(self, config: Config, settings: PaymentsTable | None, opened: Sequence[OpenBuilding]) -> None:
        self.seller = self.pricing = pricing = open_pricing(config, settings, opened)
        self.note = unpayable(config, opened) if pricing is None else None
        self.reads = secrets_of(settings) if settings else ()
        self.components = COMPONENTS if pricing else {}
        self.unlocks = unlock_per_call if pricing else None
        self._url = config.url
        self._config, self._opened = config, opened
        self._sold_by: SellerEntry | None = None

    def enter(self, directory: Directory) -> None:
        self._sold_by = directory.sold_by
        if self.pricing:
            networks = [
                PaymentNetwork(network=each.id, network_name=each.title, asset=each.asset, pay_to=payee.address)
                for payee in self.pricing.payees
                for each in [payee.network]
            ]
            directory.payment = PaymentEntry(scheme=SCHEME, networks=tuple(networks))

    def worded(self, refusal: Problem, operation: Operation, offer: Offer) -> Problem:
        if refusal.status != 402:
            return refusal
        if self.pricing and self.pricing.sells(offer):
            return self.pricing.refusal(refusal, offer, None, frame="http", method=operation.methods[0])
        url = resource_of(operation, self._url, None)
        return without_terms(refusal, url, offer.tool, per_call=self.pricing is not None)

    def responses(self, operation: Operation, offer: Offer) -> Mapping[str, Any]:
        return responses_of(operation, offer) if self.pricing and self.pricing.sells(offer) else {}

    def extras(self, operation: Operation, offer: Offer) -> Mapping[str, Any]:
        if self.pricing is None or not self.pricing.sells(offer):
            return {}
        return {"x-payment-info": payment_info(offer, self.pricing), "parameters": PARAMETERS}

    def documents(self) -> Mapping[str, Callable[[], dict[str, Any]]]:
        return {"/.well-known/x402": self._terms}

    def _terms(self) -> dict[str, Any]:
        terms = payment_terms(self._config.server.name, self._config.url, self.pricing)
        seller = {"seller": self._sold_by.model_dump(mode="json")} if self._sold_by else {}
        return {**terms, "free": free_tools(self._opened, self._config), **seller}


def unpayable(config: Config, opened: Sequence[OpenBuilding]) -> str | None:
    """A sentence that names the tools whose price cannot be paid, since campus.toml takes no payments; None if there are none."""
    scopes = {product.scope for product in config.products.values() if product.credits}
    offers = [offer for one in opened for offer in one.offers.values() if offer.price]
    spent = [offer for offer in offers if offer.access.key == "opens" and scopes & {offer.scope, ALL}]
    priced = [f"{offer.tool} ({offer.cost})" for offer in offers if offer not in spent]
    if not priced:
        return None
    more = f" and {len(priced) - MOST_NAMED} more" if len(priced) > MOST_NAMED else ""
    named = ", ".join(priced[:MOST_NAMED])
    return (
        f"campus.toml has no table [payments], so prices per call are neither shown nor taken: {named}{more}; these tools take a key, "
        "or are closed where they take none. docs/payments.md says how to take payments"
    )


def open_pricing(config: Config, settings: PaymentsTable | None, opened: Sequence[OpenBuilding]) -> Pricing | None:
    """The pricing of every tool that is sold per call; None when campus.toml has no [payments].

    ConfigError when payments cannot be accepted, LoadError when a tool cannot be sold as it declares.
    """
    for one in opened:
        _check_grant(one, is_open=settings is not None)
        for name, operation in one.operations.items():
            _check_seller(one.offers[name], operation)
    if settings is None:
        return None
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise ConfigError(f"[payments] needs {' and '.join(missing)}, which is not installed; run: pip install 'mcp-campus[payments]'")
    ways = ways_of(settings, config.secrets)
    for way in ways:
        _check_spelling(way.pay_to)
        for facilitator in way.facilitators:
            authentication_of(facilitator, config.secrets)
    products = {name: Price.parse(table.price) for name, table in config.products.items()}
    paid_tools = {(paid_tool.offer.building, paid_tool.offer.tool): paid_tool for one in opened for paid_tool in _paid_tools(one, config)}
    if not products and any(paid_tool.offer.access.sells for paid_tool in paid_tools.values()):
        raise ConfigError("a building sells keys, and campus.toml has no product; add a table such as [products.NAME]")
    return Pricing(
        [Payee(way.network, with_checksum(way.pay_to)) for way in ways], url=config.url, paid_tools=paid_tools, products=products
    )


def _paid_tools(opened: OpenBuilding, config: Config) -> list[PaidTool]:
    sold = [operation for name, operation in opened.operations.items() if opened.offers[name].is_sold_per_call]
    service = service_of(opened, config)
    return [paid_tool_of(opened.offers[one.name], one, _described(opened.offers[one.name], one), service) for one in sold]


def _described(offer: Offer, operation: Operation) -> str:
    """What terms say of a tool; with its price in words if the arguments set it, since not every caller of the terms has sent them."""
    summary = summary_of(operation.tool)
    return summary if offer.access.per is None else f"{summary}. It costs {offer.cost}"


def _check_spelling(wallet: str) -> None:
    """An address in lower case has no checksum. One with capitals matches its checksum, or is mistyped."""
    if wallet != wallet.lower() and wallet != with_checksum(wallet):
        raise ConfigError(f"payments.pay_to: {wallet} is mistyped: its checksum is wrong; copy it from your wallet again")


def _check_grant(opened: OpenBuilding, *, is_open: bool) -> None:
    if not any(offer.access.sells for offer in opened.offers.values()):
        return
    table = f"[buildings.{opened.name}]"
    if not is_open:
        raise ConfigError(f"{table} sells keys for payments, but campus.toml has no table [payments]; add it, or remove {table}")
    if "keys" not in opened.loaded.table.grants:
        raise ConfigError(f'{table} sells keys, but campus.toml does not allow it; write grants = ["keys"] into {table}')


def _check_seller(offer: Offer, operation: Operation) -> None:
    """A tool that sells has a required argument that names the product, and takes secrets only in a body."""
    argument = offer.access.sells
    if argument is None:
        return
    where = f"tool {offer.tool!r} of building {offer.building!r}"
    for word, named in (("sells", argument), ("renews", offer.access.renews)):
        if named is not None and named not in operation.by_name:
            names = ", ".join(operation.by_name) or "none"
            raise LoadError(f"{where} declares {word}={named!r}, but has no such argument; the arguments are: {names}")
    if not operation.by_name[argument].required:
        raise LoadError(f"{where} declares sells={argument!r}, which has a default; remove the default: a purchase must name its product")
    if KEY_ARGUMENT in operation.by_name and operation.methods != ("POST",):
        raise LoadError(f"{where} takes {KEY_ARGUMENT}, a secret that must not be in a URL; serve it with POST only")
