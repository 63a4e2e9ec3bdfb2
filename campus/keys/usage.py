"""What each key calls, by day and tool: counted in memory and stored every few seconds, without a write per call."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import delete, func, text
from sqlmodel import col, select

from campus.keys.tables import KeyUsageRow
from campus.storage import Storage

KEPT = timedelta(days=400)
"""How long a day's counts are kept: a year, and a month to look back."""
ROWS_PER_TRANSACTION = 500
ADD = text(
    "INSERT INTO key_usage (day, lineage, building, tool, calls) VALUES (:day, :lineage, :building, :tool, :calls)"
    " ON CONFLICT (day, lineage, building, tool) DO UPDATE SET calls = key_usage.calls + excluded.calls"
)


class Used(NamedTuple):
    """A key and a tool that it called, which are counted together."""

    lineage: str
    building: str
    tool: str


class KeyUsage:
    """Counts the calls that keys open, of all processes together. A crash loses what was counted since the last `flush`."""

    def __init__(self, storage: Storage, *, now: Callable[[], datetime]) -> None:
        self._storage = storage
        self._now = now
        self._counts: Counter[Used] = Counter()

    def count(self, lineage: str, building: str, tool: str) -> None:
        """One more call with a key of this lineage. It counts for the day, in UTC, on which it is stored."""
        self._counts[Used(lineage, building, tool)] += 1

    async def flush(self) -> None:
        """Add the counts to those in the database, and delete what is too old; to be called every few seconds and at the end."""
        counts, self._counts = self._counts, Counter()
        today = self._now().date()
        try:
            while counts:
                some = sorted(counts.items())[:ROWS_PER_TRANSACTION]  # in one order, so that processes do not block each other
                rows: list[dict[str, Any]] = [{"day": today.isoformat(), **used._asdict(), "calls": calls} for used, calls in some]
                async with self._storage.write() as session:
                    await (await session.connection()).execute(ADD, rows)
                    await session.exec(delete(KeyUsageRow).where(col(KeyUsageRow.day) < (today - KEPT).isoformat()))
                for used, _ in some:
                    del counts[used]
        finally:  # after an error or a cancellation: what was not stored
            self._counts.update(counts)

    async def totals(self, lineages: Collection[str], *, days: int) -> Mapping[str, int]:
        """How many calls the keys of these lineages opened in the last days, today included; a key without any is left out."""
        found = select(KeyUsageRow.lineage, func.sum(KeyUsageRow.calls)).where(
            col(KeyUsageRow.lineage).in_(lineages), col(KeyUsageRow.day) >= self._first(days)
        )
        async with self._storage.read() as session:
            rows = (await session.exec(found.group_by(col(KeyUsageRow.lineage)))).all()
        return {lineage: int(calls) for lineage, calls in rows}

    async def of_lineage(self, lineage: str, *, days: int) -> Sequence[KeyUsageRow]:
        """What the key of this lineage called in the last days, today included, the latest day first."""
        return await self._read(days, lineage)

    async def of_all(self, *, days: int) -> Sequence[KeyUsageRow]:
        """What all keys called in the last days, the latest day first."""
        return await self._read(days, None)

    async def _read(self, days: int, lineage: str | None) -> Sequence[KeyUsageRow]:
        found = select(KeyUsageRow).where(col(KeyUsageRow.day) >= self._first(days))
        if lineage is not None:
            found = found.where(col(KeyUsageRow.lineage) == lineage)
        ordered = found.order_by(col(KeyUsageRow.day).desc(), col(KeyUsageRow.lineage), col(KeyUsageRow.building), col(KeyUsageRow.tool))
        async with self._storage.read() as session:
            return (await session.exec(ordered)).all()

    def _first(self, days: int) -> str:
        """The first of the last days."""
        return (self._now().date() - timedelta(days=days - 1)).isoformat()
