"""The ledger of payments: what happened, when, to which call. It only grows; offers are counted, and written once a minute."""

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Literal

from campus.payments.tables import LedgerRow, PaymentRow
from campus.storage import Storage

Event = Literal[
    "offered",
    "admitted",
    "settled",
    "unproven",
    "proven",
    "replayed",
    "failed",
    "refused",
    "unknown",
    "released",
    "reversed",
    "accepted",
]
"""offered: a 402 was shown. admitted: a payment was good, and its tool ran. refused: it was no good. failed: it could not be checked, or
its tool failed. released: it turned out not to have been charged. unproven: it counts as charged, and the chain does not show it. proven:
now it does. reversed: it counted as charged, and was not, or is not any more. accepted: the operator looked into an overdue proof."""
CHARGED: Mapping[Event, int] = {"settled": 1, "reversed": -1}
"""Which events say that an amount was charged, and with which sign: their sum is what the chain has."""


class Ledger:
    """What is too frequent for a row each: counted in memory, by tool or by payment that was charged, and written by `flush`.

    A row says how many, in `quantity`; its time is that of the flush. What a crash loses is at most a minute of these counts, and
    never anything about a payment that was good: those rows are written by whoever changes the payment, in that transaction.
    """

    def __init__(self, storage: Storage, *, now: Callable[[], datetime]) -> None:
        self._storage = storage
        self._now = now
        self._counts: Counter[tuple[Event, str, str, str]] = Counter()
        self._replays: dict[tuple[str, str], LedgerRow] = {}  # of one minute

    def offered(self, building: str, tool: str, frame: str) -> None:
        """Terms were shown to a caller who had sent no payment."""
        self._counts["offered", building, tool, frame] += 1

    def turned_away(self, event: Event, building: str, tool: str, frame: str) -> None:
        """A payment was refused, or could not be checked, before its tool ran: anybody can send as many of those as he likes."""
        self._counts[event, building, tool, frame] += 1

    def replayed(self, row: PaymentRow, frame: str) -> None:
        """An answer was given once more: counted too, for it can be asked for as often as its caller likes, for one payment."""
        again = self._replays.setdefault((row.id, frame), entry(row, "replayed", at=self._now(), quantity=0))
        again.frame, again.quantity = frame, again.quantity + 1

    async def flush(self) -> None:
        """Write what was counted; call it every minute and at the end."""
        counts, self._counts = self._counts, Counter()
        replays, self._replays = self._replays, {}
        if not counts and not replays:
            return
        try:
            now = self._now()
            async with self._storage.write() as session:
                for (event, building, tool, frame), quantity in sorted(counts.items()):
                    session.add(LedgerRow(at=now, event=event, building=building, tool=tool, frame=frame, quantity=quantity))
                session.add_all([LedgerRow(**again.model_dump(exclude={"id"})) for again in replays.values()])
        except BaseException:  # a cancellation too
            self._counts.update(counts)
            for key, again in replays.items():
                self._replays.setdefault(key, again.model_copy(update={"quantity": 0})).quantity += again.quantity
            raise


def entry(row: PaymentRow, event: Event, detail: str = "", *, at: datetime, quantity: int = 1) -> LedgerRow:
    """What happened to a payment, as the ledger keeps it."""
    return LedgerRow(
        at=at,
        event=event,
        building=row.building,
        tool=row.tool,
        frame=row.frame,
        quantity=quantity,
        payment_id=row.id,
        network=row.network,
        asset=row.asset,
        payer=row.payer,
        amount=row.amount,
        transaction=row.transaction,
        detail=detail,
    )
