"""The processor: what happens to a payment from the reservation to the delivery. It is charged once and buys one answer.

A payment that is presented for the first time (states.py draws the states):

    reserve ── verify ── run the tool ── store the answer ── settle ── record the settlement ── deliver
                  │           │                                │
                  │           │                                ├── refused: release the reservation
                  │           │                                └── unknown: ask the chain; still unknown: leave it to the reconciler
                  │           └── failed: release the reservation; nothing was charged
                  └── not valid: count it and delete the reservation

The order of these steps is what makes the promise true:

- The reservation is on disk before the tool runs. So no second call can run the tool for the same payment.
- The answer is on disk before the payment is sent to the facilitator. So there is no charge without an answer.
- The settlement is on disk before the answer is delivered. So no answer is delivered unpaid.

A process that dies leaves a row that shows how far the payment came. The next call with the same payment continues from there. If no such
call comes, the reconciler finds out from the chain what happened.
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

import anyio

from campus.errors import StorageError
from campus.payments.chain import Chain
from campus.payments.ledger import Event, Ledger
from campus.payments.payment import Facilitator, Outcome, PaidAnswer, Payment, Sale, StoredAnswer
from campus.payments.queue import FairQueue
from campus.payments.reconciler import Reconciler, UnprovenPayments
from campus.payments.reservations import Leases, Reservations, as_sold, receipt_of, stored_answer, transfer_of
from campus.payments.states import (
    already_used,
    in_flight,
    key_ambiguous,
    key_reused,
    mismatch_of,
    next_step,
    refused,
    unverified,
    used_elsewhere,
)
from campus.payments.tables import PaymentRow
from twins import Problem

WAIT_SECONDS = 15.0
"""How long a call waits for another call that presented the same payment before."""
FIRST_PAUSE, FIRST_CHAIN_PAUSE, LONGEST_PAUSE = 0.05, 0.1, 1.0
T = TypeVar("T")
Run = Callable[[str], Awaitable[StoredAnswer]]
Load = Callable[[], Awaitable[Facilitator]]
"""Returns the facilitator once its library is loaded."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ChainTimeouts:
    """How many seconds a call waits for the chain; after them its caller is asked to send the payment again.

    `proof`: for a settlement that the facilitator reported, where the answer may be delivered without proof. `strict`: where it may not.
    `search`: for a payment of which the facilitator reported no settlement.
    """

    proof: float = 5.0
    strict: float = 20.0
    search: float = 3.0


DEFAULT_TIMEOUTS = ChainTimeouts()


