"""The ledger of payments: what happened, when, to which call. It only grows; offers are counted, and written once a minute."""

import logging
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import Literal

from campus.errors import StorageError
from campus.payments.tables import LedgerRow, PaymentRow
from campus.storage import Storage

log = logging.getLogger(__name__)

Event = Literal["offered", "admitted", "settled", "replayed", "failed", "refused", "unknown", "released"]
"""offered: a 402 was shown. admitted: a payment was good, and its tool ran. refused: it was no good. failed: it could not be checked, or
its tool failed. released: it turned out not to have been charged."""


class Ledger:
    """What is too frequent for a row each: counted in memory, as many numbers as there are tools, and written by `flush`.

    A row says how many, in `quantity`; its time is that of the flush. What a crash loses is at most a minute of these counts, and
    never anything about a payment that was good: those rows are written by whoever changes the payment, in that transaction.
    """

    def __init__(self, storage: Storage, *, now: Callable[[], datetime]) -> None:
        self._storage = storage
        self._now = now
        self._counts: Counter[tuple[Event, str, str, str]] = Counter()

    def offered(self, building: str, tool: str, frame: str) -> None:
        """Terms were shown to a caller who had sent no payment."""
        self._counts["offered", building, tool, frame] += 1

    def turned_away(self, event: Event, building: str, tool: str, frame: str) -> None:
        """A payment was refused, or could not be checked, before its tool ran: anybody can send as many of those as he likes."""
        self._counts[event, building, tool, frame] += 1

    async def replayed(self, row: PaymentRow, frame: str) -> None:
        """An answer was given once more; that it cannot be noted is no reason not to give it."""
        again = entry(row, "replayed", at=self._now())
        again.frame = frame
        try:
            async with self._storage.write() as session:
                session.add(again)
        except StorageError as error:
            log.warning("replay not noted: %s", error, extra={"payment": row.id})

    async def flush(self) -> None:
        """Write what was counted; call it every minute and at the end."""
        counts, self._counts = self._counts, Counter()
        if not counts:
            return
        try:
            now = self._now()
            async with self._storage.write() as session:
                for (event, building, tool, frame), quantity in sorted(counts.items()):
                    session.add(LedgerRow(at=now, event=event, building=building, tool=tool, frame=frame, quantity=quantity))
        except BaseException:  # a cancellation too
            self._counts.update(counts)
            raise


def entry(row: PaymentRow, event: Event, detail: str = "", *, at: datetime) -> LedgerRow:
    """What happened to a payment, as the ledger keeps it."""
    return LedgerRow(
        at=at,
        event=event,
        building=row.building,
        tool=row.tool,
        frame=row.frame,
        payment_id=row.id,
        network=row.network,
        asset=row.asset,
        payer=row.payer,
        amount=row.amount,
        transaction=row.transaction,
        detail=detail,
    )
