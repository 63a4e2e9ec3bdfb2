"""Changes of a monitor's name and schedule: what changes and what stays, who may, what is refused, and beats meanwhile."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest
from recorder.changes import ask, update
from recorder.recorders import Recorder
from recorder.test_registration import BAD

pytestmark = pytest.mark.anyio


@pytest.mark.usefixtures("frame")
async def test_what_is_sent_changes_and_the_rest_stays(recorder: Recorder) -> None:
    key = await recorder.campus.key("recorder")
    monitor = await recorder.register(key=key, name="nightly", period_minutes=60, grace_minutes=5)
    await recorder.pass_time(minutes=10)
    await recorder.beat(monitor, capsule={"step": 7}, seq=7)
    before = await recorder.row(monitor)
    await recorder.pass_time(minutes=10)
    changed = await update(recorder, monitor, period_minutes=30)
    assert changed == {
        **{"ok": True, "monitor_id": monitor["monitor_id"], "name": "nightly", "state": "alive"},
        **{"waiting": False, "idle": False, "paused": False},
        **{"period_minutes": 30, "grace_minutes": 5, "deadline_at": "2026-08-21T12:45:00Z", "webhook_secret": None, "notes": []},
        **{"next_expected": None, "stuck": False, "target_secrets": []},
    }
    named = await update(recorder, monitor, name=" weekly ", key=key)
    assert (named["name"], named["period_minutes"], named["deadline_at"]) == ("weekly", 30, "2026-08-21T12:45:00Z")
    graced = await update(recorder, monitor, grace_minutes=0)
    assert (graced["grace_minutes"], graced["deadline_at"]) == (0, "2026-08-21T12:40:00Z")
    row = await recorder.row(monitor)
    moved = ("name", "period", "grace", "expected_at", "deadline_at", "due_at")
    assert {name for name, value in row._asdict().items() if value != getattr(before, name)} == set(moved)
    assert (await recorder.beat(monitor)).data["deadline_at"] == "2026-08-21T12:50:00Z"
    found = (await recorder.call("fetch_capsule", monitor_id=monitor["monitor_id"], key=key)).data
    assert (found["name"], found["last"]["capsule"]) == ("weekly", {"step": 7})


async def test_a_shorter_period_makes_late_and_not_dead_and_nobody_revives_by_a_longer_one(recorder: Recorder) -> None:
    monitor = await recorder.register(period_minutes=600, grace_minutes=5)
    await recorder.pass_time(minutes=300)
    changed = await update(recorder, monitor, period_minutes=10)
    assert (changed["state"], changed["deadline_at"]) == ("late", "2026-08-21T17:05:00Z")
    changed = await update(recorder, monitor, grace_minutes=0)
    assert (changed["state"], changed["deadline_at"]) == ("late", "2026-08-21T17:00:30Z")
    await recorder.pass_time(seconds=30)
    changed = await update(recorder, monitor, period_minutes=600)
    assert (changed["state"], changed["deadline_at"]) == ("dead", "2026-08-21T17:00:30Z"), "though no sweep has seen it"
    assert changed["notes"] == ["The new period begins with the next beat."]
    assert await recorder.sweep() == 1
    assert (await update(recorder, monitor, period_minutes=900))["state"] == "dead"
    assert await recorder.alerts(monitor) == [("dead", 1)]
    assert (await recorder.beat(monitor)).data["deadline_at"] == "2026-08-22T08:00:30Z"


async def test_a_paused_monitor_stays_paused_and_resumes_with_its_new_schedule(recorder: Recorder) -> None:
    monitor = await recorder.register()
    who = {"monitor_id": monitor["monitor_id"], "secret": monitor["secret"]}
    await recorder.call("pause_monitor", **who)
    changed = await update(recorder, monitor, period_minutes=10, grace_minutes=2)
    assert (changed["paused"], changed["deadline_at"], changed["state"]) == (True, None, "alive")
    await recorder.pass_time(days=1)
    assert await recorder.sweep() == 0
    assert (await recorder.call("resume_monitor", **who)).data["deadline_at"] == "2026-08-22T12:12:00Z"


async def test_after_an_outage_of_the_recorder_no_deadline_comes_earlier(recorder: Recorder) -> None:
    monitor = await recorder.register()
    await recorder.sweep()
    recorder.clock.move(timedelta(hours=2))
    assert await recorder.sweep() == 0
    extended = (await recorder.row(monitor)).deadline_at
    assert extended - recorder.clock() == timedelta(minutes=65)
    await update(recorder, monitor, grace_minutes=10)
    assert (await recorder.row(monitor)).deadline_at == extended, "the beat of this hour may be lost"


async def test_a_time_that_a_beat_announced_stays(recorder: Recorder) -> None:
    monitor = await recorder.register()
    await recorder.beat(monitor, next_in=600)
    changed = await update(recorder, monitor, period_minutes=10)
    assert (changed["deadline_at"], changed["notes"]) == ("2026-08-21T22:05:00Z", ["The new period begins with the next beat."])
    assert (await recorder.beat(monitor)).data["deadline_at"] == "2026-08-21T12:15:00Z"


REFUSED: Sequence[tuple[Mapping[str, Any], int, str]] = (
    ({}, 422, "invalid_request"),
    ({"alert_webhook": "", "alert_email": ""}, 422, "invalid_request"),
    ({"name": None, "period_minutes": None}, 422, "invalid_request"),
    ({"name": ""}, 422, "invalid_request"),
    ({"name": " "}, 422, "invalid_request"),
    ({"name": "a\nb"}, 422, "invalid_request"),
    ({"name": "x" * 101}, 422, "invalid_request"),
    ({"period_minutes": 0.09}, 422, "invalid_request"),
    ({"period_minutes": 525_601}, 422, "invalid_request"),
    ({"period_minutes": True}, 422, "invalid_request"),
    ({"grace_minutes": -1}, 422, "invalid_request"),
    ({"grace_minutes": 525_601}, 422, "invalid_request"),
    ({"name": "other", "status": "up"}, 422, "invalid_request"),
    ({"name": "other", "alert_email": "me@example.com"}, 422, "no_mail_here"),
    ({"name": "other", "secret": "x"}, 404, "monitor_not_found"),
    ({"name": "other", "secret": ""}, 404, "monitor_not_found"),
    ({"name": "other", "secret": None}, 404, "monitor_not_found"),
    ({"name": "other", "monitor_id": "mon_x"}, 404, "monitor_not_found"),
    ({"name": "other", "key": "recorder"}, 404, "monitor_not_found"),
    ({"name": "other", "key": "cve"}, 403, "insufficient_scope"),
    *(({"name": "other", "alert_webhook": url}, 422, "target_refused") for url in BAD),
)


async def test_a_change_that_is_refused_changes_nothing(recorder: Recorder) -> None:
    monitor = await recorder.register()
    before, targets = await recorder.row(monitor), await recorder.targets()
    for wrong, status, code in REFUSED:
        refused = await ask(recorder, monitor, **wrong)
        assert (refused.status, refused.code) == (status, code), (wrong, refused.data)
        assert (await recorder.row(monitor), await recorder.targets()) == (before, targets), wrong


async def test_without_a_change_the_refusal_lists_what_can_change(recorder: Recorder) -> None:
    detail = (await ask(recorder, await recorder.register())).data["detail"]
    for name in ("name", "period_minutes", "grace_minutes", "alert_webhook", "alert_email"):
        assert name in detail


async def test_the_secret_before_a_takeover_changes_nothing(recorder: Recorder) -> None:
    key = await recorder.campus.key("recorder")
    monitor = await recorder.register(key=key)
    await recorder.beat(monitor, status="fail")
    assert (await recorder.call("takeover", monitor_id=monitor["monitor_id"], key=key)).status == 200
    assert (await ask(recorder, monitor, name="mine")).code == "monitor_not_found"
