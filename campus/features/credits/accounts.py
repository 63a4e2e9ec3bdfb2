"""What keys have left to spend on calls, and what they spent: read for pages, for commands, and to prove that each balance is right."""

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from io import StringIO
from math import ceil
from typing import Any, NamedTuple

from sqlalchemy import Connection, func, select, text
from sqlmodel import col

from campus.caller import Key
from campus.features.credits.holds import Holds, Left
from campus.features.credits.tables import CallsRow, HoldRow
from campus.keys.allowances import Meter
from campus.keys.tables import CreditAccount, KeyEvent, KeyRow
from campus.pricing import Price
from campus.storage import Storage, in_snapshot
from twins import spreadsheet_text

__all__ = ["Accounts", "Entry", "Standing", "as_csv"]

PREPAID = Meter(None, has_credits=True)
HAD_CREDITS = text(  # an account without any is of an allowance
    "SELECT balance > 0 OR period = '' OR EXISTS (SELECT 1 FROM credits_calls c WHERE c.lineage = :lineage AND c.amount > 0)"
    " OR EXISTS (SELECT 1 FROM key_events e WHERE e.key_id = :lineage AND e.credits <> 0) FROM credit_accounts WHERE lineage = :lineage"
)


@dataclass(frozen=True, slots=True)
class Standing:
    """What a key has left: of its product's allowance until its period ends, and of its credits, in millionths of a dollar."""

    meter: Meter
    left: Left
    now: datetime

    @property
    def balance(self) -> str | None:
        """US dollars; None for a product without credits."""
        return dollars(self.left.balance) if self.meter.has_credits else None

    @property
    def allowance(self) -> Mapping[str, Any] | None:
        """The allowance as data, with how many calls are left of it; None for a product without one."""
        allowance = self.meter.allowance
        if allowance is None:
            return None
        opened = self.left.calls if self.left.period >= day_of(allowance.start(self.now)) else 0
        left = max(allowance.calls - opened, 0)
        return {"calls": allowance.calls, "per": allowance.per, "left": left, "ends_at": allowance.end(self.now)}

    @property
    def opens(self) -> bool:
        return bool(self.allowance and self.allowance["left"]) or (self.meter.has_credits and self.left.balance > 0)

    @property
    def rates(self) -> tuple[bytes, bytes] | None:
        """The allowance as the headers RateLimit-Policy and RateLimit name it."""
        allowance, shown = self.meter.allowance, self.allowance
        if allowance is None or shown is None:
            return None
        window = int((allowance.end(self.now) - allowance.start(self.now)).total_seconds())
        seconds = max(ceil((allowance.end(self.now) - self.now).total_seconds()), 1)
        return b'"allowance";q=%d;w=%d' % (allowance.calls, window), b'"allowance";r=%d;t=%d' % (shown["left"], seconds)


class Entry(NamedTuple):
    """A line of a statement: what changed a balance on a day, and by how much, in US dollars.

    `what` is calls, or the event of a key that did it; `calls` are those that were delivered, `allowed` those of them that the allowance
    paid for.
    """

    day: str
    key: str
    what: str
    building: str
    tool: str
    calls: int
    allowed: int
    usd: str
    by: str
    why: str


class Account(NamedTuple):
    """What a lineage has, in millionths of a dollar: what is left, what running calls hold, and what that is the rest of."""

    lineage: str
    product: str
    balance: int
    held: int
    added: int
    spent: int

    @property
    def is_right(self) -> bool:
        """The law: what was bought, corrected and taken back is what is left, with what calls hold, and what they were delivered for."""
        return self.balance >= 0 and self.balance + self.held + self.spent == self.added


