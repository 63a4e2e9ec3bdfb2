"""A monitor before its first beat, and one whose agent waits for its user: what is shown of both, and when an alert is sent."""

from typing import Any

import pytest
from recorder.receivers import Receiver
from recorder.recorders import Recorder
from recorder.test_hooks import post
from recorder.test_pages import page_of

pytestmark = pytest.mark.anyio
JOINED = ["family \U0001f469\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466", "\u0645\u06cc\u200c\u0631\u0648\u0645"]
HIDDEN = ["\u200d", " \u200c \u200d", *(f"a{one}b" for one in "\u200b\u200f\u202e\u2066\u00ad\ufeff\U000e0041")]


async def entry_of(recorder: Recorder, key: str) -> dict[str, Any]:
    (entry,) = (await recorder.call("fleet_status", key=key)).data["monitors"]
    found: dict[str, Any] = entry
    return found


async def badge_of(recorder: Recorder, monitor: dict[str, Any]) -> str:
    return (await recorder.campus.http.get(monitor["badge_url"])).text


async def test_nothing_is_claimed_of_a_monitor_that_never_beat_nor_of_a_target_that_was_never_sent_anything(
    recorder: Recorder, receiver: Receiver
) -> None:
    key = await recorder.campus.key("recorder")
    monitor = await recorder.register(receiver.url(), key=key, period_minutes=10, grace_minutes=2)
    at = f"/recorder/{monitor['monitor_id']}"
    pages = [(await page_of(recorder, path, key)).text for path in ("/recorder", at)]
    for page in pages:
        assert ">waiting for the first beat<" in page
        assert ">not tested yet<" in page
        for claim in (">alive<", "all well", "reach you", "is alerted", "100.00"):
            assert claim not in page
    assert "counts from the first beat" in pages[1]
    assert ">waiting<" in await badge_of(recorder, monitor)
    await recorder.beat(monitor)
    await recorder.call("send_test_alert", monitor_id=monitor["monitor_id"], key=key)
    await recorder.deliver()
    pages = [(await page_of(recorder, path, key)).text for path in ("/recorder", at)]
    assert all(">alive<" in page and "not tested yet" not in page for page in pages)
    assert ("reach you" in pages[0], "is alerted" in pages[1]) == (True, True)
    assert ">alive<" in await badge_of(recorder, monitor)


async def test_the_deadline_holds_before_the_first_beat_and_the_uptime_counts_from_it(recorder: Recorder) -> None:
    key = await recorder.campus.key("recorder")
    monitor = await recorder.register(key=key, period_minutes=10, grace_minutes=2)
    assert (monitor["state"], monitor["waiting"], monitor["fence"]) == ("alive", True, 0)
    entry = await entry_of(recorder, key)
    assert (entry["state"], entry["waiting"], entry["uptime"]) == ("alive", True, None)
    assert entry["targets"][0]["state"] == "untested"
    await recorder.pass_time(minutes=12)
    assert await recorder.sweep() == 1
    assert await recorder.alerts(monitor) == [("dead", 1)], "a job that never starts is reported"
    entry = await entry_of(recorder, key)
    assert (entry["state"], entry["waiting"], entry["uptime"]) == ("dead", True, None)
    await recorder.pass_time(minutes=60)
    await recorder.beat(monitor)
    await recorder.pass_time(minutes=5)
    entry = await entry_of(recorder, key)
    assert (entry["state"], entry["waiting"], entry["uptime"]) == ("alive", False, 1.0)
    await recorder.beat(monitor, status="fail")
    await recorder.pass_time(minutes=15)
    await recorder.beat(monitor)
    assert (await entry_of(recorder, key))["uptime"] == 0.25


async def test_an_agent_that_waits_for_its_user_has_no_deadline_until_it_works(recorder: Recorder) -> None:
    key = await recorder.campus.key("recorder")
    monitor = await recorder.register(key=key, period_minutes=10, grace_minutes=2)
    who = {"monitor_id": monitor["monitor_id"], "key": key}
    idle = (await recorder.beat(monitor, status="idle", capsule={"asked": "which file?"})).data
    assert (idle["state"], idle["deadline_at"], idle["capsule_stored"]) == ("alive", None, True)
    await recorder.pass_time(days=3)
    assert await recorder.sweep() == 0
    entry = await entry_of(recorder, key)
    assert (entry["state"], entry["idle"], entry["paused"], entry["deadline_at"], entry["uptime"]) == ("alive", True, False, None, 1.0)
    refused = await recorder.call("takeover", **who)
    assert (refused.status, "its agent waits for its user" in refused.data["detail"]) == (409, True)
    assert "resume_monitor" in (await recorder.call("fetch_capsule", **who)).data["resume"]["words"]
    await recorder.beat(monitor)
    await recorder.pass_time(minutes=12)
    assert await recorder.sweep() == 1, "work without an end is reported"
    await recorder.beat(monitor, status="idle")
    assert await recorder.alerts(monitor) == [("dead", 1), ("recovered", 1)]
    await recorder.beat(monitor, status="fail")
    for limit in ({}, {"next_in": 30}):
        assert (await recorder.beat(monitor, status="idle", **limit)).data["state"] == "dead", "waiting mends no failure"
    await recorder.beat(monitor)
    assert (await recorder.beat(monitor, status="idle", next_in=30)).data["deadline_at"] is not None
    await recorder.pass_time(minutes=31)
    assert await recorder.sweep() == 0
    await recorder.pass_time(minutes=1)
    assert await recorder.sweep() == 1, "an own limit is a deadline"
    await recorder.beat(monitor)
    await recorder.beat(monitor, status="idle")
    resumed = (await recorder.call("resume_monitor", **who)).data
    assert (resumed["idle"], resumed["deadline_at"] is not None) == (False, True), "it can be asked whether it still lives"


