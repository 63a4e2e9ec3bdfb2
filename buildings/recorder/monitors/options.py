"""The options of a monitor beyond period and grace, as they are stored: one JSON, empty for a monitor without any."""

import logging
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Self

from pydantic import BaseModel, ConfigDict

from buildings.recorder.monitors.schedules import (
    MOST_WEEKLY,
    YEAR,
    YEARS_AHEAD,
    MonitorCalendar,
    calendar_of,
    hours_text,
    maintenance_text,
    schedule_text,
    zone_name,
)
from buildings.recorder.monitors.state_machine import Schedule
from buildings.recorder.problems import invalid_request
from campus.observability import utc_text

log = logging.getLogger(__name__)

OPTIONS_IN_MEMORY = 5_000  # Of 8 KB at the most: 40 MB.
TIMES = frozenset(("schedule", "timezone", "due_at", "hours", "maintenance"))
TIMES_CHECKED: Mapping[str, Callable[[str], str]] = {"schedule": schedule_text, "timezone": zone_name, "hours": hours_text}


def sent_options(*values: Any) -> dict[str, Any]:
    """The options that a call sent, in the order of the model's fields, as they are stored; None for one that was not sent.

    Problem 422 says what is wrong with times that cannot be read; an empty text, an empty list and 0 end an option.
    """
    sent = {option: value for option, value in zip(MonitorOptions.model_fields, values, strict=True) if value is not None}
    for option in TIMES_CHECKED.keys() & sent.keys():
        sent[option] = _checked(option, sent[option], TIMES_CHECKED[option])
    if windows := sent.get("maintenance"):
        sent["maintenance"] = tuple(_checked(f"maintenance[{place}]", one, maintenance_text) for place, one in enumerate(windows))
    return sent


def _checked(argument: str, text: str, check: Callable[[str], str]) -> str:
    try:
        return check(text) if text else text
    except ValueError as fault:
        raise invalid_request(f"{argument}: {fault}") from None


class MonitorOptions(BaseModel):
    """What register_monitor and update_monitor take under these names: see arguments.py, which checks them."""

    model_config = ConfigDict(frozen=True)

    description: str | None = None
    schedule: str | None = None
    timezone: str = "UTC"
    due_at: datetime | None = None
    hours: str | None = None
    maintenance: tuple[str, ...] = ()
    run_minutes: float | None = None
    alert_after_failures: int = 1
    remind_minutes: float | None = None
    manual_resume: bool = False
    stuck_after: int | None = None
    stuck_takeover: bool = False

    def changed(self, sent: Mapping[str, object]) -> Self:
        """The options after some were sent. An empty text, list or 0 ends one."""
        ended = {option for option, value in sent.items() if value in ("", 0, (), [])}
        return type(self)(**{**self.model_dump(exclude=ended), **{name: value for name, value in sent.items() if name not in ended}})

    @property
    def stored(self) -> bytes | None:
        """The options that differ from the defaults as JSON; None if none does."""
        return self.model_dump_json(exclude_defaults=True).encode() if self != NO_OPTIONS else None

    @property
    def is_plain(self) -> bool:
        """Whether an `ok` beat changes nothing but times, by the period alone: see beats.sql."""
        return self.calendar is None and self.stuck_after is None

    def schedule_of(self, period: timedelta, grace: timedelta) -> Schedule:
        """When the beats of a monitor with this period and grace are due."""
        return Schedule(period, grace, None if self.run_minutes is None else timedelta(minutes=self.run_minutes), self.calendar)

    @property
    def calendar(self) -> MonitorCalendar | None:
        if not (self.schedule or self.due_at or self.hours or self.maintenance):
            return None
        return calendar_of(self.schedule, self.timezone, self.due_at, self.hours, self.maintenance)

    def check_times(self, now: datetime) -> None:
        """Problem 422 if no beat would ever be expected."""
        calendar = self.calendar
        if calendar is None:
            return
        if self.schedule and self.due_at:
            raise invalid_request(
                "due_at: the monitor has a schedule too, and either says when: send one of them, an empty text ends the other"
            )
        if self.due_at and not now < self.due_at < now + FARTHEST:
            raise invalid_request(f"due_at: {utc_text(self.due_at)} is not in the ten years after now, {utc_text(now)}")
        if calendar.weekly > MOST_WEEKLY:
            where = "hours" if self.hours else "maintenance"
            found = f"hours and maintenance have {calendar.weekly} windows of a week, and at most {MOST_WEEKLY} are evaluated"
            raise invalid_request(f"{where}: {found}")
        opening = calendar.closed_until(now)
        if opening is not None and (opening > now + YEAR or calendar.closed_until(opening) is not None):
            raise invalid_request("maintenance: with the hours it leaves no time open within a year: no beat would be expected")
        if self.schedule and not calendar.next_expected(now):
            raise invalid_request(
                f"schedule: {self.schedule!r} has no time in the next ten years that is within hours and not in maintenance"
            )


NO_OPTIONS = MonitorOptions()
FARTHEST = timedelta(days=365 * YEARS_AHEAD)


@lru_cache(OPTIONS_IN_MEMORY)
def read_options(stored: bytes | None) -> MonitorOptions:
    """The options as they were stored. Of those that cannot be read, such as with a time zone that this machine no longer knows, none
    holds: the period alone counts, so that nobody waits for an alert in vain, and no other monitor's beats and alerts fail with them.
    """
    if stored is None:
        return NO_OPTIONS
    try:
        options = MonitorOptions.model_validate_json(stored)
        options.schedule_of(YEAR, YEAR)
    except Exception as error:  # the border to what another release or machine has stored
        log.error("stored options of a monitor cannot be read: its period alone counts", extra={"reason": type(error).__name__})
        return NO_OPTIONS
    return options


def stored_schedule(row: Any) -> Schedule:
    """The schedule in a row of the table."""
    return read_options(row.options).schedule_of(row.period, row.grace)
