"""The processor: what happens to a payment from its check to the delivery. It is charged once and buys one answer.

A payment that is presented for the first time (states.py draws the states):

    verify ── reserve ── run the tool ── store the answer ── settle ── record the settlement ── deliver
      │                      │                                 │
      │                      │                                 ├── refused: release the reservation
      │                      │                                 └── unknown: ask the chain, submit again; at last leave it to the reconciler
      │                      └── failed: release the reservation; nothing was charged
      └── not valid: count it; nothing was written

The order of these steps is what makes the promise true:

- What can be told of a payment without asking anybody is asked first, and a payment that is not valid writes nothing: senders of
  worthless payments keep no writer waiting.
- The reservation is on disk before the tool runs. So no second call can run the tool for the same payment.
- The answer is on disk before the payment is sent to the facilitator. So there is no charge without an answer.
- The settlement is on disk before the answer is delivered. So no answer is delivered unpaid.

A process that dies leaves a row that shows how far the payment came. The next call with the same payment continues from there. If no such
call comes, the reconciler finds out from the chain what happened, and has a payment charged whose answer is stored: the signed payment is
kept with the answer, sealed.
"""

import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from campus.backoff import Backoff, Tries
from campus.errors import StorageError
from campus.features.payments.facilitators import Facilitators
from campus.features.payments.ledger import Event, Ledger
from campus.features.payments.payment import PaidAnswer, Payment, Sale, receipt_of
from campus.features.payments.queue import PaymentQueue, WorthlessPayments
from campus.features.payments.reservations import Reservations, as_sold, stored_answer, transfer_of
from campus.features.payments.settlement import uninterrupted
from campus.features.payments.states import (
    Step,
    already_used,
    clock_advice,
    in_flight,
    is_released_resend,
    key_ambiguous,
    key_reused,
    mismatch_of,
    next_step,
    refused,
    unverified,
    used_elsewhere,
)
from campus.features.payments.tables import PaymentRow
from campus.features.payments.ways import OpenWay
from twins import Problem

PAUSES = Backoff.doubling(0.05, longest=1.0)
"""Between two looks at a payment that another call presented before."""
TIMES = re.compile("valid_?(after|before)", re.IGNORECASE)
"""The payment's times in the reason of a refusal, in campus's words or a facilitator's."""
Run = Callable[[str], Awaitable[bytes]]
Settle = Callable[[PaymentRow, bytes, Payment, Sale], Awaitable[PaidAnswer]]
"""Charges a stored answer's payment, or finds out that it was charged: see Settlement."""
log = logging.getLogger(__name__)


