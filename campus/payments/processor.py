"""The processor: one payment is charged once and buys one answer, whatever is sent twice, lost or killed.

A payment that is presented for the first time (states.py draws what it goes through):

    reserve ── verify ── run the tool ── store the answer ── settle ── note it ── deliver
       │          │           │                                │
       │          │           └── release: nothing was charged │
       │          └── forget: counted, and not a trace more    │
       │                                                       ├── refused: release
    on disk, and unique                                        └── nobody knows: ask the chain, else doubt

The order is the promise. The reservation is on disk before the tool runs, so that no second call can run it for the same payment. The
answer is on disk before the payment is sent to be charged, so that there is no charge without an answer. The charge is on disk before
the answer is given, so that no answer goes out unpaid. A process that dies leaves a row that says how far it came, and whoever presents
the payment again goes on from there; for those who never do, the reconciler finds out.
"""

import logging
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TypeVar

import anyio

from campus.errors import StorageError
from campus.payments.leases import Leases
from campus.payments.ledger import Event, Ledger
from campus.payments.outcome import Facilitator
from campus.payments.payment import PaidAnswer, Payment, Sale, StoredAnswer
from campus.payments.problems import already_used, in_flight, key_ambiguous, key_reused, refused, unverified, used_elsewhere
from campus.payments.queue import FairQueue
from campus.payments.reservations import Reservations
from campus.payments.settlement import Settlement, receipt_of
from campus.payments.states import mismatch_of, next_step
from campus.payments.stored_answers import opened
from campus.payments.tables import PaymentRow
from twins import Problem

PATIENCE_SECONDS = 15.0
"""How long a call waits for another one that presented the same payment before."""
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
T = TypeVar("T")
Run = Callable[[str], Awaitable[StoredAnswer]]
log = logging.getLogger(__name__)


class PaymentProcessor:
    """Sells calls for payments; any number of tills, in any number of processes, may stand on one database."""

    def __init__(
        self,
        reservations: Reservations,
        leases: Leases,
        ledger: Ledger,
        facilitator: Facilitator,
        charges: Settlement,
        *,
        now: Callable[[], datetime],
        patience: float = PATIENCE_SECONDS,
        queue: FairQueue | None = None,
    ) -> None:
        self._reservations = reservations
        self._leases = leases
        self._ledger = ledger
        self._facilitator = facilitator
        self._settlement = charges
        self._now = now
        self._patience = patience
        self._queue = queue or FairQueue()

    async def process(self, payment: Payment, sale: Sale, run: Run) -> PaidAnswer:
        """The answer that the payment buys, and its receipt; `run(payment_id)` makes the answer, and is called at most once.

        Whatever `run` raises is raised on, and the payment is not charged. Problem 402: the payment is no good, or could not be checked;
        nothing was charged. Problem 409: it bought something before, or is in flight, its outcome not known yet.
        """
        give_up_at, pause = anyio.current_time() + self._patience, FIRST_PAUSE
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
                    answer = _opened(row, sale)
                    if (taken_up := await self._reservations.take_up(row.id)) is not None:
                        return await self._resolve(taken_up, answer, payment, sale)
                case "look" if row is not None:
                    await self._settlement.look(row)
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
        """The answer that this sale's Idempotency-Key bought before, for a caller who sends no payment; None: nothing was bought with it.

        Problem 409 while that purchase is in flight: terms would have its caller pay a second time.
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
        reason = mismatch_of(payment, sale, now=self._now()) or await self._facilitator.mismatch(payment, sale)
        if reason is not None:
            self._ledger.turned_away("refused", sale.building, sale.tool, sale.frame)
            raise refused(sale, reason)

    async def _serve(self, row: PaymentRow, payment: Payment, sale: Sale, run: Run) -> PaidAnswer:
        """Everything from the reservation on; once the answer is made, a cancellation waits."""
        self._leases.hold(row)
        try:
            await self._check(row, payment, sale)
            answer = await self._make(row, sale, run)
            return await uninterrupted(self._settlement.settle(row, answer, payment, sale))
        finally:
            self._leases.let_go(row)

    async def _check(self, row: PaymentRow, payment: Payment, sale: Sale) -> None:
        """Have the payment checked; one that is no good, or that nobody can check, is counted and forgotten."""
        try:
            await self._verify(payment, sale)
        except BaseException as error:  # a cancellation too
            event, reason = _failure(error)
            self._ledger.turned_away(event, sale.building, sale.tool, sale.frame)
            log.info("payment not admitted: %s", reason, extra={"payment": row.id, "payer": row.payer})
            await uninterrupted(self._forsake(self._reservations.withdraw(row.id), row.id))
            raise

    async def _make(self, row: PaymentRow, sale: Sale, run: Run) -> StoredAnswer:
        """Run the tool, store its answer; whatever goes wrong, nothing was charged."""
        try:
            answer = await run(row.id)
            if await uninterrupted(self._reservations.store(row.id, answer, sale)) is None:
                raise in_flight()  # the lease went to another call while the tool ran
        except BaseException as error:  # a cancellation too
            await uninterrupted(self._forsake(self._reservations.release(row.id, *_failure(error)), row.id))
            raise
        return answer

    async def _verify(self, payment: Payment, sale: Sale) -> None:
        async with self._queue.turn(sale.client, payment.payer):
            verdict = await self._facilitator.verify(payment, sale)
        if not verdict.reachable:
            raise unverified(sale)
        if not verdict.valid:
            raise refused(sale, verdict.reason)

    async def _resolve(self, row: PaymentRow, answer: StoredAnswer, payment: Payment, sale: Sale) -> PaidAnswer:
        """Go on with a payment that was left in the middle of its charge."""
        self._leases.hold(row)
        try:
            return await uninterrupted(self._settlement.resolve(row, answer, payment, sale))
        finally:
            self._leases.let_go(row)

    def _replay(self, row: PaymentRow, sale: Sale) -> PaidAnswer:
        answer = _opened(row, sale)
        self._ledger.replayed(row, sale.frame)
        return PaidAnswer(answer, receipt_of(row), replayed=True)

    async def _forsake(self, change: Awaitable[object], payment_id: str) -> None:
        try:
            await change
        except StorageError as error:
            log.warning("payment not released, its lease will lapse: %s", error, extra={"payment": payment_id})


async def uninterrupted(work: Awaitable[T]) -> T:
    """What the work gives; a cancellation takes effect after it."""
    with anyio.CancelScope(shield=True):
        result = await work
    return result  # noqa: RET504  # a scope can swallow what is raised in it, so mypy wants a return after it


def _opened(row: PaymentRow, sale: Sale) -> StoredAnswer:
    if (answer := opened(row, sale)) is None:
        raise already_used()
    return answer


def _failure(error: BaseException) -> tuple[Event, str]:
    """What to note of a payment whose call did not come to an answer."""
    if isinstance(error, Problem):
        return ("refused" if error.code == "payment_refused" else "failed"), f"{error.code}: {error.detail}"[:200]
    return "failed", type(error).__name__