class Accounts:
    """The accounts of a campus; `meters` are of the products in campus.toml, `holds` is how this process spends; None in a command."""

    is_used = True
    """Whether any key pays for its calls."""

    def __init__(
        self, storage: Storage, meters: Mapping[str, Meter | None], *, now: Callable[[], datetime], holds: Holds | None = None
    ) -> None:
        self.meters = meters
        self._storage = storage
        self._now = now
        self._holds = holds

    @property
    def holds(self) -> Holds:
        assert self._holds is not None, "the process serves"
        return self._holds

    async def meter(self, key: Key) -> Meter | None:
        """How a key pays for its calls. A product that campus.toml has no more leaves its keys what credits they have, and no allowance."""
        if key.product in self.meters:
            return self.meters[key.product]
        had = await in_snapshot(self._storage, lambda one: one.execute(HAD_CREDITS, {"lineage": key.lineage}).scalar())
        return PREPAID if had else None

    async def look(self) -> None:
        """Note whether any key pays for its calls: of a product in campus.toml, or of one that was there before."""
        first = select(col(CreditAccount.lineage)).limit(1)
        is_known = await in_snapshot(self._storage, lambda connection: connection.execute(first).first()) is not None
        self.is_used = is_known or any(self.meters.values())

    async def standing(self, key: Key) -> Standing | None:
        """What a key has left; None for one that opens any number of calls."""
        if (meter := await self.meter(key)) is None:
            return None
        async with self._storage.read() as session:
            row = await session.get(CreditAccount, key.lineage)
        left = Left(0, "", 0) if row is None else Left(row.balance, row.period, row.calls)
        return Standing(meter, left, self._now())

    async def statement(self, lineage: str | None = None) -> Sequence[Entry]:
        """What changed the balance of a lineage, or of all, by day: the events of its keys, and its calls by tool."""
        return await in_snapshot(self._storage, lambda connection: _statement(connection, lineage))

    async def all(self, lineage: str | None = None) -> Sequence[Account]:
        """The account of a lineage, or all, with everything that each is the sum of."""
        return await in_snapshot(self._storage, lambda connection: _accounts(connection, lineage))

    async def findings(self) -> Sequence[str]:
        return [
            f"the credits of {one.lineage} are wrong: ${dollars(one.added)} were bought and corrected, ${dollars(one.spent)} of calls were"
            f" delivered, ${dollars(one.held)} are held by calls that run, and the balance is ${dollars(one.balance)}"
            for one in await self.all()
            if not one.is_right
        ]


def as_csv(entries: Sequence[Entry]) -> str:
    """A statement for spreadsheets: the amounts of a key sum up to its balance, and what its running calls hold."""
    file = StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(Entry._fields)
    for one in entries:
        building, tool, by, why = map(spreadsheet_text, (one.building, one.tool, one.by, one.why))
        writer.writerow(one._replace(building=building, tool=tool, by=by, why=why))
    return file.getvalue()


def dollars(amount: int) -> str:
    """Millionths as US dollars, with cents: 4.98, 5.00, 0.995."""
    text = str(Price(amount))
    return text if "." in text else f"{text}.00"


def day_of(moment: datetime) -> str:
    return moment.date().isoformat()


def _statement(connection: Connection, lineage: str | None) -> Sequence[Entry]:
    said = (KeyEvent.at, KeyRow.lineage, KeyEvent.action, KeyEvent.credits, KeyEvent.by, KeyEvent.detail)
    events = select(*map(col, said)).join(KeyRow, col(KeyRow.id) == col(KeyEvent.key_id))
    calls = select(*CallsRow.__table__.c)  # type: ignore[attr-defined]  # sqlmodel adds it to every table class
    if lineage is not None:
        events, calls = events.where(col(KeyRow.lineage) == lineage), calls.where(col(CallsRow.lineage) == lineage)
    changed: Iterable[Any] = connection.execute(events.where(col(KeyEvent.credits) != 0).order_by(col(KeyEvent.id)))
    entries = [Entry(day_of(at), key, what, "", "", 0, 0, dollars(amount), by, why) for at, key, what, amount, by, why in changed]
    for row in connection.execute(calls):
        entries.append(Entry(row.day, row.lineage, "calls", row.building, row.tool, row.calls, row.allowed, dollars(-row.amount), "", ""))
    return sorted(entries, key=lambda one: (one.day, one.key, one.what == "calls", one.building, one.tool))


def _accounts(connection: Connection, lineage: str | None) -> Sequence[Account]:
    def by_lineage(of: Any, amount: Any, *joined: Any) -> Mapping[str, int]:
        found = select(of, func.sum(amount)).group_by(of)
        found = found.join(*joined) if joined else found
        return {name: int(total) for name, total in connection.execute(found if lineage is None else found.where(of == lineage))}

    added = by_lineage(col(KeyRow.lineage), col(KeyEvent.credits), KeyEvent, col(KeyRow.id) == col(KeyEvent.key_id))
    balances = by_lineage(col(CreditAccount.lineage), col(CreditAccount.balance))
    held = by_lineage(col(HoldRow.lineage), col(HoldRow.amount))
    spent = by_lineage(col(CallsRow.lineage), col(CallsRow.amount))
    sold = select(col(KeyRow.lineage), func.min(col(KeyRow.product))).group_by(col(KeyRow.lineage))
    products: dict[str, str] = dict(connection.execute(sold).all())
    names = sorted({*balances, *held, *spent, *(name for name, amount in added.items() if amount)})
    return [
        Account(name, products.get(name, ""), balances.get(name, 0), held.get(name, 0), added.get(name, 0), spent.get(name, 0))
        for name in names
    ]
