"""A job as the scheduler runs it: its schedule, the record of its runs, when it is due, and its status for operators.

Pure: no clock, no chance, no database; every datetime is aware and in UTC.

A daily job has a slot per day, at HH:MM UTC, and is due until a run that began in the latest slot has succeeded: a missed run starts
at once, and so does the first run of a new campus. A periodic job is due its period after its last start. A failure postpones either
until `retry_at`. A lapsed lease makes either due again, because its run never ended. Times too far in the future are ignored: a clock
was set back since.
"""

import re
from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass, replace
from datetime import datetime, timedelta
from typing import Literal

from campus.backoff import Backoff
from campus.durations import every
from campus.errors import CampusError
from campus.observability import utc_text
from campus.observability.logs import redacted
from campus.storage.leases import Lease, is_held

DAY = timedelta(days=1)
OVERDUE = timedelta(minutes=5)
RETRIES = Backoff([timedelta(minutes=minutes) for minutes in (1, 2, 4, 8, 16, 32, 60)], spread=0.1)
LEASE = Lease(timedelta(seconds=60))
LONGEST_ERROR = 300
SKEW = timedelta(minutes=1)
"""How far in the future a stored time may be. One beyond it was written before a clock was set back, and is ignored."""


@dataclass(frozen=True)
class JobRecord:
    """A job's runs so far.

    `last_success` is when the last successful run began: a run that began before a daily slot and ended after it used the data of
    the day before. `failures` counts the failures since. `holder` has the lease until `lease_until`; once that is past, the lease
    lapsed: the process of the run died or hangs.
    """

    last_started: datetime | None = None
    last_success: datetime | None = None
    last_error: str | None = None
    failures: int = 0
    retry_at: datetime | None = None
    holder: str | None = None
    lease_until: datetime | None = None

    def as_of(self, now: datetime) -> "JobRecord":
        """The record without times too far in the future: otherwise a clock that was ahead for a while would stop the job."""
        latest = now + SKEW
        return replace(
            self,
            last_started=_unless_later(self.last_started, latest),
            last_success=_unless_later(self.last_success, latest),
            retry_at=_unless_later(self.retry_at, latest + RETRIES.longest),
            lease_until=_unless_later(self.lease_until, latest + LEASE.length),
        )

    def is_leased(self, now: datetime) -> bool:
        return is_held(self.as_of(now).lease_until, now)

    def claimed(self, holder: str, *, now: datetime, chance: float) -> "JobRecord":
        """A run begins. A lapsed lease of an earlier run is a failure, so that a job that kills its process is not retried at once."""
        started = replace(self, holder=holder, lease_until=LEASE.end(now), last_started=now)
        return started if self.holder is None else started._with_failure(f"{self.holder} went away while it ran the job", now, chance)

    def renewed(self, now: datetime) -> "JobRecord":
        return replace(self, lease_until=LEASE.end(now))

    def succeeded(self) -> "JobRecord":
        return JobRecord(last_started=self.last_started, last_success=self.last_started)

    def failed(self, error: Exception, *, now: datetime, chance: float) -> "JobRecord":
        return replace(self, holder=None, lease_until=None)._with_failure(describe_error(error), now, chance)

    def _with_failure(self, text: str, now: datetime, chance: float) -> "JobRecord":
        failures = self.failures + 1
        return replace(self, last_error=text, failures=failures, retry_at=now + RETRIES.wait(failures, chance=chance))


def _unless_later(moment: datetime | None, latest: datetime) -> datetime | None:
    return None if moment is not None and moment > latest else moment


