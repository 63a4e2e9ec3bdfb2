"""Jumps of the machine's clock: deaths are found by elapsed time, no agent is declared dead for a jump, and nothing is deleted."""

import time
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

import pytest
from recorder.receivers import Receiver
from recorder.recorders import OpenRecorder, Recorder

from buildings.recorder.runtime import agree_on_time, clock_is_steady
from buildings.recorder.tables import MONITORS
from campus.storage import in_snapshot

pytestmark = [pytest.mark.anyio, pytest.mark.faults("clock")]
YEAR, HOURS = timedelta(days=400), timedelta(hours=-2)
QUICK = {"period_minutes": 1, "grace_minutes": 0.5}
SPAN = timedelta(seconds=90)


async def watch(*recorders: Recorder, seconds: int, pace: int = 1) -> None:
    clocks = {id(one.clock): one.clock for one in recorders}
    for _ in range(0, seconds, pace):
        for clock in clocks.values():
            clock.move(timedelta(seconds=pace))
        for one in recorders:
            await one.sweep()


async def kinds(recorder: Recorder, monitor: Mapping[str, Any]) -> list[str]:
    return [kind for kind, _ in await recorder.alerts(monitor)]


@pytest.fixture
def in_new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("in_new_york")
@pytest.mark.parametrize("change", ["2027-03-14T07:00Z", "2027-11-07T06:00Z"])
async def test_a_change_to_or_from_summer_time_moves_no_deadline(recorder: Recorder, change: str) -> None:
    recorder.clock.step(datetime.fromisoformat(change) - timedelta(minutes=30) - recorder.clock())
    before = time.localtime((recorder.clock() + timedelta(minutes=1)).timestamp()).tm_isdst
    await watch(recorder, seconds=60)
    monitor = await recorder.register("https://localhost/1", period_minutes=60, grace_minutes=5)
    beaten = await recorder.beat(monitor)
    assert beaten.data["deadline_at"] == f"{recorder.clock() + timedelta(minutes=65):%Y-%m-%dT%H:%M:%SZ}"
    await watch(recorder, seconds=64 * 60, pace=15)
    assert time.localtime(recorder.clock().timestamp()).tm_isdst != before, "New York changed its clocks"
    assert await kinds(recorder, monitor) == []
    await watch(recorder, seconds=70, pace=10)
    assert await kinds(recorder, monitor) == ["dead"]


@pytest.mark.parametrize("step", [YEAR, HOURS])
async def test_a_jump_that_is_undone_changes_nothing(recorder: Recorder, step: timedelta) -> None:
    quiet, beating = (
        await recorder.register("https://localhost/1", **QUICK),
        await recorder.register("https://localhost/2", **QUICK),
    )
    await watch(recorder, seconds=5)
    before = await recorder.row(quiet)
    recorder.clock.step(step)
    beaten = await recorder.beat(beating)  # before any sweep reads the clock
    assert beaten.data["deadline_at"] == f"{recorder.clock() - step + SPAN:%Y-%m-%dT%H:%M:%SZ}"
    await watch(recorder, seconds=4)
    (said,) = await clock_is_steady(recorder.campus.site)
    assert "the clock jumped " + ("forward by 400 days" if step > timedelta(0) else "back by 2:00:00") in said
    recorder.clock.step(-step)
    await watch(recorder, seconds=4)
    assert await recorder.row(quiet) == before
    assert "the clock jumped" in (await clock_is_steady(recorder.campus.site))[0]
    assert await kinds(recorder, quiet) == []
    await watch(recorder, seconds=78)
    assert (await kinds(recorder, quiet), await kinds(recorder, beating)) == (["dead"], [])
    recorder.clock.move(timedelta(hours=1))
    assert await clock_is_steady(recorder.campus.site) == []


async def test_a_clock_that_is_set_back_hides_no_death(recorder: Recorder) -> None:
    monitor, other = await recorder.register("https://localhost/1", **QUICK), await recorder.register("https://localhost/2")
    await watch(recorder, seconds=60, pace=5)
    await recorder.beat(other)
    recorder.clock.step(HOURS)
    await watch(recorder, seconds=29)
    assert await kinds(recorder, monitor) == []
    await watch(recorder, seconds=3)
    assert await kinds(recorder, monitor) == ["dead"]
    row = await recorder.row(other)
    left = timedelta(minutes=65) - timedelta(seconds=32)
    assert (row.deadline_at - recorder.clock(), row.last_beat_at <= recorder.clock()) == (left, True)


