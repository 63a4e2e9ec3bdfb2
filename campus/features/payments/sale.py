"""The step that sells a call, where campus.toml takes payments: a refusal of a tool that has a price becomes its terms, or the answer."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from sys import maxsize
from typing import Any, cast

from pydantic_core import from_json, to_json
from sqlmodel.ext.asyncio.session import AsyncSession

from campus.addresses import network_of
from campus.caller import Caller, Way
from campus.catalog.parts import FeatureSite
from campus.context import Context, context_of
from campus.errors import KeyRefused
from campus.features.payments.payment import PaidAnswer, Payment, receipt_of
from campus.features.payments.payment import Sale as CallSale
from campus.features.payments.reservations import ANSWER_RETENTION, SECRET_ANSWER_RETENTION
from campus.features.payments.setup import Payments
from campus.features.payments.states import not_sold
from campus.features.payments.tables import PaymentRow
from campus.features.payments.terms import Pricing, without_terms
from campus.features.payments.wire import RECEIPT_META, payment_in_headers, payment_in_meta, purchase_key, receipt_headers
from campus.idempotency_keys import HOW_TO_MAKE_A_KEY, check_idempotency_key, idempotency_key_in, weakness_of
from campus.pricing import Offer
from campus.steps import PAID, Answered, GatedCall, Opening, Purchase, Sold, Step, Unlock
from twins import QUERY_METHODS, Problem

PLACEHOLDERS = str.maketrans({"{": ":", "}": None})
"""How the URL of a payment's terms names a part of the path that has no value."""


class NotSoldError(Exception):
    """The tool ran for a payment and gave no answer: nothing is charged, and its result is delivered as it is."""

    def __init__(self, result: Any) -> None:
        super().__init__("the tool gave no answer")
        self.result = result


class Sale(Step):
    """Payments per call."""

    name = "sale"

    def __init__(self, site: FeatureSite[Any, Any]) -> None:
        self._site = site
        self._metrics = site.metrics.calls
        self.unlocks = unlock_per_call if site.settings else None

    @property
    def _pricing(self) -> Pricing | None:
        """The prices of the tools that are open now; None where campus.toml has no [payments]."""
        return cast("Pricing | None", self._site.parts[self._site.name].seller)

    def opens(self, call: GatedCall[Any], offer: Offer, context: Context, refusal: Problem) -> Opening[Any] | None:
        pricing = self._pricing
        if pricing is None or context.is_delegated or not pricing.sells(offer):
            return None
        return SoldCall(call, offer, refusal, payment_of(call), pricing, self._site.state, self._metrics)

    def worded(self, call: GatedCall[Any], context: Context, refusal: Problem) -> Problem:
        """Over HTTP the refusal of a call that is not sold, as x402's clients read it."""
        if refusal.status != 402 or call.frame == "mcp":
            return refusal
        url = f"{self._site.url}{call.route.translate(PLACEHOLDERS)}"
        return without_terms(refusal, url, call.tool, per_call=self._pricing is not None)

    async def purchase(self, call: GatedCall[Any], offer: Offer) -> Purchase | None:
        """As its answer is found: by the Idempotency-Key, or by the payment and the address. See TaskSeller."""
        if (pricing := self._pricing) is None or not pricing.sells(offer):
            return None
        try:
            payment = payment_of(call)
        except Problem:  # the gate says so, unless a key admits the call
            return None
        if payment is None:
            return None
        resource = pricing.resource(offer, await call.canonical())
        key = purchase_key(payment, idempotency_key_in(call.scope, call.meta, await call.sent()))
        payer = f"{payment.payer} {key}" if key else f"{payment.digest.hex()} {network_of(address_of(call))}"
        digest = sha256(f"task\n{payer}\n{resource}".encode()).digest()
        return Purchase(digest, SECRET_ANSWER_RETENTION if key else ANSWER_RETENTION)

    def payable_until(self, call: GatedCall[Any]) -> int:
        payment = payment_of(call)
        return maxsize if payment is None else payment.valid_before

    async def sold(self, session: AsyncSession, payment: str) -> Sold:
        row = await session.get(PaymentRow, payment)
        if row is not None and row.state in ("reserved", "settling", "unknown"):
            return Sold(is_known=False)  # the reconciler finds out
        return Sold(is_known=True, meta={RECEIPT_META: receipt_of(row)} if row is not None and row.state == "settled" else None)

    def headers(self, meta: Mapping[str, Any]) -> Mapping[str, str]:
        receipt = meta.get(RECEIPT_META)
        return receipt_headers(receipt) if receipt else {}


