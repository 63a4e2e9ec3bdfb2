"""The second way in, the same for both frames: terms for whom the paywall refused, a sale for who sends a payment."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from starlette.types import Scope

from campus.access import Offer
from campus.caller import Caller, Frame
from campus.payments.cashier import Cashier, keeps_secret
from campus.payments.payment import Goods, Payment, Sale, Sold
from campus.payments.service import Seller
from campus.paywall import ADMISSION, Admission
from campus.site import CALLER
from twins import Problem


@dataclass(frozen=True)
class PaymentDoor:
    """Payments per call. `offered` is told of every 402 that was shown: building, tool, frame."""

    cashier: Cashier
    till: Seller
    offered: Callable[[str, str, str], None]

    def terms(self, refusal: Problem, offer: Offer, arguments: Mapping[str, Any] | None, *, frame: Frame, method: str) -> Problem:
        """The refusal, with what must be paid; as it is where a key of another scope was sent."""
        if refusal.status != 402:
            return refusal
        self.offered(offer.building, offer.tool, frame)
        return self.cashier.refusal(refusal, offer, arguments, frame=frame, method=method)

    async def recalled(
        self, offer: Offer, arguments: Mapping[str, Any] | None, *, frame: Frame, method: str, idempotency_key: str | None
    ) -> Sold | None:
        """What a call without a payment bought before, by its Idempotency-Key: its caller lost the answer, and is not to pay again."""
        if arguments is None or not keeps_secret(idempotency_key) or not self.cashier.names_purchase(offer, arguments):
            return None
        sale = self.cashier.sale(offer, arguments, frame=frame, method=method, idempotency_key=idempotency_key)
        return await self.till.recall(sale)

    async def sell(self, payment: Payment, sale: Sale, run: Callable[[], Awaitable[Goods]], *, scope: Scope, frame: Frame) -> Sold:
        """Let the call run for its payment; the tool sees who pays, and by which payment."""
        caller = Caller(None, payment.payer, frame, (scope.get("client") or ("",))[0])
        scope[ADMISSION] = Admission(caller)

        async def paid(payment_id: str) -> Goods:
            scope[CALLER] = replace(caller, payment=payment_id)
            return await run()

        return await self.till.sell(payment, sale, paid)