class PaymentProcessor:
    """Takes payments and runs paid tools. Any number of processors, in any number of processes, can share one database."""

    def __init__(
        self,
        reservations: Reservations,
        leases: Leases,
        ledger: Ledger,
        facilitator: Load,
        settlement: "Settlement",
        reconciler: Reconciler,
        *,
        now: Callable[[], datetime],
        wait_seconds: float = WAIT_SECONDS,
    ) -> None:
        self._reservations = reservations
        self._leases = leases
        self._ledger = ledger
        self._facilitator = facilitator
        self._settlement = settlement
        self._reconciler = reconciler
        self._now = now
        self._wait_seconds = wait_seconds
        self._queue = FairQueue()

    async def process(self, payment: Payment, sale: Sale, run: Run) -> PaidAnswer:
        """Return the answer that the payment buys, and its receipt. `run(payment_id)` runs the tool; it is called at most once.

        What `run` raises is raised again, and the payment is not charged. Problem 402: the payment is not valid, or could not be checked;
        nothing was charged. Problem 409: the payment was used before, or it is not known yet whether it was charged.
        """
        give_up_at = anyio.current_time() + self._wait_seconds
        pause = FIRST_PAUSE
        while True:
            step, row = next_step(await self._reservations.find(payment, sale), payment, sale, now=self._now())
            match step:
                case "reserve":
                    await self._refuse_mismatch(payment, sale)
                    if (reserved := await self._reservations.reserve(payment, sale)) is not None:
                        return await self._serve(reserved, payment, sale, run)
                case "replay" if row is not None:
                    return self._replay(row, sale)
                case "resolve" if row is not None:
                    answer = _answer_in(row, sale)
                    if (taken_up := await self._reservations.take_up(row.id)) is not None:
                        return await self._resolve(taken_up, answer, payment, sale)
                case "look" if row is not None:
                    await self._reconciler.look(row)
                case "refuse":
                    raise already_used()
                case "elsewhere":
                    raise used_elsewhere()
                case "reused":
                    raise key_reused()
            if anyio.current_time() >= give_up_at:
                raise in_flight()
            await anyio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def recall(self, sale: Sale) -> PaidAnswer | None:
        """Return the answer that this sale's Idempotency-Key bought before, for a call without a payment; None if it bought nothing.

        Problem 409 while that purchase is in flight: with the terms its caller would pay a second time.
        """
        step, row = next_step(await self._reservations.find(None, sale), None, sale, now=self._now())
        match step:
            case "replay" if row is not None:
                return self._replay(row, sale)
            case "reserve":
                return None
            case "reused":
                raise key_reused()
            case "ambiguous":
                raise key_ambiguous()
            case _:
                raise in_flight()

    async def _refuse_mismatch(self, payment: Payment, sale: Sale) -> None:
        reason = mismatch_of(payment, sale, now=self._now()) or await (await self._facilitator()).mismatch(payment, sale)
        if reason is not None:
            self._ledger.turned_away("refused", sale.building, sale.tool, sale.frame)
            raise refused(sale, reason)

    async def _serve(self, row: PaymentRow, payment: Payment, sale: Sale, run: Run) -> PaidAnswer:
        """Everything after the reservation. Once the answer is made, a cancellation takes effect only after the settlement."""
        self._leases.hold(row)
        try:
            await self._check(row, payment, sale)
            answer = await self._make_answer(row, sale, run)
            return await uninterrupted(self._settlement.settle(row, answer, payment, sale))
        finally:
            self._leases.let_go(row)

    async def _check(self, row: PaymentRow, payment: Payment, sale: Sale) -> None:
        """Have the payment verified. If it is not valid, or nobody can check it, count it and delete its reservation."""
        try:
            await self._verify(payment, sale)
        except BaseException as error:  # a cancellation too
            event, reason = _failure(error)
            self._ledger.turned_away(event, sale.building, sale.tool, sale.frame)
            log.info("payment not admitted: %s", reason, extra={"payment": row.id, "payer": row.payer})
            await uninterrupted(self._undo(self._reservations.withdraw(row.id), row.id))
            raise

    async def _verify(self, payment: Payment, sale: Sale) -> None:
        async with self._queue.turn(sale.client, payment.payer):
            verdict = await (await self._facilitator()).verify(payment, sale)
        if not verdict.reachable:
            raise unverified(sale)
        if not verdict.valid:
            raise refused(sale, verdict.reason)

    async def _make_answer(self, row: PaymentRow, sale: Sale, run: Run) -> StoredAnswer:
        """Run the tool and store its answer. If either fails, release the reservation: nothing was charged."""
        try:
            answer = await run(row.id)
            if await uninterrupted(self._reservations.store(row.id, answer, sale)) is None:
                raise in_flight()  # another call took the lease while the tool ran
        except BaseException as error:  # a cancellation too
            await uninterrupted(self._undo(self._reservations.release(row.id, *_failure(error)), row.id))
            raise
        return answer

    async def _resolve(self, row: PaymentRow, answer: StoredAnswer, payment: Payment, sale: Sale) -> PaidAnswer:
        """Continue with a payment that was sent to be charged, and of which the outcome is unknown."""
        self._leases.hold(row)
        try:
            return await uninterrupted(self._settlement.resolve(row, answer, payment, sale))
        finally:
            self._leases.let_go(row)

    def _replay(self, row: PaymentRow, sale: Sale) -> PaidAnswer:
        answer = _answer_in(row, sale)
        self._ledger.replayed(row, sale.frame)
        return PaidAnswer(answer, receipt_of(row), replayed=True)

    async def _undo(self, change: Awaitable[object], payment_id: str) -> None:
        try:
            await change
        except StorageError as error:
            log.warning("payment not released, its lease will lapse: %s", error, extra={"payment": payment_id})


