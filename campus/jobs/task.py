"""A job as the scheduler runs it: a name, a schedule and a coroutine function; and its status for operators."""

from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass
from datetime import datetime, timedelta
from typing import Literal

from campus.jobs.record import JobRecord
from campus.jobs.schedule import Daily, Periodic, Schedule, due_at

OVERDUE = timedelta(minutes=5)


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
    """A job's status. `due_at` is when the next run begins, None for a job by hand; `overdue`: it is more than 5 minutes late."""

    name: str
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
            again = f"; it will be tried again at {_clock(self.due_at)}" if self.due_at and not self.running else ""
            times = "once" if self.failures == 1 else f"{self.failures} times in a row"
            return f"{self.name} failed {times}: {self.last_error}{again}"
        if self.overdue and self.due_at:
            return f"{self.name} was due at {_clock(self.due_at)} and has not begun"
        return None


def status_of(task: Task, record: JobRecord, *, now: datetime) -> JobStatus:
    """The status of a job at a point in time."""
    due, running = due_at(task.schedule, record, now), record.is_leased(now)
    return JobStatus(
        name=task.name,
        last_started=record.last_started,
        last_success=record.last_success,
        last_error=record.last_error,
        failures=record.failures,
        due_at=due,
        running=running,
        overdue=not running and due is not None and now > due + OVERDUE,
    )


def _clock(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
