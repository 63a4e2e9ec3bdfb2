"""The sweep and outages of the recorder: SQL leads to the same rows as the state machine, on both databases."""

import re
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import anyio
import pytest
from conftest import Postgres
from hypothesis import given
from hypothesis import strategies as st
from patience import patience
from recorder.kills import SCHEDULE, fill
from recorder.receivers import Receiver
from recorder.recorders import SECRET, OpenRecorder, Recorder, unlike
from sqlalchemy import Connection, NullPool, func, select, text
from sqlalchemy.ext.asyncio import create_async_engine

from buildings.recorder.alerts.sweep import (
    MONITORS_PER_PART,
    MONITORS_PER_TRANSACTION,
    TARGETS_PER_PART,
    SweepResult,
    move_deadlines,
    note_outage,
    sweep,
)
from buildings.recorder.beats.beat import Beat
from buildings.recorder.beats.sql import record_beats
from buildings.recorder.clock import ClockReading
from buildings.recorder.monitors.options import stored_schedule
from buildings.recorder.monitors.state_machine import Outage, Schedule, apply_event, deadline_after_outage, outage_between, stored_state
from buildings.recorder.tables import ALERTS, MONITOR_TARGETS, MONITORS
from campus.features.alerts.dispatcher import WakeUp
from campus.observability.metrics import Metrics
from campus.secrets import digest_of
from campus.storage import in_snapshot, in_transaction
from campus.testing import Clock

pytestmark = pytest.mark.anyio
BLOCKED = "SELECT count(*) FROM pg_locks WHERE NOT granted"
SPANS = ((1, 0), (1, 5), (10, 2), (60, 5), (1440, 60))


async def rows(recorder: Recorder) -> dict[str, Any]:
    found = await in_snapshot(recorder.campus.site.storage, lambda connection: connection.execute(select(MONITORS)).all())
    return {row.id: row for row in found}


async def register_many(recorder: Recorder) -> None:
    for number, (period, grace) in enumerate(SPANS * 2):
        monitor = await recorder.register(f"https://localhost/{number}", period_minutes=period, grace_minutes=grace)
        if number >= len(SPANS):
            await recorder.beat(monitor, next_in=7)


def apply_outage(connection: Connection, outage: Outage) -> None:
    note_outage(connection, outage)
    assert move_deadlines(connection)
    assert not move_deadlines(connection), "ten monitors are one part"


@pytest.mark.both_databases
async def test_the_sweep_changes_what_the_state_machine_changes(recorder: Recorder) -> None:
    await register_many(recorder)
    for _ in range(4):
        await recorder.pass_time(minutes=8)
        before, now = await rows(recorder), recorder.clock()
        expected = {one: apply_event(stored_state(row), "deadline", stored_schedule(row), now) for one, row in before.items()}
        assert await recorder.sweep() == sum(change.alert == "dead" for change in expected.values())
        assert {one: stored_state(row) for one, row in (await rows(recorder)).items()} == {
            one: change.state for one, change in expected.items()
        }
    assert await recorder.sweep() == 0


@pytest.mark.both_databases
async def test_the_sql_moves_deadlines_after_an_outage_as_the_state_machine_does(recorder: Recorder) -> None:
    await register_many(recorder)
    for minutes in (1, 2, 10, 100):
        before, start = await rows(recorder), recorder.clock()
        outage = Outage(start, start + timedelta(minutes=minutes))
        await in_transaction(recorder.campus.site.storage, partial(apply_outage, outage=outage))
        after = await rows(recorder)
        for one, row in before.items():
            deadline, unverified = deadline_after_outage(
                outage, stored_schedule(row), expected_at=row.expected_at, deadline_at=row.deadline_at
            )
            assert after[one].deadline_at == deadline, (minutes, row.period, row.grace)
            assert after[one].unverified == (unverified or row.unverified)
        recorder.clock.move(timedelta(minutes=minutes))


