"""The second way in, the same for both frames: terms for whom the paywall refused, a sale for who sends a payment."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from starlette.types import Scope

from campus.addresses import network_of
from campus.caller import Caller, Frame
from campus.idempotency import HOW_TO_MAKE_A_KEY, weakness_of
from campus.payments.payment import PaidAnswer, Payment, Sale, StoredAnswer
from campus.payments.pricing import Pricing
from campus.payments.service import Seller
from campus.paywall.admission import ADMISSION, Admission
from campus.site import CALLER
from campus.tool_access import Offer
from twins import Problem


@dataclass(frozen=True)
class PaymentGate:
    """Payments per call. `offered` is told of every 402 that was shown: building, tool, frame."""

    pricing: Pricing
    processor: Seller
    offered: Callable[[str, str, str], None]

    def terms(
        self,
        refusal: Problem,
        offer: Offer,
        arguments: Mapping[str, Any] | None,
        *,
        frame: Frame,
        method: str,
        idempotency_key: str | None = None,
    ) -> Problem:
        """The refusal, with what must be paid, and with a warning if that key would be refused; as it is for a key of another scope."""
        if refusal.status != 402:
            return refusal
        self.offered(offer.building, offer.tool, frame)
        return self.pricing.refusal(_warned(refusal, idempotency_key), offer, arguments, frame=frame, method=method)

    async def recalled(
        self, offer: Offer, arguments: Mapping[str, Any] | None, *, scope: Scope, frame: Frame, method: str, idempotency_key: str | None
    ) -> PaidAnswer | None:
        """What a call without a payment bought before, by its Idempotency-Key and its address: its caller lost the answer.

        From another address the same key gets the terms; a payment by the wallet that paid then finds the answer, and is not charged.
        """
        if (
            arguments is None
            or idempotency_key is None
            or weakness_of(idempotency_key)
            or not self.pricing.names_purchase(offer, arguments)
        ):
            return None
        sale = self.sale(offer, arguments, scope=scope, frame=frame, method=method, idempotency_key=idempotency_key)
        return await self.processor.recall(sale)

    def sale(
        self, offer: Offer, arguments: Mapping[str, Any], *, scope: Scope, frame: Frame, method: str, idempotency_key: str | None
    ) -> Sale:
        """A call that came with a payment, as it is sold to the address that it came from."""
        client = network_of(_address(scope))
        return self.pricing.sale(offer, arguments, frame=frame, method=method, idempotency_key=idempotency_key, client=client)

    async def sell(
        self, payment: Payment, sale: Sale, run: Callable[[], Awaitable[StoredAnswer]], *, scope: Scope, frame: Frame
    ) -> PaidAnswer:
        """Let the call run for its payment; the tool sees who pays, and by which payment."""
        caller = Caller(None, payment.payer, frame, _address(scope))
        scope[ADMISSION] = Admission(caller)

        async def paid(payment_id: str) -> StoredAnswer:
            scope[CALLER] = replace(caller, payment=payment_id)
            return await run()

        return await self.processor.process(payment, sale, paid)


def _address(scope: Scope) -> str:
    address: str = (scope.get("client") or ("",))[0]
    return address


def _warned(refusal: Problem, idempotency_key: str | None) -> Problem:
    if idempotency_key is None or (reason := weakness_of(idempotency_key)) is None:
        return refusal
    warning = f"The Idempotency-Key that was sent {reason}, and a payment that comes with it would be refused. {HOW_TO_MAKE_A_KEY}."
    return Problem(
        refusal.status, refusal.code, f"{refusal.detail} {warning}", errors=refusal.errors, headers=refusal.headers, **refusal.more
    )
