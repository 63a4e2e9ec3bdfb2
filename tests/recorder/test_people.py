"""Alerts that people read: e-mail, confirmed before the first and ended by a click, Discord, and the badge."""

from datetime import timedelta

import pytest
from recorder.receivers import Mailbox, Receiver
from recorder.recorders import OpenRecorder, Recorder

from buildings.recorder.monitors.badges import badge_svg
from campus.features.alerts.channels.email import unlinked
from campus.testing import ORIGIN

pytestmark = pytest.mark.anyio
ME = "me@example.com"


async def test_an_address_is_asked_before_the_first_alert_and_gets_it_after_the_click(recorder: Recorder, mailbox: Mailbox) -> None:
    without_key = await recorder.call("register_monitor", name="a", alert_email=ME)
    assert (without_key.status, without_key.code) == (402, "access_required")
    assert {one["product"] for one in without_key.data["unlock"]} == {"recorder", "all"}
    key = await recorder.campus.key("recorder")
    monitor = await recorder.register(None, alert_email=ME, key=key, name="nightly backup")
    assert "confirms" in monitor["notes"][0]
    await recorder.deliver()
    (question,) = mailbox.messages
    assert question["To"] == ME
    assert "nightly backup" in question.get_content()
    await recorder.beat(monitor, status="fail")
    assert await recorder.deliver() == 0
    (entry,) = (await recorder.call("fleet_status", key=key)).data["monitors"]
    assert (entry["targets"][0]["state"], entry["undelivered"]) == ("unconfirmed", 1)
    link = mailbox.link("confirm")
    assert (await recorder.campus.http.get(link)).status_code == 200
    assert await recorder.deliver() == 0, "a mailbox that follows links confirms nothing"
    assert (await recorder.campus.http.post(link)).status_code == 200
    assert await recorder.deliver() == 1
    alert = mailbox.messages[-1]
    assert alert["Subject"] == "nightly backup failed"
    assert monitor["resume_url"] not in alert.get_content(), "there is no capsule to resume from"
    assert monitor["secret"] not in alert.get_content()
    assert alert["List-Unsubscribe-Post"] == "List-Unsubscribe=One-Click"


async def test_a_monitor_that_is_deleted_before_its_address_was_asked_takes_no_question_from_others(
    recorder: Recorder, mailbox: Mailbox
) -> None:
    key = await recorder.campus.key("recorder")
    first, _ = [await recorder.register(None, alert_email=ME, key=key) for _ in range(2)]
    await recorder.call("delete_monitor", monitor_id=first["monitor_id"], key=key)
    await recorder.deliver()
    assert [one["To"] for one in mailbox.messages] == [ME]
    await recorder.register(None, alert_email="other@example.com", key=key)
    third = await recorder.register(None, alert_email="third@example.com", key=key)
    await recorder.call("delete_monitor", monitor_id=third["monitor_id"], key=key)
    await recorder.deliver()
    assert [one["To"] for one in mailbox.messages] == [ME, "other@example.com"], "nobody else uses the third"


async def test_a_test_alert_is_sent_where_alerts_arrive_and_waits_for_no_other_address(
    recorder: Recorder, mailbox: Mailbox, receiver: Receiver
) -> None:
    key = await recorder.campus.key("recorder")
    monitor = await recorder.register(receiver.url(), alert_email=ME, key=key)
    await recorder.deliver()

    async def tested() -> tuple[int, object]:
        reply = await recorder.call("send_test_alert", monitor_id=monitor["monitor_id"], key=key)
        await recorder.pass_time(minutes=1)
        await recorder.deliver()
        return reply.status, reply.data.get("targets", reply.code)

    assert [await tested() for _ in range(2)] == [(200, 1), (200, 1)], "the mailbox is not confirmed"
    await recorder.campus.http.post(mailbox.link("confirm"))
    receiver.answer(410)
    await tested()
    (entry,) = (await recorder.call("fleet_status", key=key)).data["monitors"]
    assert [one["state"] for one in entry["targets"]] == ["disabled", "ready"], "the webhook is gone"
    assert "410: gone; call send_test_alert to use it again" in entry["targets"][0]["reason"]
    assert await tested() == (200, 2), "a test tries it again"
    await recorder.campus.http.post(mailbox.link("unsubscribe"))
    receiver.answer(200)
    assert await tested() == (200, 1)
    (entry,) = (await recorder.call("fleet_status", key=key)).data["monitors"]
    assert [(one["state"], one["undelivered"]) for one in entry["targets"]] == [("ready", 0), ("disabled", 0)]
    assert receiver.types == ["monitor.test"] * 5


async def test_without_a_key_a_target_that_is_gone_stays_disabled(recorder: Recorder, receiver: Receiver) -> None:
    monitor = await recorder.register(receiver.url())
    receiver.answer(410)
    await recorder.call("send_test_alert", monitor_id=monitor["monitor_id"], secret=monitor["secret"])
    await recorder.deliver()
    refused = await recorder.call("send_test_alert", monitor_id=monitor["monitor_id"], secret=monitor["secret"])
    assert (refused.status, refused.code) == (409, "no_target_ready")


