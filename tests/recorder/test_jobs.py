"""What ends with a key and what continues for a week; the daily tidy job; the checks."""

from datetime import timedelta

import anyio
import pytest
from patience import patience
from recorder.receivers import Mailbox, Receiver
from recorder.recorders import Recorder

from buildings.recorder.demo import demo_card
from buildings.recorder.jobs import follow_keys
from buildings.recorder.pages import monitor_facts
from buildings.recorder.runtime import monitors_have_targets, watches
from buildings.recorder.tables import DEMO, OUTBOX
from campus import Request

pytestmark = pytest.mark.anyio


async def test_when_a_key_ends_capsules_and_mail_stop_and_its_monitors_run_for_a_week(
    recorder: Recorder, mailbox: Mailbox, receiver: Receiver
) -> None:
    keys = recorder.campus.service.keys
    key, token = await keys.issue("recorder")
    monitor = await recorder.register(receiver.url(), alert_email="me@example.com", key=token, period_minutes=1440)
    await recorder.deliver()
    await recorder.campus.http.post(mailbox.link("confirm"))
    await recorder.beat(monitor, capsule=1)
    for _ in range(30):
        await recorder.pass_time(days=1)
        await recorder.beat(monitor)
    await recorder.campus.run("follow_keys")
    refused = await recorder.call("fleet_status", key=token)
    assert (refused.status, refused.code) == (402, "key_expired")
    beaten = await recorder.beat(monitor, capsule=2)
    assert beaten.data["capsule_stored"] is False
    assert "expired" in beaten.data["note"]
    await recorder.beat(monitor, status="fail")
    await recorder.deliver()
    assert "until 2026-09-27" in receiver.requests[-1].json["notice"]
    assert len(mailbox.messages) == 1, "the question alone"
    kinds = {target.id: target.kind for target in await recorder.targets()}
    assert {kinds[one.target_id] for one in await recorder.deliveries()} == {"webhook"}, "an e-mail that is withheld was not delivered"
    for _ in range(7):
        await recorder.pass_time(days=1)
        await recorder.beat(monitor)
    await recorder.deliver()
    await recorder.campus.run("follow_keys")
    assert (await recorder.row(monitor)).mode == "asleep"
    asleep = await recorder.beat(monitor, status="fail")
    assert (asleep.status, asleep.data["state"]) == (200, "alive")
    assert "renewed" in asleep.data["note"]
    await recorder.pass_time(days=9)
    assert await recorder.sweep() == 0
    await keys.renew(key.id)
    await recorder.campus.run("follow_keys")
    row = await recorder.row(monitor)
    assert (row.mode, row.deadline_at - recorder.clock()) == ("up", timedelta(days=1, minutes=5))
    assert (await recorder.beat(monitor, capsule=3)).data["capsule_stored"] is True


async def test_the_start_page_shows_a_monitor_that_the_recorder_beats_itself_which_is_nobodys_and_alerts_nobody(
    recorder: Recorder, receiver: Receiver
) -> None:
    site, request = recorder.campus.site, Request({"type": "http"})
    assert "The last 0 of its beats" in await demo_card(request, site)
    _, key = await recorder.campus.service.keys.issue("recorder")
    mine = await recorder.register(receiver.url(), key=key)
    for _ in range(2):
        await recorder.campus.run("beat_demo")
        await recorder.pass_time(minutes=1)
    assert "The last 2 of its beats" in await demo_card(request, site)
    assert (await monitor_facts(site))["monitors"].startswith("1, ")
    assert [one["monitor_id"] for one in (await recorder.call("fleet_status", key=key)).data["monitors"]] == [mine["monitor_id"]]
    assert await monitors_have_targets(site) == []
    for secret in ("", "x" * 43):
        refused = await recorder.call("heartbeat", monitor_id=DEMO, secret=secret, status="fail")
        assert refused.status in (401, 403, 404, 422)
    await recorder.pass_time(minutes=10)
    await recorder.sweep()
    assert "dead" in await demo_card(request, site)
    assert await recorder.deliver() == 0
    await recorder.campus.run("beat_demo")
    assert "alive" in await demo_card(request, site)
    assert await recorder.deliver() == 0


async def test_keys_that_ended_long_ago_cost_no_writes(recorder: Recorder) -> None:
    await recorder.register(key="recorder")
    await recorder.pass_time(days=38)
    await recorder.campus.run("follow_keys")
    async with recorder.campus.site.storage.write():
        with anyio.fail_after(patience(5)):
            assert await follow_keys(recorder.campus.site) is False


async def test_registering_with_a_renewed_key_wakes_its_monitors(recorder: Recorder) -> None:
    keys = recorder.campus.service.keys
    key, token = await keys.issue("recorder")
    monitor = await recorder.register(key=token)
    await recorder.pass_time(days=38)
    await recorder.campus.run("follow_keys")
    assert (await recorder.row(monitor)).mode == "asleep"
    await keys.renew(key.id)
    await recorder.register("https://localhost/another", key=token)
    assert (await recorder.row(monitor)).mode == "up"


