"""The till: one payment is charged once and buys one answer, whatever is sent twice, lost or killed.

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
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

import anyio

from campus.errors import StorageError
from campus.payments.answers import opened
from campus.payments.chain import Chain
from campus.payments.leases import Leases
from campus.payments.ledger import Event, Ledger
from campus.payments.outcome import Facilitator, Outcome
from campus.payments.payment import Goods, Payment, Sale, Sold
from campus.payments.reconciler import look_into
from campus.payments.reservations import Reservations, transfer_of
from campus.payments.states import mismatch_of, next_step
from campus.payments.tables import PaymentRow
from twins import Problem

PATIENCE_SECONDS = 15.0
"""How long a call waits for another one that presented the same payment before."""
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
RETRY_AFTER = {"Retry-After": "5"}
T = TypeVar("T")
Run = Callable[[str], Awaitable[Goods]]
log = logging.getLogger(__name__)


class Till:
    """Sells calls for payments; any number of tills, in any number of processes, may stand on one database."""

    def __init__(
        self,
        reservations: Reservations,
        leases: Leases,
        ledger: Ledger,
        facilitator: Facilitator,
        chain: Chain,
        *,
        now: Callable[[], datetime],
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        self._reservations = reservations
        self._leases = leases
        self._ledger = ledger
        self._facilitator = facilitator
        self._chain = chain
        self._now = now
        self._patience = patience

    async def sell(self, payment: Payment, sale: Sale, run: Run) -> Sold:
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
                    goods = _opened(row, sale)
                    if (taken_up := await self._reservations.take_up(row.id)) is not None:
                        return await uninterrupted(self._resolve(taken_up, goods, payment, sale))
                case "look" if row is not None:
                    await look_into(row, self._reservations, self._chain)
                case "refuse":
                    raise already_used()
                case "reused":
                    raise key_reused()
            if anyio.current_time() >= give_up_at:
                raise in_flight()
            await anyio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def recall(self, sale: Sale) -> Sold | None:
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
            case _:
                raise in_flight()

    async def _refuse_mismatch(self, payment: Payment, sale: Sale) -> None:
        reason = mismatch_of(payment, sale, now=self._now()) or await self._facilitator.mismatch(payment, sale)
        if reason is not None:
            self._ledger.turned_away("refused", sale.building, sale.tool, sale.frame)
            raise sale.refused("payment_refused", reason)

    async def _serve(self, row: PaymentRow, payment: Payment, sale: Sale, run: Run) -> Sold:
        """Everything from the reservation on; once the answer is made, a cancellation waits."""
        self._leases.hold(row.id)
        try:
            await self._check(row, payment, sale)
            goods = await self._make(row, sale, run)
            return await uninterrupted(self._settle(row, goods, payment, sale))
        finally:
            self._leases.let_go(row.id)

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

    async def _make(self, row: PaymentRow, sale: Sale, run: Run) -> Goods:
        """Run the tool, store its answer; whatever goes wrong, nothing was charged."""
        try:
            goods = await run(row.id)
            if await uninterrupted(self._reservations.store(row.id, goods, sale)) is None:
                raise in_flight()  # the lease went to another call while the tool ran
        except BaseException as error:  # a cancellation too
            await uninterrupted(self._forsake(self._reservations.release(row.id, *_failure(error)), row.id))
            raise
        return goods

    async def _verify(self, payment: Payment, sale: Sale) -> None:
        verdict = await self._facilitator.verify(payment, sale)
        if not verdict.reachable:
            raise unverified(sale)
        if not verdict.valid:
            raise sale.refused("payment_refused", verdict.reason)

    async def _settle(self, row: PaymentRow, goods: Goods, payment: Payment, sale: Sale) -> Sold:
        """Charge for the first time: only now may the facilitator's refusal settle the matter, for nothing was sent before.

        Not if the chain has the payment all the same: the facilitator is wrong, or somebody else sent it.
        """
        outcome = await self._facilitator.settle(payment, sale)
        if outcome.state == "refused" and (found := await self._ask_chain(row)).state == "settled":
            outcome = found
        if outcome.state == "refused" and await self._reservations.release(row.id, "refused", outcome.reason, only_if="settling"):
            raise sale.refused("payment_refused", outcome.reason)
        if outcome.state != "settled":
            await self._reservations.doubt(row.id, outcome.reason)
            outcome = await self._ask_chain(row)
        return await self._conclude(row, outcome, goods, sale)

    async def _resolve(self, row: PaymentRow, goods: Goods, payment: Payment, sale: Sale) -> Sold:
        """Find out what became of a payment that was sent to be charged before; its caller wants it charged, so charge it if need be."""
        self._leases.hold(row.id)
        try:
            outcome = await self._ask_chain(row)
            if outcome.state == "unknown":
                again = await self._facilitator.settle(payment, as_sold(row, sale))
                # a refusal now says nothing of what was sent before, and may be due to it
                outcome = again if again.state == "settled" else await self._ask_chain(row)
            return await self._conclude(row, outcome, goods, sale)
        finally:
            self._leases.let_go(row.id)

    async def _conclude(self, row: PaymentRow, outcome: Outcome, goods: Goods, sale: Sale) -> Sold:
        match outcome.state:
            case "settled" if outcome.transaction is not None:
                settled = await self._reservations.settle(row.id, outcome.transaction)
                return Sold(goods, receipt_of(settled or await self._as_another_left_it(row)))
            case "refused":
                if await self._reservations.release(row.id, "refused", outcome.reason) is not None:
                    raise sale.refused("payment_refused", outcome.reason)
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

    def _replay(self, row: PaymentRow, sale: Sale) -> Sold:
        goods = _opened(row, sale)
        self._ledger.replayed(row, sale.frame)
        return Sold(goods, receipt_of(row), replayed=True)

    async def _ask_chain(self, row: PaymentRow) -> Outcome:
        return await self._chain.outcome_of(transfer_of(row), since=row.reserved_at)

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


def as_sold(row: PaymentRow, sale: Sale) -> Sale:
    """The sale at the price, and to the address, at which the payment was taken; campus.toml may say another by now."""
    requirements = {**sale.requirements, "amount": str(row.amount), "payTo": row.pay_to}
    return replace(sale, amount=row.amount, requirements=requirements)


def receipt_of(row: PaymentRow) -> dict[str, object]:
    """A settled payment's receipt, as x402 has it."""
    return {"success": True, "transaction": row.transaction, "network": row.network, "payer": row.payer}


