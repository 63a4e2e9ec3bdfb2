"""What each key calls, by day and tool: counted in memory and stored every few seconds, without a write per call."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from sqlalchemy import delete, func, text
from sqlmodel import col, select

from campus.caller import Key
from campus.features.usage.feature import KEPT
from campus.features.usage.tables import UsageRow
from campus.storage import Storage
from campus.storage.buffers import Buffer

__all__ = ["KeyUsage", "UsageRow"]

ROWS_PER_TRANSACTION = 500
ADD = text(
    "INSERT INTO usage_calls (day, lineage, building, tool, calls) VALUES (:day, :lineage, :building, :tool, :calls)"
    " ON CONFLICT (day, lineage, building, tool) DO UPDATE SET calls = usage_calls.calls + excluded.calls"
)


class Used(NamedTuple):
    """A key and a tool that it called on a day, which are counted together."""

    day: str
    lineage: str
    building: str
    tool: str


class KeyUsage:
    """Counts the calls with keys, of all processes together. A crash loses what was counted since the last `flush`."""

    def __init__(self, storage: Storage, *, now: Callable[[], datetime]) -> None:
        self._storage = storage
        self._now = now
        self._counts: Buffer[Used, int] = Buffer(Counter(), self._store, at_once=ROWS_PER_TRANSACTION)
        self.flush = self._counts.flush

    def count(self, key: Key, building: str, tool: str) -> None:
        self._counts.waiting[Used(self._now().date().isoformat(), key.lineage, building, tool)] += 1

    async def _store(self, counts: Mapping[Used, int]) -> None:
        # in one order, so that processes do not block each other
        rows = [{**used._asdict(), "calls": calls} for used, calls in sorted(counts.items())]
        async with self._storage.write() as session:
            await (await session.connection()).execute(ADD, rows)
            await session.exec(delete(UsageRow).where(col(UsageRow.day) < (self._now().date() - KEPT).isoformat()))

    async def totals(self, lineages: Collection[str], *, days: int) -> Mapping[str, int]:
        found = select(UsageRow.lineage, func.sum(UsageRow.calls)).where(
            col(UsageRow.lineage).in_(lineages), col(UsageRow.day) >= self._first(days)
        )
        async with self._storage.read() as session:
            rows = (await session.exec(found.group_by(col(UsageRow.lineage)))).all()
        return {lineage: int(calls) for lineage, calls in rows}

    async def by_tool(self, *, days: int) -> Sequence[tuple[str, str, int]]:
        """The calls with keys in the last days, today included: day, building.tool and number; a day without any is left out."""
        name = col(UsageRow.building) + "." + col(UsageRow.tool)
        found = select(UsageRow.day, name, func.sum(UsageRow.calls)).where(col(UsageRow.day) >= self._first(days))
        async with self._storage.read() as session:
            rows = (await session.exec(found.group_by(col(UsageRow.day), name))).all()
        return [(day, tool, int(calls)) for day, tool, calls in rows]

    async def read(self, *, days: int, lineage: str | None = None) -> Sequence[UsageRow]:
        found = select(UsageRow).where(col(UsageRow.day) >= self._first(days))
        if lineage is not None:
            found = found.where(col(UsageRow.lineage) == lineage)
        ordered = found.order_by(col(UsageRow.day).desc(), col(UsageRow.lineage), col(UsageRow.building), col(UsageRow.tool))
        async with self._storage.read() as session:
            return (await session.exec(ordered)).all()

    def _first(self, days: int) -> str:
        return (self._now().date() - timedelta(days=days - 1)).isoformat()
