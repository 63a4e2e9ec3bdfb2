"""The reconciler: what became of payments whose process died, whose outcome nobody knew, or which settled without a proof.

It only looks. It never has a payment charged: its caller may have given up on it, and paid anew.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from campus.payments.chain import Chain
from campus.payments.reservations import Reservations
from campus.payments.settlement import Settlement
from campus.payments.tables import PaymentRow
from campus.payments.unproven import UnprovenPayments

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Resolution:
    """A payment that was looked at: its state before and after, and why; `transaction` where it was charged."""

    payment_id: str
    before: str
    after: str
    transaction: str | None
    reason: str


class Reconciler:
    """Looks after the payments of all processes; several may look at once."""

    def __init__(self, reservations: Reservations, unproven: UnprovenPayments, charges: Settlement, chain: Chain) -> None:
        self._reservations = reservations
        self._unproven = unproven
        self._settlement = charges
        self._chain = chain

    async def resolve(self) -> Sequence[Resolution]:
        """Bring every payment that nobody works on, and every unproven one, to its end, where that can be known by now.

        A node that is in trouble is asked once: it would be asked in vain again, and each time it may take its while.
        """
        found: list[Resolution] = []
        # those that were never sent first: nobody need be asked about them
        for row in sorted(await self._reservations.overdue(), key=lambda row: row.state != "reserved"):
            found += await self._looked(row, self._settlement.look)
            if row.state != "reserved" and self._chain.trouble is not None:
                return found
        for row in await self._unproven.open():
            found += await self._looked(row, self._settlement.look_for_proof)
            if self._chain.trouble is not None:
                return found
        return found

    async def _looked(self, row: PaymentRow, look: Callable[[PaymentRow], Awaitable[None]]) -> Sequence[Resolution]:
        try:
            await look(row)
        except Exception:  # the border of a job: one payment that cannot be concluded keeps no other
            log.exception("payment not reconciled", extra={"payment": row.id})
        after = await self._reservations.get(row.id)
        return [] if after is None else [Resolution(row.id, state_of(row), state_of(after), after.transaction, after.reason)]


def state_of(row: PaymentRow) -> str:
    """The state of a payment, a settled one's without a proof told apart."""
    return "unproven" if row.state == "settled" and row.unproven_since is not None else row.state
