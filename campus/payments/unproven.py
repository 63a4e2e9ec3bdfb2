"""Settled payments that the chain does not show: answered on a facilitator's word, or gone from the chain; looked at until they end.

A payment that settles without a proof is *unproven*: it counts as charged, and the reconciler looks for it. It ends in one of three ways:

proven      the chain shows it after all
reversed    the chain will never show it (proof.py says when); what it bought is taken back, and the ledger counts it off
accepted    the operator looked into it and lets it stand as it is

One that is unproven for ten minutes, or reversed, is *overdue*: from then on every call waits for its proof, until the operator accepts.

A payment that was proven and is not found by the audit is unproven again: a reorganization may have taken its block away. It may have been
a node that lags or lies, and an honest buyer's key hangs on it. So it is reversed only after every answer of one hour lacked it, the last
one complete, its head 64 blocks or more past the block where it was proven; any answer that shows it ends the matter.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta

from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from campus.payments.ledger import entry
from campus.payments.outcome import Outcome
from campus.payments.tables import PaymentRow
from campus.storage import Storage

OVERDUE_AFTER = timedelta(minutes=10)
"""An honest settlement is on the chain in seconds, and a node that was restarted or fell behind is back in minutes."""
GONE_FOR = timedelta(hours=1)
CONFIRMATIONS = 64
LOOKED_AT_ONCE = 100
"""How many are looked at in one round, those that were looked at last coming last: each takes several questions to the node."""
Consequence = Callable[[AsyncSession, str], Awaitable[None]]
log = logging.getLogger(__name__)


class UnprovenPayments:
    """The settled payments of the house's storage as far as their proof goes. Every change is on disk when it returns."""

    def __init__(self, storage: Storage, *, now: Callable[[], datetime], on_reversed: Consequence) -> None:
        self._storage = storage
        self._now = now
        self._on_reversed = on_reversed

    async def open(self) -> Sequence[PaymentRow]:
        """Those that are to be looked for now."""
        unproven = select(PaymentRow).where(PaymentRow.state == "settled", col(PaymentRow.unproven_since).is_not(None))
        async with self._storage.read() as session:
            return (await session.exec(unproven.order_by(col(PaymentRow.lease_until)).limit(LOOKED_AT_ONCE))).all()

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

    async def miss(self, payment_id: str, reason: str) -> None:
        """Note that the chain does not show a payment that was proven before."""
        async with self._storage.write() as session:
            row = await session.get(PaymentRow, payment_id)
            if row is not None and row.state == "settled" and row.block is not None and row.unproven_since is None:
                row.unproven_since = self._now()
                session.add(entry(row, "unproven", reason, at=row.unproven_since))
                log.warning("payment gone from the chain: %s", reason, extra={"payment": row.id, "transaction": row.transaction})

    async def conclude(self, payment_id: str, outcome: Outcome) -> None:
        """Bring an unproven payment to the end that the chain's word means for it, if any."""
        async with self._storage.write() as session:
            row = await session.get(PaymentRow, payment_id)
            if row is None or row.state != "settled" or row.unproven_since is None:
                return
            now = self._now()
            if outcome.state == "settled":
                _prove(session, row, outcome, now=now)
            elif is_gone(row, outcome, now=now):
                _reverse(session, row, outcome.reason, now=now)
                await self._on_reversed(session, row.id)
            else:
                row.lease_until = now
                if row.overdue_at is None and now >= row.unproven_since + OVERDUE_AFTER:
                    row.overdue_at = now
                    log.error("payment unproven for too long", extra={"payment": row.id, "transaction": row.transaction})

    async def accept(self) -> Sequence[PaymentRow]:
        """Let every overdue payment stand as it is; no call has to wait for its proof on their account any more."""
        async with self._storage.write() as session:
            rows = (await session.exec(select(PaymentRow).where(col(PaymentRow.overdue_at).is_not(None)))).all()
            for row in rows:
                row.overdue_at = row.unproven_since = None
                session.add(entry(row, "accepted", f"by the operator, {row.state}", at=self._now()))
            return rows


def is_gone(row: PaymentRow, outcome: Outcome, *, now: datetime) -> bool:
    """Whether an unproven payment is to be reversed, by what the chain says of it."""
    if outcome.state != "refused" or row.unproven_since is None:
        return False
    if row.block is None:
        return True
    return now >= row.unproven_since + GONE_FOR and outcome.block is not None and outcome.block >= row.block + CONFIRMATIONS


def _prove(session: AsyncSession, row: PaymentRow, outcome: Outcome, *, now: datetime) -> None:
    row.transaction, row.block, row.unproven_since = outcome.transaction, outcome.block, None
    session.add(entry(row, "proven", at=now))
    log.info("payment proven", extra={"payment": row.id, "transaction": row.transaction})


def _reverse(session: AsyncSession, row: PaymentRow, reason: str, *, now: datetime) -> None:
    row.state, row.reason, row.overdue_at, row.unproven_since = "reversed", reason, now, None
    row.answer = row.answer_until = row.purchase = row.client = None
    session.add(entry(row, "reversed", reason, at=now))
    log.error("payment reversed: %s", reason, extra={"payment": row.id, "transaction": row.transaction})
