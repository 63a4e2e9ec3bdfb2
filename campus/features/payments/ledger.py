"""The ledger of payments: what happened, when, to which call. Written by `Ledger`, read by `Accounts`; rows are only ever added."""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from typing import Any, Literal, NamedTuple

from sqlalchemy import ColumnElement, Select, case, func, or_, true
from sqlalchemy import select as select_columns
from sqlmodel import col, select

from campus.features.payments.feature import payments_table
from campus.features.payments.tables import LedgerRow, PaymentRow
from campus.pricing import Price
from campus.storage import Storage
from campus.storage.buffers import Buffer

__all__ = ["CHARGED", "Accounts", "Event", "Funnel", "Ledger", "LedgerRow", "Period", "Revenue", "accounts_of", "entry"]

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
"""offered: a 402 with terms was returned. admitted: a payment was good, and its tool ran. settled: it was charged. unproven: it counts as
charged, and the chain does not show it. proven: now the chain shows it. replayed: its answer was returned again. failed: it could not be
checked, or its tool failed. refused: it was not valid. unknown: nobody can tell whether it was charged. released: it was not charged.
reversed: it counted as charged, and the chain does not show it, or no longer. accepted: the operator accepted it without a proof."""
CHARGED: Mapping[Event, int] = {"settled": 1, "reversed": -1}
"""Which events say that an amount was charged, and with which sign: their sum is what the chain shows."""
ROWS_PER_PAGE = 1_000
SAME = ("building", "tool", "frame", "network", "asset", "payer", "amount", "transaction")
"""The members that an entry has from its payment."""


class Counted(NamedTuple):
    """Entries of the ledger that are counted together: of a tool, or of a payment."""

    event: Event
    building: str
    tool: str
    frame: str
    network: str | None = None
    asset: str | None = None
    payer: str | None = None
    amount: int | None = None
    transaction: str | None = None
    payment_id: str | None = None


class Ledger:
    """Counts in memory the events that are too frequent for a row each, by tool or by settled payment; `flush` writes the counts.

    A row has the count in `quantity` and the time of the flush. A crash loses at most one minute of these counts, and never anything about
    a payment that was good: those rows are written in the transaction that changes the payment.
    """

    def __init__(self, storage: Storage, *, now: Callable[[], datetime]) -> None:
        self._storage = storage
        self._now = now
        self._counts: Buffer[Counted, int] = Buffer(Counter(), self._store, at_once=ROWS_PER_PAGE)
        self.flush = self._counts.flush

    def count(self, event: Event, building: str, tool: str, frame: str) -> None:
        """Count an event that anybody can cause any number of: terms that were shown, or a payment that was turned away."""
        self._counts.waiting[Counted(event, building, tool, frame)] += 1

    def replayed(self, row: PaymentRow, frame: str) -> None:
        """Count an answer that was returned again. A caller can ask for it any number of times with one payment."""
        same = {name: getattr(row, name) for name in SAME} | {"frame": frame}
        self._counts.waiting[Counted("replayed", payment_id=row.id, **same)] += 1

    async def _store(self, counts: Mapping[Counted, int]) -> None:
        now = self._now()
        async with self._storage.write() as session:
            session.add_all([LedgerRow(at=now, quantity=quantity, **counted._asdict()) for counted, quantity in counts.items()])


def entry(row: PaymentRow, event: Event, detail: str = "", *, at: datetime) -> LedgerRow:
    same = {name: getattr(row, name) for name in SAME}
    return LedgerRow(at=at, event=event, payment_id=row.id, detail=detail, **same)


@dataclass(frozen=True, slots=True)
class Period:
    """From one UTC day to another, both included. None means from the first entry, or to the last."""

    since: date | None = None
    until: date | None = None

    @property
    def conditions(self) -> tuple[ColumnElement[bool], ...]:
        after = [] if self.since is None else [col(LedgerRow.at) >= datetime.combine(self.since, time(), UTC)]
        before = [] if self.until is None else [col(LedgerRow.at) <= datetime.combine(self.until, time.max, UTC)]
        return (*after, *before)


class Revenue(NamedTuple):
    """What one tool earned on one UTC day and network; `amount` is in the token's smallest unit."""

    day: str
    building: str
    tool: str
    network: str
    payments: int
    amount: int

    @property
    def usd(self) -> str:
        return str(Price(self.amount))


class Funnel(NamedTuple):
    """How often the terms of one tool were shown on one UTC day, and how often they were paid.

    `shown` counts 402 answers, `paid` settled payments, `payers` the addresses that paid. A caller may pay without asking for the terms
    first, so `conversion`, paid ÷ shown, may be above 1. It is None if no terms were shown.
    """

    day: str
    building: str
    tool: str
    shown: int
    paid: int
    payers: int

    @property
    def conversion(self) -> float | None:
        return round(self.paid / self.shown, 4) if self.shown else None


