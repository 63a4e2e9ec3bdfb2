"""The tables of keys: the log cannot be rewritten."""

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlmodel import func, select

from campus.errors import StorageFault
from campus.keys.keyring import KeyRing
from campus.keys.tables import KeyEvent, KeyRow
from campus.storage import Storage

pytestmark = [pytest.mark.anyio, pytest.mark.both_databases]


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
