"""Settlement: has payments charged by the facilitator, and waits until the chain shows the charge.

A settlement that was begun is not interrupted: `uninterrupted` delays a cancellation.
"""

import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

import anyio

from campus.backoff import Backoff, Tries
from campus.errors import StorageError
from campus.features.payments.chain import Chain
from campus.features.payments.facilitators import Facilitators
from campus.features.payments.payment import PaidAnswer, Payment, PaymentOutcome, Sale, receipt_of
from campus.features.payments.reconciler import UnprovenPayments
from campus.features.payments.reservations import PAUSES, Reservations, as_sold, transfer_of
from campus.features.payments.states import in_flight, refused
from campus.features.payments.tables import PaymentRow
from twins import Problem

QUESTIONS = Backoff.doubling(0.1, longest=1.0)
"""The waits between two questions to the chain."""
T = TypeVar("T")
Load = Callable[[], Awaitable[Facilitators]]
"""Returns the facilitators once their library is loaded."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ChainTimeouts:
    """How many seconds a call waits for the chain; after them its caller is asked to send the payment again.

    `proof`: for a settlement that the facilitator reported, where the answer may be delivered without proof. `strict`: for an outcome that
    has to be known, because the answer needs a proof or the facilitator's reply was lost; from the moment at which it was asked to settle,
    so that clients, which wait for 90 seconds, get the result. `search`: for a payment that the facilitator says it refused.
    """

    proof: float = 5.0
    strict: float = 60.0
    search: float = 3.0


@dataclass(frozen=True)
class Settlement:
    """Has payments of one network charged by its facilitators, and checks each charge on its chain, which accepts an authorization once.

    A facilitator's report alone is trusted for small calls only: the answer is delivered without proof if the chain does not show the
    transfer in time. `prove_above` is the highest such amount, in the token's smallest unit. An answer that is a secret, such as a bought
    key, waits for the proof. While an unproven payment is overdue, every answer does.
    """

    reservations: Reservations
    unproven: UnprovenPayments
    facilitators: Load
    chain: Chain
    now: Callable[[], datetime]
    prove_above: int
    timeouts: ChainTimeouts

    async def settle(self, row: PaymentRow, answer: bytes, payment: Payment, sale: Sale) -> PaidAnswer:
        with perhaps_charged(row):
            return await self._conclude(row, await self._charge(row, payment, sale), answer, sale)

    async def resolve(self, row: PaymentRow, answer: bytes, payment: Payment, sale: Sale) -> PaidAnswer:
        """Find out whether a payment was charged before; if that stays unknown, charge it once more, as its caller asks."""
        with perhaps_charged(row):
            outcome = await self._ask_chain(row)
            if outcome.state == "unknown" and await self.reservations.is_deliverable(row):
                outcome = await self._charge(row, payment, as_sold(row, sale))
            return await self._conclude(row, outcome, answer, sale)

    async def submit_again(self, row: PaymentRow) -> PaymentOutcome:
        """Submit a payment in doubt for which no caller waits. Only the chain tells that it was charged then."""
        signed = await self.reservations.signed_of(row)
        reported = await (await self.facilitators()).settle(signed, turn=row.submissions)
        outcome = await self._search(row, seconds=self.timeouts.search)
        if outcome.state != "unknown":
            return outcome
        return PaymentOutcome("unknown", reason=reported.reason or outcome.reason, is_denied=reported.is_denied)

    async def _charge(self, row: PaymentRow, payment: Payment, sale: Sale) -> PaymentOutcome:
        """Have the facilitators charge the payment, again and again as long as they fail; the chain is asked in between.

        An outcome that is settled and has no block rests on a facilitator's report alone. A report that the chain does not show is followed
        by another facilitator, if there is one.
        """
        facilitators = await self.facilitators()
        signed = facilitators.signed(payment, sale)
        strict = row.sealed or sale.idempotency_key is not None or row.amount > self.prove_above
        ends_at = anyio.current_time() + self.timeouts.strict
        reported = await facilitators.settle(signed, turn=row.submissions)
        ends_at = max(ends_at, anyio.current_time() + self.timeouts.search)
        submissions = 1
        while True:
            if reported.state == "settled" and reported.transaction is not None:
                is_over = submissions >= facilitators.count
                shown_by = ends_at if is_over else (anyio.current_time() + ends_at) / 2
                outcome = await self._proof_of(row, reported.transaction, ends_at=shown_by if strict else None)
                if outcome.state != "unknown":
                    return outcome
                facilitators.contradicted(reported)
            else:
                is_first = row.submissions + submissions == 1  # no other one may be on its way to the chain
                wait = self.timeouts.search if is_first and reported.is_denied else ends_at - anyio.current_time()
                pause = wait if reported.is_denied else min(wait, PAUSES.wait(submissions).total_seconds())
                outcome = await self._search(row, seconds=pause)
                is_over = reported.is_denied or anyio.current_time() >= ends_at
            if outcome.state != "unknown" or is_over or not await self.reservations.is_deliverable(row):
                reason = reported.reason or outcome.reason
                await self.reservations.doubt(row, reason, submissions=submissions, is_denied=reported.is_denied)
                return outcome
            reported = PaymentOutcome("unknown", reason="the facilitator did not answer in time")
            with anyio.move_on_at(ends_at):
                reported = await facilitators.settle(signed, turn=row.submissions + submissions)
            submissions += 1

    async def _search(self, row: PaymentRow, *, seconds: float) -> PaymentOutcome:
        """What the chain shows of a payment that may have been submitted a moment ago."""
        async for _ in Tries(QUESTIONS, seconds=seconds):
            outcome = await self._ask_chain(row)
            if outcome.state != "unknown":
                break
        return outcome

    async def _proof_of(self, row: PaymentRow, transaction: str, *, ends_at: float | None) -> PaymentOutcome:
        """The proof of a settlement that the facilitator reported in this transaction, or without `ends_at` its report alone."""
        shown = await self._wait_for(row, transaction, ends_at=ends_at)
        if shown.state == "settled":
            return shown
        if shown.state == "refused":
            names = {"payment": row.id, "transaction": transaction}
            log.warning("the facilitator names a transaction that is not the payment", extra=names)
            return await self._ask_chain(row)
        if ends_at is not None:
            return await self._ask_chain(row)  # another transaction may hold it
        if await self.unproven.is_any_overdue():
            return shown
        return PaymentOutcome("settled", transaction)

    async def _wait_for(self, row: PaymentRow, transaction: str, *, ends_at: float | None) -> PaymentOutcome:
        """What the transaction shows, as soon as the chain has it. It waits for a failing node only if the proof is required."""
        outcome = PaymentOutcome("unknown", reason="the chain does not show it yet")
        with anyio.move_on_at(anyio.current_time() + self.timeouts.proof if ends_at is None else ends_at):
            async for _ in Tries(QUESTIONS):
                outcome = await self.chain.shown(transaction, transfer_of(row))
                if outcome.state != "unknown" or (self.chain.trouble is not None and ends_at is None):
                    break
        return outcome

    async def _conclude(self, row: PaymentRow, outcome: PaymentOutcome, answer: bytes, sale: Sale) -> PaidAnswer:
        match outcome.state:
            case "settled" if outcome.transaction is not None:
                settled = await self.reservations.settle(row.id, outcome.transaction, block=outcome.block)
                return PaidAnswer(row.id, answer, receipt_of(settled or await self._as_another_left_it(row)))
            case "refused":
                if await self.reservations.release(row.id, "refused", outcome.reason) is not None:
                    raise refused(sale, outcome.reason)
                return PaidAnswer(row.id, answer, receipt_of(await self._as_another_left_it(row)))
            case _:
                await self.reservations.doubt(row, outcome.reason)
                raise in_flight()

    async def _as_another_left_it(self, row: PaymentRow) -> PaymentRow:
        found = await self.reservations.get(row.id)
        if found is None or found.state != "settled":
            log.error("payment concluded in two ways", extra={"payment": row.id})
            raise in_flight()
        return found

    async def _ask_chain(self, row: PaymentRow) -> PaymentOutcome:
        return await self.chain.outcome_of(transfer_of(row), since=row.reserved_at, now=self.now())


@contextmanager
def perhaps_charged(row: PaymentRow) -> Iterator[None]:
    """Whatever fails within, such as the database, is logged, and the caller told to send the same payment again: it may be charged."""
    try:
        yield
    except Problem:
        raise
    except Exception as error:
        log.error("payment not concluded: %s", error, exc_info=not isinstance(error, StorageError), extra={"payment": row.id})
        raise in_flight() from None


async def uninterrupted(work: Awaitable[T]) -> T:
    """Await the work; a cancellation takes effect after it."""
    with anyio.CancelScope(shield=True):
        result = await work
    return result  # noqa: RET504  # a scope can swallow what is raised in it, so mypy wants a return after it