def already_used() -> Problem:
    """409: the payment bought something, and this is not a resend that may have it again."""
    return Problem(
        409,
        "payment_already_used",
        "this payment was used before. Its answer is given again for 15 minutes, to the very same payment for the very same call; where the"
        " answer is a secret, for 24 hours to the very same Idempotency-Key. For anything else sign a new payment",
    )


def key_reused() -> Problem:
    """422: the Idempotency-Key is that of another purchase."""
    return Problem(
        422,
        "idempotency_key_reused",
        "this Idempotency-Key was sent before with another purchase; nothing was charged. Make a new one for a new purchase",
    )


def in_flight() -> Problem:
    """409: nobody can tell yet whether the payment was charged."""
    return Problem(
        409,
        "payment_in_flight",
        "this payment is being worked on, and whether it was charged is not known yet; send the very same payment again in a few seconds:"
        " it is charged once at most, and a new one would be charged too",
        headers=RETRY_AFTER,
    )


def unverified(sale: Sale) -> Problem:
    """402: the facilitator could not say whether the payment is good."""
    return sale.refused(
        "payment_unverified", "the payment could not be checked, and was not charged; send the very same payment again in a few seconds"
    )


def _opened(row: PaymentRow, sale: Sale) -> Goods:
    if (goods := opened(row, sale)) is None:
        raise already_used()
    return goods


def _failure(error: BaseException) -> tuple[Event, str]:
    """What to note of a payment whose call did not come to an answer."""
    if isinstance(error, Problem):
        return ("refused" if error.code == "payment_refused" else "failed"), f"{error.code}: {error.detail}"[:200]
    return "failed", type(error).__name__
