"""Copies everything that a campus stores in SQLite files to an empty PostgreSQL database."""

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, Table, cast, column, delete, func, insert, select, table
from sqlalchemy.dialects.postgresql import REGCLASS
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlmodel import SQLModel

from campus.errors import StorageError
from campus.storage.database import Storage
from campus.storage.databases import Databases

ROWS_AT_ONCE = 1_000
TOLD_ROWS = 50_000  # After so many rows of a table the log says how many there are by now.
log = logging.getLogger(__name__)
Row = dict[str, Any]


class CopiedTable(NamedTuple):
    database: str
    table: str
    rows: int


async def copy_databases(source: Databases, target: Databases, tables: Mapping[str, type[SQLModel]]) -> Sequence[CopiedTable]:
    """Copy the database of each name in one transaction. Returns the tables that were copied.

    Nobody may write to `source` meanwhile. Raises StorageError, before anything is written, if `source` is of another version or
    `target` is not empty; and if a table does not arrive complete.
    """
    await source.check(tables)
    if full := [name for name in tables if not await target.is_empty(name)]:
        raise StorageError(f"{target.describe(full[0])} has tables already: name an empty database, or drop its schemas")
    stored = {name: base for name, base in tables.items() if not await source.is_empty(name)}
    for name, base in stored.items():  # all before the first row: a feature's first step may write into the core's tables
        await target.storage_of(name, base)
    copied: list[CopiedTable] = []
    for name, base in stored.items():
        here = await source.storage_of(name, base)
        there = await target.storage_of(name, base)
        copied += [CopiedTable(name, *one) for one in await _copy(here, there, base.metadata.sorted_tables)]
    return copied


async def _copy(source: Storage, target: Storage, tables: Sequence[Table]) -> list[tuple[str, int]]:
    async with source.read() as reading, target.write() as writing:
        here = await reading.connection()
        there = await writing.connection()
        for one in reversed(tables):
            await there.run_sync(_empty, one)
        return [(one.name, await _copy_table(here, there, one)) for one in tables]


def _empty(connection: Connection, of: Table) -> None:
    """Delete what the migrations wrote. A table that only grows has no rows yet, and refuses the statement itself."""
    if connection.scalar(select(func.count()).select_from(of)):
        connection.execute(delete(of))


async def _copy_table(source: AsyncConnection, target: AsyncConnection, of: Table) -> int:
    copied = 0
    async for rows in _pages(source, of):
        await target.execute(insert(of), rows)
        copied += len(rows)
        if copied % TOLD_ROWS < len(rows):
            log.info("copying", extra={"table": of.name, "rows": copied})
    counted = select(func.count()).select_from(of)
    expected = await source.scalar(counted)
    arrived = await target.scalar(counted)
    if expected != arrived:
        raise StorageError(f"of {expected} rows of {of.name} {arrived} arrived; nothing of its database was copied")
    await target.run_sync(_count_on, of, await source.run_sync(_highest_number, of))
    return arrived or 0


async def _pages(source: AsyncConnection, of: Table) -> AsyncIterator[Sequence[Row]]:
    """All rows, at most ROWS_AT_ONCE at a time; a row that refers to another of its table comes after that one."""
    own = {key.parent.name: key.column.name for key in of.foreign_keys if key.column.table is of}
    found = await source.stream(select(of))
    waiting: list[Row] = []
    async for part in found.partitions(ROWS_AT_ONCE):
        rows = [dict(row._mapping) for row in part]
        waiting += [row for row in rows if any(row[name] is not None for name in own)]
        if ready := [row for row in rows if all(row[name] is None for name in own)]:
            yield ready
    while waiting:
        referred = {name: {row[key] for row in waiting} for name, key in own.items()}
        ready = [row for row in waiting if all(row[name] not in referred[name] for name in own)]
        if not ready:
            raise StorageError(f"{len(waiting)} rows of {of.name} refer to one another in a circle")
        for start in range(0, len(ready), ROWS_AT_ONCE):
            yield ready[start : start + ROWS_AT_ONCE]
        waiting = [row for row in waiting if any(row[name] in referred[name] for name in own)]


def _highest_number(connection: Connection, of: Table) -> int | None:
    """The highest number that SQLite ever gave to a row of a table that gives none twice; None for other tables."""
    if not of.dialect_options["sqlite"]["autoincrement"]:
        return None
    sequences = table("sqlite_sequence", column("name"), column("seq"))
    return connection.scalar(select(sequences.c.seq).where(sequences.c.name == of.name))


def _count_on(connection: Connection, of: Table, highest: int | None) -> None:
    quoted = connection.dialect.identifier_preparer.format_table(of)
    for one in of.primary_key.columns:
        if (sequence := connection.scalar(select(func.pg_get_serial_sequence(quoted, one.name)))) is not None:
            last = highest or connection.scalar(select(func.max(one)))
            if last is not None:
                connection.execute(select(func.setval(cast(sequence, REGCLASS), last)))
