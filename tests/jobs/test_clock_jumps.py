"""A clock that was ahead for a moment stops no job: times that were stored meanwhile are in the future, and are ignored."""

from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest
from jobs.conftest import Open, Until
from jobs.test_scheduler import Settle, Work, started

from campus.jobs.task import LEASE, Daily, JobRecord, Periodic, Task, due_at
from campus.testing import Clock

pytestmark = [pytest.mark.anyio, pytest.mark.faults("clock")]
NOW = datetime(2026, 8, 21, 12, 0, tzinfo=UTC)
YEAR, SECOND = timedelta(days=400), timedelta(seconds=1)


@pytest.mark.parametrize("schedule", [Periodic(timedelta(minutes=5)), Daily(4, 10)])
@pytest.mark.parametrize(
    "record",
    [
        JobRecord(last_started=NOW + YEAR, last_success=NOW + YEAR),
        JobRecord(last_started=NOW + YEAR, failures=1, retry_at=NOW + YEAR),
        JobRecord(last_started=NOW + YEAR, holder="gone", lease_until=LEASE.end(NOW + YEAR)),
    ],
)
def test_a_record_from_the_future_makes_a_job_due(schedule: Any, record: JobRecord) -> None:
    due = due_at(schedule, record, NOW)
    assert due is not None
    assert due <= NOW
    assert not record.is_leased(NOW)


def test_the_clock_of_another_process_may_be_a_little_ahead() -> None:
    soon = NOW + 30 * SECOND
    assert due_at(Periodic(timedelta(minutes=5)), JobRecord(last_started=soon), NOW) == soon + timedelta(minutes=5)
    assert due_at(Daily(4, 10), JobRecord(last_success=soon), NOW) == datetime(2026, 8, 22, 4, 10, tzinfo=UTC)
    leased = JobRecord(holder="other", lease_until=LEASE.end(soon))
    assert leased.is_leased(NOW)
    assert due_at(Periodic(timedelta(minutes=5)), leased, NOW) == LEASE.end(soon)


async def test_a_waiting_scheduler_reads_the_records_again_when_the_clock_is_set_back(
    open_process: Open, clock: Clock, until: Until, settle: Settle
) -> None:
    work = Work()
    async with open_process(work.periodic()) as process, anyio.create_task_group() as tasks:
        started([process], tasks)
        await until(lambda: work.runs == 1)
        await settle()
        clock.step(timedelta(hours=-2))
        await until(lambda: work.runs == 2)
        tasks.cancel_scope.cancel()


async def test_jobs_go_on_when_a_clock_that_was_ahead_is_set_back(open_process: Open, clock: Clock, until: Until) -> None:
    periodic, daily = Work(), Work()
    both = Task("periodic", periodic, every=timedelta(minutes=10)), Task("daily", daily, daily_at="13:00")
    async with open_process(*both) as process, anyio.create_task_group() as tasks:
        started([process], tasks)
        await until(lambda: periodic.runs == daily.runs == 1)
        clock.step(YEAR)
        await until(lambda: periodic.runs == daily.runs == 2)
        clock.step(-YEAR)
        await until(lambda: periodic.runs == daily.runs == 3)
        tasks.cancel_scope.cancel()


async def test_a_clock_that_is_set_back_while_the_records_are_read_is_noticed(open_process: Open, clock: Clock, until: Until) -> None:
    work = Work()

    async def step_once() -> None:
        if process.watch.writes == 2:  # the run was begun and ended: the scheduler is about to rest
            process.watch.after_read = None
            clock.step(timedelta(hours=-2))

    async with open_process(work.periodic()) as process, anyio.create_task_group() as tasks:
        process.watch.after_read = step_once
        started([process], tasks)
        await until(lambda: work.runs == 2)
        tasks.cancel_scope.cancel()
