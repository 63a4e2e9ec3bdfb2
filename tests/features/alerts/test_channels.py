"""A channel is one file: Slack's is described and used by every building; one webhook is one target however it is spelled."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import pytest
from recorder.receivers import SLACK, SlackReceiver, make_authority, open_receiver
from sqlalchemy import select

from buildings.cve.building import building as cve
from buildings.cve.tables import ALERTS, OUTBOX, WATCHES
from buildings.recorder import building as recorder
from campus.outbound.http_clients import guarded_client
from campus.storage import in_transaction
from campus.testing import ORIGIN, Clock, TestCampus, open_campus

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend() -> Literal["asyncio"]:
    return "asyncio"


@dataclass(frozen=True)
class Open:
    """A campus with recorder and cve, whose alerts for Slack the receiver gets; no other name is known."""

    campus: TestCampus
    slack: SlackReceiver
    clock: Clock


@pytest.fixture(scope="module")
async def opened(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Open]:
    authority, clock = make_authority(tmp_path_factory.mktemp("tls")), Clock(datetime(2026, 8, 21, 12, 0, tzinfo=UTC))
    addresses = {SLACK: ["127.0.0.1"]}
    web = guarded_client(ORIGIN, allowed_hosts=addresses, resolve=lambda host, port: addresses.get(host, []), trust=authority.client)
    settings = {"registrations_per_minute": 10_000, "monitors_per_host": 1_000}
    async with (
        open_receiver(authority, SlackReceiver) as slack,
        open_campus(clock=clock, web=web, settings=settings, recorder=recorder, cve=cve) as campus,
    ):
        yield Open(campus, slack, clock)


async def deliver(campus: TestCampus) -> None:
    await campus.service.sites["recorder"].state.dispatcher.deliver_due()
    await campus.service.sites["cve"].state.watching.dispatcher.deliver_due()


async def target_of(campus: TestCampus, key: str) -> Any:
    (monitor,) = (await campus.call("fleet_status", key=key)).data["monitors"]
    return monitor["targets"][0]


async def test_slack_is_sent_what_it_documents_by_recorder_and_watches(opened: Open) -> None:
    campus, slack = opened.campus, opened.slack
    key = await campus.key("all")
    url = f"https://{SLACK}:{slack.port}{slack.webhook}"
    monitor = (await campus.call("register_monitor", key=key, name="<!channel> & <https://e.example|co>", alert_webhook=url)).data
    assert monitor["webhook_secret"] is None
    await campus.call("send_test_alert", key=key, monitor_id=monitor["monitor_id"])
    made = (await campus.call("create_watch", building="cve", key=key, name="mine", vendors=["Cisco"], alert_webhook=url)).data
    assert (made["webhook_secret"], made["targets"][0]["kind"]) == (None, "slack")
    await pause_watches(campus)
    await deliver(campus)
    monitored, watched = slack.requests
    said = "Test alert of &lt;\u200b!channel&gt; &amp; &lt;\u200bhttps://e.example|co&gt;: nothing happened\nMonitor:"
    assert monitored.json["text"].startswith(said)
    assert watched.json["text"].startswith("Your watches are paused")
    assert monitored.json.keys() == {"text", "mrkdwn", "unfurl_links", "unfurl_media"}
    assert (await target_of(campus, key))["state"] == "ready"
    document = (await campus.http.get("/v1/openapi.json")).text
    assert "How alerts are sent: apprise, discord, slack, email, webhook." in document
    assert "or that of Discord, Slack or another service by its address in Apprise's form" in document


async def pause_watches(campus: TestCampus) -> None:
    site = campus.service.sites["cve"]
    now = site.now()

    def work(connection: Any) -> None:
        target_id = connection.scalar(select(WATCHES.c.webhook_id))
        OUTBOX.raise_alerts(connection, [{"target_id": target_id, "kind": "paused", "at": now}], now=now)

    assert ALERTS is OUTBOX.alerts
    await in_transaction(site.storage, work)


async def test_slacks_pace_is_kept_and_its_words_end_a_target(opened: Open) -> None:
    campus, slack, clock = opened.campus, opened.slack, opened.clock
    slack.requests.clear()
    key = await campus.key("recorder")
    url = f"https://{SLACK}:{slack.port}{slack.webhook}"
    monitor = (await campus.call("register_monitor", key=key, name="a", alert_webhook=url)).data

    async def tested() -> str:
        await campus.call("send_test_alert", key=key, monitor_id=monitor["monitor_id"])
        await deliver(campus)
        shown = await target_of(campus, key)
        return f"{shown['state']}: {shown['reason']}"

    slack.pace = 0
    assert "failing: Slack asked for fewer messages" in await tested()
    slack.pace = 100
    clock.move(timedelta(seconds=29))
    await deliver(campus)
    assert len(slack.requests) == 1
    clock.move(timedelta(seconds=1))
    await deliver(campus)
    assert (await target_of(campus, key))["state"] == "ready"
    slack.error = (500, "rollup_error")
    assert "failing: Slack answered 5xx" in await tested()
    clock.move(timedelta(minutes=1))
    slack.error = (410, "channel_is_archived")
    await deliver(campus)
    assert "the channel is archived; call send_test_alert" in (await target_of(campus, key))["reason"]
    await campus.call("delete_monitor", key=key, monitor_id=monitor["monitor_id"])
    monitor = (await campus.call("register_monitor", key=key, name="a", alert_webhook=url.replace("/T0", "/T1"))).data
    assert "disabled: Slack answered no_service: the webhook was removed" in await tested()


DISCORD = "https://{}{}/webhooks/123/to-ken{}"
HOSTS = ("discord.com", "discordapp.com", "canary.discord.com", "ptb.discord.com")


async def test_one_webhook_is_one_free_target_however_it_is_spelled(opened: Open) -> None:
    async def targets(urls: list[str]) -> int:
        replies = [await opened.campus.call("register_monitor", name="a", alert_webhook=url) for url in urls]
        assert {reply.code for reply in replies} <= {None, "target_in_use"}, replies[-1].data
        return sum(reply.status == 200 for reply in replies)

    versions = ("/api", "/api/v6", "/api/v10", "//api//v9", "/%61pi")
    spelled = [DISCORD.format(host, api, "") for host in HOSTS for api in versions]
    assert await targets([*spelled, *(DISCORD.format(HOSTS[0], "/api", end) for end in ("/", "/slack", "?thread_id=1"))]) == 1
    paths = ("/A", "//A", "/A/", "/./A", "/B/../A", "/%41", "/A?x=1")
    assert await targets([f"https://hooks.good.dev{path}" for path in paths]) == 1
    paths = ("/services/T0/B0/X", "//services/T0//B0/X", "/services/T0/B0/X/")
    assert await targets([f"https://hooks.slack.com{path}" for path in paths]) == 1
