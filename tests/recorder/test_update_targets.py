"""Changes of a monitor's targets: the alerts that wait for the former one go to the new one, and the limits of registrations hold."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from recorder.changes import ask, update
from recorder.receivers import Mailbox, Receiver
from recorder.recorders import OpenRecorder, Recorder
from recorder.test_delivery import verify
from recorder.test_strangers import delivering, until

from buildings.recorder.tables import ALERTS, MONITOR_TARGETS
from campus.storage import in_snapshot, in_transaction

pytestmark = pytest.mark.anyio
ME, OTHER = "me@example.com", "other@example.com"


async def addresses(recorder: Recorder) -> list[str]:
    return sorted(one.address for one in await recorder.targets())


async def test_alerts_that_wait_for_the_former_webhook_go_to_the_new_one_in_their_order(recorder: Recorder, receiver: Receiver) -> None:
    for owner in ({}, {"key": await recorder.campus.key("recorder")}):
        receiver.requests.clear()
        monitor = await recorder.register(receiver.url("/broken"), **owner)
        receiver.answer(500)
        await recorder.beat(monitor, status="fail")
        await recorder.deliver()
        await recorder.beat(monitor)
        receiver.answer(200)
        changed = await update(recorder, monitor, alert_webhook=receiver.url("/new"), **owner)
        assert changed["notes"] == ["Undelivered alerts that go to the new target: 2."]
        assert changed["webhook_secret"] != monitor["webhook_secret"]
        assert await addresses(recorder) == [receiver.url("/new")], "no monitor uses the former one"
        assert await recorder.deliver() == 2
        assert [(one.path, one.json["type"]) for one in receiver.requests] == [
            ("/broken", "monitor.failed"),
            ("/new", "monitor.failed"),
            ("/new", "monitor.recovered"),
        ]
        broken, failed, recovered = receiver.requests
        assert broken.headers["webhook-id"] != failed.headers["webhook-id"], "a message of its own"
        for one in (failed, recovered):
            verify(one, changed["webhook_secret"])
        assert await recorder.alerts(monitor) == []
        await recorder.call("delete_monitor", monitor_id=monitor["monitor_id"], secret=monitor["secret"])
        assert await recorder.targets() == []


@pytest.mark.parametrize(
    ("status", "new", "owned"),
    [(200, "/new", False), (200, "/held?other", True), (500, "/new", True), (500, "/held?other", False), (410, "/new", True)],
)
async def test_an_alert_that_is_being_sent_to_the_former_webhook_reaches_the_new_one_however_that_ends(
    recorder: Recorder, receiver: Receiver, status: int, new: str, owned: bool
) -> None:
    owner = {"key": await recorder.campus.key("recorder")} if owned else {}
    monitor = await recorder.register(receiver.url("/held"), **owner)
    receiver.late = status
    await recorder.beat(monitor, status="fail")
    async with delivering(recorder):
        await until(lambda: receiver.held)
        await update(recorder, monitor, alert_webhook=receiver.url(new), **owner)
        await until(lambda: receiver.requests)
        receiver.released.set()
        await until(lambda: len(receiver.requests) == 2)
        await recorder.beat(monitor)
        await until(lambda: len(receiver.requests) == 3)
        await until(lambda: recorder.campus.site.state.dispatcher.turns.under_way.by_health.total == 0)
    assert [(one.path, one.json["type"]) for one in sorted(receiver.requests, key=lambda one: one.path == new)] == [
        ("/held", "monitor.failed"),
        (new, "monitor.failed"),
        (new, "monitor.recovered"),
    ]
    (target,) = await recorder.targets()
    assert (target.address, target.disabled_at, target.failing_since) == (receiver.url(new), None, None)
    assert await recorder.alerts(monitor) == []


async def test_alerts_of_other_monitors_stay_with_the_webhook_that_they_share(recorder: Recorder, receiver: Receiver) -> None:
    key = await recorder.campus.key("recorder")
    monitors = [await recorder.register(receiver.url("/shared"), name=f"m{number}", key=key) for number in range(7)]
    receiver.answer(500)
    for one in monitors:
        await recorder.beat(one, status="fail")
    await recorder.deliver()
    receiver.answer(200)
    receiver.requests.clear()
    changed = await update(recorder, monitors[0], alert_webhook=receiver.url("/own"), key=key)
    assert changed["notes"] == ["Undelivered alerts that go to the new target: 1."]
    assert await addresses(recorder) == [receiver.url("/own"), receiver.url("/shared")]
    assert await recorder.deliver() == 1
    await recorder.pass_time(seconds=10)
    assert await recorder.deliver() == 1
    own, shared = receiver.requests
    assert (own.path, own.json["monitor"]["name"]) == ("/own", "m0")
    assert (shared.path, [one["monitor"]["name"] for one in shared.json["events"]]) == ("/shared", [f"m{n}" for n in range(1, 7)])
    back = await update(recorder, monitors[0], alert_webhook=receiver.url("/shared"), key=key)
    assert back["webhook_secret"] == monitors[0]["webhook_secret"], "that of the key's target"
    assert await addresses(recorder) == [receiver.url("/shared")]


async def test_an_outage_that_waits_for_the_former_webhook_is_told_at_the_new_one_unless_another_monitor_has_the_former(
    recorder: Recorder, receiver: Receiver
) -> None:
    key = await recorder.campus.key("recorder")
    monitor, shared, _ = [await recorder.register(receiver.url(path), key=key) for path in ("/former", "/shared", "/shared")]
    await recorder.sweep()
    recorder.clock.move(timedelta(hours=2))
    await recorder.sweep()
    for changed, path in ((monitor, "/new"), (shared, "/other")):
        await update(recorder, changed, alert_webhook=receiver.url(path), key=key)
    await recorder.deliver()
    assert {(one.path, one.json["type"]) for one in receiver.requests} == {("/new", "recorder.blind"), ("/shared", "recorder.blind")}


async def test_a_monitor_with_two_webhooks_has_one_after_the_change_and_each_alert_once(recorder: Recorder, receiver: Receiver) -> None:
    key = await recorder.campus.key("recorder")
    monitor, other = [await recorder.register(receiver.url(f"/{name}"), key=key) for name in ("one", "two")]
    await recorder.register(receiver.url("/one"), key=key)
    (_, second) = sorted(await recorder.targets(), key=lambda target: target.address)
    link = {"monitor_id": monitor["monitor_id"], "target_id": second.id, "place": 1}
    await in_transaction(recorder.campus.site.storage, lambda connection: connection.execute(MONITOR_TARGETS.insert(), [link]) and None)
    await recorder.beat(monitor, status="fail")
    await update(recorder, monitor, alert_webhook=receiver.url("/two"), key=key)
    await update(recorder, monitor, alert_webhook=receiver.url("/three"), key=key)
    assert await recorder.deliver() == 1
    assert [one.path for one in receiver.requests] == ["/three"]
    await recorder.beat(other, status="fail")
    await recorder.deliver()
    assert [one.path for one in receiver.requests] == ["/three", "/two"]


async def test_no_more_alerts_wait_however_often_the_webhook_is_replaced(recorder: Recorder, receiver: Receiver) -> None:
    key = await recorder.campus.key("recorder")
    monitor = await recorder.register(receiver.url("/0"), key=key)
    receiver.answer(*[500] * 3, 200)
    failures = 0
    for number in range(1, 4):
        for status in ("fail", "ok") * 10:
            await recorder.beat(monitor, status=status)
            failures += status == "fail"
        await recorder.deliver()  # all that wait become one message, which fails
        await update(recorder, monitor, alert_webhook=receiver.url(f"/{number}"), key=key)
        assert len(await recorder.alerts(monitor)) == 9, "there is a place for the next"
        await recorder.pass_time(minutes=1)
    await recorder.deliver()
    events = receiver.requests[-1].json["events"]
    assert sum(event["type"] == "monitor.failed" for event in events) + sum(event["omitted"]["count"] for event in events[:1]) == failures


async def test_without_a_key_a_webhook_still_has_one_monitor_and_its_own_former_one_is_not_in_the_way(
    open_recorder: OpenRecorder, receiver: Receiver
) -> None:
    async with open_recorder(settings={"monitors_per_host": 2}) as recorder:
        monitor, _ = [await recorder.register(receiver.url(path)) for path in ("/a", "/b")]
        taken = await ask(recorder, monitor, alert_webhook=receiver.url("/b?c"))
        assert (taken.status, taken.code) == (409, "target_in_use")
        assert await addresses(recorder) == [receiver.url("/a"), receiver.url("/b")]
        first = await update(recorder, monitor, alert_webhook=receiver.url("/c"))
        other = await update(recorder, monitor, alert_webhook=receiver.url("/c?token=2"))
        again = await update(recorder, monitor, alert_webhook=receiver.url("/c?token=2"))
        assert first["webhook_secret"] != other["webhook_secret"] == again["webhook_secret"], "a retry gets the same answer"
        assert await addresses(recorder) == [receiver.url("/b"), receiver.url("/c?token=2")]
        await recorder.beat(monitor, status="fail")
        await recorder.deliver()
        assert [one.path for one in receiver.requests] == ["/c?token=2"]
        verify(receiver.requests[0], other["webhook_secret"])
        assert (await recorder.call("register_monitor", name="x", alert_webhook=receiver.url("/d"))).code == "monitor_limit_reached"
        async with recorder.calling_from("192.0.2.1") as stranger:
            await stranger.register(receiver.url("/e"))
            assert (await ask(stranger, monitor, alert_webhook=receiver.url("/f"), secret="x")).code == "monitor_not_found"


async def test_a_key_does_not_lift_the_limits_of_a_monitor_without_one(open_recorder: OpenRecorder, receiver: Receiver) -> None:
    async with open_recorder(settings={"monitors_per_host": 1, "shared_hosts": ["shared.example"]}) as recorder:
        await recorder.register(receiver.url("/a"))
        async with recorder.calling_from("192.0.2.1") as other:
            monitor = await other.register(receiver.url("/b"))
        refused = await ask(recorder, monitor, alert_webhook=receiver.url("/c"), key="recorder", secret=monitor["secret"])
        assert (refused.status, refused.code) == (409, "monitor_limit_reached")


async def test_a_webhook_that_was_given_up_is_tried_again_when_it_is_sent_again(recorder: Recorder, receiver: Receiver) -> None:
    for owner in ({}, {"key": await recorder.campus.key("recorder")}):
        monitor = await recorder.register(receiver.url(), **owner)
        receiver.answer(410)
        await recorder.beat(monitor, status="fail")
        await recorder.deliver()
        assert await recorder.deliver() == 0
        receiver.answer(200)
        again = await update(recorder, monitor, alert_webhook=receiver.url(), **owner)
        assert (again["webhook_secret"], again["notes"]) == (monitor["webhook_secret"], [])
        assert await recorder.deliver() == 1
        await recorder.call("delete_monitor", monitor_id=monitor["monitor_id"], secret=monitor["secret"])


async def test_only_its_key_changes_where_the_alerts_of_a_keys_monitor_go(recorder: Recorder) -> None:
    key = await recorder.campus.key("recorder")
    monitor = await recorder.register("https://localhost/mine", key=key)
    for sent in ("https://localhost/mine", "https://localhost/stranger"):
        for who in ({}, {"key": "recorder", "secret": monitor["secret"]}):
            refused = await ask(recorder, monitor, name="x", alert_webhook=sent, **who)
            assert (refused.status, refused.code) == (403, "owner_needed")
            assert "whsec" not in str(refused.data)
    assert (await recorder.row(monitor)).name == "worker"
    assert await addresses(recorder) == ["https://localhost/mine"]
    assert (await update(recorder, monitor, name="x"))["webhook_secret"] is None
    assert (await update(recorder, monitor, alert_webhook="https://localhost/other", key=key))["webhook_secret"]


async def test_a_stranger_makes_nothing_be_looked_up_and_counts_for_nobody(open_recorder: OpenRecorder, receiver: Receiver) -> None:
    async with open_recorder(settings={"discord_hosts": ["localhost"], "registrations_per_minute": 2}) as recorder:
        monitor = await recorder.register(receiver.url("/hook"))
        asked = receiver.url("/api/webhooks/1/token")
        for _ in range(5):
            assert (await ask(recorder, monitor, alert_webhook=asked, secret="x")).code == "monitor_not_found"
        assert receiver.requests == []
        changed = await update(recorder, monitor, alert_webhook=asked)
        assert (changed["webhook_secret"], [one.method for one in receiver.requests]) == (None, ["GET"])
        for _ in range(3):
            await update(recorder, monitor, name="y", period_minutes=5)
        refused = await ask(recorder, monitor, alert_webhook=receiver.url("/hook"))
        assert (refused.status, refused.code) == (429, "too_many_registrations")
        assert refused.headers["Retry-After"]


async def test_a_mailbox_is_added_and_replaced_and_asked_first(recorder: Recorder, mailbox: Mailbox) -> None:
    key = await recorder.campus.key("recorder")
    monitor = await recorder.register("https://localhost/hook", key=key, name="nightly")
    added = await update(recorder, monitor, alert_email=ME, key=key)
    assert ("confirms" in added["notes"][0], added["webhook_secret"]) == (True, None)
    again = await update(recorder, monitor, alert_email=ME, key=key)
    assert "confirms" in again["notes"][0]
    await recorder.deliver()
    assert [one["To"] for one in mailbox.messages] == [ME], "asked once"
    assert "nightly" in mailbox.messages[0].get_content()
    await recorder.campus.http.post(mailbox.link("confirm"))
    mailbox.refusal = "450 later"
    await recorder.beat(monitor, status="fail")
    await recorder.deliver()
    mailbox.refusal = None
    replaced = await update(recorder, monitor, alert_email=OTHER, key=key)
    assert replaced["notes"][1] == "Undelivered alerts that go to the new target: 1."
    assert await addresses(recorder) == ["https://localhost/hook", OTHER]
    await recorder.deliver()
    assert (mailbox.messages[-1]["To"], mailbox.messages[-1]["Subject"]) == (OTHER, "Confirm alerts to this address")
    await recorder.campus.http.post(mailbox.link("confirm"))
    await recorder.deliver()
    assert (mailbox.messages[-1]["To"], mailbox.messages[-1]["Subject"]) == (OTHER, "nightly failed")
    (entry,) = (await recorder.call("fleet_status", key=key)).data["monitors"]
    assert [one["kind"] for one in entry["targets"]] == ["webhook", "email"]
    links = await in_snapshot(recorder.campus.site.storage, lambda connection: connection.execute(MONITOR_TARGETS.select()).all())
    assert sorted(link.place for link in links) == [0, 1]


async def test_e_mail_needs_the_key_that_owns_the_monitor(recorder: Recorder, mailbox: Mailbox) -> None:
    key = await recorder.campus.key("recorder")
    free, owned = await recorder.register(), await recorder.register("https://localhost/2", key=key)
    without = await ask(recorder, owned, alert_email=ME)
    assert (without.status, without.code) == (402, "access_required")
    for monitor, words in ((free, "register a monitor with your key"), (owned, "a key owns this monitor")):
        refused = await ask(recorder, monitor, alert_email=ME, key="recorder", secret=monitor["secret"])
        assert (refused.status, refused.code, words in refused.data["detail"]) == (403, "owner_needed", True)
    assert (await ask(recorder, owned, alert_email="nobody", key=key)).code == "invalid_request"
    assert await recorder.deliver() == 0
    assert mailbox.messages == []


async def test_a_question_that_could_not_be_sent_for_a_day_is_not_asked_twice(recorder: Recorder, mailbox: Mailbox) -> None:
    key = await recorder.campus.key("recorder")
    monitor = await recorder.register(None, alert_email=ME, key=key)
    other = await recorder.register(None, alert_email=ME, key=key)
    mailbox.refusal = "450 later"
    await recorder.deliver()
    await update(recorder, monitor, alert_email=OTHER, key=key)
    assert [alert.kind for alert in await waiting_alerts(recorder)] == ["confirm", "confirm"], "the other monitor needs the first one"
    await recorder.pass_time(days=1)
    await update(recorder, monitor, alert_email=ME, key=key)
    mailbox.refusal = None
    await recorder.deliver()
    assert [one["To"] for one in mailbox.messages] == [ME], "for the other monitor too"
    await recorder.campus.http.post(mailbox.link("confirm"))
    for one in (monitor, other):
        await recorder.beat(one, status="fail")
    assert await recorder.deliver() == 2


async def waiting_alerts(recorder: Recorder) -> Sequence[Any]:
    return await in_snapshot(recorder.campus.site.storage, lambda connection: connection.execute(ALERTS.select()).all())
