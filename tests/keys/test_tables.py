"""The tables of keys: the migration creates what the code declares, and the log cannot be rewritten."""

from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError
from sqlmodel import func, select

from campus.errors import StorageFault
from campus.keys.keyring import KeyRing
from campus.keys.tables import KeyEvent, KeyRow, KeySale
from campus.storage import Storage

pytestmark = [pytest.mark.anyio, pytest.mark.both_databases]
OURS = {table.__tablename__ for table in (KeyRow, KeyEvent, KeySale)}


def differences(connection: Connection) -> list[Any]:
    """What a next migration would have to change in the tables of keys."""

    def is_ours(found: Any, _name: str | None, kind: str, _reflected: bool, _compared: Any) -> bool:
        return (found if kind == "table" else found.table).name in OURS

    context = MigrationContext.configure(connection, opts={"include_object": is_ours})
    return compare_metadata(context, KeyRow.metadata)


async def test_the_migration_creates_the_tables_that_the_code_declares(storage: Storage) -> None:
    async with storage.read() as session:
        assert await (await session.connection()).run_sync(differences) == []


@pytest.mark.parametrize("statement", ["UPDATE key_events SET action = 'issued'", "DELETE FROM key_events"])
async def test_the_log_only_grows(ring: KeyRing, storage: Storage, statement: str) -> None:
    key, _ = await ring.issue("cve")
    await ring.revoke(key.id)
    with pytest.raises((DBAPIError, StorageFault), match="key_events only grows"):
        async with storage.write() as session:
            await (await session.connection()).execute(text(statement))
    async with storage.read() as session:
        actions = (await session.exec(select(KeyEvent.action).order_by(KeyEvent.id))).all()
    assert actions == ["issued", "revoked"]


async def test_a_key_that_the_log_names_cannot_be_deleted(ring: KeyRing, storage: Storage) -> None:
    key, _ = await ring.issue("cve")
    with pytest.raises((DBAPIError, StorageFault)):
        async with storage.write() as session:
            await session.delete(await session.get(KeyRow, key.id))
    async with storage.read() as session:
        assert (await session.exec(select(func.count()).select_from(KeyRow))).one() == 1
