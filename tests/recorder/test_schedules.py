"""Calendars of monitors: cron and OnCalendar over both changes of summer time, one-off deadlines, hours, maintenance, and what is refused."""

import shutil
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from time import process_time
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buildings.recorder.monitors.schedules import (
    MonitorCalendar,
    calendar_of,
    hours_text,
    maintenance_text,
    schedule_text,
    zone_name,
)

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
ZONES = (
    *("Europe/Berlin", "Europe/London", "Europe/Chisinau", "Atlantic/Azores", "America/New_York", "America/St_Johns", "America/Havana"),
    *("America/Santiago", "America/Nuuk", "America/Asuncion", "Australia/Lord_Howe", "Australia/Adelaide", "Pacific/Chatham"),
    *("Pacific/Auckland", "Pacific/Easter", "Africa/Casablanca", "Africa/Cairo", "Asia/Beirut", "Asia/Jerusalem", "Antarctica/Troll"),
    *("Asia/Kolkata", "Asia/Tokyo", "UTC"),
)
CRON = ("17 3 * * *", "30 2 * * *", "0 * * * *", "*/20 * * * *", "30 0-3 * * *", "0 0 * * *", "45 23 * * *", "15 1,2 * * *", "*/15 2 * * *")
ON_CALENDAR = ("02:30", "*:30", "*:0/20", "00:00", "Sun 01:15", "23:45")
LATER = {("*/15 2 * * *", "Australia/Lord_Howe"), ("*/15 2 * * *", "Pacific/Chatham")}
"""Where clocks change by half an hour, or not at a full one, cronsim passes by some of the runs in the repeated time."""
SYSTEMD = shutil.which("systemd-analyze")


def calendar(
    schedule: str | None = None, zone: str = "UTC", *, due_at: str | None = None, hours: str | None = None, closed: str = ""
) -> MonitorCalendar:
    due = None if due_at is None else datetime.fromisoformat(due_at)
    return calendar_of(schedule, zone, due, hours, tuple(filter(None, closed.split("|"))))


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@lru_cache
def changes_of(zone: str) -> tuple[datetime, ...]:
    """When the clocks of a zone change in 2026 and 2027, in UTC; New Year where they never do."""
    start, known = utc("2026-01-01"), ZoneInfo(zone)
    quarters = [start + timedelta(minutes=15) * number for number in range(2 * 365 * 96)]
    offsets = [moment.astimezone(known).utcoffset() for moment in quarters[::4]]
    changed = [quarters[4 * place] for place in range(1, len(offsets)) if offsets[place] != offsets[place - 1]]
    return tuple(changed) or (utc("2027-01-01"),)


def values_of(field: str) -> set[int]:
    values: set[int] = set()
    for term in field.split(","):
        span, _, step = term.partition("/")
        first, _, last = span.partition("-")
        low, high = (0, 59) if first == "*" else (int(first), int(last or first))
        values |= set(range(low, high + 1, int(step or 1)))
    return values


def runs_of_cron(expression: str, minutes: Sequence[datetime]) -> list[datetime]:
    """What Debian's cron does in these minutes of a zone: jobs of certain hours run once, those with a star by the hours that pass."""
    minute, hour, _, _, weekday = expression.split()
    in_minutes, in_hours, on_days = values_of(minute), values_of(hour), values_of(weekday)
    starred = minute.startswith("*") or hour.startswith("*")

    def is_due(wall: datetime) -> bool:
        return wall.minute in in_minutes and wall.hour in in_hours and wall.isoweekday() % 7 in on_days

    runs = []
    for before, wall in pairwise(minutes):
        naive, last = wall.replace(tzinfo=None), before.replace(tzinfo=None)
        skipped = () if starred else (last + MINUTE * more for more in range(1, (naive - last) // MINUTE))
        if (is_due(wall) and (starred or wall.fold == 0)) or any(map(is_due, skipped)):
            runs.append(wall.astimezone(UTC))
    return runs


@pytest.mark.parametrize("zone", ZONES)
def test_cron_runs_as_debian_has_it_over_both_changes_of_summer_time(zone: str) -> None:
    for change in changes_of(zone)[:2]:
        start = change - DAY / 2
        minutes = [(start + MINUTE * more).astimezone(ZoneInfo(zone)) for more in range(50 * 60)]
        for expression in CRON:
            runs = runs_of_cron(expression, minutes)
            for more in range(60):
                moment = start + timedelta(minutes=23, seconds=7) * more
                expected = calendar(expression, zone).expected_after(moment, HOUR)
                follows = next(run for run in runs if run > moment)
                if (expression, zone) in LATER:
                    assert expected >= follows
                    assert expected in runs
                else:
                    assert expected == follows, (expression, zone, moment)


@pytest.mark.skipif(SYSTEMD is None, reason="systemd-analyze is not on this machine")
@pytest.mark.parametrize("zone", ZONES)
def test_on_calendar_runs_as_systemd_has_it_over_both_changes_of_summer_time(zone: str) -> None:
    for change in changes_of(zone)[:2]:
        for expression in ON_CALENDAR:
            start = change - timedelta(hours=5, seconds=1)
            base = start.astimezone(ZoneInfo(zone)).strftime("%Y-%m-%d %H:%M:%S")
            asked = [str(SYSTEMD), "calendar", f"--base-time={base}", "--iterations=12", expression]
            said = subprocess.run(asked, env={"TZ": zone}, capture_output=True, text=True, check=True).stdout
            lines = [
                line.split(": ", 1)[1]
                for line in said.splitlines()
                if "(in UTC)" in line or (zone == "UTC" and ("Next" in line or "Iter" in line))
            ]
            runs = [datetime.strptime(line, "%a %Y-%m-%d %H:%M:%S UTC").replace(tzinfo=UTC) for line in lines]
            assert len(runs) == 12, said
            ours = []
            moment = start
            while len(ours) < 12:
                moment = calendar(expression, zone).expected_after(moment, HOUR)
                ours.append(moment)
            assert ours == runs, (expression, zone)
