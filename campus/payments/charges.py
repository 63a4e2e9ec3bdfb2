"""Charging: what stands behind the counter once an answer is stored, until it is known whether its payment was charged."""

import logging
from dataclasses import replace

from campus.payments.chain import Chain
from campus.payments.outcome import Facilitator, Outcome
from campus.payments.payment import Goods, Payment, Sale, Sold
from campus.payments.refusals import in_flight, refused
from campus.payments.reservations import Reservations, transfer_of
from campus.payments.tables import PaymentRow

log = logging.getLogger(__name__)


class Charges:
    """Has payments charged, for the first time or after something went wrong; what is sent twice the chain takes once."""

    def __init__(self, reservations: Reservations, facilitator: Facilitator, chain: Chain) -> None:
        self._reservations = reservations
        self._facilitator = facilitator
        self._chain = chain

    async def settle(self, row: PaymentRow, goods: Goods, payment: Payment, sale: Sale) -> Sold:
        """Charge for the first time."""
        outcome = await self._facilitator.settle(payment, sale)
        if outcome.state != "settled":
            outcome = await self._ask_further(row, outcome, sale)
        return await self._conclude(row, outcome, goods, sale)

    async def resolve(self, row: PaymentRow, goods: Goods, payment: Payment, sale: Sale) -> Sold:
        """Find out what became of a payment that was sent to be charged before; its caller wants it charged, so charge it if need be."""
        outcome = await self._ask_chain(row)
        if outcome.state == "unknown":
            again = await self._facilitator.settle(payment, as_sold(row, sale))
            # a refusal now says nothing of what was sent before, and may be due to it
            outcome = again if again.state == "settled" else await self._ask_chain(row)
        return await self._conclude(row, outcome, goods, sale)

    async def look(self, row: PaymentRow) -> None:
        """Bring a payment that nobody works on to its end, if the chain can tell it, and submit nothing."""
        if await self._reservations.take_up(row.id) is None:
            return
        outcome = await self._ask_chain(row)
        if outcome.state == "settled" and outcome.transaction is not None:
            await self._reservations.settle(row.id, outcome.transaction)
        elif outcome.state == "refused":
            await self._reservations.release(row.id, "released", outcome.reason)
        else:
            await self._reservations.doubt(row.id, outcome.reason)

    async def _ask_further(self, row: PaymentRow, told: Outcome, sale: Sale) -> Outcome:
        """What the chain says of a payment that the facilitator did not settle, as far as it told.

        Its refusal settles the matter, since nothing was sent before, unless the chain knows better.
        """
        seen = await self._ask_chain(row)
        is_refused = told.state == "refused" and seen.state == "unknown"
        if is_refused and await self._reservations.release(row.id, "refused", told.reason, only_if="settling") is not None:
            raise refused(sale, told.reason)
        await self._reservations.doubt(row.id, told.reason)
        return seen

    async def _conclude(self, row: PaymentRow, outcome: Outcome, goods: Goods, sale: Sale) -> Sold:
        match outcome.state:
            case "settled" if outcome.transaction is not None:
                settled = await self._reservations.settle(row.id, outcome.transaction)
                return Sold(goods, receipt_of(settled or await self._as_another_left_it(row)))
            case "refused":
                if await self._reservations.release(row.id, "refused", outcome.reason) is not None:
                    raise refused(sale, outcome.reason)
                return Sold(goods, receipt_of(await self._as_another_left_it(row)))
            case _:
                await self._reservations.doubt(row.id, outcome.reason)
                raise in_flight()

    async def _as_another_left_it(self, row: PaymentRow) -> PaymentRow:
        """The payment that another process concluded meanwhile."""
        found = await self._reservations.get(row.id)
        if found is None or found.state != "settled":
            log.error("payment concluded in two ways", extra={"payment": row.id})
            raise in_flight()
        return found

    async def _ask_chain(self, row: PaymentRow) -> Outcome:
        return await self._chain.outcome_of(transfer_of(row), since=row.reserved_at)


def as_sold(row: PaymentRow, sale: Sale) -> Sale:
    """The sale at the price, and to the address, at which the payment was taken; campus.toml may say another by now."""
    requirements = {**sale.requirements, "amount": str(row.amount), "payTo": row.pay_to}
    return replace(sale, amount=row.amount, requirements=requirements)


def receipt_of(row: PaymentRow) -> dict[str, object]:
    """A settled payment's receipt, as x402 has it."""
    return {"success": True, "transaction": row.transaction, "network": row.network, "payer": row.payer}
