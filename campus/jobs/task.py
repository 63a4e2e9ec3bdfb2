"""A job as the scheduler runs it: a name, a schedule and a coroutine function; when it is due, and its status for operators.

Pure: no clock, no database; every datetime is aware and in UTC.

A daily job has a slot per day, at HH:MM UTC, and is due until a run that began in the latest slot has succeeded: a missed run starts
at once, and so does the first run of a new campus. A periodic job is due its period after its last start. A failure postpones either
until `retry_at`. A lapsed lease makes either due again, because its run never ended. Times too far in the future are ignored: a clock
was set back since.
"""

import re
from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass
from datetime import datetime, timedelta
from typing import Literal

from campus.jobs.record import JobRecord
from campus.observability import utc_text

DAY = timedelta(days=1)
OVERDUE = timedelta(minutes=5)


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
        """The latest HH:MM that is not in the future."""
        today = now.replace(hour=self.hour, minute=self.minute, second=0, microsecond=0)
        return today if today <= now else today - DAY

    def due_at(self, record: JobRecord, now: datetime) -> datetime:
        """When a run is due; in the past when it is overdue."""
        slot = self.slot(now)
        return slot if record.last_success is None or record.last_success < slot else slot + DAY


@dataclass(frozen=True)
class Periodic:
    """Every so often, counted from start to start."""

    period: timedelta

    def __str__(self) -> str:
        for unit, length in (
            ("day", DAY),
            ("hour", timedelta(hours=1)),
            ("minute", timedelta(minutes=1)),
            ("second", timedelta(seconds=1)),
        ):
            if self.period % length == timedelta(0):
                count = self.period // length
                return f"every {unit}" if count == 1 else f"every {count} {unit}s"
        return f"every {self.period.total_seconds():g} seconds"

    def __post_init__(self) -> None:
        if self.period <= timedelta(0):
            raise ValueError(f"a period of {self.period} is too short; use one above zero")

    def due_at(self, record: JobRecord, now: datetime) -> datetime:
        """When a run is due; in the past when it is overdue."""
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

    With `on="one"` one process of the campus runs it, with "each" every process.
    """

    name: str
    run: Callable[..., Awaitable[None]]
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
        """When the scheduler runs it; None: by hand only."""
        if self.every is not None:
            return Periodic(self.every)
        return None if self.daily_at is None else Daily.parse(self.daily_at)


@dataclass(frozen=True)
class JobStatus:
    """A job's status. `schedule` says in words when it runs.

    `due_at` is when the next run begins, None for a job by hand; `overdue`: it is more than 5 minutes late.
    """

    name: str
    schedule: str
    last_started: datetime | None
    last_success: datetime | None
    last_error: str | None
    failures: int
    due_at: datetime | None
    running: bool
    overdue: bool

    @property
    def finding(self) -> str | None:
        """What is wrong, in a sentence; None when nothing is."""
        if self.failures:
            again = f"; it will be tried again at {utc_text(self.due_at)}" if self.due_at and not self.running else ""
            times = "once" if self.failures == 1 else f"{self.failures} times in a row"
            return f"{self.name} failed {times}: {self.last_error}{again}"
        if self.overdue and self.due_at:
            return f"{self.name} was due at {utc_text(self.due_at)} and has not begun"
        return None


def status_of(task: Task, record: JobRecord, *, now: datetime, since: datetime | None = None) -> JobStatus:
    """The status of a job at a point in time. A job that became due before `since`, when this process began to look, is late from then."""
    due, running = due_at(task.schedule, record, now), record.is_leased(now)
    return JobStatus(
        name=task.name,
        schedule="by hand" if task.schedule is None else str(task.schedule),
        last_started=record.last_started,
        last_success=record.last_success,
        last_error=record.last_error,
        failures=record.failures,
        due_at=due,
        running=running,
        overdue=not running and due is not None and now > max(due, since or due) + OVERDUE,
    )
