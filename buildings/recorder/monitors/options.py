"""The options of a monitor beyond period and grace, as they are stored: one JSON, empty for a monitor without any."""

from datetime import datetime, timedelta
from functools import lru_cache

from pydantic import BaseModel, ConfigDict

from buildings.recorder.monitors.schedules import calendar_of
from buildings.recorder.monitors.state_machine import Schedule

OPTIONS_IN_MEMORY = 10_000


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
    def calendar(self):  # type: ignore[no-untyped-def]
        return calendar_of(self.schedule, self.timezone, self.due_at, self.hours, self.maintenance)


NO_OPTIONS = MonitorOptions()


@lru_cache(OPTIONS_IN_MEMORY)
def read_options(stored: bytes | None) -> MonitorOptions:
    return NO_OPTIONS if stored is None else MonitorOptions.model_validate_json(stored)
