"""What each key calls, by day and tool: counted in memory and stored every few seconds, without a write per call."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import delete, func, text
from sqlmodel import col, select

from campus.caller import Key
from campus.features.usage.feature import KEPT
from campus.features.usage.tables import UsageRow
from campus.keys.allowances import Allowance, Spent, Standing
from campus.keys.lookups import Lookups
from campus.storage import Storage
from campus.storage.buffers import Buffer

__all__ = ["KeyUsage", "UsageRow"]

ROWS_PER_TRANSACTION = 500
ADD = text(
    "INSERT INTO usage_calls (day, lineage, building, tool, calls, opened) VALUES (:day, :lineage, :building, :tool, :calls, :opened)"
    " ON CONFLICT (day, lineage, building, tool)"
    " DO UPDATE SET calls = usage_calls.calls + excluded.calls, opened = usage_calls.opened + excluded.opened"
)


class Used(NamedTuple):
    """A key and a tool that it called on a day, which are counted together; and whether the key opened it, or the tool is free."""

    day: str
    lineage: str
    building: str
    tool: str
    is_opened: bool

    def row(self, calls: int) -> dict[str, Any]:
        return {**self._asdict(), "calls": calls, "opened": calls if self.is_opened else 0}


class KeyUsage:
    """Counts the calls with keys, of all processes together. A crash loses what was counted since the last `flush`.

    `quotas` are those of the products. What a key has spent is read from the database when its first call comes, and again every 5
    seconds while others come: so this process knows its own calls at once, and those of other processes 5 seconds after their flush.
    """

    def __init__(
        self,
        storage: Storage,
        *,
        now: Callable[[], datetime],
        monotonic: Callable[[], float],
        quotas: Mapping[str, Allowance] | None = None,
    ) -> None:
        self._storage = storage
        self._now = now
        self._quotas = dict(quotas or {})
        self._counts: Buffer[Used, int] = Buffer(Counter(), self._store, at_once=ROWS_PER_TRANSACTION)
        self.flush = self._counts.flush
        self._spent = Lookups(self._read_spent, monotonic=monotonic)

    def has_quota(self, key: Key) -> bool:
        return key.product in self._quotas

    async def standing(self, key: Key) -> Standing:
        """What a key has left of its product's quota, which there must be. Raises StorageUnavailable."""
        quota = self._quotas[key.product]
        now = self._now()
        start = quota.start(now)
        name = f"{start.date()} {key.lineage}".encode()
        found = self._spent.known(name) or await self._spent.find(name)
        # another reading may have come meanwhile: all calls are counted in the latest
        return Standing(quota, self._spent.known(name) or found, start, now)

    def count(self, key: Key, building: str, tool: str, *, standing: Standing | None = None, is_opened: bool = False) -> None:
        self._counts.waiting[Used(self._now().date().isoformat(), key.lineage, building, tool, is_opened)] += 1
        if standing is not None:
            standing.spent.calls += 1

    async def _store(self, counts: Mapping[Used, int]) -> None:
        rows = [used.row(calls) for used, calls in sorted(counts.items())]  # in one order, so that processes do not block each other
        async with self._storage.write() as session:
            await (await session.connection()).execute(ADD, rows)
            await session.exec(delete(UsageRow).where(col(UsageRow.day) < (self._now().date() - KEPT).isoformat()))

    async def _read_spent(self, names: Collection[bytes]) -> Mapping[bytes, Spent]:
        """By the first day of a period and a lineage, the calls that the key opened since: in the database, and those not stored yet."""
        wanted = {name: tuple(name.decode().split(" ", 1)) for name in names}
        first = min(start for start, _ in wanted.values())
        found = select(UsageRow.day, UsageRow.lineage, func.sum(UsageRow.opened)).where(
            col(UsageRow.lineage).in_({lineage for _, lineage in wanted.values()}), col(UsageRow.day) >= first
        )
        async with self._counts.storing:  # a count is either read or not stored yet
            async with self._storage.read() as session:
                rows = (await session.exec(found.group_by(col(UsageRow.day), col(UsageRow.lineage)))).all()
            opened: dict[str, Counter[str]] = defaultdict(Counter)
            for day, lineage, calls in rows:
                opened[lineage][day] += int(calls)
            for used, calls in self._counts.waiting.items():
                if used.is_opened:
                    opened[used.lineage][used.day] += calls
            return {
                name: Spent(sum(calls for day, calls in opened[lineage].items() if day >= start))
                for name, (start, lineage) in wanted.items()
            }

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
