"""When a job is due. Pure: no clock, no database; every datetime is aware and in UTC.

A daily job has a slot per day, at HH:MM UTC, and is due until a run that began in the latest slot has succeeded: a missed run starts
at once, and so does the first run of a new campus. A periodic job is due its period after its last start. A failure postpones either
until `retry_at`. A lapsed lease makes either due again, because its run never ended. Times too far in the future are ignored: a clock
was set back since.
"""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta

from campus.jobs.record import JobRecord

DAY = timedelta(days=1)


@dataclass(frozen=True)
class Daily:
    """Once a day, at a time of day in UTC."""

    hour: int
    minute: int

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
