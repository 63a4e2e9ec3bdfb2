"""A stored list that cannot be read is made again, on both databases."""

import zlib
from typing import Any

import pytest
from sqlmodel import select

from buildings.cve.ranked_set import HEAD, RankedSet
from buildings.cve.tables import LatestList

pytestmark = pytest.mark.anyio


async def test_a_list_that_cannot_be_read_is_made_anew(publisher: Any, open_test_campus: Any, storage_url: str) -> None:
    async with open_test_campus(publisher.url, storage=storage_url) as campus:
        await campus.run("refresh")
        ranked = len(campus.site.state.edition.ranked)
        async with campus.site.storage.write() as session:
            row = (await session.exec(select(LatestList))).one()
            row.ranked, row.version = row.ranked[:-1], "damaged"
        await campus.run("reload")
        assert len(campus.site.state.edition.ranked) == ranked, "what is served stays"
    async with open_test_campus(publisher.url, storage=storage_url) as campus:
        assert campus.site.state.real_edition is None
        await campus.run("refresh")
        assert len(campus.site.state.real_edition.ranked) == ranked


@pytest.mark.parametrize("block", [b"", b"ranked 1", zlib.compress(bytes(280)), HEAD.pack(b"ranked 1", 10) + bytes(279)])
def test_a_block_that_is_no_list_is_refused(block: bytes) -> None:
    with pytest.raises(ValueError, match="damaged"):
        RankedSet.unpack(block)
