"""When beats are expected by a calendar: cron and OnCalendar schedules in a time zone, one-off deadlines, hours and maintenance.

Pure: every moment is an argument. What a caller writes is checked here, and read again whenever it is needed. Expressions come from
strangers: they are short, and evaluating one looks ten years ahead at most. Dearest found: 5 ms of CPU for one that is never due.

Summer time is as cron and systemd have it. cron: what is set for a certain hour runs once, right after an hour that is missing, and the
first time in one that comes twice; what has `*` as its hour or minute runs in both. systemd: a missing time is left out, and one that
comes twice is used once.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import lru_cache
from heapq import merge
from itertools import islice
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError
from oncalendar import BaseIterator, OnCalendarError

CALENDARS_IN_MEMORY = 500  # Of 115 KB at the most: 58 MB. One serves all monitors that have the same; usually 3 KB.
YEARS_AHEAD = 10
MOST_LINES = 5
MOST_WEEKLY = 30  # Windows of a week, in hours and maintenance together: enough for four of each day.
MOST_WINDOWS = 400  # How many closed times one evaluation steps over: enough for one of each day of a year.
MOST_COUNTED, COUNTED_AHEAD = 60, timedelta(weeks=8)
"""How many windows, and how far ahead, a period or grace is counted in; the rest of one that lasts longer passes whether open or not."""
MOST_LEFT_OUT = 100  # How many closed times with times of a schedule in them it steps over.
SHOWN = 5
SECOND, MINUTE, WEEK, YEAR = timedelta(seconds=1), timedelta(minutes=1), timedelta(weeks=1), timedelta(days=366)
CRON_FIELDS = ("minute", "hour", "day-of-month", "month", "day-of-week")
CRON_EXAMPLE = "'17 3 * * *' for 03:17 each day"
ON_CALENDAR_EXAMPLE = "'Mon..Fri 09:00'"
HOURS_EXAMPLE = "'Mon..Fri 09:00-17:00, Sat 10:00-14:00'"
MAINTENANCE_EXAMPLE = "'Sun 02:00-04:00' or '2026-12-24T20:00/2026-12-27T06:00'"
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
DAY = "(mon|tue|wed|thu|fri|sat|sun)[a-z]*"
WINDOW = re.compile(rf"(?:{DAY}(?:(?:\.\.|-){DAY})?)? *(?:(\d\d?):(\d\d) *- *(\d\d?):(\d\d))?", re.IGNORECASE)
DAY_MINUTES, WEEK_MINUTES = 24 * 60, 7 * 24 * 60

Minutes = tuple[int, int]  # A window of each week, in minutes since Monday 00:00 on the wall's clock; it may end in the next week.
Span = tuple[datetime, datetime]


class _Cron(CronSim):
    """A cron expression that gives up after YEARS_AHEAD instead of 50 years."""

    def __init__(self, expression: str, start: datetime) -> None:
        super().__init__(expression, start)
        self.last_year = start.year + YEARS_AHEAD

    def advance_month(self) -> None:
        super().advance_month()
        if self.dt.year > self.last_year:
            raise StopIteration


class _OnCalendar(BaseIterator):
    """An OnCalendar expression that gives up after YEARS_AHEAD instead of the year 2200."""

    def __init__(self, expression: str, start: datetime) -> None:
        super().__init__(expression, start)
        self.last_year = start.year + YEARS_AHEAD

    def advance_year(self) -> None:
        super().advance_year()
        if self.dt.year > self.last_year:
            raise StopIteration


def schedule_text(schedule: str) -> str:
    """A schedule that can be evaluated, in its simplest form. ValueError says what is wrong with another."""
    lines = [" ".join(line.split()) for line in schedule.splitlines() if line.strip()]
    if len(lines) > MOST_LINES:
        raise ValueError(f"it has {len(lines)} lines, and at most {MOST_LINES} are evaluated")
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    for place, line in enumerate(lines, 1):
        where = f"line {place}, " if len(lines) > 1 else ""
        try:
            _iterator(line, moment)
        except CronSimError as problem:
            fault = _cron_fault(line, str(problem))
            raise ValueError(f"{where}{line!r} is not a cron expression: {fault}; write it as {CRON_EXAMPLE}") from None
        except (OnCalendarError, ValueError) as problem:
            fields = f"a cron expression has five fields, such as {CRON_EXAMPLE}, and this has {len(line.split())}"
            raise ValueError(
                f"{where}{line!r} is not a schedule: {fields}; as an OnCalendar expression, such as {ON_CALENDAR_EXAMPLE},"
                f" it has a fault: {_lower(str(problem))}"
            ) from None
    return "\n".join(lines)


def schedule_in_words(schedule: str | None, timezone: str) -> str:
    """A schedule for people: cron in words, OnCalendar as it is, and the zone; "" for none."""
    lines = (schedule or "").splitlines()
    words = [CronSim(line, datetime(2026, 1, 1)).explain() if len(line.split()) == len(CRON_FIELDS) else line for line in lines]
    return f"{'; '.join(words)} ({timezone})" if words else ""


def _lower(words: str) -> str:
    return words[:1].lower() + words[1:]


def _cron_fault(line: str, words: str) -> str:
    name = words.removeprefix("Bad ")
    return f"bad {name} {line.split()[CRON_FIELDS.index(name)]!r}" if name in CRON_FIELDS else _lower(words)


def _iterator(line: str, moment: datetime) -> Iterator[datetime]:
    """The times after `moment`, in whose zone the expression is; an OnCalendar expression may name another one at its end."""
    fields = line.split()
    if len(fields) == len(CRON_FIELDS):
        return _Cron(line, moment)
    if len(fields) > 1 and (fields[-1] in time_zones() or re.match("[A-Za-z]+/", fields[-1])):
        return _OnCalendar(" ".join(fields[:-1]), moment.astimezone(_zone(zone_name(fields[-1]))))
    return _OnCalendar(line, moment)


@lru_cache(1_000)
def _zone(name: str) -> ZoneInfo:
    """A time zone. zoneinfo itself keeps eight, and reads the others again."""
    return ZoneInfo(name)


@lru_cache(1)
def time_zones() -> frozenset[str]:
    """The names of IANA's time zones that this machine knows."""
    return frozenset(available_timezones() - {"localtime", "Factory"})


