"""What a caller makes in a stranger's building ends with its maker; and finding makers reads the database seldom."""

from collections.abc import Mapping
from datetime import timedelta

import pytest
from keys.links import building
from keys.test_token_cache import CountedStorage

from campus.keys.keyring import KeyRing
from campus.keys.sales import Product
from campus.storage import Storage
from campus.testing import Clock, open_campus

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("frame", ["http", "mcp"])
async def test_a_strangers_links_end_with_their_maker_and_are_listed_ended_and_kept(frame, storage_url) -> None:
    clock = Clock()
    async with open_campus(links=building, frame=frame, clock=clock, storage=storage_url) as campus:
        key, token = await campus.service.keys.issue("links")
        links = [(await campus.call("share", key=token)).data for _ in range(2)]
        links = [link["result"] if isinstance(link, dict) else link for link in links]
        heir, new = await campus.service.keys.rotate(key.id)

        async def are_open() -> list[bool]:
            return [(await campus.http.get(f"/links/{link}")).status_code == 200 for link in links]

        assert await are_open() == [True, True]
        await campus.service.keys.revoke(key.id)
        assert await are_open() == [False, False]
        page = await campus.http.get("/keys", headers={"Authorization": f"Bearer {new}"})
        made_by = {"kind": "key", "id": key.id, "name": None, "ended": True}
        holdings = page.json()["holdings"]
        assert [(one["id"], one["state"], one["made_by"]) for one in holdings] == [(link, "stopped", made_by) for link in links]
        assert (await campus.call("keep", key=new, link=links[0])).status == 200
        assert (await campus.call("unshare", key=new, link=links[1])).status == 200
        assert await are_open() == [True, False]
        clock.move(heir.expires_at - clock() + timedelta(seconds=1))
        assert await are_open() == [False, False]


async def test_a_maker_is_read_once_in_five_seconds_however_often_it_is_asked_for(
    storage: Storage, other_ring: KeyRing, products: Mapping[str, Product], clock: Clock
) -> None:
    counted = CountedStorage(storage)
    ring = KeyRing(counted, products, now=clock, monotonic=lambda: clock().timestamp())
    key = (await ring.issue("cve")).key
    for _ in range(100):
        assert (await ring.makers.find(key.id)).ends_at == key.expires_at
    assert counted.reads == 1
    await other_ring.revoke(key.id)
    clock.move(timedelta(seconds=5))
    assert (await ring.makers.find(key.id)).ends_at is None
    assert (await ring.makers.find("client_that_was")).ends_at is None