async def test_an_outage_raises_no_false_alert_and_a_death_still_raises_one(recorder: Recorder) -> None:
    await recorder.pass_time(seconds=0)
    living = await recorder.register("https://localhost/living", period_minutes=5, grace_minutes=1)
    dead = await recorder.register("https://localhost/dead", period_minutes=5, grace_minutes=1)
    for minutes in (1, 10):
        await recorder.pass_time(minutes=4)
        for one in (living, dead):
            await recorder.beat(one)
        await recorder.pass_time(minutes=4)
        recorder.clock.move(timedelta(minutes=minutes))  # nobody watches
        assert await recorder.sweep() == 0
        await recorder.pass_time(seconds=20)
        await recorder.beat(living)  # the client's retry
        await recorder.pass_time(minutes=5)
        await recorder.sweep()
        await recorder.beat(living)
        await recorder.pass_time(minutes=5)
        await recorder.sweep()
        assert "dead" not in [kind for kind, _ in await recorder.alerts(living)]
        assert (await recorder.alerts(dead))[-1][0] == "dead"
        await recorder.beat(dead)


async def test_a_restart_raises_no_alert_about_an_agent_that_beats_every_few_seconds(recorder: Recorder) -> None:
    one = await recorder.register("https://localhost/quick", period_minutes=0.2, grace_minutes=0.1)
    await recorder.pass_time(seconds=10)
    await recorder.beat(one)
    recorder.clock.move(timedelta(seconds=22))  # nobody watches
    assert await recorder.sweep() == 0
    await recorder.pass_time(seconds=29)
    assert await recorder.alerts(one) == []
    recorder.clock.move(timedelta(seconds=2))
    assert await recorder.sweep() == 1


async def counted_deaths(metrics: Metrics) -> float:
    found = re.search(rb"^campus_recorder_deaths_total (.*)$", await metrics.page(), re.MULTILINE)
    return float(found[1]) if found else 0


async def test_each_death_is_counted(recorder: Recorder) -> None:
    for number in range(3):
        await recorder.register(f"https://localhost/{number}", period_minutes=1, grace_minutes=0)
    metrics = recorder.campus.service.metrics
    before = await counted_deaths(metrics)
    await recorder.pass_time(minutes=2)
    assert await recorder.sweep() == 3
    assert await counted_deaths(metrics) == before + 3


async def test_a_long_outage_is_reported_to_each_target_once(recorder: Recorder, receiver: Receiver) -> None:
    key = await recorder.campus.key("recorder")
    await recorder.pass_time(seconds=0)
    for number in range(3):
        await recorder.register(receiver.url(), key=key, name=f"m{number}")
    recorder.clock.move(timedelta(minutes=59))
    await recorder.sweep()
    await recorder.sweep()
    assert await recorder.deliver() == 1
    (received,) = receiver.requests
    assert (received.json["type"], received.json["monitor"], received.json["state"]) == ("recorder.blind", None, None)
    assert (received.json["since"], received.json["until"]) == ("2026-08-21T12:00:00Z", "2026-08-21T12:59:00Z")
    entries = (await recorder.call("fleet_status", key=key)).data["monitors"]
    assert {one["unverified"] for one in entries} == {True}


async def test_a_long_outage_among_many_monitors_is_handled_in_parts_deaths_first_and_a_restart_goes_on_with_them(
    open_recorder: OpenRecorder, storage_url: str
) -> None:
    count, clock = MONITORS_PER_PART + 1_000, Clock(datetime.now(UTC))

    async def turn(recorder: Recorder) -> tuple[SweepResult, int]:
        swept = await recorder.campus.site.state.sweep(ClockReading(clock()))
        news = select(func.count()).where(ALERTS.c.kind == "blind")
        return swept, await in_snapshot(recorder.campus.site.storage, lambda connection: connection.scalar(news)) or 0

    async with open_recorder(storage=storage_url, clock=clock) as recorder:
        await turn(recorder)
        await in_transaction(recorder.campus.site.storage, partial(fill, count=count, url="https://localhost{}".format))
        dies = await recorder.register("https://localhost/dies", period_minutes=0.1, grace_minutes=0)
        clock.move(timedelta(hours=1))
        swept, told = await turn(recorder)
        assert (swept.outage is not None, swept.died, told) == (True, 0, 0)
    async with open_recorder(storage=storage_url, clock=clock) as recorder:
        before = await rows(recorder)
        not_moved = [name for name, row in before.items() if not row.unverified]
        assert len(not_moved) == count + 1 - MONITORS_PER_PART
        beaten = next(name for name in not_moved if name != dies["monitor_id"])
        clock.move(timedelta(seconds=10))
        await recorder.beat({"monitor_id": beaten, "secret": SECRET})
        swept, told = await turn(recorder)
        assert (swept.outage, swept.died, told) == (None, 0, 0), "no monitor dies before its deadline was moved"
        after = await rows(recorder)
        assert [name for name, row in after.items() if not row.unverified] == [beaten]
        assert after[beaten].deadline_at == clock() + SCHEDULE.period + SCHEDULE.grace
        swept, told = await turn(recorder)
        assert (swept.died, told) == (1, TARGETS_PER_PART)
        assert (await turn(recorder))[1] == TARGETS_PER_PART, "no more are told while so many are due"
    async with open_recorder(storage=storage_url, clock=clock) as recorder:
        while swept.telling:
            clock.move(timedelta(seconds=10))
            before_turn, (swept, told) = told, await turn(recorder)
            assert told - before_turn <= TARGETS_PER_PART
        every = select(ALERTS.c.kind, ALERTS.c.target_id).order_by(ALERTS.c.id)
        alerts = await in_snapshot(recorder.campus.site.storage, lambda connection: connection.execute(every).all())
        assert [one.kind for one in alerts] == ["dead"] + ["blind"] * (count + 1)
        assert len({one.target_id for one in alerts}) == count + 1, "each target is told once"