async def test_a_session_of_a_host_is_idle_from_the_end_of_a_turn_to_the_next_prompt(recorder: Recorder) -> None:
    key = await recorder.campus.key("recorder")
    monitor = await recorder.register(key=key, period_minutes=60, grace_minutes=5)
    at = f"/recorder/{monitor['monitor_id']}"
    for event, said in (("SessionStart", {"source": "startup"}), ("Stop", {}), ("Notification", {"notification_type": "idle_prompt"})):
        assert await post(recorder, monitor, event, **said) == "recorded"
    await recorder.pass_time(hours=14)
    assert await recorder.sweep() == 0
    assert ">idle<" in (await page_of(recorder, at, key)).text
    assert ">idle<" in await badge_of(recorder, monitor)
    for works, waits in (("UserPromptSubmit", "PermissionRequest"), ("PostToolUse", "AfterAgent")):
        await post(recorder, monitor, works)
        assert (await recorder.row(monitor)).mode == "up"
        await post(recorder, monitor, waits)
        assert (await recorder.row(monitor)).mode == "idle"
    await post(recorder, monitor, "UserPromptSubmit")
    await recorder.pass_time(minutes=65)
    assert await recorder.sweep() == 1
    await post(recorder, monitor, "Stop", "?idle=480")
    await recorder.pass_time(hours=8)
    assert await recorder.sweep() == 0
    await recorder.pass_time(minutes=5)
    assert await recorder.sweep() == 1, "the address has a limit of its own"
    for wrong in ("", "x", "-1", "0", "1e9", "9999999", "nan"):
        assert await post(recorder, monitor, "Stop", f"?idle={wrong}") == "invalid_status"


async def test_a_session_that_was_replaced_is_stopped_by_the_answer_to_its_hook(recorder: Recorder) -> None:
    key = await recorder.campus.key("recorder")
    monitor = await recorder.register(key=key, period_minutes=10, grace_minutes=2)
    await recorder.pass_time(minutes=13)
    taken = (await recorder.call("takeover", monitor_id=monitor["monitor_id"], key=key)).data
    answer = await recorder.campus.http.post(monitor["hook_url"], json={"hook_event_name": "PostToolUse"})
    assert (answer.status_code, answer.headers["x-beat"]) == (200, "taken_over")
    assert (answer.json()["continue"], "taken over" in answer.json()["stopReason"]) == (False, True)
    assert taken["secret"] not in answer.text


async def test_the_fence_comes_with_the_registration_and_each_beat(recorder: Recorder) -> None:
    key = await recorder.campus.key("recorder")
    monitor = await recorder.register(key=key, period_minutes=10, grace_minutes=2)
    assert monitor["fence"] == 0
    for status in ("start", "ok", "ok", "fail"):  # recorded one by one, and by the statement for plain beats
        assert (await recorder.beat(monitor, status=status)).data["fence"] == 0
    taken = (await recorder.call("takeover", monitor_id=monitor["monitor_id"], key=key)).data
    assert taken["fence"] == 1
    for capsule in ({}, {"capsule": {"step": 1}}):
        assert (await recorder.beat(taken, **capsule)).data["fence"] == 1
    too_large = await recorder.beat(taken, capsule="x" * 40_000)
    assert (too_large.status, too_large.data["fence"]) == (413, 1)


async def test_a_name_may_have_the_joiners_that_its_writing_needs(recorder: Recorder) -> None:
    for name in JOINED:
        key = await recorder.campus.key("recorder")
        monitor = await recorder.register(key=key, name=name)
        assert (await entry_of(recorder, key))["name"] == name
        assert name in await badge_of(recorder, monitor)


async def test_a_name_that_hides_or_reorders_characters_is_refused(recorder: Recorder) -> None:
    for name in HIDDEN:
        refused = await recorder.call("register_monitor", name=name, alert_webhook="https://localhost/hook")
        assert (refused.status, refused.data["code"]) == (422, "invalid_request"), ascii(name)
