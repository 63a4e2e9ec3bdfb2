"""`campus ledger reconcile`: finishes payments whose process died, whose outcome is unknown, or which settled without a proof.

It asks the chain. A payment whose answer is stored, and that the chain does not show, it also submits again, until the chain shows it, the
facilitator refuses it for good, or its authorization ends: the same authorization, which the chain accepts once. Its caller was told so.

A payment that settles without a proof is *unproven*: it counts as charged, and the reconciler looks for its transfer. It ends as one of

proven      the chain shows the transfer
reversed    the chain will never show it (chain.py says when); what it bought is taken back, and the ledger subtracts it
accepted    the operator looked into it and accepts it as it is

A payment that is unproven for ten minutes, or reversed, is *overdue*: every call waits for its proof until the chain proves the overdue
payment after all, or the operator accepts.

A payment that was proven and is not found by the audit is unproven again: a reorganization may have removed its block. But the node may
also lag or lie, and an honest buyer's key depends on it. So it is reversed only after every answer of one hour lacked the transfer and the
last answer was complete, with a head at least 64 blocks past the block where it was proven. One answer that shows it proves it.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

import anyio
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from campus.features.payments.chain import Chain
from campus.features.payments.ledger import entry
from campus.features.payments.payment import PaymentOutcome
from campus.features.payments.reservations import Reservations, transfer_of
from campus.features.payments.tables import PaymentRow
from campus.keys.sales import KeySales
from campus.shares import FairQueue
from campus.storage import Storage

OVERDUE_AFTER = timedelta(minutes=10)
"""An honest settlement is on the chain in seconds, and a node that was restarted or fell behind is back in minutes."""
REVERSED_AFTER = timedelta(hours=1)
CONFIRMATIONS = 64
PER_ROUND = 100
"""How many payments in doubt, and how many unproven ones, a round looks for, first those that were looked for longest ago: each takes
several calls to the node."""
SUBMISSIONS = 16
SUBMISSIONS_OF_ONE = 4
"""How many payments are submitted again at once, in all and of one client address, so that one whose payments hang delays no other."""
SUBMITTING_SECONDS = 60.0
"""How long a round waits for its submissions, after its last question to the chain."""
ResultT = TypeVar("ResultT")
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Resolution:
    """A payment that was looked for: its state before and after, and why. `transaction` is None unless it was charged."""

    network: str
    payment_id: str
    before: str
    after: str
    transaction: str | None
    reason: str


@dataclass(frozen=True)
class UnprovenPayments:
    """The settled payments without a proof. Every change is on disk when its method returns."""

    storage: Storage
    purchases: KeySales
    now: Callable[[], datetime]

    async def due(self, network: str, *, most: int) -> Sequence[PaymentRow]:
        unproven = PaymentRow.state == "settled", PaymentRow.network == network, col(PaymentRow.unproven_since).is_not(None)
        async with self.storage.read() as session:
            return (await session.exec(select(PaymentRow).where(*unproven).order_by(col(PaymentRow.lease_until)).limit(most))).all()

    async def overdue(self) -> Sequence[PaymentRow]:
        """Those that the operator has to look into, the oldest first."""
        async with self.storage.read() as session:
            late = select(PaymentRow).where(col(PaymentRow.overdue_at).is_not(None))
            return (await session.exec(late.order_by(col(PaymentRow.overdue_at)))).all()

    async def is_any_overdue(self) -> bool:
        async with self.storage.read() as session:
            late = select(PaymentRow.id).where(col(PaymentRow.overdue_at).is_not(None)).limit(1)
            return (await session.exec(late)).first() is not None

    async def mark_unproven(self, payment_id: str, reason: str) -> None:
        """Record that the chain does not show a payment that was proven before."""
        async with self.storage.write() as session:
            row = await session.get(PaymentRow, payment_id)
            if row is not None and row.state == "settled" and row.block is not None and row.unproven_since is None:
                row.unproven_since = self.now()
                session.add(entry(row, "unproven", reason, at=row.unproven_since))
                log.warning("payment gone from the chain: %s", reason, extra={"payment": row.id, "transaction": row.transaction})

    async def conclude(self, payment_id: str, outcome: PaymentOutcome) -> None:
        """Mark an unproven payment as proven, reversed or overdue, by what the chain shows."""
        async with self.storage.write() as session:
            row = await session.get(PaymentRow, payment_id)
            if row is None or row.state != "settled" or row.unproven_since is None:
                return
            now = self.now()
            if outcome.state == "settled":
                _prove(session, row, outcome, now=now)
            elif is_gone(row, outcome, now=now):
                _reverse(session, row, outcome.reason, now=now)
                await self.purchases.take_back(session, row.id)
            else:
                row.lease_until = now
                if row.overdue_at is None and now >= row.unproven_since + OVERDUE_AFTER:
                    row.overdue_at = now
                    log.error("payment unproven for too long", extra={"payment": row.id, "transaction": row.transaction})

    async def accept(self) -> Sequence[PaymentRow]:
        """Accept every overdue payment as it is; they no longer make calls wait for their proofs."""
        async with self.storage.write() as session:
            rows = (await session.exec(select(PaymentRow).where(col(PaymentRow.overdue_at).is_not(None)))).all()
            for row in rows:
                row.overdue_at = row.unproven_since = None
                session.add(entry(row, "accepted", f"by the operator, {row.state}", at=self.now()))
            return rows


@dataclass(frozen=True)
class Reconciler:
    """Concludes the payments of all processes on one network, whose chain it asks. Several reconcilers may run at once.

    `submit` has a payment charged that no caller waits for: see Settlement.
    """

    reservations: Reservations
    unproven: UnprovenPayments
    chain: Chain
    submit: Callable[[PaymentRow], Awaitable[PaymentOutcome]]
    network: str
    now: Callable[[], datetime]
    turns: FairQueue = field(default_factory=lambda: FairQueue(limit=SUBMISSIONS, per_holder=SUBMISSIONS_OF_ONE))

    async def resolve(self) -> Sequence[Resolution]:
        """Conclude payments that no process works on, and unproven ones, where the chain shows the outcome by now; 100 of each at most.

        Those that the chain does not show are submitted again. If the node is in trouble, the round ends: each further question would fail
        too, and might take its full timeout.
        """
        # reserved payments first: they were never sent to be charged, so nobody needs to be asked
        open_ones = sorted(await self.reservations.overdue(self.network, most=PER_ROUND), key=lambda row: row.state != "reserved")
        looked_for: list[PaymentRow] = []
        is_in_trouble = False
        with anyio.CancelScope() as round_:
            async with anyio.create_task_group() as submissions:
                for row in open_ones:
                    looked_for.append(row)
                    if (held := await self._attempt(row, partial(self._take_up, row))) is not None:
                        submissions.start_soon(self._attempt, row, partial(self._submit_in_turn, held))
                    if is_in_trouble := row.state != "reserved" and self.chain.trouble is not None:
                        break
                round_.deadline = anyio.current_time() + SUBMITTING_SECONDS  # those that are left are taken up again in the next round
        for row in () if is_in_trouble else await self.unproven.due(self.network, most=PER_ROUND):
            looked_for.append(row)
            await self._attempt(row, partial(self.look_for_proof, row))
            if self.chain.trouble is not None:
                break
        return [resolution for row in looked_for if (resolution := await self._resolution_of(row)) is not None]

    async def look(self, row: PaymentRow) -> None:
        """Conclude a payment that no process works on, if the chain shows its outcome, or does once it is submitted again."""
        if (held := await self._take_up(row)) is not None:
            await self._submit_in_turn(held)

    async def look_for_proof(self, row: PaymentRow) -> None:
        """Conclude a payment that settled without a proof, if the chain shows its outcome."""
        outcome = PaymentOutcome("unknown")
        if row.transaction is not None:
            outcome = await self.chain.shown(row.transaction, transfer_of(row))
        if outcome.state != "settled":
            outcome = await self._ask_chain(row)
        await self.unproven.conclude(row.id, outcome)

    async def _take_up(self, row: PaymentRow) -> PaymentRow | None:
        """Conclude a payment that no process works on, by what the chain shows; one that is to be submitted is leased and returned."""
        if (held := await self.reservations.take_up(row.id)) is None:
            return None
        outcome = await self._ask_chain(held)
        if outcome.state == "unknown" and self.chain.trouble is None and await self.reservations.may_be_submitted(held):
            return held
        await self._conclude(held, outcome)
        return None

    async def _submit_in_turn(self, held: PaymentRow) -> None:
        """Submit a payment; those of one client leave turns to others."""
        with self.reservations.leases.kept(held):
            async with self.turns.turn(held.client or ""):
                outcome = await self.submit(held)
            await self._conclude(held, outcome, submissions=1)

    async def _conclude(self, held: PaymentRow, outcome: PaymentOutcome, *, submissions: int = 0) -> None:
        if outcome.state == "settled" and outcome.transaction is not None:
            await self.reservations.settle(held.id, outcome.transaction, block=outcome.block, answered=False)
        elif outcome.state == "refused":
            await self.reservations.release(held.id, "released", outcome.reason)
        else:
            await self.reservations.doubt(held, outcome.reason, submissions=submissions, is_denied=outcome.is_denied)

    async def _attempt(self, row: PaymentRow, look: Callable[[], Awaitable[ResultT]]) -> ResultT | None:
        try:
            return await look()
        except Exception:  # the border of a job: one payment that cannot be concluded does not stop the others
            log.exception("payment not reconciled", extra={"payment": row.id})
            return None

    async def _resolution_of(self, before: PaymentRow) -> Resolution | None:
        if (after := await self.reservations.get(before.id)) is None:
            return None
        return Resolution(after.network, before.id, state_of(before), state_of(after), after.transaction, after.reason)

    async def _ask_chain(self, row: PaymentRow) -> PaymentOutcome:
        return await self.chain.outcome_of(transfer_of(row), since=row.reserved_at, now=self.now())


def state_of(row: PaymentRow) -> str:
    return "unproven" if row.state == "settled" and row.unproven_since is not None else row.state


def is_gone(row: PaymentRow, outcome: PaymentOutcome, *, now: datetime) -> bool:
    """Whether an unproven payment is to be reversed, by what the chain shows of it."""
    if outcome.state != "refused" or row.unproven_since is None:
        return False
    if row.block is None:
        return True
    return now >= row.unproven_since + REVERSED_AFTER and outcome.block is not None and outcome.block >= row.block + CONFIRMATIONS


def _prove(session: AsyncSession, row: PaymentRow, outcome: PaymentOutcome, *, now: datetime) -> None:
    row.transaction = outcome.transaction
    row.block = outcome.block
    row.unproven_since = row.overdue_at = None
    session.add(entry(row, "proven", at=now))
    log.info("payment proven", extra={"payment": row.id, "transaction": row.transaction})


def _reverse(session: AsyncSession, row: PaymentRow, reason: str, *, now: datetime) -> None:
    row.state = "reversed"
    row.reason = reason
    row.overdue_at = now
    row.unproven_since = None
    row.answer = row.answer_until = row.purchase = row.client = None
    session.add(entry(row, "reversed", reason, at=now))
    log.error("payment reversed: %s", reason, extra={"payment": row.id, "transaction": row.transaction})
