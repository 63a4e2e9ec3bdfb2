"""When a job is due: rules without a clock."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from campus.jobs.task import RETRIES, Daily, JobRecord, Periodic, Task, due_at, status_of

NOON = datetime(2026, 8, 21, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
MOMENTS = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))
DAILY = st.builds(Daily, st.integers(0, 23), st.integers(0, 59))


async def nothing() -> None: ...


@given(DAILY, MOMENTS)
def test_the_slot_is_the_latest_of_its_time_of_day_that_has_passed(daily: Daily, now: datetime) -> None:
    slot = daily.slot(now)
    assert slot <= now < slot + timedelta(days=1)
    assert (slot.hour, slot.minute, slot.second, slot.microsecond) == (daily.hour, daily.minute, 0, 0)


@given(DAILY, MOMENTS, st.none() | MOMENTS)
def test_a_daily_job_is_due_until_a_run_of_the_slot_has_succeeded(daily: Daily, now: datetime, success: datetime | None) -> None:
    due = daily.due_at(JobRecord(last_started=success, last_success=success), now)
    assert (due <= now) == (success is None or success < daily.slot(now))


def test_a_run_that_began_before_the_slot_does_not_count_for_it() -> None:
    began = JobRecord(last_started=NOON - timedelta(minutes=1))
    assert due_at(Daily(12, 0), began.succeeded(), NOON + HOUR) == NOON


def test_a_run_that_began_exactly_at_the_slot_counts_for_it() -> None:
    record = JobRecord(last_started=NOON).succeeded()
    assert due_at(Daily(12, 0), record, NOON) == NOON + timedelta(days=1)


@pytest.mark.parametrize("schedule", [Daily(12, 0), Periodic(6 * HOUR)])
def test_a_success_clears_the_failures_before_it(schedule: Daily | Periodic) -> None:
    failed = JobRecord().claimed("a", now=NOON, chance=0.5).failed(ValueError("no"), now=NOON, chance=0.5)
    assert failed.retry_at is not None
    again = failed.claimed("a", now=failed.retry_at, chance=0.5).succeeded()
    assert again == JobRecord(last_started=failed.retry_at, last_success=failed.retry_at)
    due = due_at(schedule, again, failed.retry_at)
    assert due is not None
    assert due > failed.retry_at


@pytest.mark.parametrize("schedule", [Daily(12, 0), Periodic(timedelta(minutes=1))])
@given(failures=st.integers(1, 50), chance=st.floats(0, 1))
def test_a_failure_postpones_a_job_by_its_wait_and_no_longer(schedule: Daily | Periodic, failures: int, chance: float) -> None:
    record = JobRecord(failures=failures - 1).failed(ValueError("no"), now=NOON, chance=chance)
    assert record.retry_at == due_at(schedule, record, NOON) == NOON + RETRIES.wait(failures, chance=chance)
    assert record.retry_at <= NOON + RETRIES.longest


@given(MOMENTS.filter(lambda start: start <= NOON), st.timedeltas(timedelta(seconds=1), timedelta(days=400)))
def test_a_periodic_job_is_due_its_period_after_its_last_start(start: datetime, period: timedelta) -> None:
    assert due_at(Periodic(period), JobRecord(last_started=start), NOON) == start + period
    assert due_at(Periodic(period), JobRecord(), NOON) == NOON


@given(MOMENTS)
def test_a_job_by_hand_is_never_due(now: datetime) -> None:
    lapsed = JobRecord(holder="gone", lease_until=now - HOUR)
    assert due_at(None, JobRecord(), now) is None
    assert due_at(None, lapsed, now) is None


@pytest.mark.parametrize("schedule", [Daily(13, 0), Periodic(6 * HOUR)])
def test_a_failed_job_is_due_at_its_retry_and_a_lapsed_one_when_the_lease_ends(schedule: Daily | Periodic) -> None:
    running = JobRecord().claimed("a", now=NOON, chance=0.5)
    assert due_at(schedule, running, NOON) == NOON + timedelta(seconds=60)
    failed = running.failed(ValueError("no"), now=NOON, chance=0.5)
    assert due_at(schedule, failed, NOON + 9 * HOUR) == NOON + timedelta(minutes=1)


def test_waits_double_from_a_minute_to_an_hour() -> None:
    minutes = [RETRIES.wait(failures) / timedelta(minutes=1) for failures in range(1, 9)]
    assert minutes == pytest.approx([1, 2, 4, 8, 16, 32, 60, 60])


def test_a_lapsed_lease_counts_as_a_failure_so_that_a_job_that_kills_its_process_waits() -> None:
    record, now, waits = JobRecord(), NOON, []
    for _ in range(8):
        record = record.claimed("process", now=now, chance=0.5)
        due = due_at(Daily(13, 0), record, now)
        assert due is not None
        waits.append((due - now) / timedelta(minutes=1))
        now = due
    assert waits == pytest.approx([1, 1, 2, 4, 8, 16, 32, 60])
    assert record.last_error == "process went away while it ran the job"


def test_an_error_is_described_in_one_short_line() -> None:
    record = JobRecord().failed(ValueError("many\n  lines " + "x" * 1000), now=NOON, chance=0)
    assert record.last_error is not None
    assert record.last_error.startswith("ValueError: many lines xxx")
    assert len(record.last_error) == 300
    grouped = JobRecord().failed(ExceptionGroup("", [ExceptionGroup("", [OSError("away")])]), now=NOON, chance=0)
    assert grouped.last_error == "OSError: away"


@pytest.mark.parametrize("text", ["24:00", "12:60", "9:00", "12", "noon", "12:00:00", "12:00Z", "", "１２:00"])
def test_a_wrong_time_of_day_is_refused_with_the_right_form(text: str) -> None:
    with pytest.raises(ValueError, match='is not a time of day; write it in UTC as "13:00"'):
        Task("job", nothing, daily_at=text)


def test_a_contradictory_schedule_is_refused() -> None:
    with pytest.raises(ValueError, match="job is both periodic and daily; pass every= or daily_at="):
        Task("job", nothing, every=HOUR, daily_at="13:00")
    with pytest.raises(ValueError, match=r"a period of 0:00:00 is too short; use one above zero"):
        Task("job", nothing, every=timedelta(0))


def test_a_job_is_overdue_when_it_should_have_begun_five_minutes_ago() -> None:
    task = Task("job", nothing, daily_at="12:00")
    done_yesterday = JobRecord(last_success=NOON - HOUR)
    assert not status_of(task, done_yesterday, now=NOON + timedelta(minutes=5)).overdue
    status = status_of(task, done_yesterday, now=NOON + timedelta(minutes=5, seconds=1))
    assert status.overdue
    assert status.finding == "job was due at 2026-08-21T12:00:00Z and has not begun"
    running = done_yesterday.claimed("a", now=NOON + timedelta(minutes=5), chance=0)
    assert not status_of(task, running, now=NOON + timedelta(minutes=5, seconds=59)).overdue


def test_a_failing_job_is_a_finding_with_its_reason_and_when_it_is_tried_again() -> None:
    task = Task("cve.refresh", nothing, daily_at="12:00")
    failed = JobRecord(last_started=NOON).failed(OSError("the feed is away"), now=NOON, chance=0.5)
    assert status_of(task, failed, now=NOON).finding == (
        "cve.refresh failed once: OSError: the feed is away; it will be tried again at 2026-08-21T12:01:00Z"
    )
    again = failed.failed(OSError("the feed is away"), now=NOON, chance=0.5)
    assert (status_of(task, again, now=NOON).finding or "").startswith("cve.refresh failed 2 times in a row: ")
    assert status_of(task, again.succeeded(), now=NOON).finding is None
