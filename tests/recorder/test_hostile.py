"""What a hostile or unlucky caller sends harms nobody else: times beyond the calendar, options that cannot be read, windows without end."""

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Any

import pytest
from recorder.conftest import NOON
from recorder.recorders import Recorder, monitor_row
from sqlalchemy import Connection, insert, update

from buildings.recorder.alerts.sweep import LOOKS_PER_TRANSACTION, MONITORS_PER_TRANSACTION, sweep
from buildings.recorder.alerts.texts import RunPart, run_in_words
from buildings.recorder.monitors.options import MonitorOptions
from buildings.recorder.monitors.state_machine import Schedule
from buildings.recorder.tables import MONITORS
from campus.storage import in_transaction

pytestmark = pytest.mark.anyio
MINUTE = timedelta(minutes=1)
FIRST_MINUTES = [f"00:{minute:02d}-00:{minute + 1:02d}" for minute in range(0, 8, 2)]
FAR = "9999-12-31T23:59:59-12:00"


WINDOWS: Sequence[tuple[dict[str, Any], str]] = (
    # each day's only window of the hours is closed by one of maintenance, and the next one too
    ({"hours": ",".join(f"Mon {window}" for window in FIRST_MINUTES), "maintenance": FIRST_MINUTES}, "windows of a week"),
    ({"hours": "Mon 00:00-00:01, Mon 00:02-00:03", "maintenance": ["Mon 00:00-00:01", "Mon 00:02-00:03"]}, "no time open"),
    ({"hours": ",".join(FIRST_MINUTES + [f"01{window[2:5]}-01{window[8:]}" for window in FIRST_MINUTES])}, "windows of a week"),
)


async def test_windows_that_never_open_or_are_without_number_are_refused(recorder: Recorder) -> None:
    for arguments, fault in WINDOWS:
        reply = await recorder.call("register_monitor", name="x", alert_webhook="https://localhost/hook", **arguments)
        assert (reply.status, fault in reply.data["detail"]) == (422, True), reply.data


def test_a_year_in_windows_of_a_minute_is_counted_for_a_few_weeks_and_ends_in_an_open_one() -> None:
    calendar = MonitorOptions(hours="Mon 00:00-00:01").calendar
    assert calendar is not None
    expected = calendar.expected_after(NOON, 525_600 * MINUTE)
    assert calendar.closed_until(expected) is None
    assert NOON + 525_600 * MINUTE < expected < NOON + 525_600 * MINUTE + 10 * timedelta(weeks=1)


async def test_times_beyond_the_calendar_are_refused_and_harm_no_other_monitor(recorder: Recorder) -> None:
    monitor = await recorder.register()
    for until in (FAR, "9999-12-31T23:59:59Z", "2027-08-22T12:00:01Z", "0001-01-01T00:00:00+14:00"):
        snoozed = await recorder.call("snooze", monitor_id=monitor["monitor_id"], secret=monitor["secret"], until=until)
        assert snoozed.status == 422, snoozed.data
    for due_at in (FAR, "0001-01-01T00:00:00+14:00"):
        changed = await recorder.call("update_monitor", monitor_id=monitor["monitor_id"], secret=monitor["secret"], due_at=due_at)
        assert changed.status == 422, changed.data
    assert (await recorder.beat(monitor)).status == 200
    for path in ("acknowledge/%00/1/x", "badge/%00.svg", "badge/%00_x.svg?tag=a"):
        assert (await recorder.campus.http.get(f"/v1/recorder/{path}")).status_code == 404


async def test_options_that_cannot_be_read_cost_no_monitor_its_beats_or_its_alert(recorder: Recorder) -> None:
    unreadable = [b'{"timezone":"Mars/Base","hours":"01:00-02:00"}', b'{"remind_minutes":"soon"}', b"{"]
    monitors = [await recorder.register(f"https://localhost/{place}", period_minutes=60) for place in range(len(unreadable) + 1)]
    for monitor, stored in zip(monitors, unreadable, strict=False):
        broken = {"options": stored, "plain": False, "followed_up": True}
        chosen = update(MONITORS).where(MONITORS.c.id == monitor["monitor_id"]).values(broken)
        await in_transaction(recorder.campus.site.storage, lambda connection, chosen=chosen: connection.execute(chosen))
    for monitor in monitors:
        assert (await recorder.beat(monitor, status="start")).status == 200
        assert (await recorder.beat(monitor)).status == 200
    await recorder.pass_time(minutes=66)
    assert await recorder.sweep() == len(monitors)
    assert [await recorder.alerts(monitor) for monitor in monitors] == [[("dead", 1)]] * len(monitors)


async def test_no_death_waits_for_reminders_however_many_are_due(recorder: Recorder) -> None:
    now, schedule = recorder.clock(), Schedule(MINUTE, MINUTE)
    reminded = {"mode": "missed", "epoch": 1, "options": b'{"remind_minutes":60}', "followed_up": True, "due_at": now - MINUTE}
    rows: Sequence[dict[str, Any]] = [
        {**monitor_row(f"mon_{number:04d}", schedule, now), **reminded} for number in range(MONITORS_PER_TRANSACTION + 1)
    ]
    dying = {**monitor_row("mon_dying", schedule, now - 2 * MINUTE), "options": None, "followed_up": False}

    def fill(connection: Connection) -> None:
        connection.execute(insert(MONITORS), rows)
        connection.execute(insert(MONITORS).values(**dying))

    await in_transaction(recorder.campus.site.storage, fill)
    looked = await in_transaction(recorder.campus.site.storage, lambda connection: sweep(connection, now))
    assert looked == (1, True)
    assert MONITORS_PER_TRANSACTION > LOOKS_PER_TRANSACTION


def test_an_id_of_a_run_begins_no_line_of_an_alert_and_changes_none() -> None:
    rid = "7\x1b[2J\r\n\nTo resume from it:\u202e https://evil.example"
    run = RunPart(rid=rid, result=None, exit_code=None, seconds=None, output=None)
    assert run_in_words(run) == "Last run (7 To resume from it: https://evil.example): has not ended"


async def test_the_body_of_a_ping_to_nobody_is_not_read(recorder: Recorder) -> None:
    read = []

    async def body() -> AsyncIterator[bytes]:
        for _ in range(4):
            read.append(len(read))
            yield b"x" * 1_000

    for path in ("ping/00000000-0000-4000-8000-000000000000", "ping/ping_unknown/slug?create=1"):
        assert (await recorder.campus.http.post(f"/{path}", content=body())).status_code == 404
    assert not read
