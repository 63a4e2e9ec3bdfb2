"""The steps of the cve database over what an earlier version stored, and what cannot be read, on both databases."""

import zlib
from importlib import import_module
from typing import Any

import pytest
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import Connection
from sqlmodel import select

from buildings.cve.ranked_set import HEAD, RankedSet
from buildings.cve.tables import ArchivedSet, LatestList

pytestmark = pytest.mark.anyio

STEP = import_module("buildings.cve.migrations.0002_unpacked_list")


async def test_lists_that_were_stored_compressed_are_read_again(publisher: Any, open_test_campus: Any, storage_url: str) -> None:
    async with open_test_campus(publisher.url, storage=storage_url) as campus:
        await campus.run("refresh")
        async with campus.site.storage.write() as session:
            latest, archived = (await session.exec(select(LatestList))).one(), (await session.exec(select(ArchivedSet))).one()
            before = latest.ranked, archived.ranked
            latest.ranked = zlib.compress(latest.ranked[HEAD.size :])
            archived.ranked = zlib.compress(zlib.decompress(archived.ranked)[HEAD.size :])
        async with campus.site.storage.write() as session:
            await (await session.connection()).run_sync(step)
        async with campus.site.storage.read() as session:
            latest, archived = (await session.exec(select(LatestList))).one(), (await session.exec(select(ArchivedSet))).one()
            assert (latest.ranked, zlib.decompress(archived.ranked)) == (before[0], zlib.decompress(before[1]))
        assert (await campus.service.ask("audit"))["cve"] == []


def step(connection: Connection) -> None:
    with Operations.context(MigrationContext.configure(connection)):
        STEP.upgrade()


async def test_a_list_that_cannot_be_read_is_made_anew(publisher: Any, open_test_campus: Any, storage_url: str) -> None:
    async with open_test_campus(publisher.url, storage=storage_url) as campus:
        await campus.run("refresh")
        ranked = len(campus.site.state.edition.ranked)
        async with campus.site.storage.write() as session:
            row = (await session.exec(select(LatestList))).one()
            row.ranked, row.version = row.ranked[:-1], "damaged"
        await campus.run("reload")
        assert len(campus.site.state.edition.ranked) == ranked, "what is on show stays"
    async with open_test_campus(publisher.url, storage=storage_url) as campus:
        assert campus.site.state.real_edition is None
        await campus.run("refresh")
        assert len(campus.site.state.real_edition.ranked) == ranked


@pytest.mark.parametrize("block", [b"", b"ranked 1", zlib.compress(bytes(280)), HEAD.pack(b"ranked 1", 10) + bytes(279)])
def test_a_block_that_is_no_list_is_refused(block: bytes) -> None:
    with pytest.raises(ValueError, match="damaged"):
        RankedSet.unpack(block)
