"""The scheduler on a real database: one runner among many processes, missed runs, retries, leases."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from sqlmodel.ext.asyncio.session import AsyncSession

from campus.errors import JobFailed, JobRefused, StorageUnavailable
from campus.jobs import Scheduler, Task
from campus.storage import Storage
from campus.testing import Clock
from tests import forkserver
from tests.forkserver import PIPE
from tests.jobs.conftest import PACE, Open, Until, started

pytestmark = pytest.mark.anyio

SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
DAY = timedelta(days=1)
Settle = Callable[[], Awaitable[None]]
STUCK_RUNNER = Path(__file__).with_name("stuck_runner.py")


class Work:
    """A job that counts its runs and does what the test sets."""

    def __init__(self) -> None:
        self.runs = 0
        self.options: list[dict[str, object]] = []
        self.error: Exception | None = None
        self.hold = False
        self.stopped = 0
        self.did: bool | None = None

    async def __call__(self, **options: object) -> bool | None:
        self.runs += 1
        self.options.append(options)
        if self.error:
            raise self.error
        if self.hold:
            try:
                await anyio.sleep_forever()
            finally:
                self.stopped += 1
        return self.did

    def daily(self) -> Task:
        return Task("job", self, daily_at="13:00")

    def periodic(self) -> Task:
        return Task("job", self, every=10 * MINUTE)


@pytest.mark.both_databases
async def test_of_eight_processes_one_runs_a_daily_job(open_process: Open, clock: Clock, until: Until, settle: Settle) -> None:
    work = Work()
    async with AsyncExitStack() as stack, anyio.create_task_group() as tasks:
        started([await stack.enter_async_context(open_process(work.daily())) for _ in range(8)], tasks)
        await until(lambda: work.runs > 0)
        await settle()
        assert work.runs == 1, "the first start makes up for the slot of 13:00, once"
        clock.move(DAY)
        await until(lambda: work.runs > 1)
        await settle()
        assert work.runs == 2
        tasks.cancel_scope.cancel()


async def test_a_job_that_starts_with_the_first_start_of_campus_is_not_late(open_process: Open, until: Until) -> None:
    work = Work()
    found: list[str] = []
    async with open_process(work.daily()) as process, anyio.create_task_group() as tasks:
        started([process], tasks)
        while not work.runs:
            found += process.scheduler.findings()
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    assert found == []


async def test_a_missed_daily_run_starts_at_once(open_process: Open, clock: Clock, until: Until, settle: Settle) -> None:
    work = Work()
    async with open_process(work.daily()) as process:
        await process.scheduler.run_now("job")
    clock.move(3 * DAY)
    async with open_process(work.daily()) as process, anyio.create_task_group() as tasks:
        started([process], tasks)
        await until(lambda: work.runs == 2)
        await settle()
        tasks.cancel_scope.cancel()
    assert work.runs == 2, "three slots were missed; the latest one counts"


async def test_a_daily_job_that_ran_in_its_slot_waits_for_the_next(open_process: Open, clock: Clock, until: Until, settle: Settle) -> None:
    work = Work()
    async with open_process(work.daily()) as process, anyio.create_task_group() as tasks:
        await process.scheduler.run_now("job")
        started([process], tasks)
        await settle()
        clock.time = datetime(2026, 8, 22, 12, 59, 59, tzinfo=UTC)
        await settle()
        assert work.runs == 1
        clock.move(timedelta(seconds=1))
        await until(lambda: work.runs == 2)
        tasks.cancel_scope.cancel()


async def test_a_periodic_job_runs_its_period_after_its_last_start(open_process: Open, clock: Clock, until: Until, settle: Settle) -> None:
    work = Work()
    async with open_process(work.periodic()) as process, anyio.create_task_group() as tasks:
        started([process], tasks)
        await until(lambda: work.runs == 1)
        clock.move(10 * MINUTE - timedelta(seconds=1))
        await settle()
        assert work.runs == 1
        clock.move(timedelta(seconds=1))
        await until(lambda: work.runs == 2)
        tasks.cancel_scope.cancel()


async def test_a_job_on_each_runs_in_every_process(open_process: Open, clock: Clock, until: Until, settle: Settle) -> None:
    works = [Work() for _ in range(3)]
    async with AsyncExitStack() as stack, anyio.create_task_group() as tasks:
        for work in works:
            task = Task("job", work, every=10 * MINUTE, on="each")
            started([await stack.enter_async_context(open_process(task))], tasks)
        await until(lambda: all(work.runs == 1 for work in works))
        clock.move(10 * MINUTE)
        await until(lambda: all(work.runs == 2 for work in works))
        await settle()
        assert [work.runs for work in works] == [2, 2, 2]
        tasks.cancel_scope.cancel()


async def test_a_failing_job_backs_off_is_a_finding_and_recovers(open_process: Open, clock: Clock, until: Until, settle: Settle) -> None:
    work = Work()
    work.error = OSError("the feed is away")
    async with open_process(work.daily()) as process, anyio.create_task_group() as tasks:
        started([process], tasks)
        for runs, wait in ((1, MINUTE), (2, 2 * MINUTE), (3, 4 * MINUTE)):
            await until(lambda runs=runs: work.runs == runs)  # type: ignore[misc]
            await settle()
            clock.move(wait - timedelta(seconds=1))
            await settle()
            assert work.runs == runs, "tried again too early"
            status = await process.status()
            assert (status.failures, status.last_error) == (runs, "OSError: the feed is away")
            assert "the feed is away; it will be tried again at" in " ".join(process.scheduler.findings())
            clock.move(timedelta(seconds=1))
        await until(lambda: work.runs == 4)
        work.error = None
        await settle()
        clock.move(8 * MINUTE)
        await until(lambda: work.runs == 5)
        await settle()
        status = await process.status()
        assert (status.failures, status.last_error, status.last_success) == (0, None, clock())
        assert work.runs == 5, "a success leaves no retry behind"
        assert process.scheduler.findings() == []
        tasks.cancel_scope.cancel()


async def test_a_scheduled_run_that_fails_is_logged_once(open_process: Open, until: Until, caplog: pytest.LogCaptureFixture) -> None:
    work = Work()
    work.error = JobFailed("the feed is away")
    async with open_process(work.daily()) as process, anyio.create_task_group() as tasks:
        started([process], tasks)
        await until(lambda: any(record.message == "job failed" for record in caplog.records))
        tasks.cancel_scope.cancel()
    one_line = [record for record in caplog.records if record.levelname == "ERROR"]
    assert [(record.message, vars(record)["reason"], record.exc_info) for record in one_line] == [("job failed", "the feed is away", None)]


async def test_a_run_that_found_nothing_to_do_is_logged_for_debugging_only_unless_it_ends_a_failure(
    open_process: Open, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", logger="campus.jobs")
    work = Work()
    async with open_process(work.periodic()) as process:
        for work.did in (None, True, False):
            await process.scheduler.run_now("job")
        work.error = JobFailed("the feed is away")
        with pytest.raises(JobFailed):
            await process.scheduler.run_now("job")
        work.error = None
        await process.scheduler.run_now("job")
    assert [record.levelname for record in caplog.records if record.message == "job finished"] == ["INFO", "INFO", "DEBUG", "INFO"]


async def test_a_failing_job_does_not_stop_the_others(open_process: Open, until: Until) -> None:
    bad, good = Work(), Work()
    bad.error = ValueError("no")
    async with open_process(bad.daily(), Task("good", good, daily_at="13:00")) as process, anyio.create_task_group() as tasks:
        started([process], tasks)
        await until(lambda: bad.runs == good.runs == 1)
        tasks.cancel_scope.cancel()


@pytest.mark.both_databases
@pytest.mark.faults("leader killed")
async def test_when_a_runner_was_killed_its_lease_lapses_and_another_takes_over(
    open_process: Open, storage_url: str, until: Until, settle: Settle
) -> None:
    with forkserver.shared().start(STUCK_RUNNER.read_text(), storage_url, stdout=PIPE) as runner:
        assert runner.stdout is not None
        assert runner.stdout.readline() == "started\n"
        runner.kill()
    work, clock = Work(), Clock(datetime.now(UTC))
    async with open_process(work.periodic(), clock=clock) as process, anyio.create_task_group() as tasks:
        started([process], tasks)
        await settle()
        assert work.runs == 0
        with pytest.raises(JobRefused, match="job is being run by stuck"):
            await process.scheduler.run_now("job")
        clock.move(timedelta(seconds=61))
        await until(lambda: work.runs == 1)
        await settle()
        assert (await process.status()).last_success == clock()
        tasks.cancel_scope.cancel()


async def test_a_long_run_keeps_its_lease(open_process: Open, clock: Clock, until: Until, settle: Settle) -> None:
    work = Work()
    work.hold = True
    async with open_process(work.periodic()) as one, open_process(work.periodic()) as other, anyio.create_task_group() as tasks:
        started([one, other], tasks)
        await until(lambda: work.runs == 1)
        for _ in range(10):
            clock.move(timedelta(seconds=30))
            await settle()
        assert (work.runs, work.stopped) == (1, 0)
        assert (await other.status()).running
        tasks.cancel_scope.cancel()


async def test_a_job_whose_run_ends_while_the_records_are_read_is_not_forgotten(open_process: Open, clock: Clock, until: Until) -> None:
    work = Work()
    may_end = anyio.Event()

    async def run() -> None:
        await work()
        await may_end.wait()

    async def end_the_run() -> None:
        process.watch.after_read = None
        may_end.set()
        await until(lambda: not process.scheduler._running)

    async with open_process(Task("job", run, every=10 * SECOND)) as process, anyio.create_task_group() as tasks:
        started([process], tasks)
        await until(lambda: work.runs == 1)
        process.watch.after_read = end_the_run
        clock.move(31 * SECOND)
        await until(lambda: work.runs == 2)
        tasks.cancel_scope.cancel()


@pytest.mark.both_databases
@pytest.mark.faults("leader killed")
async def test_a_run_whose_lease_another_took_is_stopped_and_changes_nothing(
    open_process: Open, clock: Clock, until: Until, settle: Settle
) -> None:
    """As after a process, or its machine, was asleep."""
    asleep, awake = Work(), Work()
    asleep.hold = True
    sleepy_clock = Clock(clock())
    async with AsyncExitStack() as stack, anyio.create_task_group() as tasks:
        started([await stack.enter_async_context(open_process(asleep.periodic(), clock=sleepy_clock))], tasks)
        await until(lambda: asleep.runs == 1)
        clock.move(timedelta(seconds=61))
        other = await stack.enter_async_context(open_process(awake.periodic()))
        started([other], tasks)
        await until(lambda: awake.runs == 1)
        await settle()
        sleepy_clock.move(timedelta(seconds=61))
        await until(lambda: asleep.stopped == 1)
        await settle()
        status = await other.status()
        assert (status.last_success, status.failures) == (clock(), 0)
        tasks.cancel_scope.cancel()


async def test_a_scheduler_that_is_cancelled_releases_its_lease(open_process: Open, until: Until) -> None:
    stopped, next_one = Work(), Work()
    stopped.hold = True
    async with open_process(stopped.daily()) as process, anyio.create_task_group() as tasks:
        started([process], tasks)
        await until(lambda: stopped.runs == 1)
        tasks.cancel_scope.cancel()
    assert stopped.stopped == 1
    async with open_process(next_one.daily()) as process, anyio.create_task_group() as tasks:
        status = await process.status()
        assert (status.running, status.last_started, status.failures) == (False, None, 0)
        started([process], tasks)
        await until(lambda: next_one.runs == 1)
        tasks.cancel_scope.cancel()


async def test_a_run_by_hand_takes_the_lease_and_names_its_holder(open_process: Open, until: Until) -> None:
    work = Work()
    work.hold = True
    async with open_process(work.daily(), holder="web-1:77") as one, open_process(work.daily()) as other:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one.scheduler.run_now, "job")
            await until(lambda: work.runs == 1)
            with pytest.raises(JobRefused, match=r"^job is being run by web-1:77; try again when it has ended$"):
                await other.scheduler.run_now("job")
            tasks.cancel_scope.cancel()
        work.hold = False
        await other.scheduler.run_now("job")
    assert work.runs == 2


async def test_a_run_by_hand_with_options_gets_them_and_leaves_the_scheduled_one_due(
    open_process: Open, until: Until, settle: Settle
) -> None:
    work = Work()
    async with open_process(work.daily()) as process, anyio.create_task_group() as tasks:
        await process.scheduler.run_now("job", day="2026-08-20", accept=True)
        assert work.options == [{"day": "2026-08-20", "accept": True}]
        assert (await process.status()).last_success is None
        started([process], tasks)
        await until(lambda: work.runs == 2)
        await settle()
        assert work.options[1:] == [{}]
        tasks.cancel_scope.cancel()


async def test_a_run_by_hand_raises_what_the_job_raises_and_stores_it(open_process: Open) -> None:
    work = Work()
    work.error = OSError("the feed is away")
    async with open_process(work.daily()) as process:
        with pytest.raises(OSError, match="the feed is away"):
            await process.scheduler.run_now("job")
        status = await process.status()
        assert (status.failures, status.running) == (1, False)


async def test_an_unknown_job_is_refused_with_the_known_ones(open_process: Open) -> None:
    async with open_process(Work().daily(), Task("by_hand", Work())) as process:
        with pytest.raises(JobRefused, match="there is no job 'zoo'; the jobs are: by_hand, job"):
            await process.scheduler.run_now("zoo")


async def test_a_job_by_hand_runs_by_hand_only(open_process: Open, clock: Clock, settle: Settle) -> None:
    work = Work()
    async with open_process(Task("job", work)) as process, anyio.create_task_group() as tasks:
        started([process], tasks)
        clock.move(400 * DAY)
        await settle()
        assert work.runs == 0
        await process.scheduler.run_now("job")
        assert (await process.status()).due_at is None
        tasks.cancel_scope.cancel()
    assert work.runs == 1


async def test_the_status_shows_a_run_while_it_lasts(open_process: Open, clock: Clock, until: Until) -> None:
    work = Work()
    work.hold = True
    async with open_process(work.daily()) as process, open_process(work.daily()) as other, anyio.create_task_group() as tasks:
        assert (await other.status()).due_at == datetime(2026, 8, 21, 13, tzinfo=UTC)
        started([process], tasks)
        await until(lambda: work.runs == 1)
        status = await other.status()
        assert (status.running, status.last_started, status.last_success) == (True, clock(), None)
        tasks.cancel_scope.cancel()


class Locked:
    """A storage that reads, and while `locked` refuses to write."""

    def __init__(self, storage: Storage) -> None:
        self.read, self.batch = storage.read, storage.batch
        self._storage = storage
        self.locked = True

    def write(self) -> AbstractAsyncContextManager[AsyncSession]:
        if self.locked:
            raise StorageUnavailable("the disk is full")
        return self._storage.write()


async def test_a_database_that_refuses_writes_is_a_finding_and_the_job_runs_when_it_recovers(
    open_process: Open, clock: Clock, until: Until, settle: Settle, caplog: pytest.LogCaptureFixture
) -> None:
    work = Work()
    async with open_process() as process, anyio.create_task_group() as tasks:
        storage = Locked(process.watch)
        scheduler = Scheduler([work.daily()], storage, now=process.watch, pace=PACE)
        started([replace(process, scheduler=scheduler)], tasks)
        await until(lambda: len(scheduler.findings()) == 1)
        clock.move(timedelta(minutes=5, seconds=1))
        await until(lambda: len(scheduler.findings()) == 2)
        assert scheduler.findings() == [
            "job cannot be started: the disk is full",
            "job was due at 2026-08-21T13:00:00Z and has not begun",
        ]
        assert work.runs == 0
        storage.locked = False
        await until(lambda: work.runs == 1)
        await settle()
        assert scheduler.findings() == []
        tasks.cancel_scope.cancel()
    logged = [(record.levelname, vars(record)["reason"], record.exc_info) for record in caplog.records if "trouble" in record.message]
    assert logged == [("ERROR", "job cannot be started: the disk is full", None)]


@pytest.mark.faults("leader killed")
async def test_a_run_whose_lease_cannot_be_renewed_is_stopped_before_another_may_begin(
    open_process: Open, clock: Clock, until: Until, settle: Settle
) -> None:
    work = Work()
    work.hold = True
    async with open_process() as process, anyio.create_task_group() as tasks:
        storage = Locked(process.watch)
        storage.locked = False
        scheduler = Scheduler([work.daily()], storage, now=process.watch, pace=PACE)
        started([replace(process, scheduler=scheduler)], tasks)
        await until(lambda: work.runs == 1)
        storage.locked = True
        clock.move(timedelta(seconds=59))
        await settle()
        assert work.stopped == 0
        clock.move(timedelta(seconds=1))
        await until(lambda: work.stopped == 1)
        tasks.cancel_scope.cancel()


async def test_a_storage_that_fails_after_a_renewal_stops_the_run_only_when_that_lease_is_over(
    open_process: Open, clock: Clock, until: Until, settle: Settle
) -> None:
    work = Work()
    work.hold = True
    async with open_process() as process, anyio.create_task_group() as tasks:
        storage = Locked(process.watch)
        storage.locked = False
        scheduler = Scheduler([work.daily()], storage, now=process.watch, pace=PACE)
        started([replace(process, scheduler=scheduler)], tasks)
        await until(lambda: work.runs == 1)
        clock.move(timedelta(seconds=45))
        await settle()
        storage.locked = True
        clock.move(timedelta(seconds=59))
        await settle()
        assert work.stopped == 0, "renewed after 45 seconds, the lease lasts until 105"
        clock.move(timedelta(seconds=1))
        await until(lambda: work.stopped == 1)
        tasks.cancel_scope.cancel()


async def test_a_scheduler_that_stopped_reading_is_a_finding(open_process: Open, clock: Clock) -> None:
    async with open_process() as process:
        await process.scheduler.read_records()
        clock.move(MINUTE)
        assert process.scheduler.findings() == []
        clock.move(timedelta(seconds=1))
        assert process.scheduler.findings() == ["jobs were last looked up at 2026-08-21T13:30:00Z"]