class Settlement:
    """Has payments charged by the facilitator and checks each charge on the chain. The chain accepts an authorization only once.

    A facilitator's report alone is trusted for small calls only: the answer is delivered without proof if the chain does not show the
    transfer in time. `prove_above` is the highest such amount, in the token's smallest unit. An answer that is a secret, such as a bought
    key, waits for the proof. While an unproven payment is overdue, every answer does.
    """

    def __init__(
        self,
        reservations: Reservations,
        unproven: UnprovenPayments,
        facilitator: Load,
        chain: Chain,
        *,
        now: Callable[[], datetime],
        prove_above: int,
        timeouts: ChainTimeouts = DEFAULT_TIMEOUTS,
    ) -> None:
        self._reservations = reservations
        self._unproven = unproven
        self._facilitator = facilitator
        self._chain = chain
        self._now = now
        self._prove_above = prove_above
        self._timeouts = timeouts

    async def settle(self, row: PaymentRow, answer: StoredAnswer, payment: Payment, sale: Sale) -> PaidAnswer:
        """Charge the payment for the first time."""
        return await self._conclude(row, await self._charge(row, payment, sale), answer, sale)

    async def resolve(self, row: PaymentRow, answer: StoredAnswer, payment: Payment, sale: Sale) -> PaidAnswer:
        """Find out whether a payment was charged before; if that stays unknown, charge it once more, as its caller asks."""
        outcome = await self._ask_chain(row)
        if outcome.state == "unknown":
            outcome = await self._charge(row, payment, as_sold(row, sale))
        return await self._conclude(row, outcome, answer, sale)

    async def _charge(self, row: PaymentRow, payment: Payment, sale: Sale) -> Outcome:
        """Have the facilitator charge the payment. An outcome that is settled and has no block rests on its report alone."""
        reported = await (await self._facilitator()).settle(payment, sale)
        if reported.state == "settled" and reported.transaction is not None:
            strict = row.sealed or sale.idempotency_key is not None or row.amount > self._prove_above
            return await self._proof_of(row, reported.transaction, strict=strict)
        outcome = await self._search(row)
        await self._reservations.doubt(row, reported.reason)
        return outcome

    async def _search(self, row: PaymentRow) -> Outcome:
        """What the chain shows of a payment that may have been submitted a moment ago."""
        give_up_at = anyio.current_time() + self._timeouts.search
        pause = FIRST_CHAIN_PAUSE
        while True:
            outcome = await self._ask_chain(row)
            if outcome.state != "unknown" or self._chain.trouble is not None or anyio.current_time() >= give_up_at:
                return outcome
            await anyio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _proof_of(self, row: PaymentRow, transaction: str, *, strict: bool) -> Outcome:
        """The proof of a settlement that the facilitator reported in this transaction, or its report alone if that is enough."""
        shown = await self._wait_for(row, transaction, strict=strict)
        if shown.state == "settled":
            return shown
        if shown.state == "refused":
            names = {"payment": row.id, "transaction": transaction}
            log.warning("the facilitator names a transaction that is not the payment", extra=names)
            return await self._ask_chain(row)
        if strict:
            return await self._ask_chain(row)  # another transaction may hold it
        if await self._unproven.is_any_overdue():
            return shown
        return Outcome("settled", transaction)

    async def _wait_for(self, row: PaymentRow, transaction: str, *, strict: bool) -> Outcome:
        """What the transaction shows, as soon as the chain has it. It waits for a failing node only if the proof is required."""
        outcome = Outcome("unknown", reason="the chain does not show it yet")
        pause = FIRST_CHAIN_PAUSE
        with anyio.move_on_after(self._timeouts.strict if strict else self._timeouts.proof):
            while True:
                outcome = await self._chain.shown(transaction, transfer_of(row))
                if outcome.state != "unknown" or (self._chain.trouble is not None and not strict):
                    break
                await anyio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
        return outcome

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
        """The payment after another process concluded it."""
        found = await self._reservations.get(row.id)
        if found is None or found.state != "settled":
            log.error("payment concluded in two ways", extra={"payment": row.id})
            raise in_flight()
        return found

    async def _ask_chain(self, row: PaymentRow) -> Outcome:
        return await self._chain.outcome_of(transfer_of(row), since=row.reserved_at, now=self._now())


async def uninterrupted(work: Awaitable[T]) -> T:
    """Await the work; a cancellation takes effect after it."""
    with anyio.CancelScope(shield=True):
        result = await work
    return result  # noqa: RET504  # a scope can swallow what is raised in it, so mypy wants a return after it


def _answer_in(row: PaymentRow, sale: Sale) -> StoredAnswer:
    if (answer := stored_answer(row, sale)) is None:
        raise already_used()
    return answer


def _failure(error: BaseException) -> tuple[Event, str]:
    """The ledger's event, and the reason, for a call that failed before its answer was stored."""
    if isinstance(error, Problem):
        return ("refused" if error.code == "payment_refused" else "failed"), f"{error.code}: {error.detail}"[:200]
    return "failed", type(error).__name__
