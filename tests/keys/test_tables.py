"""The tables of keys: the migration makes what the code expects, and their log cannot be rewritten."""

from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError
from sqlmodel import func, select

from campus.keys.keyring import KeyRing
from campus.keys.tables import KeyEvent, KeyRow
from campus.storage import Storage

pytestmark = pytest.mark.anyio
OURS = {KeyRow.__tablename__, KeyEvent.__tablename__}


def differences(connection: Connection) -> list[Any]:
    """What a next migration would have to change in the tables of keys."""
    context = MigrationContext.configure(connection, opts={"include_name": lambda name, kind, _: kind != "table" or name in OURS})
    ours = [table for table in KeyRow.metadata.sorted_tables if table.name in OURS]
    assert len(ours) == 2
    return [change for change in compare_metadata(context, KeyRow.metadata) if change[0] != "add_table" or change[1] in ours]


async def test_the_migration_makes_the_tables_that_the_code_expects(storage: Storage) -> None:
    async with storage.read() as session:
        assert await (await session.connection()).run_sync(differences) == []


@pytest.mark.parametrize("statement", ["UPDATE key_events SET action = 'issued'", "DELETE FROM key_events"])
async def test_the_log_cannot_be_changed_nor_shortened(ring: KeyRing, storage: Storage, statement: str) -> None:
    key, _ = await ring.issue("cve")
    await ring.revoke(key.id)
    with pytest.raises(DBAPIError, match="key_events only grows"):
        async with storage.write() as session:
            await (await session.connection()).execute(text(statement))
    async with storage.read() as session:
        actions = (await session.exec(select(KeyEvent.action).order_by(KeyEvent.id))).all()
    assert actions == ["issued", "revoked"]


async def test_a_key_that_the_log_names_cannot_be_deleted(ring: KeyRing, storage: Storage) -> None:
    key, _ = await ring.issue("cve")
    with pytest.raises(DBAPIError):
        async with storage.write() as session:
            await session.delete(await session.get(KeyRow, key.id))
    async with storage.read() as session:
        assert (await session.exec(select(func.count()).select_from(KeyRow))).one() == 1
