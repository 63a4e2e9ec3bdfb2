"""Calendars of monitors: cron and OnCalendar over both changes of summer time, one-off deadlines, hours, maintenance, refusals."""

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorder.changes import ask, update
from recorder.recorders import Recorder
from sqlalchemy import Connection

from buildings.recorder.alerts.sweep import move_deadlines, note_outage
from buildings.recorder.monitors.schedules import MonitorCalendar, calendar_of, schedule_text
from buildings.recorder.monitors.state_machine import Outage
from campus.storage import in_transaction

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
ZONES = (
    *("Europe/Berlin", "Atlantic/Azores", "America/New_York", "America/St_Johns", "America/Havana", "America/Santiago", "America/Nuuk"),
    *("America/Asuncion", "Australia/Lord_Howe", "Pacific/Chatham", "Pacific/Easter", "Africa/Casablanca", "Africa/Cairo", "Asia/Beirut"),
    *("Antarctica/Troll", "Asia/Kolkata", "UTC"),
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
    hours = [start + HOUR * number for number in range(2 * 365 * 24)]
    offsets = [moment.astimezone(known).utcoffset() for moment in hours]
    changed = [hours[place] for place in range(1, len(offsets)) if offsets[place] != offsets[place - 1]]
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


def changes() -> Iterator[tuple[str, datetime]]:
    """Each zone with the next two changes of its clocks."""
    return ((zone, change) for zone in ZONES for change in changes_of(zone)[:2])


def test_cron_runs_as_debian_has_it_over_both_changes_of_summer_time() -> None:
    for zone, change in changes():
        start = change - DAY / 2
        minutes = [(start + MINUTE * more).astimezone(ZoneInfo(zone)) for more in range(50 * 60)]
        for expression in CRON:
            runs = runs_of_cron(expression, minutes)
            for more in range(24):
                moment = start + timedelta(minutes=59, seconds=7) * more
                expected = calendar(expression, zone).expected_after(moment, HOUR)
                follows = next(run for run in runs if run > moment)
                if (expression, zone) in LATER:
                    assert expected >= follows
                    assert expected in runs
                else:
                    assert expected == follows, (expression, zone, moment)


@pytest.mark.skipif(SYSTEMD is None, reason="systemd-analyze is not on this machine")
def test_on_calendar_runs_as_systemd_has_it_over_both_changes_of_summer_time() -> None:
    for zone, change in changes():
        start = change - timedelta(hours=5, seconds=1)
        base = start.astimezone(ZoneInfo(zone)).strftime("%Y-%m-%d %H:%M:%S")
        asked = [str(SYSTEMD), "calendar", f"--base-time={base}", "--iterations=12", *ON_CALENDAR]
        said = subprocess.run(asked, env={"TZ": zone}, capture_output=True, text=True, check=True).stdout
        lines = [
            line.split(": ", 1)[1]
            for line in said.splitlines()
            if "(in UTC)" in line or (zone == "UTC" and ("Next" in line or "Iter" in line))
        ]
        runs = [datetime.strptime(line, "%a %Y-%m-%d %H:%M:%S UTC").replace(tzinfo=UTC) for line in lines]
        assert len(runs) == 12 * len(ON_CALENDAR), said
        for place, expression in enumerate(ON_CALENDAR):
            moment = start
            for run in runs[12 * place : 12 * (place + 1)]:
                moment = calendar(expression, zone).expected_after(moment, HOUR)
                assert moment == run, (expression, zone)


SCHEDULES = st.sampled_from((None, "17 3 * * *", "*/20 * * * *", "30 1,2 * * 1-5", "02:30", "Mon..Fri *:00\n0 12 * * 0"))
HOURS = st.sampled_from((None, "Mon..Fri 09:00-17:00", "22:00-06:00", "Mon,Wed 09:00-12:00, 13:00-13:07; Sat 00:00-24:00"))
CLOSED = st.sampled_from(("", "Sun 02:00-04:00", "01:30-02:30|2026-10-24T20:00/2026-10-26T03:00", "Mon..Fri 16:59-17:01"))
MOMENTS = st.datetimes(datetime(2026, 10, 20), datetime(2026, 11, 8), timezones=st.just(UTC))
SPANS = st.sampled_from((MINUTE, 5 * MINUTE, HOUR, 9 * HOUR, 3 * DAY))


@given(SCHEDULES, HOURS, CLOSED, st.sampled_from(ZONES), MOMENTS, MOMENTS, SPANS, SPANS)
def test_what_is_expected_is_later_than_the_beat_never_earlier_for_a_later_one_and_no_deadline_is_in_a_closed_time(
    schedule: str | None, hours: str | None, closed: str, zone: str, one: datetime, other: datetime, period: timedelta, grace: timedelta
) -> None:
    chosen = calendar(schedule, zone, hours=hours, closed=closed) if schedule or hours or closed else None
    if chosen is None:
        return
    first, second = sorted((one, other))
    expected = [chosen.expected_after(moment, period) for moment in (first, second)]
    deadlines = [chosen.deadline_after(moment, grace) for moment in expected]
    assert first < expected[0] <= expected[1]
    assert second < expected[1]
    assert expected[0] + grace <= deadlines[0] <= deadlines[1]
    for moment in (*deadlines, *expected, *chosen.next_expected(first)):
        assert chosen.closed_until(moment) is None
    assert chosen.expected_after(first, period) == expected[0], "whatever was asked before"


@pytest.mark.parametrize(
    ("hours", "closed", "beat", "period", "expected", "deadline"),
    [  # grace 5; 2026-08-21 is a Friday
        ("Mon..Fri 09:00-17:00", "", "2026-08-21T16:00", 30, "2026-08-21T16:30", "2026-08-21T16:35"),
        ("Mon..Fri 09:00-17:00", "", "2026-08-21T16:50", 30, "2026-08-24T09:20", "2026-08-24T09:25"),
        ("Mon..Fri 09:00-17:00", "", "2026-08-21T16:28", 30, "2026-08-21T16:58", "2026-08-24T09:05"),
        ("Mon..Fri 09:00-17:00", "", "2026-08-22T12:00", 30, "2026-08-24T09:30", "2026-08-24T09:35"),
        ("22:00-06:00", "", "2026-08-21T05:50", 30, "2026-08-21T22:20", "2026-08-21T22:25"),
        ("Mon 09:00-09:03", "", "2026-08-24T09:00", 1, "2026-08-24T09:01", "2026-09-07T09:02"),  # windows that are shorter than the grace
        (None, "Sun 02:00-04:00", "2026-08-23T01:30", 60, "2026-08-23T04:30", "2026-08-23T04:35"),
        (None, "2026-08-21T20:00/2026-08-24T06:00", "2026-08-21T19:00", 58, "2026-08-21T19:58", "2026-08-24T06:05"),
        (None, "2026-08-21T20:00+02:00/2026-08-24T06:00+02:00", "2026-08-21T17:00", 120, "2026-08-24T05:00", "2026-08-24T05:05"),
        ("Mon..Fri 09:00-17:00", "Mon 08:00-10:00", "2026-08-21T16:50", 30, "2026-08-24T10:20", "2026-08-24T10:25"),
        ("Mon..Sun 00:00-24:00", "", "2026-08-21T16:50", 30 * 1440, "2026-09-20T16:50", "2026-09-20T16:55"),
    ],
)
def test_periods_and_graces_count_in_open_time_and_a_deadline_moves_to_the_opening_plus_grace(
    hours: str | None, closed: str, beat: str, period: int, expected: str, deadline: str
) -> None:
    chosen = calendar(hours=hours, closed=closed)
    found = chosen.expected_after(utc(beat), MINUTE * period)
    assert (found, chosen.deadline_after(found, MINUTE * 5)) == (utc(expected), utc(deadline))


def test_a_schedule_leaves_out_its_times_in_closed_time() -> None:
    chosen = calendar("0 * * * *", "Europe/Berlin", hours="Mon..Fri 09:00-17:00", closed="Fri 12:30-15:00")
    times = [moment.astimezone(ZoneInfo("Europe/Berlin")) for moment in chosen.next_expected(utc("2026-08-21T09:30"))]
    assert [f"{moment:%a %H:%M}" for moment in times] == ["Fri 12:00", "Fri 15:00", "Fri 16:00", "Mon 09:00", "Mon 10:00"]


@pytest.mark.parametrize(
    "chosen",
    [
        calendar("0 0 LW * */7"),
        calendar("*-02,04,06,09,11-31\n*-02-30"),
        calendar("2199-12-31"),
        calendar("* * * * *", closed="00:00-24:00"),
        calendar("0 0 * * *", closed="00:00-00:01"),
        calendar("0 12 * * *", hours="Mon..Fri 13:00-17:00"),
    ],
)
def test_a_schedule_that_is_never_due_is_found_out_in_bounded_time(chosen: MonitorCalendar) -> None:
    assert chosen.next_expected(utc("2026-08-21")) == ()
    assert chosen.is_over_after(utc("2026-08-21"))
    assert chosen.expected_after(utc("2026-08-21"), HOUR) > utc("2026-08-21")


def test_the_hour_that_is_missing_at_apia_in_2011_was_a_day() -> None:
    chosen = calendar("30 2 * * *", "Pacific/Apia")
    ran = chosen.expected_after(utc("2011-12-29T13:00"), HOUR)
    assert ran == utc("2011-12-30T10:00"), "the job of the day that was left out runs as the next one begins"
    assert chosen.expected_after(ran, HOUR) == utc("2011-12-30T12:30")


def test_lines_are_evaluated_together_each_in_its_own_time_zone() -> None:
    chosen = calendar(schedule_text(" 09:00  Europe/Riga\n\n0 9 * * *\n09:00 UTC "), "Asia/Tokyo")
    times = [f"{moment:%d %H:%M}" for moment in chosen.next_expected(utc("2026-08-21T05:00"))]
    assert times == ["21 06:00", "21 09:00", "22 00:00", "22 06:00", "22 09:00"]


# The rest goes through the front doors.

through_doors = pytest.mark.anyio
NIGHTLY = {"schedule": "0 3 * * *", "timezone": "UTC", "grace_minutes": 10}


async def shown(recorder: Recorder, monitor: dict[str, Any], key: str) -> dict[str, Any]:
    return dict((await recorder.call("get_monitor", monitor_id=monitor["monitor_id"], key=key)).data)


@through_doors
async def test_a_beat_before_its_time_does_not_count_for_it_and_one_after_it_does(recorder: Recorder) -> None:
    key = await recorder.campus.key("recorder")
    monitor = await recorder.register(key=key, **NIGHTLY)
    assert monitor["deadline_at"] == "2026-08-22T03:10:00Z"
    assert monitor["next_expected"] == [f"2026-08-{day}T03:00:00Z" for day in range(22, 27)]
    await recorder.pass_time(hours=14, minutes=59)
    assert (await recorder.beat(monitor)).data["deadline_at"] == "2026-08-22T03:10:00Z", "at 02:59 it is a run of something else"
    await recorder.pass_time(minutes=1, seconds=1)
    for _ in range(2):
        assert (await recorder.beat(monitor)).data["deadline_at"] == "2026-08-23T03:10:00Z"
    await recorder.pass_time(hours=22)
    assert (await recorder.beat(monitor)).data["deadline_at"] == "2026-08-23T03:10:00Z", "long after is no run of the next night either"
    entry = await shown(recorder, monitor, key)
    assert (entry["expected_at"], entry["next_expected"][0], len(entry["next_expected"])) == ("2026-08-23T03:00:00Z",) * 2 + (5,)
    await recorder.pass_time(hours=2, minutes=10)
    assert (await recorder.sweep(), await recorder.alerts(monitor)) == (1, [("dead", 1)])


@through_doors
async def test_a_run_of_a_schedule_has_its_own_limit_also_over_maintenance(recorder: Recorder) -> None:
    monitor = await recorder.register(**NIGHTLY, run_minutes=60, maintenance=["Sat 12:30-14:00"])
    await recorder.pass_time(hours=15)
    assert (await recorder.beat(monitor, status="start")).data["deadline_at"] == "2026-08-22T04:00:00Z"
    assert (await recorder.beat(monitor, status=0)).data["deadline_at"] == "2026-08-23T03:10:00Z"
    await recorder.pass_time(hours=9)
    assert (await recorder.beat(monitor, status="start")).data["deadline_at"] == "2026-08-22T14:10:00Z"


@through_doors
async def test_a_one_off_deadline_is_met_by_one_beat_and_nothing_is_expected_after_it(recorder: Recorder) -> None:
    key = await recorder.campus.key("recorder")
    monitor = await recorder.register(key=key, due_at="2026-08-22T12:00:00+02:00", grace_minutes=30)
    assert (monitor["deadline_at"], monitor["next_expected"]) == ("2026-08-22T10:30:00Z", ["2026-08-22T10:00:00Z"])
    assert (await recorder.beat(monitor, status="start")).data["deadline_at"] == "2026-08-21T12:30:00Z", "the limit of the run"
    assert (await recorder.beat(monitor)).data["deadline_at"] is None
    entry = await shown(recorder, monitor, key)
    assert (entry["state"], entry["idle"], entry["expected_at"], entry["next_expected"]) == ("alive", True, None, [])
    await recorder.pass_time(days=20)
    assert (await recorder.sweep(), await recorder.alerts(monitor)) == (0, [])
    again = await update(recorder, monitor, due_at="2026-09-11T12:00:00Z")
    assert (again["idle"], again["deadline_at"]) == (False, "2026-09-11T12:30:00Z")
    await recorder.pass_time(days=1, minutes=31)
    assert await recorder.sweep() == 1
    assert (await recorder.beat(monitor)).data["deadline_at"] is None
    assert [kind for kind, _ in await recorder.alerts(monitor)] == ["dead", "recovered"]
    resumed = await recorder.call("resume_monitor", monitor_id=monitor["monitor_id"], secret=monitor["secret"])
    assert resumed.data["deadline_at"] == "2026-09-11T14:01:00Z", "who resumes it expects a beat within the period"


REFUSED = {
    "schedule": {
        "61 3 * * *": "bad minute '61'; write it as '17 3 * * *'",
        "0 3 * * MOO": "bad day-of-week 'MOO'",
        "0 3 * *": "a cron expression has five fields, such as '17 3 * * *' for 03:17 each day, and this has 4",
        "@daily": "as an OnCalendar expression, such as 'Mon..Fri 09:00', it has a fault",
        "Mon..Fry 09:00": "bad day-of-week",
        "09:00 Europe/Berln": "no time zone is called 'Europe/Berln': did you mean Europe/Berlin",
        "0 3 * * *\n0 25 * * *": "line 2, '0 25 * * *' is not a cron expression: bad hour '25'",
        "0 3 * * *\n" * 6: "6 lines",
        "0 0 30 2 *": "bad day-of-month '30'",
        "0 0 LW * */7": "no time in the next ten years",
        "1999-01-01": "no time in the next ten years",
    },
    "timezone": {
        "berlin": "did you mean Europe/Berlin?",
        "../../etc/passwd": "use one of IANA's names",
        "localtime": "no time zone is called",
    },
    "hours": {
        "Mon..Fri 9-17": "is not a window of the week; write it as 'Mon..Fri 09:00-17:00",
        "Mon 09:00-25:00": "has no such times",
        "Mon": "has no times",
    },
    "maintenance": {
        "2026-12-24/2026-12-20": "ends before it begins",
        "2026-12-24T20:00/2026-12-27T06:00Z": "both with an offset or neither",
        "02:00-03:00, 04:00-05:00": "send each as an element of its own",
        "00:00-24:00": "no time open within a year",
    },
    "due_at": {"2026-08-21T12:00:00Z": "not in the ten years after now", "8999-12-31T23:59:59Z": "not in the ten years after now"},
}


@through_doors
async def test_what_cannot_be_evaluated_is_refused_with_the_reason_and_where(recorder: Recorder) -> None:
    monitor = await recorder.register("https://localhost/1", **NIGHTLY)
    for option, text, words in ((option, *wrong) for option, texts in REFUSED.items() for wrong in texts.items()):
        value = {option: [text] if option == "maintenance" else text}
        more = {} if option == "schedule" else {"schedule": ""}
        for reply in (
            await recorder.call("register_monitor", name="x", alert_webhook="https://localhost/2", **value),
            await ask(recorder, monitor, **more, **value),
        ):
            assert (reply.status, reply.code) == (422, "invalid_request"), (text, reply.data)
            assert words in reply.data["detail"], reply.data["detail"]
            assert option in reply.data["detail"]
    both = await ask(recorder, monitor, due_at="2026-09-01T00:00:00Z")
    assert (both.status, "ends the other" in both.data["detail"]) == (422, True)


@through_doors
async def test_an_empty_text_ends_an_option_and_the_period_counts_again(recorder: Recorder) -> None:
    monitor = await recorder.register(**NIGHTLY, hours="Mon..Sun 01:00-23:00", maintenance=["Sun 01:00-02:00"])
    assert not (await recorder.row(monitor)).plain
    await recorder.beat(monitor)
    changed = await update(recorder, monitor, schedule="", hours="", maintenance=[], timezone="")
    assert (changed["next_expected"], changed["deadline_at"]) == (None, "2026-08-21T13:10:00Z")
    row = await recorder.row(monitor)
    assert (row.options, row.plain) == (None, True)
    assert (await update(recorder, monitor, due_at="2026-08-23T00:00:00Z"))["next_expected"] == ["2026-08-23T00:00:00Z"]
    assert (await update(recorder, monitor, due_at="", name="other"))["next_expected"] is None


@through_doors
async def test_nobody_dies_of_another_schedule(recorder: Recorder) -> None:
    monitor = await recorder.register(period_minutes=1440, grace_minutes=1)
    await recorder.beat(monitor)
    await recorder.pass_time(hours=10, minutes=30)
    hourly = await update(recorder, monitor, schedule="0 * * * *")
    assert (hourly["state"], hourly["deadline_at"]) == ("alive", "2026-08-21T23:01:00Z"), "of the times that passed nobody knew"
    closed = await update(recorder, monitor, maintenance=["Fri 22:00-23:30"])
    assert (closed["state"], closed["deadline_at"]) == ("alive", "2026-08-22T00:01:00Z")
    named = await update(recorder, monitor, name="other")
    assert named["deadline_at"] == "2026-08-22T00:01:00Z"
    await recorder.pass_time(hours=1, minutes=31)
    assert await recorder.sweep() == 1


def _apply(connection: Connection, outage: Outage) -> None:
    note_outage(connection, outage)
    while move_deadlines(connection):
        pass


@through_doors
@pytest.mark.parametrize(
    ("minutes", "deadline"),
    [(1, "2026-08-21T12:05:30"), (1.5, "2026-08-21T12:06:00"), (10, "2026-08-21T13:04:30"), (70, "2026-08-21T14:04:30")],
)
async def test_after_an_own_outage_the_deadline_is_that_of_the_calendar(recorder: Recorder, minutes: float, deadline: str) -> None:
    await recorder.pass_time(minutes=-1)
    monitor = await recorder.register("https://localhost/1", schedule="0 * * * *", grace_minutes=4.5)
    weekly = await recorder.register("https://localhost/2", schedule="0 9 * * 1", grace_minutes=4.5)
    await recorder.pass_time(minutes=1)
    outage = Outage(recorder.clock(), recorder.clock() + MINUTE * minutes)
    await in_transaction(recorder.campus.site.storage, partial(_apply, outage=outage))
    row = await recorder.row(monitor)
    assert (row.deadline_at, row.unverified, row.due_at <= row.deadline_at) == (utc(deadline), minutes >= 10, True)
    assert (await recorder.row(weekly)).deadline_at == utc("2026-08-24T09:04:30")
