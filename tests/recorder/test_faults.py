"""Faults: a killed process, an outage among clients that retry, and a database that refuses writes. `make faults` has the long runs."""

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from patience import patience
from recorder.kills import KilledRecorder, beat_until_killed, webhook_receiver
from recorder.outages import only_dead_agents_are_reported
from recorder.receivers import Authority
from recorder.recorders import OpenRecorder, Recorder
from recorder.served import served
from recorder.write_ahead import check, open_store, outlived
from sqlalchemy import text


def test_killed_at_two_points_it_reports_every_death_under_one_id(tmp_path: Path, authority: Authority) -> None:
    with webhook_receiver(authority) as receiver:
        killed = KilledRecorder(tmp_path, f"sqlite:{tmp_path}/data", authority, receiver, 20)
        killed.fill()
        for point in ("outbox", "mark"):
            killed.round(point)
        assert killed.figures()["deaths"] == 2 * killed.count


def test_killed_while_beats_arrive_it_loses_no_acknowledged_beat(tmp_path: Path, authority: Authority) -> None:
    with webhook_receiver(authority) as receiver:
        killed = KilledRecorder(tmp_path, f"sqlite:{tmp_path}/data", authority, receiver, 1)
        killed.fill()
        killed.give_key()
        acknowledged, _ = beat_until_killed(killed, first=1, seconds=patience(0.4), rate=200 / patience(1))
        assert acknowledged > 4


@pytest.mark.anyio
async def test_an_outage_leads_to_alerts_about_dead_agents_only(recorder: Recorder) -> None:
    await only_dead_agents_are_reported(recorder, count=30, outage=60)


@pytest.mark.anyio
async def test_work_of_agents_that_die_is_done_once_and_in_order(recorder: Recorder) -> None:
    async with served(recorder) as (address, _):
        with open_store() as store:
            lives = await outlived(recorder, address, store, deaths=5, chance=Random(3))
    assert check(lives, store, deaths=5)


async def refuse_writes(recorder: Recorder) -> None:
    storage = recorder.campus.site.storage
    async with storage.write() as session:
        await (await session.connection()).execute(text("PRAGMA query_only = ON"))
    async with storage.batch(
        lambda connection, items: [connection.exec_driver_sql("PRAGMA query_only = ON") and None for _ in items]
    ) as put:
        await put(None)


@pytest.mark.anyio
@pytest.mark.faults("disk full")
async def test_what_cannot_be_stored_is_not_acknowledged(open_recorder: OpenRecorder) -> None:
    async with open_recorder() as recorder:
        key = await recorder.campus.key("recorder")
        monitor = await recorder.register(key=key)
        await refuse_writes(recorder)
        for frame in ("http", "mcp"):
            over = replace(recorder, campus=replace(recorder.campus, frame=frame))
            beaten = await over.beat(monitor)
            assert (beaten.status, beaten.code) == (503, "storage_unavailable"), beaten.data
            registered = await over.call("register_monitor", name="b", alert_webhook="https://localhost/b")
            assert (registered.status, registered.code) == (503, "storage_unavailable"), registered.data
            assert beaten.headers.get("retry-after") or frame == "mcp"
        (entry,) = (await recorder.call("fleet_status", key=key)).data["monitors"]
        assert entry["beats"] == 0
