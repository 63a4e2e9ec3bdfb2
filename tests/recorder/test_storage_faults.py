"""A database that refuses writes: beats are refused, not acknowledged, and reads still work."""

import pytest
from recorder.recorders import Recorder
from sqlalchemy import text

pytestmark = pytest.mark.anyio


async def refuse_writes(recorder: Recorder) -> None:
    """Let both writers of the building refuse writes: that of sessions and that of batches."""
    storage = recorder.campus.site.storage
    async with storage.write() as session:
        await (await session.connection()).execute(text("PRAGMA query_only = ON"))
    async with storage.batch(
        lambda connection, items: [connection.exec_driver_sql("PRAGMA query_only = ON") and None for _ in items]
    ) as put:
        await put(None)


async def test_what_cannot_be_stored_is_not_acknowledged(both_ways: Recorder) -> None:
    key = await both_ways.campus.key("recorder")
    monitor = await both_ways.register(key=key)
    await refuse_writes(both_ways)
    beaten = await both_ways.beat(monitor)
    assert (beaten.status, beaten.code) == (503, "storage_unavailable"), beaten.data
    registered = await both_ways.call("register_monitor", name="b", alert_webhook="https://localhost/b")
    assert (registered.status, registered.code) == (503, "storage_unavailable"), registered.data
    if both_ways.campus.frame == "http":
        assert beaten.headers["retry-after"]
    (entry,) = (await both_ways.call("fleet_status", key=key)).data["monitors"]
    assert entry["beats"] == 0
