"""Two processes on one database: plain beats of both are recorded at once, and the second sends nothing that the first is sending."""

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from operator import itemgetter

import anyio
import pytest
from patience import patience
from recorder.races import at_once
from recorder.receivers import Receiver
from recorder.recorders import Recorder
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from sqlalchemy.pool import NullPool

from buildings.recorder.runtime import watch

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
        tasks.start_soon(watch, second.campus.site)
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
