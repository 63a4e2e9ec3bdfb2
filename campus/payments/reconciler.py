"""`campus ledger reconcile`: finishes payments whose process died, whose outcome is unknown, or which settled without a proof.

It only asks the chain. It never has a payment charged: the caller may have given up and paid with another one.

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
from datetime import datetime, timedelta

from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from campus.payments.chain import Chain
from campus.payments.findings import Resolution
from campus.payments.ledger import entry
from campus.payments.payment import PaymentOutcome, Purchases
from campus.payments.reservations import Reservations, transfer_of
from campus.payments.tables import PaymentRow
from campus.storage import Storage

OVERDUE_AFTER = timedelta(minutes=10)
"""An honest settlement is on the chain in seconds, and a node that was restarted or fell behind is back in minutes."""
REVERSED_AFTER = timedelta(hours=1)
CONFIRMATIONS = 64
PER_ROUND = 100
"""How many payments in doubt, and how many unproven ones, a round looks for, first those that were looked for longest ago: each takes
several calls to the node."""
log = logging.getLogger(__name__)


class UnprovenPayments:
    """The settled payments without a proof. Every change is on disk when its method returns."""

    def __init__(self, storage: Storage, purchases: Purchases, *, now: Callable[[], datetime]) -> None:
        self._storage = storage
        self._purchases = purchases
        self._now = now

    async def due(self, network: str, *, most: int) -> Sequence[PaymentRow]:
        """Those on the network, at most `most`: first those that were looked for longest ago."""
        unproven = PaymentRow.state == "settled", PaymentRow.network == network, col(PaymentRow.unproven_since).is_not(None)
        async with self._storage.read() as session:
            return (await session.exec(select(PaymentRow).where(*unproven).order_by(col(PaymentRow.lease_until)).limit(most))).all()

    async def overdue(self) -> Sequence[PaymentRow]:
        """Those that the operator has to look into, the oldest first."""
        async with self._storage.read() as session:
            late = select(PaymentRow).where(col(PaymentRow.overdue_at).is_not(None))
            return (await session.exec(late.order_by(col(PaymentRow.overdue_at)))).all()

    async def is_any_overdue(self) -> bool:
        """Whether every call has to wait for its proof."""
        async with self._storage.read() as session:
            late = select(PaymentRow.id).where(col(PaymentRow.overdue_at).is_not(None)).limit(1)
            return (await session.exec(late)).first() is not None

    async def mark_unproven(self, payment_id: str, reason: str) -> None:
        """Record that the chain does not show a payment that was proven before."""
        async with self._storage.write() as session:
            row = await session.get(PaymentRow, payment_id)
            if row is not None and row.state == "settled" and row.block is not None and row.unproven_since is None:
                row.unproven_since = self._now()
                session.add(entry(row, "unproven", reason, at=row.unproven_since))
                log.warning("payment gone from the chain: %s", reason, extra={"payment": row.id, "transaction": row.transaction})

    async def conclude(self, payment_id: str, outcome: PaymentOutcome) -> None:
        """Mark an unproven payment as proven, reversed or overdue, by what the chain shows."""
        async with self._storage.write() as session:
            row = await session.get(PaymentRow, payment_id)
            if row is None or row.state != "settled" or row.unproven_since is None:
                return
            now = self._now()
            if outcome.state == "settled":
                _prove(session, row, outcome, now=now)
            elif is_gone(row, outcome, now=now):
                _reverse(session, row, outcome.reason, now=now)
                await self._purchases.take_back(session, row.id)
            else:
                row.lease_until = now
                if row.overdue_at is None and now >= row.unproven_since + OVERDUE_AFTER:
                    row.overdue_at = now
                    log.error("payment unproven for too long", extra={"payment": row.id, "transaction": row.transaction})

    async def accept(self) -> Sequence[PaymentRow]:
        """Accept every overdue payment as it is; they no longer make calls wait for their proofs."""
        async with self._storage.write() as session:
            rows = (await session.exec(select(PaymentRow).where(col(PaymentRow.overdue_at).is_not(None)))).all()
            for row in rows:
                row.overdue_at = row.unproven_since = None
                session.add(entry(row, "accepted", f"by the operator, {row.state}", at=self._now()))
            return rows


class Reconciler:
    """Concludes the payments of all processes on one network, whose chain it asks. Several reconcilers may run at once."""

    def __init__(
        self, reservations: Reservations, unproven: UnprovenPayments, chain: Chain, *, network: str, now: Callable[[], datetime]
    ) -> None:
        self._reservations = reservations
        self._unproven = unproven
        self._chain = chain
        self._network = network
        self._now = now

    async def resolve(self) -> Sequence[Resolution]:
        """Conclude payments that no process works on, and unproven ones, where the chain shows the outcome by now; 100 of each at most.

        If the node is in trouble, the round ends: each further call would fail too, and might take its full timeout.
        """
        found: list[Resolution] = []
        # reserved payments first: they were never sent to be charged, so nobody needs to be asked
        for row in sorted(await self._reservations.overdue(self._network, most=PER_ROUND), key=lambda row: row.state != "reserved"):
            found += await self._resolution_of(row, self.look)
            if row.state != "reserved" and self._chain.trouble is not None:
                return found
        for row in await self._unproven.due(self._network, most=PER_ROUND):
            found += await self._resolution_of(row, self.look_for_proof)
            if self._chain.trouble is not None:
                return found
        return found

    async def elsewhere(self) -> Sequence[str]:
        """The other networks on which payments are not concluded, because campus.toml named them before."""
        return await self._reservations.open_elsewhere(self._network)

    async def look(self, row: PaymentRow) -> None:
        """Conclude a payment that no process works on, if the chain shows its outcome."""
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
        """Conclude a payment that settled without a proof, if the chain shows its outcome."""
        outcome = PaymentOutcome("unknown")
        if row.transaction is not None:
            outcome = await self._chain.shown(row.transaction, transfer_of(row))
        if outcome.state != "settled":
            outcome = await self._ask_chain(row)
        await self._unproven.conclude(row.id, outcome)

    async def _resolution_of(self, row: PaymentRow, look: Callable[[PaymentRow], Awaitable[None]]) -> Sequence[Resolution]:
        try:
            await look(row)
        except Exception:  # the border of a job: one payment that cannot be concluded does not stop the others
            log.exception("payment not reconciled", extra={"payment": row.id})
        after = await self._reservations.get(row.id)
        return [] if after is None else [Resolution(row.id, state_of(row), state_of(after), after.transaction, after.reason)]

    async def _ask_chain(self, row: PaymentRow) -> PaymentOutcome:
        return await self._chain.outcome_of(transfer_of(row), since=row.reserved_at, now=self._now())


def state_of(row: PaymentRow) -> str:
    """The state of a payment; `unproven` for a settled one without a proof."""
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