class StateTotal(NamedTuple):
    """The payments in one state: how many, their sum in the token's smallest unit, and when the oldest was reserved."""

    state: str
    payments: int
    amount: int
    oldest_at: datetime

    @property
    def usd(self) -> str:
        return str(Price(self.amount))


def accounts_of(config: Any, storage: Storage) -> "Accounts":
    """The ledger of a campus, in which the wallets that its [payments] calls its own do not count."""
    table = payments_table(config)
    return Accounts(storage, own_wallets=table.own_wallets if table else ())


class Accounts:
    """Reads the ledger. Payments from `own_wallets`, which are the operator's, do not count as revenue."""

    def __init__(self, storage: Storage, *, own_wallets: Collection[str] = ()) -> None:
        self._storage = storage
        self._own_wallets = sorted({wallet.lower() for wallet in own_wallets})

    async def last(self, count: int, period: Period, *, like: str = "") -> Sequence[LedgerRow]:
        """The newest entries of the period, at most `count`, in order of time.

        `like` selects all entries of payments whose id, transaction or payer begins so.
        """
        named = (LedgerRow.payment_id, LedgerRow.transaction, LedgerRow.payer)
        like_it = select(LedgerRow.payment_id).where(or_(*(col(one).istartswith(like, autoescape=True) for one in named)))
        found = col(LedgerRow.payment_id).in_(like_it) if like else true()
        query = select(LedgerRow).where(found, *period.conditions).order_by(col(LedgerRow.id).desc()).limit(count)
        async with self._storage.read() as session:
            return tuple(reversed((await session.exec(query)).all()))

    async def entries(self, period: Period) -> AsyncIterator[LedgerRow]:
        """Every entry of the period in order, own wallets included; read in pages, so that no transaction lasts long."""
        after = 0
        while True:
            query = select(LedgerRow).where(col(LedgerRow.id) > after, *period.conditions).order_by(col(LedgerRow.id)).limit(ROWS_PER_PAGE)
            async with self._storage.read() as session:
                page = (await session.exec(query)).all()
            for row in page:
                yield row
                after = row.id or after
            if len(page) < ROWS_PER_PAGE:
                return

    async def revenue(self, period: Period) -> Sequence[Revenue]:
        """Revenue by day, tool and network. A reversed payment is subtracted on the day of its reversal."""
        entry = LedgerRow
        sign = case(CHARGED, value=col(entry.event))
        sums = func.sum(sign), func.sum(sign * col(entry.amount))
        rows = await self._by_day(period, col(entry.event).in_(sorted(CHARGED)), entry.building, entry.tool, entry.network, sums=sums)
        return tuple(Revenue._make((str(day), *of_tool, int(payments), int(amount))) for day, *of_tool, payments, amount in rows)

    async def funnel(self, period: Period) -> Sequence[Funnel]:
        entry = LedgerRow
        is_shown = col(entry.event) == "offered"
        is_paid = col(entry.event) == "settled"
        shown = func.sum(case((is_shown, col(entry.quantity)), else_=0))
        paid = func.count(func.distinct(case((is_paid, col(entry.payment_id)))))
        payers = func.count(func.distinct(case((is_paid, col(entry.payer)))))
        rows = await self._by_day(period, or_(is_shown, is_paid), entry.building, entry.tool, sums=(shown, paid, payers))
        return tuple(Funnel._make((str(day), *of_tool, int(shown), paid, payers)) for day, *of_tool, shown, paid, payers in rows)

    async def _by_day(self, period: Period, which: ColumnElement[bool], *keys: Any, sums: Sequence[Any]) -> list[Any]:
        """Sums over entries by UTC day and other columns; those of own wallets are left out."""
        by = [func.date(col(LedgerRow.at)), *map(col, keys)]
        not_own = or_(col(LedgerRow.payer).is_(None), col(LedgerRow.payer).not_in(self._own_wallets))
        columns: Any = (*by, *sums)
        return await self._rows(select_columns(*columns).where(which, *period.conditions, not_own).group_by(*by).order_by(*by))

    async def states(self) -> Sequence[StateTotal]:
        """The payments by state, own wallets included; `unproven` are those that count as settled and that the chain does not show."""
        row = PaymentRow
        state = case((col(row.unproven_since).is_not(None), "unproven"), else_=col(row.state)).label("shown_state")
        columns: Any = (state, func.count(), func.sum(col(row.amount)), func.min(col(row.reserved_at)))
        rows = await self._rows(select_columns(*columns).group_by("shown_state").order_by("shown_state"))
        return tuple(StateTotal(name, count, int(amount), at) for name, count, amount, at in rows)

    async def _rows(self, query: Select[Any]) -> list[Any]:
        async with self._storage.read() as session:
            return list((await (await session.connection()).execute(query)).all())