async def test_a_revoked_key_ends_at_once(recorder: Recorder) -> None:
    keys = recorder.campus.service.keys
    key, token = await keys.issue("recorder")
    monitor = await recorder.register(key=token)
    await keys.revoke(key.id)
    await recorder.campus.run("follow_keys")
    assert (await recorder.beat(monitor, capsule=1)).data["capsule_stored"] is False
    await recorder.pass_time(days=7)
    await recorder.campus.run("follow_keys")
    assert (await recorder.row(monitor)).mode == "asleep"


async def test_the_tidy_job_deletes_inactive_monitors_without_a_key_and_no_others(recorder: Recorder, receiver: Receiver) -> None:
    silent, living = await recorder.register(receiver.url("/1"), name="quiet"), await recorder.register(receiver.url("/2"))
    keyed = await recorder.register(receiver.url("/3"), key="recorder")
    await recorder.pass_time(days=30)
    await recorder.beat(living)
    await recorder.sweep()
    await recorder.deliver()
    await recorder.campus.run("tidy")
    assert await recorder.deliver() == 0, "a month from its deadline, and not from its last sign of life"
    await recorder.pass_time(minutes=66)
    for _ in range(2):
        await recorder.campus.run("tidy")
        assert await recorder.row(silent) is not None
    receiver.requests.clear()
    assert await recorder.deliver() == 1
    (received,) = receiver.requests
    assert (received.path, received.json["type"], received.json["monitor"]["name"], received.json["reason"]) == (
        "/1",
        "monitor.expiring",
        "quiet",
        "silent",
    )
    assert (received.json["state"], received.json["since"]) == (None, "2026-08-21T13:05:00Z")
    assert "deleted tomorrow" in received.json["notice"]
    await recorder.campus.run("tidy")
    assert await recorder.row(silent) is not None, "the notice was sent today, it is deleted tomorrow"
    await recorder.pass_time(days=1)
    await recorder.campus.run("tidy")
    assert await recorder.row(silent) is None
    assert await recorder.row(living) is not None
    assert await recorder.row(keyed) is not None
    assert len(await recorder.targets()) == 2


async def test_a_monitor_with_a_long_period_outlives_its_first_deadline(recorder: Recorder, receiver: Receiver) -> None:
    yearly = await recorder.register(receiver.url(), period_minutes=525_600, grace_minutes=60)
    for _ in range(12):
        await recorder.pass_time(days=30)
        await recorder.campus.run("tidy")
        assert await recorder.row(yearly) is not None
        assert await recorder.deliver() == 0
    await recorder.pass_time(days=6)
    await recorder.sweep()
    await recorder.deliver()
    assert receiver.types == ["monitor.dead"]


async def test_no_monitor_is_deleted_before_its_target_was_notified(recorder: Recorder, receiver: Receiver) -> None:
    silent, beaten = await recorder.register(receiver.url("/1")), await recorder.register(receiver.url("/2"))
    await recorder.sweep()
    await recorder.pass_time(days=31)
    await recorder.campus.run("tidy")
    receiver.answer(500)
    for _ in range(3):
        await recorder.deliver()
        await recorder.pass_time(days=1)
        await recorder.campus.run("tidy")
    assert await recorder.row(silent) is not None
    receiver.answer(200)
    await recorder.beat(beaten)
    await recorder.deliver()
    assert receiver.types.count("monitor.expiring") >= 2
    await recorder.campus.run("tidy")
    assert await recorder.row(silent) is None
    assert await recorder.row(beaten) is not None


async def test_a_disabled_target_does_not_keep_an_inactive_monitor(recorder: Recorder, receiver: Receiver) -> None:
    silent = await recorder.register(receiver.url())
    await recorder.pass_time(days=31)
    await recorder.campus.run("tidy")
    receiver.answer(410)
    await recorder.deliver()
    await recorder.pass_time(days=1)
    await recorder.campus.run("tidy")
    assert await recorder.row(silent) is None


async def test_each_check_reports_what_is_wrong(recorder: Recorder, receiver: Receiver) -> None:
    site = recorder.campus.site
    assert "never been checked" in (await watches(site))[0]
    await recorder.sweep()
    assert await watches(site) == []
    recorder.clock.move(timedelta(minutes=1))
    assert "monitors were last checked at 2026" in (await watches(site))[0]
    monitor = await recorder.register(receiver.url())
    receiver.answer(500)
    await recorder.beat(monitor, status="fail")
    await recorder.deliver()
    assert "to 1 target" in (await OUTBOX.targets_are_reached(site))[0]
    assert await OUTBOX.outbox_adds_up(site) == await monitors_have_targets(site) == []
