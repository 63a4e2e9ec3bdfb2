import pytest
from campus.storage import Vault, HouseTables
from campus.jobs.tables import JobRow
import campus.keys.tables
pytestmark = pytest.mark.anyio
async def test_it(storage_url):
    async with Vault.open(storage_url) as vault:
        s = await vault.room("campus", HouseTables)
        async with s.write() as session:
            session.add(JobRow(name="a"))
        async with s.read() as session:
            print(await session.get(JobRow, "a"))
        def apply(c, items): 
            return [i*2 for i in items]
        async with s.batch(apply) as put:
            assert await put(3) == 6