async def test_a_link_that_was_not_sent_leads_nowhere(recorder: Recorder, mailbox: Mailbox) -> None:
    await recorder.register(None, alert_email=ME, key="recorder")
    await recorder.deliver()
    link = mailbox.link("confirm")
    for wrong in (link[:-1] + "x", link.replace("/confirm/", "/unsubscribe/"), link.replace("tgt_", "tgt_x")):
        answer = await recorder.campus.http.post(wrong)
        assert (answer.status_code, answer.json()["code"]) == (404, "link_not_found")


async def test_many_alerts_become_one_message_and_a_refused_address_is_given_up(recorder: Recorder, mailbox: Mailbox) -> None:
    key = await recorder.campus.key("recorder")
    monitors = [await recorder.register(None, alert_email=ME, key=key, name=f"m{number}") for number in range(6)]
    await recorder.deliver()
    assert len(mailbox.messages) == 1
    await recorder.campus.http.post(mailbox.link("confirm"))
    for one in monitors:
        await recorder.beat(one, status="fail")
    assert await recorder.deliver() == 1
    digest = mailbox.messages[-1]
    assert digest["Subject"] == "6 alerts of your monitors"
    assert all(f"m{number} failed" in digest.get_content() for number in range(6))
    mailbox.refusal = "550 no such user"
    await recorder.beat(monitors[0])
    await recorder.deliver()
    (target,) = await recorder.targets()
    assert "550" in target.disabled_because


async def test_discord_is_recognised_asked_at_registration_and_sent_embeds(open_recorder: OpenRecorder, receiver: Receiver) -> None:
    async with open_recorder(settings={"discord_hosts": ["localhost"]}) as recorder:
        url = receiver.url("/api/webhooks/123/to-ken?thread_id=5")
        monitor = await recorder.register(url, name="@everyone")
        assert monitor["webhook_secret"] is None
        assert receiver.requests[0].method == "GET"
        await recorder.beat(monitor, status=2)
        receiver.answer(200)
        assert await recorder.deliver() == 1
        sent = receiver.requests[-1]
        assert sent.path == "/api/webhooks/123/to-ken?thread_id=5&wait=true"
        assert sent.json["allowed_mentions"] == {"parse": []}
        (embed,) = sent.json["embeds"]
        assert embed["title"] == "@everyone failed with exit code 2"
        assert "webhook-signature" not in sent.headers


async def test_discord_sets_the_pace_and_a_deleted_webhook_is_given_up(open_recorder: OpenRecorder, receiver: Receiver) -> None:
    async with open_recorder(settings={"discord_hosts": ["localhost"]}) as recorder:
        monitor = await recorder.register(receiver.url("/api/webhooks/123/token"))
        await recorder.beat(monitor, status="fail")
        receiver.answer(429, body=b'{"retry_after": 7.5, "global": false}')
        await recorder.deliver()
        (target,) = await recorder.targets()
        assert target.next_try_at - recorder.clock() == timedelta(seconds=7.5)
        receiver.answer(404)
        await recorder.pass_time(seconds=8)
        await recorder.deliver()
        (target,) = await recorder.targets()
        assert target.disabled_at == recorder.clock()
        refused = await recorder.call("register_monitor", name="b", alert_webhook=receiver.url("/api/webhooks/9/gone"))
        assert (refused.code, refused.data["rule"]) == ("target_refused", "discord")


async def test_discords_pace_at_registration_refuses_no_webhook(open_recorder: OpenRecorder, receiver: Receiver) -> None:
    async with open_recorder(settings={"discord_hosts": ["localhost"]}) as recorder:
        receiver.answer(429, body=b'{"retry_after": 7.5}')
        await recorder.register(receiver.url("/api/webhooks/123/token"))


async def test_a_digest_keeps_discords_limits_and_names_every_monitor(open_recorder: OpenRecorder, receiver: Receiver) -> None:
    async with open_recorder(settings={"discord_hosts": ["localhost"]}) as recorder:
        key = await recorder.campus.key("recorder")
        url = receiver.url("/api/webhooks/123/token")
        for number in range(12):
            monitor = await recorder.register(url, name=f"{number}" + "x" * 98, key=key)
            await recorder.beat(monitor, capsule="c" * 300)
        await recorder.pass_time(days=36)
        await recorder.sweep()
        assert await recorder.deliver() == 1
        sent = receiver.requests[-1].json
        assert len(sent["embeds"]) == 10
        assert sum(len(embed["title"]) + len(embed["description"]) for embed in sent["embeds"]) <= 6_000
        assert len(sent["content"]) <= 2_000
        assert sent["content"].count(" is dead: ") == 2