@dataclass(frozen=True)
class SoldCall:
    """One call while it is sold."""

    call: GatedCall[Any]
    offer: Offer
    refusal: Problem
    payment: Payment | None
    pricing: Pricing
    payments: Payments
    metrics: Any

    @property
    def is_paid(self) -> bool:
        return self.payment is not None

    async def result(self, run: Callable[[], Awaitable[Any]]) -> Any:
        """The answer that the call's payment buys, or that the same call bought before. Raises the refusal with its terms otherwise."""
        call = self.call
        with call.waiting():
            if self.payment is not None:
                return await self._bought(self.payment, run)
            sent = await call.sent() if is_quoted(call, self.offer) else None
            shown = None if sent is None else await _as_far_as_valid(call, sent)
            return await self._delivered(await self._bought_before(shown, idempotency_key_in(call.scope, call.meta, sent)), None)

    async def _bought_before(self, arguments: Mapping[str, Any] | None, key: str | None) -> PaidAnswer:
        """The answer that the same call bought earlier; this time it came without a payment. If it bought none, the terms are raised.

        It is found by its Idempotency-Key and network address. A caller at another address who sends the same key gets the terms. If
        the same wallet then pays, it gets the stored answer and is not charged. The terms name the `arguments`, unless they are None.
        """
        call, offer, refusal = self.call, self.offer, self.refusal
        weakness = None if key is None else weakness_of(key)
        may_have = key is not None and weakness is None and arguments is not None and self.pricing.names_purchase(offer, arguments)
        if may_have and (again := await self.payments.processor.recall(self._sale(arguments or {}, key))) is not None:
            return again
        if refusal.status != 402:
            raise refusal
        self.payments.ledger.count("offered", offer.building, offer.tool, call.frame)
        raise self.pricing.refusal(_warned(refusal, weakness), offer, arguments, frame=call.frame, method=call.method)

    def _sale(self, arguments: Mapping[str, Any], key: str | None) -> CallSale:
        call, client = self.call, network_of(address_of(self.call))
        network = None if self.payment is None else self.payment.network
        return self.pricing.sale(
            self.offer, arguments, frame=call.frame, method=call.method, network=network, idempotency_key=key, client=client
        )

    async def _bought(self, payment: Payment, run: Callable[[], Awaitable[Any]]) -> Any:
        """Run the call for its payment; the tool sees who pays, and by which payment. What is not valid is refused before anything else."""
        call, access = self.call, self.offer.access
        arguments = await call.canonical()
        key = purchase_key(payment, idempotency_key_in(call.scope, call.meta, await call.sent()))
        sale = self._sale(arguments, key)
        if key is not None:
            check_idempotency_key(key)
        if access.sells and (renewed := arguments.get(access.renews or "")):
            sale = replace(sale, check=partial(self._check_renewal, arguments[access.sells], renewed))
        context = context_of(call.scope)
        context.caller = caller = Caller(None, payment.payer, call.frame, address_of(call))
        made: list[Any] = []

        async def stored(payment_id: str) -> bytes:
            context.caller = replace(caller, payment=payment_id)
            result = await run()
            body = call.body_of(result)
            if body is None:
                raise NotSoldError(result)
            made.append(result)
            return body

        try:
            sold = await self.payments.processor.process(payment, sale, stored)
        except NotSoldError as unsold:
            return unsold.result
        if not sold.replayed:
            PAID.note(context, sale.amount)
            self.metrics.opened(context.site.name, "paid")
            self.metrics.earned(context.site.name, call.tool, sale.amount)
        return await self._delivered(sold, made[0] if made else None)

    async def _delivered(self, sold: PaidAnswer, made: Any) -> Any:
        """The bought answer; that of a renewal was made before the charge, and is given the end that the key has by it."""
        context, ends, body = context_of(self.call.scope), self.offer.access.ends, sold.answer
        if ends is not None and (end := await context.site.keys.end_of_renewal(sold.payment)) is not None:
            body, made = to_json({**from_json(body), ends: end}), None
        return self.call.answered(Answered(body, receipt_headers(sold.receipt), {RECEIPT_META: dict(sold.receipt)}), made)

    async def _check_renewal(self, product: str, key_id: str) -> None:
        try:
            await context_of(self.call.scope).site.keys.check_renewal(product, key_id)
        except KeyRefused as refused:
            raise not_sold(str(refused)) from None


def unlock_per_call(offer: Offer, way: Way) -> Unlock | None:
    """The way to open a tool that is sold per call. See Step.unlocks."""
    if not offer.is_sold_per_call or way == "delegate":
        return None
    price = "the price of the product" if offer.price is None else offer.cost
    per = offer.access.per
    get = "with x402: pay the terms that this call returns when it contains no payment"
    return Unlock(
        f"Pay {price} for this call with x402: sign the payment terms in this answer and send the call again.",
        f"Or pay {offer.cost} for this call with x402: without the key it returns the terms, and a payment opens it.",
        None if offer.price is None else {"per_call": str(offer.price), **(per.as_data() if per else {}), "get": get},
    )


def address_of(call: GatedCall[Any]) -> str:
    address: str = (call.scope.get("client") or ("",))[0]
    return address


def payment_of(call: GatedCall[Any]) -> Payment | None:
    """The payment that a call brings. Problem 400 `invalid_payment` for one that cannot be read."""
    return payment_in_headers(call.scope) if call.frame == "http" else payment_in_meta(call.meta)


def is_quoted(call: GatedCall[Any], offer: Offer) -> bool:
    """Whether a call without a payment has its arguments read, for terms that name them.

    A body is worth reading only if it sets the price, or may ask for what was bought before.
    """
    is_read = call.frame == "mcp" or call.method in QUERY_METHODS
    return is_read or offer.access.sells is not None or offer.access.per is not None or idempotency_key_in(call.scope) is not None


async def _as_far_as_valid(call: GatedCall[Any], sent: Mapping[str, Any]) -> Mapping[str, Any]:
    """The arguments in canonical form; as they were sent if they are not valid, and can buy nothing."""
    try:
        return await call.canonical()
    except Problem:
        return sent


def _warned(refusal: Problem, weakness: str | None) -> Problem:
    """The refusal with a warning if the Idempotency-Key that was sent would be refused."""
    if weakness is None:
        return refusal
    warning = f"The Idempotency-Key that was sent {weakness}, and a payment that comes with it would be refused. {HOW_TO_MAKE_A_KEY}."
    return Problem(
        refusal.status, refusal.code, f"{refusal.detail} {warning}", errors=refusal.errors, headers=refusal.headers, **refusal.more
    )
