"""The audit log: who called which tool, how that ended and what it cost, and who changed which key. Never arguments, results or secrets.

Calls are collected in memory and stored every few seconds, without a write per call. The changes of keys are read from their own log.
"""

import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import datetime, timedelta
from itertools import count
from typing import Any

from sqlalchemy import String, bindparam, cast, delete, literal, null, select, text, tuple_, union_all

from campus.features.audit_log.tables import AuditRow, Tables
from campus.storage import Storage, UtcDateTime
from campus.storage.buffers import Buffer
from campus.storage.tables import CoreTables

__all__ = ["OPERATOR", "AuditLog", "AuditRow", "audit_entries", "last_acts"]

ROWS_PER_TRANSACTION = 1_000
ROWS_PER_PAGE = 5_000
MOST_WAITING = 100_000
"""Entries that wait for a database that cannot be written, about 30 MB; further ones are lost, and the log says how many."""
ENTRIES = Tables.metadata.tables["audit_log"]
KEY_EVENTS = CoreTables.metadata.tables["key_events"]
OPERATOR = "operator"  # The building of the entries of the operator's pages.
STORE = text(
    "INSERT INTO audit_log (id, at, who, frame, building, tool, outcome, amount, request_id)"
    " VALUES (:id, :at, :who, :frame, :building, :tool, :outcome, :amount, :request_id) ON CONFLICT (id) DO NOTHING"
).bindparams(bindparam("at", type_=UtcDateTime))
"""An entry whose storing was interrupted after its commit is stored again, to no effect."""


class AuditLog:
    """The entries of this process that wait to be stored, and those of all processes. A crash loses what was noted since `flush`."""

    def __init__(self, storage: Storage, *, now: Callable[[], datetime], kept: timedelta) -> None:
        self._storage = storage
        self._now = now
        self._kept = kept
        self._buffer: Buffer[str, dict[str, Any]] = Buffer(
            {}, self._store, at_once=ROWS_PER_TRANSACTION, most=MOST_WAITING, what="entries of the audit log"
        )
        self.flush = self._buffer.flush
        self._numbers = count()
        self._process = secrets.token_hex(8)

    def note(
        self,
        who: str | None,
        building: str,
        tool: str,
        outcome: str,
        *,
        frame: str = "http",
        amount: int | None = None,
        request_id: str | None = None,
    ) -> None:
        """Note what somebody did; see AuditRow. None is a caller without a key and without a payment."""
        entry = {"who": who, "frame": frame, "building": building, "tool": tool, "outcome": outcome, "amount": amount}
        name = f"{next(self._numbers):012x}{self._process}"
        self._buffer.put(name, {"id": name, "at": self._now(), **entry, "request_id": request_id})

    async def _store(self, entries: Mapping[str, dict[str, Any]]) -> None:
        async with self._storage.write() as session:
            await (await session.connection()).execute(STORE, list(entries.values()))

    async def delete_old(self) -> None:
        old = select(ENTRIES.c.id).where(ENTRIES.c.at < self._now() - self._kept).limit(ROWS_PER_TRANSACTION)
        deleted = ROWS_PER_TRANSACTION
        while deleted == ROWS_PER_TRANSACTION:
            async with self._storage.write() as session:
                deleted = (await (await session.connection()).execute(delete(ENTRIES).where(ENTRIES.c.id.in_(old)))).rowcount


CHANGES_OF_KEYS = (
    cast(KEY_EVENTS.c.id, String).label("id"),
    KEY_EVENTS.c.at,
    KEY_EVENTS.c.by.label("who"),
    null().label("frame"),
    literal("campus").label("building"),
    (literal("key ") + KEY_EVENTS.c.action + literal(" ") + KEY_EVENTS.c.key_id).label("tool"),
    literal("ok").label("outcome"),
    null().label("amount"),
    null().label("request_id"),
)


async def last_acts(storage: Storage, *, since: datetime, limit: int) -> list[AuditRow]:
    pages = select(*ENTRIES.c).where(ENTRIES.c.building == OPERATOR, ENTRIES.c.at >= since).order_by(ENTRIES.c.at.desc()).limit(limit)
    keys = select(*CHANGES_OF_KEYS).where(KEY_EVENTS.c.at >= since).order_by(KEY_EVENTS.c.id.desc()).limit(limit)
    async with storage.read() as session:
        connection = await session.connection()
        found = [AuditRow(**row._asdict()) for statement in (pages, keys) for row in (await connection.execute(statement)).all()]
    return sorted(found, key=lambda entry: entry.at, reverse=True)[:limit]


async def audit_entries(storage: Storage, *, since: datetime, until: datetime) -> AsyncIterator[AuditRow]:
    """The entries from one time to before another, the oldest first, with the changes of keys; read in pages."""
    rows = union_all(select(*ENTRIES.c), select(*CHANGES_OF_KEYS)).subquery()
    order = rows.c.at, rows.c.id
    page = select(rows).where(rows.c.at >= since, rows.c.at < until).order_by(*order).limit(ROWS_PER_PAGE)
    after = page
    while True:
        async with storage.read() as session:
            found = (await (await session.connection()).execute(after)).all()
        for row in found:
            yield AuditRow(**row._asdict())
        if len(found) < ROWS_PER_PAGE:
            return
        after = page.where(tuple_(*order) > tuple_(found[-1].at, found[-1].id))
