"""The reconciler: what became of payments whose process died or whose outcome nobody knew, and whether the chain has all the others.

It only looks. It never has a payment charged: its caller may have given up on it, and paid anew.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlmodel import col, select

from campus.payments.chain import Chain
from campus.payments.charges import Charges
from campus.payments.reservations import Reservations, transfer_of
from campus.payments.tables import PaymentRow
from campus.storage import Storage

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Resolution:
    """A payment that was looked at: its state before and after, and why; `transaction` where it was charged."""

    payment_id: str
    before: str
    after: str
    transaction: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class Discrepancy:
    """A payment that counts as charged, and which the chain does not have so."""

    payment_id: str
    transaction: str | None
    reason: str


class Reconciler:
    """Looks after the payments of all processes; several may look at once."""

    def __init__(self, storage: Storage, reservations: Reservations, charges: Charges, chain: Chain) -> None:
        self._storage = storage
        self._reservations = reservations
        self._charges = charges
        self._chain = chain

    async def resolve(self) -> Sequence[Resolution]:
        """Bring every payment that nobody works on to its end, where that can be known by now."""
        found = []
        # those that were never sent first: nobody need be asked about them
        for row in sorted(await self._reservations.overdue(), key=lambda row: row.state != "reserved"):
            before = row.state
            try:
                await self._charges.look(row)
            except Exception:  # the border of a job: one payment that cannot be concluded keeps no other
                log.exception("payment not reconciled", extra={"payment": row.id})
            if (after := await self._reservations.get(row.id)) is not None:
                found.append(Resolution(row.id, before, after.state, after.transaction, after.reason))
            if before != "reserved" and self._chain.trouble is not None:
                break  # the node would be asked in vain again, and each time it may take its while
        return found

    async def audit(self, since: datetime) -> Sequence[Discrepancy]:
        """Whatever counts as charged since then without a proof on the chain. JobFailed when the chain cannot be asked."""
        doubts = [(row, await self._chain.doubt_of(row.transaction, transfer_of(row))) for row in await self._settled(since)]
        return [Discrepancy(row.id, row.transaction, doubt) for row, doubt in doubts if doubt is not None]

    async def _settled(self, since: datetime) -> Sequence[PaymentRow]:
        settled = select(PaymentRow).where(PaymentRow.state == "settled", col(PaymentRow.settled_at) >= since)
        async with self._storage.read() as session:
            return (await session.exec(settled.order_by(col(PaymentRow.settled_at)))).all()
