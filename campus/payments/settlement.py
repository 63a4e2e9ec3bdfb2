"""Charging: from the stored answer on, until the chain shows whether its payment was charged, and the answer may be given."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

import anyio

from campus.payments.chain import Chain
from campus.payments.outcome import Facilitator, Outcome
from campus.payments.payment import PaidAnswer, Payment, Sale, StoredAnswer
from campus.payments.problems import in_flight, refused
from campus.payments.reservations import Reservations, transfer_of
from campus.payments.tables import PaymentRow
from campus.payments.unproven import UnprovenPayments

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Patience:
    """How many seconds a call waits for the chain; its caller waits meanwhile, and is reported to come back after it.

    `proof`: for a settlement that the facilitator reported, where the answer goes out without its proof then. `strict`: where it does not.
    `search`: for a payment of which the facilitator reported no settlement.
    """

    proof: float = 5.0
    strict: float = 20.0
    search: float = 3.0


PATIENCE = Patience()
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 1.0


class Settlement:
    """Has payments charged, for the first time or after something went wrong; what is sent twice the chain takes once.

    What a facilitator says is never the end of it: the chain is asked. Only the answer to a small call goes out on its word, when the
    chain does not show the transfer in time. `prove_above` says up to which amount, in the token's smallest unit; an answer that is a
    secret, as a bought key is, waits for the proof, and so does every answer while an unproven payment is overdue.
    """

    def __init__(
        self,
        reservations: Reservations,
        unproven: UnprovenPayments,
        facilitator: Facilitator,
        chain: Chain,
        *,
        now: Callable[[], datetime],
        prove_above: int,
        patience: Patience = PATIENCE,
    ) -> None:
        self._reservations = reservations
        self._unproven = unproven
        self._facilitator = facilitator
        self._chain = chain
        self._now = now
        self._prove_above = prove_above
        self._patience = patience

    async def settle(self, row: PaymentRow, answer: StoredAnswer, payment: Payment, sale: Sale) -> PaidAnswer:
        """Charge for the first time."""
        return await self._conclude(row, await self._charged(row, payment, sale), answer, sale)

    async def resolve(self, row: PaymentRow, answer: StoredAnswer, payment: Payment, sale: Sale) -> PaidAnswer:
        """Find out what became of a payment that was sent to be charged before; its caller wants it charged, so charge it if need be."""
        outcome = await self._ask_chain(row)
        if outcome.state == "unknown":
            outcome = await self._charged(row, payment, as_sold(row, sale))
        return await self._conclude(row, outcome, answer, sale)

    async def look(self, row: PaymentRow) -> None:
        """Bring a payment that nobody works on to its end, if the chain can tell it, and submit nothing."""
        if (held := await self._reservations.take_up(row.id)) is None:
            return
        outcome = await self._ask_chain(held)
        if outcome.state == "settled" and outcome.transaction is not None:
            await self._reservations.settle(row.id, outcome.transaction, block=outcome.block, answered=False)
        elif outcome.state == "refused":
            await self._reservations.release(row.id, "released", outcome.reason)
        else:
            await self._reservations.doubt(held, outcome.reason)

    async def look_for_proof(self, row: PaymentRow) -> None:
        """Bring a payment that settled without a proof to its end, if the chain can tell it."""
        outcome = Outcome("unknown")
        if row.transaction is not None:
            outcome = await self._chain.shown(row.transaction, transfer_of(row))
        if outcome.state != "settled":
            outcome = await self._ask_chain(row)
        await self._unproven.conclude(row.id, outcome)

    async def _charged(self, row: PaymentRow, payment: Payment, sale: Sale) -> Outcome:
        """Have it charged, and find out whether it was; settled without a block is the facilitator's word alone."""
        reported = await self._facilitator.settle(payment, sale)
        if reported.state == "settled" and reported.transaction is not None:
            return await self._proved(row, reported.transaction, strict=self._is_strict(row, sale))
        outcome = await self._searched(row)
        await self._reservations.doubt(row, reported.reason)
        return outcome

    async def _searched(self, row: PaymentRow) -> Outcome:
        """What the chain says of a payment that may have been sent just now."""
        give_up_at, pause = anyio.current_time() + self._patience.search, FIRST_PAUSE
        while True:
            outcome = await self._ask_chain(row)
            if outcome.state != "unknown" or self._chain.trouble is not None or anyio.current_time() >= give_up_at:
                return outcome
            await anyio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _proved(self, row: PaymentRow, transaction: str, *, strict: bool) -> Outcome:
        """The proof of a settlement that a facilitator reported in this transaction, or what goes for it."""
        shown = await self._shown(row, transaction, strict=strict)
        if shown.state == "settled":
            return shown
        if shown.state == "refused":
            named = {"payment": row.id, "transaction": transaction}
            log.warning("the facilitator names a transaction that is not the payment", extra=named)
            return await self._ask_chain(row)
        if strict:
            return await self._ask_chain(row)  # it may be there by another transaction
        if await self._unproven.is_any_overdue():
            return shown
        return Outcome("settled", transaction)

    async def _shown(self, row: PaymentRow, transaction: str, *, strict: bool) -> Outcome:
        """What the transaction shows, as soon as the chain shows it; a node in trouble is waited for where the proof is needed."""
        outcome, pause = Outcome("unknown", reason="the chain does not show it yet"), FIRST_PAUSE
        with anyio.move_on_after(self._patience.strict if strict else self._patience.proof):
            while True:
                outcome = await self._chain.shown(transaction, transfer_of(row))
                if outcome.state != "unknown" or (self._chain.trouble is not None and not strict):
                    break
                await anyio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
        return outcome

    def _is_strict(self, row: PaymentRow, sale: Sale) -> bool:
        return row.sealed or sale.idempotency_key is not None or row.amount > self._prove_above

    async def _conclude(self, row: PaymentRow, outcome: Outcome, answer: StoredAnswer, sale: Sale) -> PaidAnswer:
        match outcome.state:
            case "settled" if outcome.transaction is not None:
                settled = await self._reservations.settle(row.id, outcome.transaction, block=outcome.block)
                return PaidAnswer(answer, receipt_of(settled or await self._as_another_left_it(row)))
            case "refused":
                if await self._reservations.release(row.id, "refused", outcome.reason) is not None:
                    raise refused(sale, outcome.reason)
                return PaidAnswer(answer, receipt_of(await self._as_another_left_it(row)))
            case _:
                await self._reservations.doubt(row, outcome.reason)
                raise in_flight()

    async def _as_another_left_it(self, row: PaymentRow) -> PaymentRow:
        """The payment that another process concluded meanwhile."""
        found = await self._reservations.get(row.id)
        if found is None or found.state != "settled":
            log.error("payment concluded in two ways", extra={"payment": row.id})
            raise in_flight()
        return found

    async def _ask_chain(self, row: PaymentRow) -> Outcome:
        return await self._chain.outcome_of(transfer_of(row), since=row.reserved_at, now=self._now())


def as_sold(row: PaymentRow, sale: Sale) -> Sale:
    """The sale at the price, and to the address, at which the payment was taken; campus.toml may say another by now."""
    requirements = {**sale.requirements, "amount": str(row.amount), "payTo": row.pay_to}
    return replace(sale, amount=row.amount, requirements=requirements)


def receipt_of(row: PaymentRow) -> dict[str, object]:
    """A settled payment's receipt, as x402 has it."""
    return {"success": True, "transaction": row.transaction, "network": row.network, "payer": row.payer}