@dataclass(frozen=True)
class Daily:
    """Once a day, at a time of day in UTC."""

    hour: int
    minute: int

    def __str__(self) -> str:
        return f"daily at {self.hour:02}:{self.minute:02} UTC"

    @classmethod
    def parse(cls, text: str) -> "Daily":
        """Read "13:00"; anything else raises ValueError."""
        if not re.fullmatch(r"([01]\d|2[0-3]):[0-5]\d", text):
            raise ValueError(f'{text!r} is not a time of day; write it in UTC as "13:00"')
        return cls(int(text[:2]), int(text[3:]))

    def slot(self, now: datetime) -> datetime:
        today = now.replace(hour=self.hour, minute=self.minute, second=0, microsecond=0)
        return today if today <= now else today - DAY

    def due_at(self, record: JobRecord, now: datetime) -> datetime:
        slot = self.slot(now)
        return slot if record.last_success is None or record.last_success < slot else slot + DAY


@dataclass(frozen=True)
class Periodic:
    """Every so often, counted from start to start."""

    period: timedelta

    def __str__(self) -> str:
        return every(self.period)

    def __post_init__(self) -> None:
        if self.period <= timedelta(0):
            raise ValueError(f"a period of {self.period} is too short; use one above zero")

    def due_at(self, record: JobRecord, now: datetime) -> datetime:
        return now if record.last_started is None else record.last_started + self.period


Schedule = Daily | Periodic


def due_at(schedule: Schedule | None, record: JobRecord, now: datetime) -> datetime | None:
    """When the job is due, in the past when it is overdue; None for a job that only runs by hand."""
    if schedule is None:
        return None
    record = record.as_of(now)
    if record.holder is not None and record.lease_until is not None:
        return max(record.lease_until, record.retry_at or record.lease_until)
    due = schedule.due_at(record, now)
    return due if record.retry_at is None else record.retry_at


@dataclass(frozen=True)
class Task:
    """`await run(**options)`, periodically or daily at HH:MM (UTC), else by hand only; ValueError for a contradictory schedule.

    A run that returns False found nothing to do, and is logged for debugging only.
    With `on="one"` one process of the campus runs it, with "each" every process.
    """

    name: str
    run: Callable[..., Awaitable[bool | None]]
    _: KW_ONLY
    every: timedelta | None = None
    daily_at: str | None = None
    on: Literal["one", "each"] = "one"

    def __post_init__(self) -> None:
        if self.every is not None and self.daily_at is not None:
            raise ValueError(f"job {self.name} is both periodic and daily; pass every= or daily_at=")
        _ = self.schedule

    @property
    def schedule(self) -> Schedule | None:
        if self.every is not None:
            return Periodic(self.every)
        return None if self.daily_at is None else Daily.parse(self.daily_at)


@dataclass(frozen=True, kw_only=True)
class JobStatus(JobRecord):
    """A job's record and how it stands. `schedule` says in words when it runs.

    `due_at` is when the next run begins, None for a job by hand; `overdue`: it is more than 5 minutes late.
    """

    name: str
    schedule: str
    due_at: datetime | None
    running: bool
    overdue: bool

    @property
    def finding(self) -> str | None:
        if self.failures:
            again = f"; it will be tried again at {utc_text(self.due_at)}" if self.due_at and not self.running else ""
            times = "once" if self.failures == 1 else f"{self.failures} times in a row"
            return f"{self.name} failed {times}: {self.last_error}{again}"
        if self.overdue and self.due_at:
            return f"{self.name} was due at {utc_text(self.due_at)} and has not begun"
        return None


def status_of(task: Task, record: JobRecord, *, now: datetime, since: datetime | None = None) -> JobStatus:
    """The status of a job at a point in time. A job that became due before `since`, when this process began to look, is late from then."""
    due = due_at(task.schedule, record, now)
    running = record.is_leased(now)
    return JobStatus(
        **vars(record),
        name=task.name,
        schedule="by hand" if task.schedule is None else str(task.schedule),
        due_at=due,
        running=running,
        overdue=not running and due is not None and now > max(due, since or due) + OVERDUE,
    )


def describe_error(error: Exception) -> str:
    """An error in one line, without secrets; a group of one error is that error. A CampusError is its sentence, without its class."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    sentence = " ".join(str(error).split())
    return redacted(sentence if isinstance(error, CampusError) else f"{type(error).__name__}: {sentence}")[:LONGEST_ERROR]
