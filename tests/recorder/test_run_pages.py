"""What the page of a monitor shows of its schedule and runs, and what its forms and buttons set of them."""

import re
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from pages.hostile import ALL_AT_ONCE, harm_in
from recorder.receivers import Receiver
from recorder.recorders import Recorder
from recorder.test_pages import NAME, _ago, _entry_alive, page_of, press

from buildings.recorder.monitors.listing import History
from buildings.recorder.monitors.schedules import schedule_in_words
from buildings.recorder.pages import OUTPUTS_SHOWN, RUNS_SHOWN

pytestmark = pytest.mark.anyio
SET = {
    "description": "Runbook: https://wiki.example/b",
    "schedule": "17 3 * * *",
    "timezone": "Europe/Berlin",
    "run_minutes": "20",
    "remind_minutes": "60",
    "tags": "prod  backup",
}
DAYS = ("Sat 2026-08-22", "Sun 2026-08-23", "Mon 2026-08-24", "Tue 2026-08-25", "Wed 2026-08-26")


async def shown_at(recorder: Recorder, path: str, key: str) -> str:
    return (await page_of(recorder, path, key)).text


async def test_the_forms_set_schedule_runs_reminders_and_tags_and_an_empty_field_ends_them(recorder: Recorder, receiver: Receiver) -> None:
    key = await recorder.campus.key("recorder")
    made = await press(recorder, "/recorder", key, name=NAME, alert_webhook=receiver.url(), **SET)
    assert (made.status_code, harm_in(made.text)) == (200, [])
    found = re.search(r"/beat/(mon_\w+)/", made.text)
    assert found is not None
    at = f"/recorder/{found[1]}"
    shown = await shown_at(recorder, at, key)
    assert "At 03:17 every day (Europe/Berlin), 5 minutes of grace" in shown
    assert re.findall(r">(\w{3} \d{4}-\d\d-\d\d \d\d:\d\d)</time>", shown) == [f"{day} 03:17" for day in DAYS]
    assert 'Runbook: <a href="https://wiki.example/b"' in shown
    assert ("each 60 minutes while" in shown, 'href="/recorder?tag=backup"' in shown) == (True, True)
    for name, text in {**SET, "tags": "backup prod"}.items():
        assert re.search(rf'name="{name}" type="text" value="{re.escape(text)}"', shown), name
    tagged = await shown_at(recorder, "/recorder?tag=backup", key)
    assert (f'href="{at}"' in tagged, "Tag backup: show all" in tagged) == (True, True)
    assert "No monitor matches" in await shown_at(recorder, "/recorder?tag=back", key)
    wrong = await press(recorder, f"{at}/update", key, page=at, **{**SET, "schedule": "17 25 * * *"})
    assert (wrong.status_code, 'value="17 25 * * *"' in wrong.text) == (422, True)
    assert (await press(recorder, f"{at}/update", key, page=at, **dict.fromkeys(SET, ""))).status_code == 303
    shown = await shown_at(recorder, at, key)
    assert ("every 60 minutes" in shown or "every hour" in shown, "Europe/Berlin<" in shown, "?tag=" in shown) == (True, False, False)


async def test_runs_are_shown_with_result_and_output_that_is_marked_as_untrusted(recorder: Recorder, receiver: Receiver) -> None:
    key = await recorder.campus.key("recorder")
    monitor = await recorder.register(receiver.url(), key=key, description=ALL_AT_ONCE)
    at = f"/recorder/{monitor['monitor_id']}"
    assert "Runs</h2>" not in await shown_at(recorder, at, key)
    for number in range(RUNS_SHOWN + 3):
        output = f"{ALL_AT_ONCE} {number} " + "x" * 9_000
        assert (await recorder.beat(monitor, status=number % 2, rid=f"r{number}", output=output)).status == 200
        await recorder.pass_time(seconds=1)
    shown = await shown_at(recorder, at, key)
    assert f"{RUNS_SHOWN // 2} of the last {RUNS_SHOWN} failed" in shown
    assert (shown.count('id="output-'), len(shown) < 400_000) == (OUTPUTS_SHOWN, True), "a page has a bounded size"
    begin, end = (shown.index(f"<code>{mark} UNTRUSTED DATA") for mark in ("BEGIN", "END"))
    assert begin < shown.index('id="output-') < shown.rindex('id="output-') < end


async def test_a_failure_is_acknowledged_and_its_alerts_are_held_with_the_buttons(recorder: Recorder, receiver: Receiver) -> None:
    key = await recorder.campus.key("recorder")
    monitor = await recorder.register(receiver.url(), key=key)
    at = f"/recorder/{monitor['monitor_id']}"
    for _ in range(2):
        await recorder.beat(monitor, status=2)
    shown = await shown_at(recorder, at, key)
    assert re.search(r'>failed</span></td>\n.*\n.*\n<td data-label="Exit" class="number">2</td>', shown)
    assert "Failures in a row" in shown
    await press(recorder, f"{at}/acknowledge", key, page=at)
    assert "somebody acts on it" in await shown_at(recorder, at, key)
    held = await press(recorder, f"{at}/snooze", key, page=at, minutes="30")
    assert held.status_code == 303, held.text
    assert "Its alerts are held: nobody is alerted until" in await shown_at(recorder, at, key)
    assert ">held<" in await shown_at(recorder, "/recorder", key)
    await press(recorder, f"{at}/snooze", key, page=at, minutes="0")
    assert "Its alerts are held" not in await shown_at(recorder, at, key)


async def test_a_job_that_fails_every_night_is_red_in_its_strip_and_by_day(recorder: Recorder, receiver: Receiver) -> None:
    key = await recorder.campus.key("recorder")
    monitor = await recorder.register(receiver.url(), key=key, period_minutes=1500, alert_after_failures=50)
    for _ in range(5):
        await recorder.beat(monitor, status="start")
        await recorder.pass_time(minutes=10)
        await recorder.beat(monitor, status=1)
        await recorder.pass_time(hours=23, minutes=50)
    shown = await shown_at(recorder, f"/recorder/{monitor['monitor_id']}", key)
    assert "Days with an outage or a failed run: 5 of" in shown
    assert "Last 24 hours: down or failed in 1 of them" in await shown_at(recorder, "/recorder", key)


def test_hours_and_days_count_failed_runs() -> None:
    now = datetime(2026, 11, 24, 12, tzinfo=UTC)
    ago = partial(_ago, now)
    history = History(_entry_alive(since=ago(days=3)), ago(days=3), [], [ago(hours=5, minutes=1), ago(days=1)])
    assert [slot.tone for slot in history.hours(now)] == ["good"] * 18 + ["bad"] + ["good"] * 5
    assert [(one.failed, one.outages, one.down) for one in history.days(now)][-2:] == [(1, 0, timedelta(0))] * 2


def test_a_schedule_is_said_in_words() -> None:
    assert schedule_in_words("17 3 * * *\n0 12 * * 1-5", "UTC") == "At 03:17 every day; At 12:00 on Monday through Friday (UTC)"
    assert schedule_in_words("Mon..Fri 09:00", "Europe/Paris") == "Mon..Fri 09:00 (Europe/Paris)"
    assert schedule_in_words(None, "UTC") == ""