def zone_name(name: str) -> str:
    """The name of a time zone that is known. ValueError for another, with those that are most like it."""
    if name in time_zones():
        return name
    last = name.rpartition("/")[2].replace(" ", "_").lower()
    same = sorted(zone for zone in time_zones() if last and zone.lower().endswith(last))[:3]
    similar = same or get_close_matches(name, time_zones(), n=3)
    hint = f"did you mean {' or '.join(similar)}?" if similar else "use one of IANA's names, such as Europe/Berlin"
    raise ValueError(f"no time zone is called {name!r}: {hint}")


def hours_text(hours: str) -> str:
    """Weekly windows that can be read, as they were sent. ValueError says what is wrong with others."""
    weekly_windows(hours)
    return hours


def maintenance_text(window: str) -> str:
    """A weekly or dated window that can be read, as it was sent. ValueError says what is wrong with another."""
    if "/" in window:
        _dated(window)
    elif len(weekly_windows(window, example=MAINTENANCE_EXAMPLE)) > len(DAYS):
        raise ValueError(f"{window!r} has several windows; send each as an element of its own, such as {MAINTENANCE_EXAMPLE}")
    return window


def weekly_windows(text: str, *, example: str = HOURS_EXAMPLE) -> list[Minutes]:
    """Windows as 'Mon..Fri 09:00-12:00, 13:00-17:00; Sat,Sun 10:00-12:00'. One without days has those of the one before, or all."""
    windows: list[Minutes] = []
    days: set[int] = set()
    times = None
    for part in re.split("[,;]", text):
        found = WINDOW.fullmatch(part.strip())
        if found is None or not found[0]:
            raise ValueError(f"{part.strip()!r} is not a window of the week; write it as {example}")
        first, last, *clock = found.groups()
        if first:
            days = days if times is None else set()
            start = DAYS.index(first.lower())
            days |= {(start + more) % 7 for more in range((DAYS.index((last or first).lower()) - start) % 7 + 1)}
        times = None if clock[0] is None else _minutes(part.strip(), *map(int, clock))
        if times is not None:
            windows += [(day * DAY_MINUTES + times[0], day * DAY_MINUTES + times[1]) for day in sorted(days or range(7))]
    if times is None:
        raise ValueError(f"{part.strip()!r} has no times; write it as {example}")
    return windows