async def test_a_clock_that_is_a_year_ahead_for_a_minute_leaves_no_deadline_there(recorder: Recorder, receiver: Receiver) -> None:
    quiet, beating = (
        await recorder.register("https://localhost/1", **QUICK),
        await recorder.register("https://localhost/2", **QUICK),
    )
    failing = await recorder.register(receiver.url())
    receiver.answer(500)
    await recorder.beat(failing, status="fail")
    await watch(recorder, seconds=5)
    await recorder.deliver()
    recorder.clock.step(YEAR)
    await watch(recorder, seconds=20)
    await recorder.beat(beating)
    late = await recorder.register("https://localhost/3", **QUICK)
    await recorder.deliver()
    await watch(recorder, seconds=20)
    for one in (quiet, beating, late):
        assert [kind for kind in await kinds(recorder, one) if kind == "dead"] == []
    recorder.clock.step(-YEAR)
    await watch(recorder, seconds=10)
    now = recorder.clock()
    for row in await in_snapshot(recorder.campus.site.storage, lambda connection: connection.execute(MONITORS.select()).all()):
        past = (row.registered_at, row.alive_at, row.since, row.last_beat_at or now)
        assert max(past) <= now
        assert now < row.deadline_at <= now + row.period + row.grace
    for target in await recorder.targets():
        assert target.disabled_at is None
        assert target.next_try_at is None or target.next_try_at <= now + timedelta(hours=1)
    await watch(recorder, seconds=100)
    for one in (quiet, beating, late):
        assert [kind for kind in await kinds(recorder, one) if kind == "dead"] == ["dead"]
    receiver.answer(200)
    await recorder.deliver()
    assert "monitor.failed" in receiver.types


async def test_messages_delivered_while_the_clock_was_ahead_delay_no_later_ones(recorder: Recorder, receiver: Receiver) -> None:
    monitor = await recorder.register(receiver.url(), key="recorder")
    await watch(recorder, seconds=5)
    recorder.clock.step(YEAR)
    await watch(recorder, seconds=20)
    await recorder.beat(monitor, status="fail")
    await recorder.deliver()
    recorder.clock.step(-YEAR)
    await watch(recorder, seconds=10)
    for status in ("ok", "fail") * 4:
        await recorder.beat(monitor, status=status)
        await recorder.deliver()
    await watch(recorder, seconds=60, pace=5)
    await recorder.deliver()
    assert await kinds(recorder, monitor) == []
    (target,) = await recorder.targets()
    assert target.answered_at <= recorder.clock()
    assert all(max(one.at, one.delivered_at) <= recorder.clock() for one in await recorder.deliveries())


async def test_of_two_processes_the_one_whose_clock_is_wrong_goes_by_elapsed_time(open_recorder: OpenRecorder, storage_url: str) -> None:
    async with open_recorder(storage=storage_url) as right, open_recorder(storage=storage_url) as wrong:
        monitor = await right.register("https://localhost/1", **QUICK)
        await watch(right, wrong, seconds=10)
        before = await right.row(monitor)
        wrong.clock.step(YEAR)
        await watch(right, wrong, seconds=30)
        assert await right.row(monitor) == before
        beaten = await wrong.beat(monitor)
        assert beaten.data["deadline_at"] == f"{right.clock() + SPAN:%Y-%m-%dT%H:%M:%SZ}"
        assert (await clock_is_steady(right.campus.site), "forward by 400 days" in (await clock_is_steady(wrong.campus.site))[0]) == (
            [],
            True,
        )
        await watch(wrong, seconds=5)
        await watch(right, wrong, seconds=95)
        assert await kinds(right, monitor) == ["dead"]


async def test_a_clock_that_was_set_back_between_two_starts_moves_deadlines_back(open_recorder: OpenRecorder, storage_url: str) -> None:
    async with open_recorder(storage=storage_url) as before:
        monitor = await before.register("https://localhost/1")
        await watch(before, seconds=5, pace=5)
        clock = before.clock
        clock.step(-YEAR)

        async def wait(seconds: float) -> None:
            clock.move(timedelta(seconds=seconds))

        async with open_recorder(storage=storage_url, clock=clock) as after:
            for _ in range(2):
                await agree_on_time(after.campus.site, wait)
                assert (await after.row(monitor)).deadline_at == clock() + timedelta(minutes=65) - timedelta(seconds=5)


async def test_a_process_that_starts_behind_the_others_goes_by_their_time(open_recorder: OpenRecorder, storage_url: str) -> None:
    async with open_recorder(storage=storage_url) as first:
        monitor = await first.register("https://localhost/1", **QUICK)
        await watch(first, seconds=5, pace=5)
        async with open_recorder(storage=storage_url) as behind:
            behind.clock.step(-timedelta(days=3))

            async def wait(seconds: float) -> None:
                behind.clock.move(timedelta(seconds=seconds))
                await watch(first, seconds=int(seconds))

            behind.campus.site.state.time.follow_others(-timedelta(days=3))  # as if it had started so
            await agree_on_time(behind.campus.site, wait)
            await watch(first, behind, seconds=20)
            assert (await first.row(monitor)).deadline_at == first.clock() + SPAN - timedelta(seconds=33)
            beaten = await behind.beat(monitor)
            assert beaten.data["deadline_at"][:16] == f"{first.clock() + SPAN:%Y-%m-%dT%H:%M}"