@pytest.mark.both_databases
async def test_concurrent_beats_and_sweeps_leave_no_monitor_dead_after_a_beat(recorder: Recorder) -> None:
    monitors = [await recorder.register(f"https://localhost/{number}", period_minutes=1, grace_minutes=0) for number in range(20)]
    await recorder.pass_time(minutes=1)
    async with anyio.create_task_group() as tasks:
        for one in monitors:
            tasks.start_soon(recorder.beat, one)
            tasks.start_soon(recorder.sweep)
    for one in monitors:
        row, kinds = await recorder.row(one), [kind for kind, _ in await recorder.alerts(one)]
        assert row.mode == "up"
        assert kinds in ([], ["dead", "recovered"])


async def test_the_next_sweep_is_due_at_the_next_deadline(recorder: Recorder) -> None:
    await recorder.register("https://localhost/1", period_minutes=10, grace_minutes=2)
    last = await recorder.register("https://localhost/2", period_minutes=20, grace_minutes=2)
    sweep_at, began = recorder.campus.site.state.sweep, recorder.clock()
    assert (await sweep_at(ClockReading(began))).next_deadline == began + timedelta(minutes=12)
    await recorder.pass_time(minutes=12)
    assert (await sweep_at(ClockReading(recorder.clock()))).next_deadline == began + timedelta(minutes=22)
    await recorder.beat(last, status="fail")
    assert (await sweep_at(ClockReading(recorder.clock()))).next_deadline is None


async def test_nothing_is_delivered_while_deaths_are_still_being_found() -> None:
    wake_up, delivered = WakeUp(), anyio.Event()

    async def deliver() -> None:
        await wake_up.until_released()
        delivered.set()

    async with anyio.create_task_group() as tasks:
        with wake_up.held():
            tasks.start_soon(deliver)
            await anyio.wait_all_tasks_blocked()
            assert not delivered.is_set()
        await delivered.wait()


async def test_a_thousand_deaths_at_once_each_raise_an_alert(recorder: Recorder) -> None:
    template = await recorder.row(await recorder.register())
    copies = [{**template._asdict(), **unlike(f"mon_{number}")} for number in range(1_203)]
    (target,) = await recorder.targets()
    links = [{"monitor_id": one["id"], "target_id": target.id, "place": 0} for one in copies]

    def insert_all(connection: Connection) -> None:
        connection.execute(MONITORS.insert(), copies)
        connection.execute(MONITOR_TARGETS.insert(), links)

    await in_transaction(recorder.campus.site.storage, insert_all)
    await recorder.pass_time(hours=2)
    assert await recorder.sweep() == 1_204
    counted = await in_snapshot(recorder.campus.site.storage, lambda connection: connection.execute(select(ALERTS.c.monitor_id)).all())
    assert len({one for (one,) in counted}) == len(counted) == 1_204