@dataclass
class PaymentProcessor:
    """Takes payments and runs paid tools. Any number of processors, in any number of processes, can share one database.

    `ways` are by the ids of their networks; that of a payment is the one of its sale.
    """

    reservations: Reservations
    ledger: Ledger
    ways: Mapping[str, OpenWay]
    now: Callable[[], datetime]
    wait_seconds: float
    worthless: WorthlessPayments
    queue: PaymentQueue = field(default_factory=PaymentQueue)

    async def process(self, payment: Payment, sale: Sale, run: Run) -> PaidAnswer:
        """Return the answer that the payment buys, and its receipt. `run(payment_id)` runs the tool; it is called at most once.

        What `run` raises is raised again, and the payment is not charged. Problem 402: the payment is not valid, or could not be checked;
        nothing was charged. Problem 409: the payment was used before, or it is not known yet whether it was charged. Problem 429 or 503:
        too many payments are being processed.
        """
        with self.queue.call(sale.client, payment.authorization):
            return await self._process(payment, sale, run)

    async def _process(self, payment: Payment, sale: Sale, run: Run) -> PaidAnswer:
        async for _ in Tries(PAUSES, seconds=self.wait_seconds):
            step, row = await self._step(payment, sale)
            match step:
                case "reserve":
                    if (late := await self._charged_late(payment, sale)) is not None:
                        return await self._serve(late, payment, sale, run, self.ways[sale.network].settlement.resolve)
                    await self._refuse_mismatch(payment, sale)
                    if (reserved := await self._admitted(payment, sale)) is not None:
                        return await self._serve(reserved, payment, sale, run, self.ways[sale.network].settlement.settle)
                case "replay" if row is not None:
                    return self._replay(row, sale)
                case "resolve" if row is not None:
                    answer = _answer_in(row, sale)
                    if (taken_up := await self.reservations.take_up(row.id)) is not None:
                        return await self._resolve(taken_up, answer, payment, sale)
                case "look" if row is not None:
                    await self._look(row)
                case "refuse":
                    raise already_used()
                case "elsewhere":
                    raise used_elsewhere()
                case "reused":
                    raise key_reused()
        raise in_flight()

    async def recall(self, sale: Sale) -> PaidAnswer | None:
        """Return the answer that this sale's Idempotency-Key bought before, for a call without a payment; None if it bought nothing.

        While that purchase is in flight, wait for it, and then Problem 409: with the terms its caller would pay a second time.
        """
        step, row = await self._step(None, sale)
        if row is not None and step in ("wait", "look"):
            with self.queue.call(sale.client, (row.payer, row.nonce, row.network)):
                step, row = await self._step_after_another(sale)
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

    async def _step_after_another(self, sale: Sale) -> tuple[Step, PaymentRow | None]:
        """The next step of a purchase once the call that pays for it is answered, or after the time that this one may wait."""
        async for _ in Tries(PAUSES, seconds=self.wait_seconds):
            step, row = await self._step(None, sale)
            if step == "look" and row is not None:
                await self._look(row)
            elif step != "wait":
                break
        return step, row

    async def _facilitators(self, sale: Sale) -> Facilitators:
        return await self.ways[sale.network].facilitators.loaded()

    async def _step(self, payment: Payment | None, sale: Sale) -> tuple[Step, PaymentRow | None]:
        return next_step(await self.reservations.find(payment, sale), payment, sale, now=self.now())

    async def _look(self, row: PaymentRow) -> None:
        """Conclude another payment of the same purchase, if its network is one of the ways: it may be another one than the sale's."""
        if (way := self.ways.get(row.network)) is not None:
            await way.reconciler.look(row)

    async def _refuse_mismatch(self, payment: Payment, sale: Sale) -> None:
        reason = mismatch_of(payment, sale, now=self.now()) or await (await self._facilitators(sale)).mismatch(payment, sale)
        if reason is not None:
            self.ledger.count("refused", sale.building, sale.tool, sale.frame)
            raise refused(sale, await self._with_clocks(reason, payment, sale))

    async def _with_clocks(self, reason: str, payment: Payment, sale: Sale) -> str:
        """The reason of a refusal; for one that names the payment's times, with what they say of the payer's clock."""
        if not TIMES.search(reason):
            return reason
        now = self.now()
        advice = clock_advice(payment, sale, own=int(now.timestamp()), chain=await self.ways[sale.network].chain.clock(now))
        return reason if advice is None else f"{reason}. {advice}"

    async def _charged_late(self, payment: Payment, sale: Sale) -> PaymentRow | None:
        """A new reservation of an expired payment that counts as not charged and that the chain shows after all; None of any other.

        Its payer gets what he paid for. Problem 409 if the chain cannot be asked now.
        """
        if payment.valid_before > int(self.now().timestamp()):
            return None
        rows = [row for row in await self.reservations.find(payment, sale) if is_released_resend(row, payment, sale)]
        if not rows:
            return None
        self.worthless.check(sale.client)
        outcome = await self.ways[sale.network].chain.outcome_of(transfer_of(rows[0]), since=rows[0].reserved_at, now=self.now())
        if outcome.state == "unknown":
            raise in_flight()
        if outcome.state == "refused":
            self.worthless.count(sale.client)
            return None
        log.warning("payment charged after it was released", extra={"payment": rows[0].id, "transaction": outcome.transaction})
        return await self.reservations.reserve(payment, as_sold(rows[0], sale), since=rows[0].reserved_at)

    async def _admitted(self, payment: Payment, sale: Sale) -> PaymentRow | None:
        """The reservation of a payment that is valid; None if another call came first. Others are counted and refused."""
        if self.queue.is_in_check(payment.authorization):
            return None
        async with self.queue.turn(sale.client, payment.authorization):
            try:
                await self._verify(payment, sale)
            except Problem as refusal:
                if (await self._step(payment, sale))[0] != "reserve":
                    return None  # a payment that another process charged meanwhile is not valid any more
                event, reason = _failure(refusal)
                self.ledger.count(event, sale.building, sale.tool, sale.frame)
                log.info("payment not admitted: %s", reason, extra={"payer": payment.payer})
                raise
            if sale.check is not None:
                await sale.check()
            return await self.reservations.reserve(payment, sale)

    async def _verify(self, payment: Payment, sale: Sale) -> None:
        self.worthless.check(sale.client)
        facilitators = await self._facilitators(sale)
        is_signed = await facilitators.is_signed(payment, sale)
        if is_signed is False and await self.ways[sale.network].chain.is_contract(payment.payer) is False:
            self.worthless.count(sale.client)
            raise refused(sale, "its signature is not that of its payer; sign these terms with the wallet that the payment names")
        payer = payment.payer if is_signed else None
        self.worthless.check(sale.client, payer)
        verdict = await facilitators.verify(payment, sale)
        if not verdict.reachable:
            raise unverified(sale)
        if not verdict.valid:
            self.worthless.count(sale.client, payer)
            raise refused(sale, await self._with_clocks(verdict.reason, payment, sale))

    async def _serve(self, row: PaymentRow, payment: Payment, sale: Sale, run: Run, settle: Settle) -> PaidAnswer:
        """Everything after the reservation. Once the answer is made, a cancellation takes effect only after the settlement."""
        with self.reservations.leases.kept(row):
            answer = await self._make_answer(row, payment, sale, run)
            try:
                return await uninterrupted(settle(row, answer, payment, sale))
            except Problem:  # the tool ran for it, unpaid: a contract wallet can say yes to who checks it, and no to who charges it
                self.worthless.count(sale.client, payment.payer)
                raise

    async def _make_answer(self, row: PaymentRow, payment: Payment, sale: Sale, run: Run) -> bytes:
        """Run the tool and store its answer. If either fails, release the reservation: nothing was charged."""
        try:
            answer = await run(row.id)
            signed = (await self._facilitators(sale)).signed(payment, sale)
            if await uninterrupted(self.reservations.store(row.id, answer, sale, signed)) is None:
                raise in_flight()  # another call took the lease while the tool ran
        except BaseException as error:  # a cancellation too
            await uninterrupted(self._undo(self.reservations.release(row.id, *_failure(error)), row.id))
            raise
        return answer

    async def _resolve(self, row: PaymentRow, answer: bytes, payment: Payment, sale: Sale) -> PaidAnswer:
        with self.reservations.leases.kept(row):
            return await uninterrupted(self.ways[sale.network].settlement.resolve(row, answer, payment, sale))

    def _replay(self, row: PaymentRow, sale: Sale) -> PaidAnswer:
        answer = _answer_in(row, sale)
        self.ledger.replayed(row, sale.frame)
        return PaidAnswer(row.id, answer, receipt_of(row), replayed=True)

    async def _undo(self, change: Awaitable[object], payment_id: str) -> None:
        try:
            await change
        except StorageError as error:
            log.warning("payment not released, its lease will lapse: %s", error, extra={"payment": payment_id})


def _answer_in(row: PaymentRow, sale: Sale) -> bytes:
    if (answer := stored_answer(row, sale)) is None:
        raise already_used()
    return answer


def _failure(error: BaseException) -> tuple[Event, str]:
    """The ledger's event, and the reason, for a call that failed before its answer was stored."""
    if isinstance(error, Problem):
        return ("refused" if error.code == "payment_refused" else "failed"), f"{error.code}: {error.detail}"[:200]
    return "failed", type(error).__name__