async def test_monitors_that_fell_asleep_by_a_wrong_clock_wake_when_the_key_is_seen_to_be_valid(recorder: Recorder) -> None:
    key = await recorder.campus.key("recorder")
    monitor = await recorder.register(key=key)
    await watch(recorder, seconds=5)
    recorder.clock.step(YEAR)
    await watch(recorder, seconds=20)
    await recorder.campus.run("follow_keys")
    assert (await recorder.row(monitor)).mode == "asleep"
    recorder.clock.step(-YEAR)
    await watch(recorder, seconds=20)
    await recorder.campus.run("follow_keys")
    row = await recorder.row(monitor)
    assert (row.mode, row.deadline_at - recorder.clock()) == ("up", timedelta(minutes=65))
    assert (await recorder.beat(monitor, capsule=1)).data["capsule_stored"] is True


async def test_nothing_is_deleted_within_an_hour_of_a_jump(recorder: Recorder, receiver: Receiver) -> None:
    silent = await recorder.register(receiver.url(), **QUICK)
    await recorder.pass_time(days=31)
    await recorder.campus.run("tidy")
    assert await recorder.deliver() == 1, "its target is told, and tomorrow it would be deleted"
    await recorder.pass_time(days=1)
    for step in (YEAR, -YEAR):
        recorder.clock.step(step)
        await recorder.campus.run("tidy")
        assert await recorder.row(silent) is not None
    await recorder.pass_time(minutes=59)
    await recorder.campus.run("tidy")
    assert await recorder.row(silent) is not None
    await recorder.pass_time(minutes=1)
    await recorder.campus.run("tidy")
    assert await recorder.row(silent) is None


async def test_a_clock_that_is_set_forward_ages_no_alert_and_no_stored_answer(recorder: Recorder, receiver: Receiver) -> None:
    """As on a machine that starts with an old time and then gets the right one."""
    body, headers = {"name": "a", "alert_webhook": receiver.url()}, {"Idempotency-Key": "Zk3vQ8xN1rT6yB2mW9cL4hJ7"}
    http = recorder.campus.http
    first = (await http.post("/v1/recorder/monitors", json=body, headers=headers)).json()
    owned = await recorder.register(receiver.url("/owned"), key="recorder")
    await recorder.beat(owned, status="fail")
    await recorder.deliver()
    receiver.answer(500)
    await recorder.beat(first, status="fail")
    await watch(recorder, seconds=5)
    recorder.clock.step(YEAR)
    await watch(recorder, seconds=20)
    await recorder.pass_time(hours=1)
    await recorder.campus.run("tidy")
    assert await kinds(recorder, first) == ["failed"]
    receiver.answer(200)
    await recorder.deliver()
    assert [one.monitor_id for one in await recorder.deliveries()] == [owned["monitor_id"]]
    (sent,) = [one.json for one in receiver.requests if one.json["monitor"]["id"] == first["monitor_id"]]
    for member in ("timestamp", "since"):
        assert recorder.clock() - datetime.fromisoformat(sent[member]) < timedelta(hours=2)
    again = await http.post("/v1/recorder/monitors", json=body, headers=headers)
    assert (again.status_code, again.json()) == (200, first)


async def test_readiness_reports_a_clock_jump(recorder: Recorder) -> None:
    await watch(recorder, seconds=1)
    assert (await recorder.campus.service.ask("ready"))["recorder"] == []
    recorder.clock.step(HOURS)
    (said,) = (await recorder.campus.service.ask("ready"))["recorder"]
    assert said.startswith("the clock jumped back by 2:00:00 at 2026-08-21T12:00:01Z; deadlines are checked by elapsed time")
    await watch(recorder, seconds=10)
    (said,) = (await recorder.campus.service.ask("ready"))["recorder"]
    assert said == "the clock jumped back by 2:00:00 at 2026-08-21T10:00:09Z; make sure that this machine's time is synchronized"


@pytest.mark.parametrize("step", [timedelta(hours=1), timedelta(hours=-1)])
async def test_the_times_of_a_schedule_do_not_move_with_the_clock(recorder: Recorder, step: timedelta) -> None:
    nightly = await recorder.register("https://localhost/1", schedule="0 22 * * *")
    hourly = await recorder.register("https://localhost/2", hours="00:00-23:59")
    await watch(recorder, seconds=5)
    recorder.clock.step(step)
    await watch(recorder, seconds=20)
    assert (await recorder.row(nightly)).deadline_at == datetime.fromisoformat("2026-08-21T22:05Z")
    left = (await recorder.row(hourly)).expected_at - recorder.clock()
    assert left == timedelta(minutes=60) - timedelta(seconds=25)


async def test_a_beat_while_the_clock_was_ahead_leaves_no_time_of_a_schedule_there(recorder: Recorder) -> None:
    monitor = await recorder.register("https://localhost/1", schedule="0 22 * * *")
    await watch(recorder, seconds=5)
    recorder.clock.step(YEAR)
    await watch(recorder, seconds=20)
    await recorder.beat(monitor)
    recorder.clock.step(-YEAR)
    await watch(recorder, seconds=20)
    row = await recorder.row(monitor)
    assert (row.deadline_at, row.due_at <= row.deadline_at) == (datetime.fromisoformat("2026-08-21T22:05Z"), True)
    assert await kinds(recorder, monitor) == []
