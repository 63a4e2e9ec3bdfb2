"""Alerts by webhook: signed, in order, at least once under one id, at the pace that the target asks for."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import get_args

import pytest
from recorder.receivers import Received, Receiver
from recorder.recorders import OpenRecorder, Recorder
from standardwebhooks import Webhook, WebhookVerificationError

from buildings.recorder.alerts.texts import Event, EventType
from buildings.recorder.beats.rules import past_beats
from buildings.recorder.tables import MONITOR_TARGETS
from campus.features.alerts.retries import WAITS
from campus.storage import in_transaction
from campus.testing import Clock

pytestmark = pytest.mark.anyio


def verify(received: Received, secret: str) -> None:
    headers, body = received.headers, received.body.decode()
    expected = Webhook(secret).sign(headers["webhook-id"], datetime.fromtimestamp(int(headers["webhook-timestamp"]), UTC), body)
    assert expected in headers["webhook-signature"].split(" ")


async def test_an_alert_verifies_with_the_secret_of_its_registration_and_with_no_other(
    open_recorder: OpenRecorder, receiver: Receiver
) -> None:
    async with open_recorder(clock=Clock(datetime.now(UTC))) as recorder:
        monitor, another = await recorder.register(receiver.url("/1")), await recorder.register(receiver.url("/2"))
        await recorder.beat(monitor, status="fail")
        await recorder.deliver()
    (alert,) = receiver.requests
    assert Webhook(monitor["webhook_secret"]).verify(alert.body, dict(alert.headers))["type"] == "monitor.failed"
    with pytest.raises(WebhookVerificationError):
        Webhook(another["webhook_secret"]).verify(alert.body, dict(alert.headers))
    with pytest.raises(WebhookVerificationError):
        Webhook(monitor["webhook_secret"]).verify(alert.body.replace(b"failed", b"passed"), dict(alert.headers))


async def test_the_alerts_of_a_death_and_a_recovery_arrive_signed_and_in_order(recorder: Recorder, receiver: Receiver) -> None:
    monitor = await recorder.register(receiver.url(), period_minutes=10, grace_minutes=2)
    await recorder.pass_time(minutes=13)
    assert await recorder.sweep() == 1
    await recorder.pass_time(minutes=5)
    await recorder.beat(monitor)
    assert await recorder.deliver() == 2
    dead, recovered = receiver.requests
    for one in (dead, recovered):
        verify(one, monitor["webhook_secret"])
    acknowledge_url = dead.json["acknowledge_url"]
    assert f"/acknowledge/{monitor['monitor_id']}/1/" in acknowledge_url
    assert dead.json == {
        "type": "monitor.dead",
        "timestamp": "2026-08-21T12:13:00Z",
        "monitor": {"id": monitor["monitor_id"], "name": "worker", "description": None},
        "state": "dead",
        "reason": "timeout",
        "since": "2026-08-21T12:12:00Z",
        "until": None,
        "downtime_seconds": None,
        "last_heartbeat_at": None,
        "capsule": None,
        "run": None,
        "monitor_url": None,
        "resume_url": None,
        "acknowledge_url": acknowledge_url,
        "notice": None,
        "omitted": None,
        "text": f"worker is dead: no beat by 2026-08-21 12:12:00 UTC\nMonitor: {monitor['monitor_id']}\nLast beat: none yet\n"
        f"To say that you act on it, and end reminders: {acknowledge_url}",
    }
    assert (recovered.json["type"], recovered.json["downtime_seconds"], recovered.json["reason"]) == ("monitor.recovered", 360, "beat")
    assert recovered.json["last_heartbeat_at"] == recovered.json["until"] == "2026-08-21T12:18:00Z", "the beat that ended the downtime"
    assert dead.headers["webhook-id"] != recovered.headers["webhook-id"]
    assert (await recorder.deliver(), await recorder.alerts(monitor)) == (0, [])


def test_the_guide_names_every_event_and_what_is_in_one() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "beats.md").read_text()
    assert [name for name in (*get_args(EventType), "watch.news", "watch.paused", "watch.digest") if f"`{name}`" not in guide] == []
    assert [name for name in Event.model_fields if f'"{name}": ' not in guide] == []


async def test_the_text_for_chat_services_mentions_nobody(recorder: Recorder, receiver: Receiver) -> None:
    monitor = await recorder.register(receiver.url(), key="recorder", name="@here <!channel> a < b")
    await recorder.beat(monitor, status="fail", capsule="<https://evil.example|campus>" + "x" * 30_000)
    await recorder.deliver()
    text = receiver.requests[-1].json["text"]
    assert text.startswith("@\u200bhere <\u200b!channel> a < b failed")
    assert "<https" not in text
    assert "<\u200bhttps://evil" in text
    assert len(text) <= 4_000


async def test_no_downtime_and_no_run_is_negative(recorder: Recorder, receiver: Receiver) -> None:
    monitor = await recorder.register(receiver.url(), period_minutes=1, grace_minutes=0)
    await recorder.beat(monitor, status="start")
    await recorder.pass_time(seconds=61)
    assert await recorder.sweep() == 1
    await recorder.deliver()
    recorder.clock.time -= timedelta(seconds=3)
    await recorder.beat(monitor, status="start")
    recorder.clock.time -= timedelta(seconds=1)
    await recorder.beat(monitor)
    await recorder.deliver()
    recovered = receiver.requests[-1].json
    assert (recovered["type"], recovered["downtime_seconds"]) == ("monitor.recovered", 0.0)
    (last, *_) = past_beats((await recorder.row(monitor)).history)
    assert last.run == timedelta(0)


async def test_a_message_that_is_not_taken_is_sent_again_under_its_id_by_the_retry_policy(recorder: Recorder, receiver: Receiver) -> None:
    monitor = await recorder.register(receiver.url())
    receiver.answer(500, 302, 404, 200)
    await recorder.beat(monitor, status="fail")
    for wait in (0, *(one.total_seconds() * 1.2 for one in WAITS[:3])):
        await recorder.pass_time(seconds=wait)
        assert await recorder.deliver() == 1
        assert await recorder.deliver() == 0
    assert len({one.headers["webhook-id"] for one in receiver.requests}) == 1
    assert len({one.body for one in receiver.requests}) == 1
    assert len({one.headers["webhook-timestamp"] for one in receiver.requests}) == 4
    for one in receiver.requests:
        verify(one, monitor["webhook_secret"])
    assert await recorder.alerts(monitor) == []


async def test_a_new_alert_waits_for_earlier_ones_but_not_for_the_retry_policy(recorder: Recorder, receiver: Receiver) -> None:
    monitor = await recorder.register(receiver.url())
    receiver.answer(200, 500, 500, 500, 500, 200)
    await recorder.beat(monitor, status=1)
    await recorder.beat(monitor)
    for wait in (0, 6, 36, 144):
        await recorder.pass_time(seconds=wait)
        await recorder.deliver()
    (target,) = await recorder.targets()
    assert target.next_try_at - recorder.clock() > timedelta(minutes=7)
    await recorder.beat(monitor, status="fail")
    await recorder.pass_time(seconds=30)
    assert await recorder.deliver() == 2
    assert receiver.types[-2:] == ["monitor.recovered", "monitor.failed"]


async def test_a_new_alert_brings_no_try_forward_at_a_target_that_never_took_anything(recorder: Recorder, receiver: Receiver) -> None:
    monitor = await recorder.register(receiver.url())
    receiver.answer(500)
    tries = 0
    for _ in range(24):
        await recorder.beat(monitor, status="fail")
        await recorder.beat(monitor)
        tries += await recorder.deliver()
        recorder.clock.move(timedelta(hours=1))
    assert 5 <= tries <= 10
    assert len({one.headers["webhook-id"] for one in receiver.requests}) == 1
    assert {one.json["type"] for one in receiver.requests} == {"monitor.failed"}


async def test_a_target_is_left_alone_for_as_long_as_it_asks(recorder: Recorder, receiver: Receiver) -> None:
    monitor = await recorder.register(receiver.url())
    receiver.answer(503, headers={"Retry-After": "600"})
    await recorder.beat(monitor, status="fail")
    await recorder.deliver()
    receiver.answer(200)
    await recorder.beat(monitor)
    await recorder.pass_time(seconds=599)
    assert await recorder.deliver() == 0
    await recorder.pass_time(seconds=1)
    assert await recorder.deliver() == 2


async def test_no_retry_after_brings_a_try_forward(recorder: Recorder, receiver: Receiver) -> None:
    for asked in ("0", "1", "Fri, 21 Aug 2026 11:00:00 GMT", "0.001", "-1", "nan"):
        monitor = await recorder.register(receiver.url(), key="recorder")
        receiver.answer(503, headers={"Retry-After": asked})
        await recorder.beat(monitor, status="fail")
        assert await recorder.deliver() == 1
        for wait in WAITS[:3]:
            await recorder.pass_time(seconds=wait.total_seconds() * 0.7)  # the wait is 0.8 to 1.2 of it
            assert await recorder.deliver() == 0, asked
            await recorder.pass_time(seconds=wait.total_seconds() * 0.6)
            assert await recorder.deliver() == 1, asked
        await recorder.call("delete_monitor", monitor_id=monitor["monitor_id"], secret=monitor["secret"])


async def test_the_alert_has_the_capsule_that_was_the_last_when_it_was_raised(recorder: Recorder, receiver: Receiver) -> None:
    monitor = await recorder.register(receiver.url(), key="recorder")
    receiver.answer(500, 200)
    await recorder.beat(monitor, status="fail", capsule={"step": 1})
    await recorder.deliver()
    await recorder.pass_time(seconds=6)
    await recorder.beat(monitor, status="fail", capsule={"step": 2})
    assert await recorder.deliver() == 1
    first, second = receiver.requests
    assert (second.json["capsule"]["preview"], second.json["resume_url"]) == ('{"step":1}', monitor["resume_url"])
    assert monitor["secret"].encode() not in second.body
    assert (first.body, first.headers["webhook-id"]) == (second.body, second.headers["webhook-id"])


async def test_five_that_wait_go_out_one_by_one_and_six_as_a_digest(recorder: Recorder, receiver: Receiver) -> None:
    for waiting in (5, 6):
        key = await recorder.campus.key("recorder")
        for _ in range(waiting):
            await recorder.beat(await recorder.register(receiver.url(f"/{waiting}"), key=key), status="fail")
        await recorder.deliver()
    assert receiver.types == ["monitor.failed"] * 5 + ["monitor.digest"]


async def test_more_than_five_that_wait_become_one_digest(recorder: Recorder, receiver: Receiver) -> None:
    key = await recorder.campus.key("recorder")
    monitors = [await recorder.register(receiver.url(), key=key, name=f"m{number}") for number in range(7)]
    assert len({one["webhook_secret"] for one in monitors}) == 1
    await recorder.pass_time(hours=2)
    assert await recorder.sweep() == 7
    receiver.answer(500, 200)
    await recorder.deliver()
    await recorder.pass_time(seconds=6)
    await recorder.deliver()
    first, second = receiver.requests
    verify(second, monitors[0]["webhook_secret"])
    assert (first.body, first.headers["webhook-id"]) == (second.body, second.headers["webhook-id"])
    assert (second.json["type"], second.json["count"]) == ("monitor.digest", 7)
    assert {one["monitor"]["name"] for one in second.json["events"]} == {f"m{number}" for number in range(7)}
    assert [line.partition(" ")[0] for line in second.json["text"].split("\n")] == [one["monitor"]["name"] for one in second.json["events"]]
    assert await recorder.deliver() == 0


async def test_the_alerts_of_a_flapping_monitor_that_wait_are_few_and_the_oldest_says_how_many_failures_it_replaces(
    recorder: Recorder, receiver: Receiver
) -> None:
    key = await recorder.campus.key("recorder")
    flapping, steady = [await recorder.register(receiver.url(), key=key, name=name) for name in ("flapping", "steady")]
    receiver.answer(500, 200)
    await recorder.beat(flapping, status="fail")
    assert await recorder.deliver() == 1
    for number in range(25):
        await recorder.beat(flapping)
        if number == 10:
            await recorder.beat(steady, status="fail")
        await recorder.beat(flapping, status="fail")
    entries = {one["name"]: one["undelivered"] for one in (await recorder.call("fleet_status", key=key)).data["monitors"]}
    assert entries == {"flapping": 10, "steady": 1}, "also with the one that is being sent"
    await recorder.pass_time(minutes=10)
    assert await recorder.deliver() == 2
    first, again, digest = receiver.requests
    assert (first.body, first.headers["webhook-id"]) == (again.body, again.headers["webhook-id"])
    events = [again.json, *digest.json["events"]]
    failures = [event for event in events if event["type"] == "monitor.failed" and event["monitor"]["name"] == "flapping"]
    (left_out,) = [event["omitted"] for event in events if event["omitted"]]
    assert len(failures) + left_out["count"] == 26
    assert left_out["since"] == again.json["timestamp"], "the clock stood still"
    assert f"(not listed: {left_out['count']} earlier failures since 2026-08-21 12:00:00 UTC)" in digest.json["text"]
    assert [event["type"] for event in events if event["monitor"]["name"] == "steady"] == ["monitor.failed"]
    assert events[-1]["state"] == "dead", "the last state is told"


@pytest.mark.both_databases
async def test_at_most_ten_alerts_of_one_monitor_wait_whatever_is_being_sent(recorder: Recorder, receiver: Receiver) -> None:
    """Also while a digest of all that wait is tried again, and when the monitor dies then."""
    receiver.answer(500)
    for sends_each in (1, 7, 30):
        monitor = await recorder.register(receiver.url(f"/{sends_each}"), key="recorder", name="flapping")
        for number in range(30):
            await recorder.beat(monitor, status="ok" if number % 2 else "fail")
            if number % sends_each == sends_each - 1:
                await recorder.pass_time(minutes=1)
                await recorder.deliver()
            assert len(await recorder.alerts(monitor)) <= 10, (sends_each, number)
        await recorder.beat(monitor)
        await recorder.pass_time(hours=2)
        assert await recorder.sweep() == 1
        waiting = await recorder.alerts(monitor)
        assert (len(waiting) <= 10, waiting[-1][0]) == (True, "dead")
        await recorder.beat(monitor, status="idle")


async def test_a_target_that_says_it_is_gone_is_disabled_and_the_fleet_says_so(recorder: Recorder, receiver: Receiver) -> None:
    key = await recorder.campus.key("recorder")
    monitor = await recorder.register(receiver.url(), key=key)
    receiver.answer(410)
    await recorder.beat(monitor, status="fail")
    await recorder.deliver()
    await recorder.beat(monitor)
    await recorder.pass_time(days=1)
    assert await recorder.deliver() == 0
    (entry,) = (await recorder.call("fleet_status", key=key)).data["monitors"]
    (target,) = entry["targets"]
    assert (target["state"], target["undelivered"], entry["undelivered"]) == ("disabled", 2, 2)
    assert "410" in target["reason"]
    receiver.answer(200)
    await recorder.register(receiver.url(), key=key)
    assert await recorder.deliver() == 2


async def test_a_target_that_fails_for_five_days_is_disabled(recorder: Recorder, receiver: Receiver) -> None:
    monitor = await recorder.register(receiver.url())
    receiver.answer(500)
    await recorder.beat(monitor, status="fail")
    tries = 0
    for _ in range(4 * 7):
        tries += await recorder.deliver()
        await recorder.pass_time(hours=6)
    (target,) = await recorder.targets()
    assert target.disabled_because == "it failed for 5 days: it answered 5xx"
    assert 8 <= tries <= 15


async def test_a_lease_that_lapsed_is_taken_over_and_a_live_one_is_not(recorder: Recorder, receiver: Receiver) -> None:
    monitor = await recorder.register(receiver.url())
    await recorder.beat(monitor, status="fail")
    dispatcher = recorder.campus.site.state.dispatcher
    (message,) = await dispatcher.claim()
    assert await dispatcher.claim() == []
    await recorder.pass_time(seconds=46)
    (again,) = await dispatcher.claim()
    assert again.id == message.id


async def test_a_monitor_may_have_several_targets_and_each_gets_every_alert(recorder: Recorder, receiver: Receiver) -> None:
    key = await recorder.campus.key("recorder")
    monitor, other = [await recorder.register(receiver.url(f"/{name}"), key=key) for name in ("one", "two")]
    (_, second) = sorted(await recorder.targets(), key=lambda target: target.address)
    link = {"monitor_id": monitor["monitor_id"], "target_id": second.id, "place": 1}
    await in_transaction(recorder.campus.site.storage, lambda connection: connection.execute(MONITOR_TARGETS.insert(), [link]) and None)
    await recorder.beat(monitor, status="fail")
    assert await recorder.deliver() == 2
    await recorder.pass_time(hours=2)
    assert await recorder.sweep() == 1, "the other monitor; the one that failed is dead already"
    assert await recorder.deliver() == 1
    assert sorted(one.path for one in receiver.requests) == ["/one", "/two", "/two"]
    entries = {one["monitor_id"]: one for one in (await recorder.call("fleet_status", key=key)).data["monitors"]}
    assert len(entries[monitor["monitor_id"]]["targets"]) == 2
    await recorder.call("delete_monitor", monitor_id=other["monitor_id"], key=key)
    assert len(await recorder.targets()) == 2, "the other monitor still uses it"
    await recorder.call("delete_monitor", monitor_id=monitor["monitor_id"], key=key)
    assert await recorder.targets() == []


async def test_messages_to_one_host_go_over_one_connection_while_it_keeps_it(recorder: Recorder, receiver: Receiver) -> None:
    monitor = await recorder.register(receiver.url())
    for keeps, connections in ((True, 1), (False, 4)):
        receiver.keeps_connections, receiver.connections = keeps, 0
        for number in range(4):
            await recorder.beat(monitor, status="ok" if number % 2 else "fail")
        assert await recorder.deliver() == 4
        assert receiver.connections == connections
        await recorder.pass_time(minutes=2)  # a target is sent six a minute
    assert receiver.types == ["monitor.failed", "monitor.recovered"] * 4
    receiver.keeps_connections = True
    receiver.answer(200, body=b"x" * 10_000)  # more than is read
    for number in range(2):
        await recorder.beat(monitor, status="ok" if number % 2 else "fail")
    assert (await recorder.deliver(), receiver.connections) == (2, 6), "a connection whose answer was not read whole is not used again"


async def test_what_a_target_answers_reaches_nobody(recorder: Recorder, receiver: Receiver) -> None:
    key = await recorder.campus.key("recorder")
    monitor = await recorder.register(receiver.url("/hook?token=hush"), key=key)
    receiver.answer(500, body=b"internal detail")
    await recorder.beat(monitor, status="fail")
    await recorder.deliver()
    fleet = str((await recorder.call("fleet_status", key=key)).data)
    assert "internal detail" not in fleet
    assert "hush" not in fleet
    assert "it answered 5xx" in fleet
