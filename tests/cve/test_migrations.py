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


async def test_lists_that_were_stored_compressed_are_read_again(publisher: Any, open_town: Any, storage_url: str) -> None:
    async with open_town(publisher.url, storage=storage_url) as town:
        await town.run("refresh")
        async with town.site.storage.write() as session:
            latest, archived = (await session.exec(select(LatestList))).one(), (await session.exec(select(ArchivedSet))).one()
            before = latest.ranked, archived.ranked
            latest.ranked = zlib.compress(latest.ranked[HEAD.size :])
            archived.ranked = zlib.compress(zlib.decompress(archived.ranked)[HEAD.size :])
        async with town.site.storage.write() as session:
            await (await session.connection()).run_sync(step)
        async with town.site.storage.read() as session:
            latest, archived = (await session.exec(select(LatestList))).one(), (await session.exec(select(ArchivedSet))).one()
            assert (latest.ranked, zlib.decompress(archived.ranked)) == (before[0], zlib.decompress(before[1]))
        assert (await town.campus.ask("audit"))["cve"] == []


def step(connection: Connection) -> None:
    with Operations.context(MigrationContext.configure(connection)):
        STEP.upgrade()


async def test_a_list_that_cannot_be_read_is_made_anew(publisher: Any, open_town: Any, storage_url: str) -> None:
    async with open_town(publisher.url, storage=storage_url) as town:
        await town.run("refresh")
        ranked = len(town.site.state.edition.ranked)
        async with town.site.storage.write() as session:
            row = (await session.exec(select(LatestList))).one()
            row.ranked, row.version = row.ranked[:-1], "damaged"
        await town.run("reload")
        assert len(town.site.state.edition.ranked) == ranked, "what is on show stays"
    async with open_town(publisher.url, storage=storage_url) as town:
        assert town.site.state.real_edition is None
        await town.run("refresh")
        assert len(town.site.state.real_edition.ranked) == ranked


@pytest.mark.parametrize("block", [b"", b"ranked 1", zlib.compress(bytes(280)), HEAD.pack(b"ranked 1", 10) + bytes(279)])
def test_a_block_that_is_no_list_is_refused(block: bytes) -> None:
    with pytest.raises(ValueError, match="damaged"):
        RankedSet.unpack(block)