def _minutes(part: str, hour: int, minute: int, to_hour: int, to_minute: int) -> Minutes:
    start, end = hour * 60 + minute, to_hour * 60 + to_minute
    if max(minute, to_minute) > 59 or start >= DAY_MINUTES or end > DAY_MINUTES or start == end:
        raise ValueError(f"{part!r} has no such times: they are from 00:00 to 24:00, and a window that ends earlier ends on the next day")
    return start, end if end > start else end + DAY_MINUTES


def _dated(window: str) -> Span:
    """From and to, both as they were written: with an offset, or in the zone of the monitor."""
    try:
        start, end = map(datetime.fromisoformat, window.split("/"))
        in_order = start < end and start.year >= 1970 and end.year < 2200  # TypeError if only one has an offset
    except (ValueError, TypeError):
        raise ValueError(f"{window!r} is not a window from/to, both with an offset or neither; write it as {MAINTENANCE_EXAMPLE}") from None
    if not in_order:
        raise ValueError(f"{window!r} ends before it begins, or not in the years 1970 to 2199")
    return start, end


class Windows:
    """Windows of each week and dated ones, in a time zone. They last through both passes of an hour that comes twice."""

    __slots__ = ("_around", "_dated", "_weekly", "_zone")

    def __init__(self, weekly: Sequence[Minutes], dated: Sequence[Span], zone: ZoneInfo) -> None:
        self._weekly = tuple(sorted(set(weekly)))
        self._dated = [(_utc(start, zone), _utc(end, zone, last=True)) for start, end in dated]
        self._zone = zone
        self._around: tuple[datetime, list[Span]] | None = None

    def __len__(self) -> int:
        return len(self._weekly)

    def end_of(self, moment: datetime) -> datetime | None:
        """When the window that is open at `moment` ends; None if none is."""
        return next((end for start, end in self._spans(moment) if start <= moment < end), None)

    def start_after(self, moment: datetime) -> datetime | None:
        """When the next window begins; None without one in the next week."""
        return next((start for start, _ in self._spans(moment) if start > moment), None)

    def _spans(self, moment: datetime) -> list[Span]:
        """The windows around a moment, in their order, those that touch as one. They are kept for the week that was asked for last."""
        local = moment.astimezone(self._zone).replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
        monday = local - timedelta(days=local.weekday())
        if self._around is not None and self._around[0] == monday:
            return self._around[1]
        spans: list[Span] = []
        from_before = [self._span(monday - WEEK, window) for window in self._weekly if window[1] > WEEK_MINUTES]
        weekly = [self._span(week, window) for week in (monday, monday + WEEK) for window in self._weekly]
        for start, end in sorted([*from_before, *weekly, *self._dated]):
            if spans and start <= spans[-1][1]:
                spans[-1] = spans[-1][0], max(spans[-1][1], end)
            elif start < end:
                spans.append((start, end))
        self._around = monday, spans
        return spans

    def _span(self, week: datetime, window: Minutes) -> Span:
        return _utc(week + window[0] * MINUTE, self._zone), _utc(week + window[1] * MINUTE, self._zone, last=True)


def _utc(moment: datetime, zone: ZoneInfo, *, last: bool = False) -> datetime:
    if moment.tzinfo is not None:
        return moment.astimezone(UTC)
    first = moment.replace(tzinfo=zone).astimezone(UTC)
    return max(first, moment.replace(tzinfo=zone, fold=1).astimezone(UTC)) if last else first


