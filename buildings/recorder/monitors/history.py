"""A monitor's past as it is stored: outages as its alerts report them, in the slots of a strip, and by day. Pure.

Beats are kept for the last twenty only, and alerts for a month. So a slot is good when nothing says that the monitor was down in it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import NamedTuple

from buildings.recorder.models import Entry

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
HOURS_SHOWN, DAYS_SHOWN = 24, 30
FAULTLESS = ("ok", "start", "idle", 0)


class StoredChange(NamedTuple):
    """What an alert reported: that the monitor was dead, failed or recovered."""

    at: datetime
    kind: str


class Slot(NamedTuple):
    """A part of a strip and what is known of it: good, bad, warn or none."""

    start: datetime
    tone: str


class DayUptime(NamedTuple):
    """One UTC day: how many outages began, how long it was down, how long it was watched in all, and the share of that it was up."""

    day: date
    outages: int
    down: timedelta
    watched: timedelta

    @property
    def up(self) -> float:
        """Percent of the watched time."""
        return 100 - self.down / self.watched * 100


@dataclass(frozen=True)
class History:
    """The past of one monitor; `changes` are what its alerts reported, in any order, once for each target."""

    entry: Entry
    first_beat_at: datetime | None
    changes: Sequence[StoredChange]

    def outages(self, now: datetime) -> list[tuple[datetime, datetime]]:
        """When it was down. An outage whose end no alert reported ended with the next one, or when it came to its present state."""
        entry = self.entry
        is_down = entry.state == "dead" and not entry.paused
        found: list[tuple[datetime, datetime]] = []
        began: datetime | None = None
        for change in sorted(set(self.changes)):
            if change.kind == "recovered":
                found += [] if began is None else [(began, change.at)]
                began = None
            elif began is None:
                began = change.at
        if is_down:
            found.append((min(began or entry.since, entry.since), now))
        elif began is not None:
            found.append((began, max(began, min(entry.since, now))))
        return found

    def hours(self, now: datetime) -> list[Slot]:
        outages = self.outages(now)
        starts = [now - HOUR * back for back in range(HOURS_SHOWN, 0, -1)]
        return [Slot(start, self._tone(start, start + HOUR, now, outages)) for start in starts]

    def _tone(self, start: datetime, end: datetime, now: datetime, outages: Sequence[tuple[datetime, datetime]]) -> str:
        entry = self.entry
        if any(began < end and ended > start for began, ended in outages):
            return "bad"
        if any(start < beat.at <= end and beat.status not in FAULTLESS for beat in entry.last_beats):
            return "bad"
        if self.first_beat_at is None or self.first_beat_at >= end or (entry.paused and entry.since <= start):
            return "none"
        return "warn" if entry.state == "late" and end == now else "good"

    def days(self, now: datetime) -> list[DayUptime]:
        """The last 30 UTC days on which it was watched, the oldest first."""
        return [one for one in self._days(now) if one.watched > timedelta(0)]

    def _days(self, now: datetime) -> Iterator[DayUptime]:
        outages = self.outages(now)
        for back in range(DAYS_SHOWN - 1, -1, -1):
            day = (now - DAY * back).date()
            start = max(datetime.combine(day, time(), UTC), self.first_beat_at or now)
            end = min(datetime.combine(day, time(), UTC) + DAY, self.entry.since if self.entry.paused else now)
            down = sum((max(min(end, ended) - max(start, began), timedelta(0)) for began, ended in outages), timedelta(0))
            yield DayUptime(day, sum(start <= began < end for began, _ in outages), down, max(end - start, timedelta(0)))