async def test_the_badge_shows_the_state_to_everyone(recorder: Recorder) -> None:
    monitor = await recorder.register(period_minutes=10, grace_minutes=2, name='<script>"&')
    path = monitor["badge_url"].removeprefix("http://campus.test")
    for minutes, word in ((0, "waiting"), (0, "alive"), (11, "late"), (2, "dead")):
        if word == "alive":
            await recorder.beat(monitor)
        await recorder.pass_time(minutes=minutes)
        answer = await recorder.campus.http.get(path)
        assert answer.headers["content-type"] == "image/svg+xml"
        assert f">{word}</text>" in answer.text
    assert "<script>" not in answer.text
    assert monitor["secret"] not in answer.text
    assert monitor["monitor_id"] not in answer.text
    assert (await recorder.campus.http.get(path.replace("badge_", "badge_x"))).status_code == 404


def test_a_long_name_is_cut_in_a_badge() -> None:
    assert "x" * 41 not in badge_svg("x" * 100, "alive")


WIKI = "https://wiki.example.com/b"
OUTPUT = "\n".join([*(f"line {number}" for number in range(30)), "2026-11-27T10:33:41Z \x1b[31mevil.example.com\x1b[0m <!channel> ```", ""])


async def test_an_alert_shows_how_the_run_ended_and_the_end_of_its_output(
    open_recorder: OpenRecorder, mailbox: Mailbox, receiver: Receiver
) -> None:
    async with open_recorder(mailbox=mailbox, settings={"discord_hosts": ["localhost"]}) as recorder:
        key = await recorder.campus.key("recorder")
        monitor = await recorder.register(receiver.url(), alert_email=ME, key=key, name="nightly", description=f"See:\u202e\n{WIKI}")
        await recorder.deliver()
        await recorder.campus.http.post(mailbox.link("confirm"))
        await recorder.beat(monitor, status="start", rid="n-1", capsule={"at": "10:33:41Z"}, seq=1)
        await recorder.pass_time(seconds=74)
        await recorder.beat(monitor, status=3, rid="n-1", output=OUTPUT)
        free = await recorder.register(receiver.url("/api/webhooks/1/t"), name="free")
        await recorder.beat(free, status="fail", output=OUTPUT)
        await recorder.deliver()
        page = f"{ORIGIN}/recorder/{monitor['monitor_id']}"
        (event,) = [one.json for one in receiver.requests if one.path == "/hook"]
        assert (event["run"].pop("output").split("\n")[0], event["monitor_url"]) == ("line 11", page)
        assert event["run"] == {"rid": "n-1", "result": "fail", "exit_code": 3, "seconds": 74.0}
        assert event["text"].endswith("line 29\n2026-11-27T10:33:41Z evil.example.com <\u200b!channel> ``\u200b`\n```")
        mail = mailbox.messages[-1].get_content().replace("\r\n", "\n")
        assert event["monitor"] == {"id": monitor["monitor_id"], "name": "nightly", "description": f"See:\n{WIKI}"}
        assert event["text"].startswith(f"nightly failed with exit code 3\nDescription: See: {WIKI}\n")
        assert "\nDescription: See: https: / / wiki. example. com/ b\n" in mail
        assert "Last run (n-1): failed with exit code 3 after 1 min\n" in mail
        assert '"10:33:41Z"' in mail
        assert "\n    line 29\n    2026-11-27T10:33:41Z evil. example. com <!channel> ```\n" in mail
        assert (page in mail, monitor["resume_url"] in mail) == (True, True)
        (sent,) = [one.json for one in receiver.requests if one.path.startswith("/api") and one.method == "POST"]
        assert sent["embeds"][0]["description"].endswith("evil.example.com <!channel> ``\u200b`\n```")
        assert "/recorder/mon_" not in sent["embeds"][0]["description"], "only its owner knows the page of a free monitor"
        await recorder.beat(monitor, status="ok", output="all is well")
        await recorder.pass_time(minutes=1)
        await recorder.deliver()
        assert "has recovered" in receiver.requests[-1].json["text"]
        assert "all is well" not in receiver.requests[-1].json["text"], "the output of a success is no news"


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("2026-11-27T10:33:41Z", "2026-11-27T10:33:41Z"),
        ("[10:33:41,123]", "[10:33:41,123]"),
        ('{"at":"10:33:41+02:00"}', '{"at": "10:33:41+02:00"}'),
        ("at 10:33:41.", "at 10:33:41."),
        ("evil.example:10:33:41", "evil. example: 10: 33: 41"),
        ("http://10:33:41/x", "http: / / 10: 33: 41/ x"),
        ("10:33:41@evil.example", "10: 33: 41@ evil. example"),
        ("10:33:41.evil.example", "10: 33: 41. evil. example"),
        ("127.0.0.1", "127. 0. 0. 1"),
        ('"10:33:41"evil.example', '"10:33:41"evil. example'),
    ],
)
def test_a_time_stays_whole_and_nothing_becomes_a_link(written: str, read: str) -> None:
    assert unlinked(written, own="https://campus.example/x") == read