class MonitorCalendar:
    """The calendar of the monitors that have the same schedule, one-off deadline, hours and maintenance."""

    __slots__ = ("_due_at", "_hours", "_key", "_known", "_lines", "_maintenance", "_zone")

    def __init__(
        self, schedule: str | None, timezone: str, due_at: datetime | None, hours: str | None, maintenance: tuple[str, ...]
    ) -> None:
        self._key = (schedule, timezone, due_at, hours, maintenance)
        self._zone = _zone(timezone)
        self._lines = tuple((schedule or "").splitlines())
        self._due_at = due_at and due_at.astimezone(UTC)
        weekly = [minutes for window in maintenance if "/" not in window for minutes in weekly_windows(window)]
        dated = [_dated(window) for window in maintenance if "/" in window]
        self._hours = Windows(weekly_windows(hours), (), self._zone) if hours else None
        self._maintenance = Windows(weekly, dated, self._zone) if maintenance else None
        self._known: tuple[datetime, datetime] | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MonitorCalendar) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def names_times(self) -> bool:
        """Whether it says when beats are expected, and not only when none are."""
        return bool(self._lines) or self._due_at is not None

    @property
    def weekly(self) -> int:
        """How many windows of each week there are."""
        return sum(len(windows) for windows in (self._hours, self._maintenance) if windows is not None)

    def expected_after(self, moment: datetime, period: timedelta) -> datetime:
        """When the next beat is expected if the last one came at `moment`: always later. The period counts if no time is left."""
        return self._next(moment) or self._counted(moment, period)

    def deadline_after(self, expected: datetime, grace: timedelta) -> datetime:
        """The deadline of a beat that is expected at a time: a grace later, or after the next opening if nothing is expected by then."""
        opening = self.closed_until(expected) or expected
        closing = self._closes_after(opening)
        if closing is None or opening + grace < closing or self.closed_until(closing) is None:
            return opening + grace
        return self._counted(closing, grace)  # the whole grace from the opening on

    def is_over_after(self, moment: datetime) -> bool:
        """Whether nothing more is expected after a success at `moment`: the one deadline is met, or the last time has passed."""
        return self._due_at is not None or (bool(self._lines) and self._next(moment) is None)

    def next_expected(self, moment: datetime) -> tuple[datetime, ...]:
        """The next times after `moment` at which a beat is expected, up to five."""
        return tuple(islice(self._times(moment), SHOWN))

    def closed_until(self, moment: datetime) -> datetime | None:
        """When beats are expected again, if `moment` is outside of the hours or in maintenance; None if it is not.

        Looks a year ahead: a later time may be closed too.
        """
        opening = moment
        for _ in range(MOST_WINDOWS):
            if opening > moment + YEAR:
                break
            if self._maintenance is not None and (end := self._maintenance.end_of(opening)) is not None:
                opening = end
            elif self._hours is not None and self._hours.end_of(opening) is None:
                opening = self._hours.start_after(opening) or opening + WEEK
            else:
                break
        return None if opening == moment else opening

    def maintenance_until(self, moment: datetime) -> datetime | None:
        """When the maintenance ends that `moment` is in; None if it is in none."""
        return None if self._maintenance is None else self._maintenance.end_of(moment)

    def _closes_after(self, moment: datetime) -> datetime | None:
        """When the next closed time begins, if `moment` is open; None without one in the next week."""
        hours = None if self._hours is None else self._hours.end_of(moment)
        maintenance = None if self._maintenance is None else self._maintenance.start_after(moment)
        return min(filter(None, (hours, maintenance)), default=None)

    def _counted(self, moment: datetime, span: timedelta) -> datetime:
        """The time that is `span` after `moment` if only open time counts."""
        last = moment + COUNTED_AHEAD
        for _ in range(MOST_COUNTED):
            moment = self.closed_until(moment) or moment
            closing = self._closes_after(moment)
            if closing is None or moment + span < closing:
                return moment + span
            span -= closing - moment
            moment = closing
            if moment > last:
                break
        moment += span
        return self.closed_until(moment) or moment

    def _next(self, moment: datetime) -> datetime | None:
        """The next of the times. The last answer is kept, for the beats that come before it."""
        known = self._known
        if known is None or not known[0] <= moment < known[1]:
            found = next(self._times(moment), None)
            if found is None:
                return None
            self._known = known = moment, found
        return known[1]

    def _times(self, moment: datetime) -> Iterator[datetime]:
        """The one-off deadline, or the times of the schedule that are not in a closed time."""
        if self._due_at is not None and moment < self._due_at:
            yield self._due_at
        for _ in range(MOST_LEFT_OUT):
            for at in self._all_times(moment):
                if (opening := self.closed_until(at)) is not None:
                    moment = max(at, opening - SECOND)
                    break
                yield at
            else:
                return
            if moment > at + YEAR:
                return

    def _all_times(self, moment: datetime) -> Iterator[datetime]:
        """Strictly later and in order, each once: in an hour that is missing or comes twice, libraries name some times again."""
        last = moment
        for at in merge(*(_in_utc(_iterator(line, moment.astimezone(self._zone))) for line in self._lines)):
            if at > last:
                last = at
                yield at


def _in_utc(times: Iterator[datetime]) -> Iterator[datetime]:
    return (at.astimezone(UTC) for at in times)


@lru_cache(CALENDARS_IN_MEMORY)
def calendar_of(
    schedule: str | None, timezone: str, due_at: datetime | None, hours: str | None, maintenance: tuple[str, ...]
) -> MonitorCalendar:
    return MonitorCalendar(schedule, timezone, due_at, hours, maintenance)
