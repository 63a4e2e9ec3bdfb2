"""Calls that are sold one by one: adds the terms of payments/terms.py to a refusal, and hands a payment to the processor."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from starlette.types import Scope

from campus.addresses import network_of
from campus.caller import Caller, Frame
from campus.context import context_of
from campus.features.payments.payment import PaidAnswer, Payment, Sale, StoredAnswer
from campus.features.payments.processor import PaymentProcessor
from campus.features.payments.terms import Pricing
from campus.idempotency_keys import HOW_TO_MAKE_A_KEY, check_idempotency_key, weakness_of
from campus.pricing import Offer
from twins import Problem


@dataclass(frozen=True, slots=True)
class PaidRequest:
    """The request of a call that may be paid for. `method` is that of its HTTP route, of which the terms tell."""

    scope: Scope
    frame: Frame
    method: str
    idempotency_key: str | None


@dataclass(frozen=True)
class Selling:
    """Payments per call. `offered` is called for every 402 that is shown: building, tool, frame."""

    pricing: Pricing
    processor: PaymentProcessor
    offered: Callable[[str, str, str], None]

    async def bought_before(self, refusal: Problem, offer: Offer, arguments: Mapping[str, Any] | None, request: PaidRequest) -> PaidAnswer:
        """The answer that the same call bought earlier; this time it came without a payment. If it bought none, the terms are raised.

        It is found by its Idempotency-Key and network address. A caller at another address who sends the same key gets the terms. If
        the same wallet then pays, it gets the stored answer and is not charged. The terms name the `arguments`, unless they are None.
        """
        key = request.idempotency_key
        weakness = None if key is None else weakness_of(key)
        if key is not None and weakness is None and arguments is not None and self.pricing.names_purchase(offer, arguments):
            sale = self._sale(offer, arguments, request)
            if (again := await self.processor.recall(sale)) is not None:
                return again
        if refusal.status != 402:
            raise refusal
        self.offered(offer.building, offer.tool, request.frame)
        raise self.pricing.refusal(_warned(refusal, weakness), offer, arguments, frame=request.frame, method=request.method)

    def sale(self, offer: Offer, arguments: Mapping[str, Any], request: PaidRequest) -> Sale:
        """The sale of a call that came with a payment, to the address that it came from. Problem 400 for a weak Idempotency-Key."""
        sale = self._sale(offer, arguments, request)
        if request.idempotency_key is not None:
            check_idempotency_key(request.idempotency_key)
        return sale

    def _sale(self, offer: Offer, arguments: Mapping[str, Any], request: PaidRequest) -> Sale:
        client = network_of(_address(request.scope))
        key = request.idempotency_key
        return self.pricing.sale(offer, arguments, frame=request.frame, method=request.method, idempotency_key=key, client=client)

    async def sell(self, payment: Payment, sale: Sale, request: PaidRequest, run: Callable[[], Awaitable[StoredAnswer]]) -> PaidAnswer:
        """Run the call for its payment. The tool sees who pays, and by which payment."""
        context = context_of(request.scope)
        context.caller = caller = Caller(None, payment.payer, request.frame, _address(request.scope))

        async def paid(payment_id: str) -> StoredAnswer:
            context.caller = replace(caller, payment=payment_id)
            return await run()

        return await self.processor.process(payment, sale, paid)


def _address(scope: Scope) -> str:
    address: str = (scope.get("client") or ("",))[0]
    return address


def _warned(refusal: Problem, weakness: str | None) -> Problem:
    """The refusal with a warning if the Idempotency-Key that was sent would be refused."""
    if weakness is None:
        return refusal
    warning = f"The Idempotency-Key that was sent {weakness}, and a payment that comes with it would be refused. {HOW_TO_MAKE_A_KEY}."
    return Problem(
        refusal.status, refusal.code, f"{refusal.detail} {warning}", errors=refusal.errors, headers=refusal.headers, **refusal.more
    )
