"""Search: the language of criteria, row by row, through both front doors and on both databases."""

import pytest

pytestmark = [pytest.mark.anyio, pytest.mark.both_databases]


async def test_x(open_lists, storage_url):
    async with open_lists(storage=storage_url) as lists:
        r = await lists.call("search_cves", vendors=["Acme"], kev=True)
        print(r.status, r.data)
        r = await lists.campus.http.get("/v1/cves?vendors=Acme&vendors=b&kev=true&limit=3&text=50%25", headers={"authorization": f"Bearer {lists.key}"})
        print(r.status_code, r.text)
        r = await lists.campus.http.get("/v1/cves?vendors=Acme&kevs=true", headers={"authorization": f"Bearer {lists.key}"})
        print(r.status_code, r.text)
        assert 0