@pytest.mark.both_databases
async def test_of_more_deaths_than_fit_one_transaction_the_longest_overdue_come_first(
    open_recorder: OpenRecorder, storage_url: str
) -> None:
    async with open_recorder(storage=storage_url) as recorder:
        template, count = await recorder.row(await recorder.register()), MONITORS_PER_TRANSACTION + 200
        due = template.deadline_at
        overdue = [due - timedelta(seconds=number + 1) for number in range(count)]  # the later in the table, the longer
        copies = [
            {**template._asdict(), **unlike(f"copy_{number:05}"), "due_at": at, "deadline_at": at} for number, at in enumerate(overdue)
        ]
        storage = recorder.campus.site.storage
        await in_transaction(storage, lambda connection: connection.execute(MONITORS.insert(), copies) and None)
        unsorted = "DROP INDEX ix_monitor_due"  # whose order would hide a missing ORDER BY
        await in_transaction(storage, lambda connection: connection.execute(text(unsorted)) and None)
        assert await in_transaction(storage, partial(sweep, now=due)) == (MONITORS_PER_TRANSACTION, True)
        still_up = select(MONITORS.c.id).where(MONITORS.c.mode == "up", MONITORS.c.id.startswith("copy"))
        left = await in_snapshot(storage, lambda connection: connection.scalars(still_up).all())
        assert sorted(left) == [f"copy_{number:05}" for number in range(count - MONITORS_PER_TRANSACTION)]


async def test_a_beat_that_commits_while_the_sweep_waits_for_its_row_keeps_the_monitor_alive(
    open_recorder: OpenRecorder, postgres: Postgres
) -> None:
    name = postgres.create_database()
    async with open_recorder(storage=postgres.url(name)) as recorder:
        monitor = await recorder.register()
        now = recorder.clock() + timedelta(hours=2)
        engine = create_async_engine(postgres.url(name).replace("postgresql:", "postgresql+asyncpg:"), poolclass=NullPool)
        flipped: list[int] = []

        async def sweep_beside() -> None:
            async with engine.begin() as connection:
                await connection.execute(text("SET search_path TO recorder"))
                flipped.append(await connection.run_sync(partial(sweep, now=now)))

        async with anyio.create_task_group() as tasks, engine.begin() as beating:
            await beating.execute(text("SET search_path TO recorder"))
            beat = Beat(monitor["monitor_id"], digest_of(monitor["secret"]), now, "ok")
            await beating.run_sync(lambda connection: record_beats(connection, [beat]))
            tasks.start_soon(sweep_beside)
            with anyio.fail_after(patience(60)):
                while not await beating.scalar(text(BLOCKED)):  # noqa: ASYNC110  # what is waited for is in the database
                    await anyio.sleep(0.01)
        assert (flipped, (await recorder.row(monitor)).mode) == ([(0, False)], "up")
        await engine.dispose()
    postgres.drop_database(name)


def test_an_outage_of_exactly_two_minutes_is_short() -> None:
    start = datetime(2026, 8, 21, tzinfo=UTC)
    assert Outage(start, start + timedelta(seconds=120)).is_short
    assert not Outage(start, start + timedelta(seconds=120, microseconds=1)).is_short


async def test_after_an_outage_of_exactly_two_minutes_there_is_just_time_for_the_retries(recorder: Recorder) -> None:
    monitor = await recorder.register(period_minutes=1, grace_minutes=1)
    await recorder.pass_time(seconds=0)
    recorder.clock.move(timedelta(seconds=120))
    assert await recorder.sweep() == 0
    row = await recorder.row(monitor)
    assert (row.deadline_at - recorder.clock(), row.unverified) == (timedelta(minutes=1), False)


GAPS = st.integers(0, 4000).map(lambda seconds: timedelta(seconds=seconds))


@given(GAPS, GAPS, GAPS.map(lambda span: span + timedelta(seconds=6)), GAPS)
def test_an_outage_never_brings_a_deadline_forward(gap: timedelta, until: timedelta, period: timedelta, grace: timedelta) -> None:
    now = datetime(2026, 8, 21, tzinfo=UTC)
    outage = outage_between(now - gap, now)
    assert (outage is None) == (gap <= timedelta(seconds=15))
    if outage:
        expected = now - gap + until
        deadline, _ = deadline_after_outage(outage, Schedule(period, grace), expected_at=expected, deadline_at=expected + grace)
        assert deadline >= expected + grace
        assert deadline > now
