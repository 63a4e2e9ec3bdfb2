"""The accounts of a campus: what its ledger says was shown, paid and by whom. Questions only; nothing is changed."""

from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Select, case, func, or_
from sqlalchemy import select as select_columns
from sqlmodel import col, select

from campus.payments.ledger import CHARGED
from campus.payments.tables import LedgerRow
from campus.storage import Storage
from campus.tool_access import Price

PAGE = 1_000


@dataclass(frozen=True, slots=True)
class Period:
    """From one UTC day to another, both included; None: from the first entry, or to the last."""

    since: date | None = None
    until: date | None = None

    @property
    def conditions(self) -> tuple[ColumnElement[bool], ...]:
        """What an entry of the period fulfils."""
        after = [] if self.since is None else [col(LedgerRow.at) >= _midnight(self.since)]
        before = [] if self.until is None else [col(LedgerRow.at) < _midnight(self.until) + timedelta(days=1)]
        return (*after, *before)


@dataclass(frozen=True, slots=True)
class Revenue:
    """What one tool earned on one UTC day and network; `amount` is in the token's smallest unit."""

    day: str
    building: str
    tool: str
    network: str
    payments: int
    amount: int

    @property
    def usd(self) -> str:
        """US dollars."""
        return str(Price(self.amount))


@dataclass(frozen=True, slots=True)
class Funnel:
    """How many who were shown the terms of one tool on one UTC day paid.

    `shown` counts 402 answers, `paid` settled payments, `payers` the addresses that they came from. Who paid without asking for the
    terms first was shown none, so `conversion`, paid ÷ shown, may be above 1; None where nobody was shown any.
    """

    day: str
    building: str
    tool: str
    shown: int
    paid: int
    payers: int

    @property
    def conversion(self) -> float | None:
        """Paid ÷ shown, to four decimals."""
        return round(self.paid / self.shown, 4) if self.shown else None


class Accounts:
    """Questions to the ledger in the house's storage; `own_wallets` are the operator's, whose payments are no sales."""

    def __init__(self, storage: Storage, *, own_wallets: Collection[str] = ()) -> None:
        self._storage = storage
        self._own = sorted({wallet.lower() for wallet in own_wallets})

    async def last(self, count: int, period: Period) -> Sequence[LedgerRow]:
        """The newest entries of the period, at most `count`, in order of time."""
        query = select(LedgerRow).where(*period.conditions).order_by(col(LedgerRow.id).desc()).limit(count)
        async with self._storage.read() as session:
            return tuple(reversed((await session.exec(query)).all()))

    async def entries(self, period: Period) -> AsyncIterator[LedgerRow]:
        """Every entry of the period in order, own wallets' too; read in pages, so that a long ledger holds up nobody."""
        after = 0
        while True:
            query = select(LedgerRow).where(col(LedgerRow.id) > after, *period.conditions).order_by(col(LedgerRow.id)).limit(PAGE)
            async with self._storage.read() as session:
                page = (await session.exec(query)).all()
            for row in page:
                yield row
                after = row.id or after
            if len(page) < PAGE:
                return

    async def revenue(self, period: Period) -> Sequence[Revenue]:
        """What was earned by day, tool and network; what was reversed is taken off on the day of its reversal."""
        entry = LedgerRow
        keys: list[Any] = [func.date(col(entry.at)), col(entry.building), col(entry.tool), col(entry.network)]
        sign = case(CHARGED, value=col(entry.event))
        columns: Any = (*keys, func.sum(sign), func.sum(sign * col(entry.amount)))
        query = (
            select_columns(*columns)
            .where(col(entry.event).in_(sorted(CHARGED)), *period.conditions, self._not_own())
            .group_by(*keys)
            .order_by(*keys)
        )
        rows = await self._rows(query)
        return tuple(
            Revenue(str(day), building, tool, network, int(payments), int(amount))
            for day, building, tool, network, payments, amount in rows
        )

    async def funnel(self, period: Period) -> Sequence[Funnel]:
        """How many were shown terms, and how many paid, by day and tool."""
        entry = LedgerRow
        keys: list[Any] = [func.date(col(entry.at)), col(entry.building), col(entry.tool)]
        is_shown, is_paid = col(entry.event) == "offered", col(entry.event) == "settled"
        shown = func.sum(case((is_shown, col(entry.quantity)), else_=0))
        paid = func.count(func.distinct(case((is_paid, col(entry.payment_id)))))
        payers = func.count(func.distinct(case((is_paid, col(entry.payer)))))
        columns: Any = (*keys, shown, paid, payers)
        query = select_columns(*columns).where(or_(is_shown, is_paid), *period.conditions, self._not_own()).group_by(*keys).order_by(*keys)
        rows = await self._rows(query)
        return tuple(Funnel(str(day), building, tool, int(shown), paid, payers) for day, building, tool, shown, paid, payers in rows)

    async def _rows(self, query: Select[Any]) -> list[Any]:
        async with self._storage.read() as session:
            return list((await (await session.connection()).execute(query)).all())

    def _not_own(self) -> ColumnElement[bool]:
        return or_(col(LedgerRow.payer).is_(None), col(LedgerRow.payer).not_in(self._own))


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)
