"""Two processes on one PostgreSQL database: what they do at once is all done, and once."""

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from operator import itemgetter

import anyio
import pytest
from patience import patience
from recorder.races import at_once
from recorder.receivers import Receiver
from recorder.recorders import Recorder
from recorder.test_acting import PAGER, keyed, told
from recorder.test_clock_jumps import HOURS, watch
from recorder.test_update_targets import waiting_alerts
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from sqlalchemy.pool import NullPool

from buildings.recorder import runtime
from buildings.recorder.tables import TICKS
from campus.storage import in_snapshot

pytestmark = [pytest.mark.anyio, pytest.mark.faults("leader killed")]

WAITING = "SELECT count(*) FROM pg_locks WHERE NOT granted"
SHARE = (
    "SELECT pg_advisory_xact_lock_shared((classid::bigint << 32) | objid::bigint) FROM pg_locks"
    " WHERE locktype = 'advisory' AND granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)
"""Takes the lock of the schema as transactions by row do, beside one that has it."""
LOCK_MONITOR = text("SELECT FROM recorder.monitor WHERE id = :id FOR UPDATE")


@pytest.fixture
async def holder(two_processes: tuple[Recorder, Recorder]) -> AsyncIterator[AsyncConnection]:
    """A connection beside those of the two processes, for locks."""
    url = two_processes[0].campus.service.plan.config.storage.url
    engine = create_async_engine(url.replace("postgresql:", "postgresql+asyncpg:"), poolclass=NullPool)
    async with engine.connect() as connection:
        yield connection
    await engine.dispose()


async def test_a_second_process_sends_nothing_that_the_first_is_sending(
    two_processes: tuple[Recorder, Recorder], receiver: Receiver
) -> None:
    first, second = two_processes
    await first.beat(await first.register(receiver.url("/served")), status="fail")
    assert len(await first.campus.site.state.dispatcher.claim()) == 1, "the first is sending it"
    await first.beat(await first.register(receiver.url("/new")), status="fail")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(runtime.watch, second.campus.site)
        with anyio.fail_after(patience(60)):
            while not receiver.requests:  # noqa: ASYNC110  # what is waited for comes over a socket
                await anyio.sleep(0.02)
        await second.deliver()
        tasks.cancel_scope.cancel()
    assert [(one.path, one.json["monitor"]["name"]) for one in receiver.requests] == [("/new", "worker")]


async def test_a_process_records_plain_beats_while_another_does_and_what_decides_waits_for_both(
    two_processes: tuple[Recorder, Recorder], holder: AsyncConnection
) -> None:
    first, second = two_processes
    held, free = [await first.register(f"https://localhost/{number}") for number in range(2)]
    for monitor in (held, free):
        await first.beat(monitor)  # the first one of a monitor is not plain
    paused: list[str] = []

    async def pause() -> None:
        await second.call("pause_monitor", monitor_id=held["monitor_id"], secret=held["secret"])
        paused.append((await first.row(held)).mode)

    async with anyio.create_task_group() as tasks:
        await holder.execute(LOCK_MONITOR, {"id": held["monitor_id"]})
        tasks.start_soon(first.beat, held)
        await _waiting(holder.scalar, 1)
        assert (await second.beat(free)).status == 200, "beside the transaction of the first process"
        tasks.start_soon(pause)
        await _waiting(holder.scalar, 2)
        await holder.rollback()
    assert paused == ["paused"]
    assert [(row.beats, row.mode) for row in (await first.row(held), await first.row(free))] == [(2, "paused"), (2, "up")]


async def test_the_result_of_a_delivery_is_stored_while_another_process_records_plain_beats(
    two_processes: tuple[Recorder, Recorder], holder: AsyncConnection, receiver: Receiver
) -> None:
    first, second = two_processes
    beating, failing = await first.register("https://localhost/"), await first.register(receiver.url("/held"))
    await first.beat(beating)  # the first one of a monitor is not plain
    await second.beat(failing, status="fail")
    async with anyio.create_task_group() as tasks:
        async with anyio.create_task_group() as deliveries:
            deliveries.start_soon(second.deliver)
            with anyio.fail_after(patience(10)):
                while not receiver.held:  # noqa: ASYNC110  # what is waited for comes over a socket
                    await anyio.sleep(0.01)
            await holder.execute(LOCK_MONITOR, {"id": beating["monitor_id"]})
            tasks.start_soon(first.beat, beating)
            await _waiting(holder.scalar, 1)
            await holder.execute(text(SHARE))  # the beat gives up after some seconds
            receiver.released.set()
            with anyio.fail_after(patience(4)):
                while await holder.scalar(text("SELECT count(*) FROM recorder.alert")):  # noqa: ASYNC110  # as above, in the database
                    await anyio.sleep(0.01)
            deliveries.cancel_scope.cancel()
        await holder.rollback()


async def test_plain_beats_whose_transaction_is_ended_in_a_deadlock_are_recorded(
    two_processes: tuple[Recorder, Recorder], holder: AsyncConnection
) -> None:
    recorder, _ = two_processes
    monitors = sorted([await recorder.register(f"https://localhost/{number}") for number in range(2)], key=itemgetter("monitor_id"))
    asked = [{"monitor_id": one["monitor_id"], "secret": one["secret"]} for one in monitors]
    await at_once([recorder], "heartbeat", asked)

    async def beat() -> None:
        replies = await at_once([recorder], "heartbeat", asked)
        assert {reply.status for reply in replies} == {200}

    async with anyio.create_task_group() as tasks:
        await holder.execute(text("SET deadlock_timeout = '1min'"))  # the recorder looks for the deadlock first, and is ended
        await holder.execute(LOCK_MONITOR, {"id": monitors[1]["monitor_id"]})
        tasks.start_soon(beat)
        await _waiting(holder.scalar, 1)
        await holder.execute(LOCK_MONITOR, {"id": monitors[0]["monitor_id"]})
        await holder.rollback()
    assert {(await recorder.row(monitor)).beats for monitor in monitors} == {2}


async def _waiting(scalar: Callable[..., Awaitable[int]], count: int) -> None:
    with anyio.fail_after(patience(4)):
        while await scalar(text(WAITING)) < count:  # noqa: ASYNC110  # what is waited for is in the database
            await anyio.sleep(0.01)


async def test_beats_of_the_same_monitors_over_two_processes_are_all_recorded(two_processes: tuple[Recorder, Recorder]) -> None:
    first, _ = two_processes
    monitors = [await first.register(f"https://localhost/{number}") for number in range(12)]
    asked = [{"monitor_id": one["monitor_id"], "secret": one["secret"]} for one in monitors]
    await at_once([first], "heartbeat", asked)
    for _ in range(2):
        twice = [arguments for one in (*asked, *reversed(asked)) for arguments in (one, one)]
        replies = await at_once(two_processes, "heartbeat", twice)
        assert {reply.status for reply in replies} == {200}
    assert {(await first.row(monitor)).beats for monitor in monitors} == {9}


async def test_a_monitor_whose_beats_left_its_place_in_the_index_dies_at_its_deadline(recorder: Recorder) -> None:
    monitor = await recorder.register(period_minutes=60, grace_minutes=5)
    await recorder.beat(monitor)
    due_at = (await recorder.row(monitor)).due_at
    await recorder.pass_time(minutes=20)
    await recorder.beat(monitor)
    row = await recorder.row(monitor)
    assert (row.due_at, row.deadline_at - due_at) == (due_at, timedelta(minutes=20))
    await recorder.pass_time(minutes=46)
    assert await recorder.sweep() == 0
    row = await recorder.row(monitor)
    assert (row.mode, row.due_at) == ("up", row.deadline_at), "it was looked at when it was due, and is due at its deadline"
    await recorder.pass_time(minutes=20)
    assert await recorder.sweep() == 1
    assert (await recorder.row(monitor)).mode == "missed"
    assert [kind for kind, _ in await recorder.alerts(monitor)] == ["dead"]


async def test_two_processes_that_sweep_at_once_remind_and_escalate_once(two_processes: tuple[Recorder, Recorder]) -> None:
    first, second = two_processes
    monitor, _ = await keyed(first, remind_minutes=60, targets=[{"address": PAGER, "after_minutes": 60}])
    await first.beat(monitor, status="fail")
    await first.pass_time(minutes=60)
    async with anyio.create_task_group() as tasks:
        for recorder in (first, second, first, second):
            tasks.start_soon(recorder.sweep)
    assert sorted(await told(first, monitor)) == [("chat", "failed"), ("chat", "reminder"), ("pager", "failed")]


@pytest.mark.faults("clock")
async def test_two_processes_whose_clock_jumps_move_deadlines_once(two_processes: tuple[Recorder, Recorder]) -> None:
    one, other = two_processes
    monitor = await one.register("https://localhost/1")
    await watch(one, other, seconds=10)
    one.clock.step(HOURS)
    await watch(one, other, seconds=20)
    left = (await one.row(monitor)).deadline_at - one.clock()
    assert left == timedelta(minutes=65) - timedelta(seconds=30)
    ticks = await in_snapshot(one.campus.site.storage, lambda connection: connection.execute(TICKS.select()).all())
    assert abs(ticks[0].at - one.clock()) <= timedelta(seconds=5)


async def test_of_many_new_webhooks_at_the_same_time_one_stays(two_processes: tuple[Recorder, Recorder]) -> None:
    first, _ = two_processes
    for owner in ({}, {"key": await first.campus.key("recorder")}):
        monitor = await first.register("https://localhost/0", **owner)
        await first.beat(monitor, status="fail")
        who = {"monitor_id": monitor["monitor_id"], "secret": monitor["secret"], **owner}
        asked = [{**who, "alert_webhook": f"https://localhost/{number}"} for number in range(1, 11)]
        replies = await at_once(two_processes, "update_monitor", asked)
        assert [reply.status for reply in replies] == [200] * 10
        (target,) = await first.targets()
        (alert,) = await waiting_alerts(first)
        assert (alert.target_id, alert.kind) == (target.id, "failed")
        await first.call("delete_monitor", **who)


async def test_of_two_monitors_that_want_one_webhook_without_a_key_one_gets_it(two_processes: tuple[Recorder, Recorder]) -> None:
    first, _ = two_processes
    monitors = [await first.register(f"https://localhost/{name}") for name in "ab"]
    for number in range(5):
        url = f"https://localhost/wanted/{number}"
        asked = [{"monitor_id": one["monitor_id"], "secret": one["secret"], "alert_webhook": url} for one in monitors]
        replies = await at_once(two_processes, "update_monitor", asked)
        assert sorted((reply.status, reply.code or "") for reply in replies) == [(200, ""), (409, "target_in_use")], number
    assert len(await first.targets()) == 2


async def test_changes_and_beats_at_the_same_time_lose_neither(two_processes: tuple[Recorder, Recorder]) -> None:
    first, _ = two_processes
    monitor = await first.register(period_minutes=60, grace_minutes=5)
    who = {"monitor_id": monitor["monitor_id"], "secret": monitor["secret"]}
    for number in range(1, 11):
        first.clock.move(timedelta(minutes=1))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(
                at_once, two_processes, "heartbeat", [{**who, "status": status} for status in ("ok", "ok", 0, "start", "ok", "ok")]
            )
            tasks.start_soon(at_once, two_processes, "update_monitor", [{**who, "period_minutes": number}, {**who, "name": f"m{number}"}])
        row = await first.row(monitor)
        assert (row.beats, row.name, row.mode) == (6 * number, f"m{number}", "up")
        assert row.alive_at == row.last_beat_at == first.clock()
        assert row.expected_at == first.clock() + timedelta(minutes=number)
        assert row.deadline_at == row.expected_at + timedelta(minutes=5)
