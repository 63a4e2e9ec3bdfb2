"""Services by addresses in Apprise's form: each as it documents itself, by the guarded client alone, and no secret shown again."""

import logging
import re
import sys
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from urllib.parse import parse_qs, unquote

import httpcore
import pytest
from recorder.receivers import Received, Receiver, make_authority, open_receiver
from recorder.recorders import Recorder

from buildings.recorder import building
from buildings.recorder.settings import RecorderSettings
from campus.errors import TargetRefused
from campus.features.alerts import AlertText
from campus.features.alerts.channels.apprise import SERVICES, composed, named
from campus.outbound.http_clients import guarded_client
from campus.testing import ORIGIN, Clock, Reply, open_campus

pytestmark = pytest.mark.anyio

PUBLIC = "8.8.8.8"
SECRET = "s3cretS3cretS3cretS3cretS3cret00"
TOKEN = f"123456789:{SECRET}abc"
TELEGRAM = f"tgram://{TOKEN}/-100123"
NTFY = f"ntfy://{SECRET}"
PAGERDUTY = f"pagerduty://{SECRET}@events"
OPSGENIE = f"opsgenie://{SECRET}"
PUSHOVER = f"pover://{SECRET[:30]}@{SECRET[2:]}"
MATRIX = f"matrixs://syt_{SECRET}@matrix.org/!room:matrix.org"
TEAMS = f"workflows://prod-1.westeurope.logic.azure.com:443/643e69f83c8944/{SECRET}"
DOCUMENTED = (TELEGRAM, NTFY, PAGERDUTY, OPSGENIE, PUSHOVER, MATRIX, TEAMS)
OTHERS = (
    f"tgram://{TOKEN}/@channel:12?silent=yes",
    f"ntfys://tk_{SECRET}@ntfy.sh/topic?priority=max",
    f"pagerduty://{SECRET}@events?region=eu",
    f"opsgenie://{SECRET}/?region=eu&priority=1",
    f"squadcast://{SECRET}",
    f"ilert://{SECRET}",
    f"incidentio://01GW2G3V0S59R238FAHPDS1R66/{SECRET}",
    f"victorops://route@{SECRET}abcd",
    f"wxteams://{SECRET * 3}",
    f"gchat://space/{SECRET}/{SECRET}",
    f"pbul://o.{SECRET}",
    f"prowl://{'a' * 40}",
    f"spike://{SECRET}",
    f"zulip://bot@org/{SECRET}/stream",
    MATRIX.replace("matrixs", "matrix"),
)


@dataclass
class ServicesReceiver(Receiver):
    """The services as they document themselves: each knows `SECRET`, and the chat and the room of the addresses above."""

    said: tuple[int, dict[str, str], bytes] | None = None
    """Sent instead, whatever was asked for."""

    def answer_to(self, received: Received) -> tuple[int, dict[str, str], bytes]:
        if self.said is not None:
            return self.said
        host = received.headers["host"].partition(":")[0]
        return next(answer for name, answer in ANSWERS.items() if host.endswith(name))(received)


def telegram(received: Received) -> tuple[int, dict[str, str], bytes]:
    if received.path != f"/bot{TOKEN}/sendMessage":
        return 401, {}, b'{"ok":false,"error_code":401,"description":"Unauthorized"}'
    if received.json["chat_id"] != -100123:
        return 400, {}, b'{"ok":false,"error_code":400,"description":"Bad Request: chat not found"}'
    assert (received.json["parse_mode"], len(received.json["text"]) <= 4096) == ("HTML", True)
    return 200, {}, b'{"ok":true,"result":{"message_id":1}}'


def ntfy(received: Received) -> tuple[int, dict[str, str], bytes]:
    assert (received.path, bool(received.json["message"])) == ("/", True)
    return (200, {}, b'{"id":"a"}') if received.json["topic"] == SECRET else (403, {}, b'{"code":40301,"http":403}')


def pagerduty(received: Received) -> tuple[int, dict[str, str], bytes]:
    event = received.json
    if event["routing_key"] != SECRET:
        return 400, {}, b'{"status":"invalid event","message":"Event object is invalid","errors":["invalid routing key"]}'
    assert event["event_action"] == "resolve" or len(event["payload"]["summary"]) <= 1024
    return 202, {}, b'{"status":"success","message":"Event processed"}'


def opsgenie(received: Received) -> tuple[int, dict[str, str], bytes]:
    if received.headers["authorization"] != f"GenieKey {SECRET}":
        return 401, {}, b'{"message":"Key format is not valid!"}'
    return 202, {}, b'{"result":"Request will be processed","requestId":"43a29c5c"}'


def pushover(received: Received) -> tuple[int, dict[str, str], bytes]:
    form = {name: one[0] for name, one in parse_qs(received.body.decode()).items()}
    if form["token"] != SECRET[2:]:
        return 400, {}, b'{"token":"invalid","errors":["application token is invalid"],"status":0}'
    assert (len(form["message"]) <= 1024, len(form["title"]) <= 250) == (True, True)
    return 200, {}, b'{"status":1,"request":"647d2300"}'


def matrix(received: Received) -> tuple[int, dict[str, str], bytes]:
    if received.headers["authorization"] != f"Bearer syt_{SECRET}":
        return 401, {}, b'{"errcode":"M_UNKNOWN_TOKEN","error":"Unknown token"}'
    assert (received.method, received.json["m.mentions"]) == ("PUT", {})
    assert unquote(received.path).startswith("/_matrix/client/v3/rooms/!room:matrix.org/send/m.room.message/")
    return 200, {}, b'{"event_id":"$1"}'


def teams(received: Received) -> tuple[int, dict[str, str], bytes]:
    if f"sig={SECRET}" not in received.path:
        return 401, {}, b'{"error":{"code":"AuthorizationFailed"}}'
    (card,) = received.json["attachments"]
    assert card["content"]["type"] == "AdaptiveCard"
    return 202, {}, b""


ANSWERS = {
    "api.telegram.org": telegram,
    "ntfy.sh": ntfy,
    "events.pagerduty.com": pagerduty,
    "api.opsgenie.com": opsgenie,
    "api.pushover.net": pushover,
    "matrix-client.matrix.org": matrix,
    "logic.azure.com": teams,
}


@dataclass
class Wire(httpcore.AsyncNetworkBackend):
    """Leads every connection to the receiver's port, whatever address was looked up; `hosts` are the names that were looked up."""

    port: int = 0
    hosts: list[str] = field(default_factory=list)
    address: str = PUBLIC
    connected: int = 0
    real: httpcore.AnyIOBackend = field(default_factory=httpcore.AnyIOBackend)

    def resolve(self, host: str, port: int) -> list[str]:
        self.hosts.append(host)
        return [self.address]

    async def connect_tcp(self, host: str, port: int, *args: Any, **options: Any) -> httpcore.AsyncNetworkStream:
        self.connected += 1
        stream = await self.real.connect_tcp("127.0.0.1", self.port, *args, **options)
        told = stream.get_extra_info
        stream.get_extra_info = lambda info: (host, port) if info == "server_addr" else told(info)  # type: ignore[method-assign]
        return stream

    async def connect_unix_socket(self, path: str, *args: Any, **options: Any) -> httpcore.AsyncNetworkStream:
        raise AssertionError(path)

    async def sleep(self, seconds: float) -> None:
        await self.real.sleep(seconds)


@dataclass(frozen=True)
class Open:
    """A recorder whose alerts the receiver gets, for every host; and a key of one test."""

    recorder: Recorder
    services: ServicesReceiver
    wire: Wire
    key: str = ""

    async def register(self, address: str, **arguments: Any) -> dict[str, Any]:
        return await self.recorder.register(address, key=self.key, **arguments)

    async def refusal(self, address: str) -> Reply:
        reply = await self.recorder.call("register_monitor", name="a", alert_webhook=address, key=self.key)
        assert reply.status == 422, address
        return reply

    async def monitors(self) -> Sequence[dict[str, Any]]:
        shown: Sequence[dict[str, Any]] = (await self.recorder.call("fleet_status", key=self.key)).data["monitors"]
        return shown

    async def target(self, monitor: dict[str, Any]) -> dict[str, Any]:
        """What the fleet shows of a monitor's one target."""
        (target,) = next(one["targets"] for one in await self.monitors() if one["monitor_id"] == monitor["monitor_id"])
        return dict(target)


@pytest.fixture(scope="module")
def anyio_backend() -> Literal["asyncio"]:
    return "asyncio"


@pytest.fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Open]:
    hosts: Iterable[str] = (name if name != "logic.azure.com" else "prod-1.westeurope.logic.azure.com" for name in ANSWERS)
    authority = make_authority(tmp_path_factory.mktemp("tls"), *hosts)
    clock, wire = Clock(datetime(2026, 11, 27, 10, 0, tzinfo=UTC)), Wire()
    web = guarded_client(ORIGIN, resolve=wire.resolve, network=wire, trust=authority.client)
    async with (
        open_receiver(authority, ServicesReceiver) as services,
        open_campus(clock=clock, web=web, settings={"registrations_per_minute": 10_000}, recorder=building) as campus,
    ):
        wire.port = services.port
        yield Open(Recorder(campus, clock), services, wire)


@pytest.fixture
async def opened(shared: Open) -> AsyncIterator[Open]:
    """The campus of all tests, with services that take everything and no target of another test."""
    opened = replace(shared, key=await shared.recorder.campus.key("recorder"))
    opened.services.requests.clear()
    opened.services.said = None
    opened.wire.hosts.clear()
    opened.wire.connected, opened.wire.address = 0, PUBLIC
    yield opened
    for monitor in await opened.monitors():
        await opened.recorder.call("delete_monitor", monitor_id=monitor["monitor_id"], key=opened.key)


async def test_each_service_takes_what_is_sent_and_a_wrong_token_disables_the_target(opened: Open) -> None:
    for address in DOCUMENTED:
        monitor = await opened.register(address, name="@everyone <b>")
        assert monitor["webhook_secret"] is None
        await opened.recorder.beat(monitor, status=3)
        await opened.recorder.deliver()
        assert len(opened.services.requests) == 1, address
        assert re.search(r"@.{0,8}everyone", unquote(opened.services.requests.pop().body.decode("unicode_escape"))), "the name is told"
        shown = await opened.target(monitor)
        assert (shown["kind"], shown["state"]) == ("apprise", "ready"), address
        wrong = await opened.register(address.replace(SECRET[:20], SECRET[:20][::-1]).replace(SECRET[2:], SECRET[2:][::-1]))
        await opened.recorder.beat(wrong, status="fail")
        await opened.recorder.deliver()
        shown = await opened.target(wrong)
        assert shown["state"] == "disabled", (address, shown)
        assert "the token or the recipient in the address is not valid" in shown["reason"]
        opened.services.requests.clear()
    gone = await opened.register(TELEGRAM.replace("-100123", "-100124"))
    await opened.recorder.beat(gone, status="fail")
    await opened.recorder.deliver()
    assert (await opened.target(gone))["state"] == "disabled", "the chat is not found"


SAID: dict[str, tuple[tuple[int, dict[str, str], bytes], int | None]] = {
    "pace": ((429, {"Retry-After": "60"}, b""), 60),
    "Telegram's pace": ((429, {}, b'{"ok":false,"error_code":429,"parameters":{"retry_after":35}}'), 35),
    "trouble": ((503, {}, b"token " + SECRET.encode()), None),
    "refusal": ((400, {}, b"can't parse entities"), None),
    "redirect": ((302, {"Location": "http://169.254.169.254/latest/meta-data"}, b""), None),
}


async def test_a_service_sets_the_pace_and_no_redirect_is_followed(opened: Open) -> None:
    for case, (said, waits) in SAID.items():
        monitor = await opened.register(TELEGRAM)
        await opened.recorder.beat(monitor, status="fail")
        opened.services.said, opened.wire.connected = said, 0
        await opened.recorder.deliver()
        (row,) = await opened.recorder.targets()
        assert (row.attempts, len(opened.services.requests), opened.wire.connected) == (1, 1, 1), f"{case}: one try, one request"
        if waits is not None:
            assert row.next_try_at - opened.recorder.clock() == timedelta(seconds=waits), case
        shown = await opened.target(monitor)
        assert (shown["state"], SECRET in str(shown)) == ("failing", False), case
        opened.services.said = None
        await opened.recorder.pass_time(minutes=2)
        await opened.recorder.deliver()
        assert (await opened.target(monitor))["state"] == "ready", case
        await opened.recorder.call("delete_monitor", monitor_id=monitor["monitor_id"], key=opened.key)
        opened.services.requests.clear()


async def test_an_incident_is_opened_once_and_a_recovery_closes_it_also_in_a_digest(opened: Open) -> None:
    for address in (PAGERDUTY, OPSGENIE):
        monitors = [await opened.register(address, name=f"m{number}") for number in range(6)]
        for one in monitors:
            await opened.recorder.beat(one, status="fail")
        assert await opened.recorder.deliver() == 1, "a digest"
        await opened.recorder.pass_time(minutes=1)
        await opened.recorder.beat(monitors[0])
        await opened.recorder.deliver()
        await opened.recorder.call("send_test_alert", monitor_id=monitors[0]["monitor_id"], key=opened.key)
        await opened.recorder.deliver()
        *failed, recovered, tested = opened.services.requests
        ids = [one["monitor_id"] for one in monitors]
        if address is PAGERDUTY:
            assert [one.json["dedup_key"] for one in (*failed, recovered)] == [*ids, ids[0]]
            assert {one.json["payload"]["severity"] for one in failed} == {"critical"}
            assert (recovered.json["event_action"], tested.json["payload"]["severity"]) == ("resolve", "info")
            assert tested.json["dedup_key"].startswith("msg_"), "a test closes and opens nothing else"
        else:
            assert [(one.path, one.json["alias"], one.json["priority"]) for one in failed] == [("/v2/alerts", name, "P2") for name in ids]
            assert recovered.path == f"/v2/alerts/{ids[0]}/close?identifierType=alias"
        opened.services.requests.clear()


ODD = (
    "ntfy://user@127.0.0.1:80/topic",
    "ntfys://127.0.0.1/topic",
    "ntfys://ntfy.sh:8080/topic",
    "ntfys://ntfy.sh@169.254.169.254/topic",
    "ntfys://ntfy.sh.evil.example/topic",
    "ntfy://topic/other",
    "ntfy://topic?mode=private",
    "ntfy://topic?attach=http://169.254.169.254/",
    "ntfy://topic?priority=high&attach=file:///etc/passwd",
    "ntfy://topic?avatar_url=http://127.0.0.1/",
    "ntfy://topic?click=http://127.0.0.1/&email=a@b.example",
    "ntfy://topic?priority=a%26attach%3Dfile:///etc/passwd",
    "ntfy://topic?priority=high?attach=file:///etc/passwd",
    "ntfy://topic#?mode=private",
    f"tgram://{TOKEN}/1234/5678",
    f"tgram://{TOKEN}/",
    f"{TELEGRAM}?template=/etc/passwd",
    f"{TELEGRAM}?format=markdown",
    f"{TELEGRAM}?verify=no",
    f"{TELEGRAM}?redirect=yes",
    f"{TELEGRAM}?tags=a",
    f"{TELEGRAM}?emojis=yes",
    f"{TELEGRAM}?cto=900",
    f"{TELEGRAM}?silent",
    f"{TELEGRAM}\n?silent=yes",
    f"{PUSHOVER}?supplemental_url=http://127.0.0.1/",
    f"pagerduty://{SECRET}@events?region=us&+detail=x",
    f"pagerduty://{SECRET}@127.0.0.1:80",
    f"workflows://127.0.0.1:443/643e69f83c8944/{SECRET}",
    f"workflows://logic.azure.com.evil.example/643e69f83c8944/{SECRET}",
    f"workflows://prod.logic.azure.com:8443/643e69f83c8944/{SECRET}",
    f"workflows://a@prod.logic.azure.com/643e69f83c8944/{SECRET}",
    f"matrixs://syt_{SECRET}@matrix.example/!room:matrix.org",
    f"matrixs://syt_{SECRET}@matrix.org/../!room",
    f"zulip://bot@org.evil.example/{SECRET}/stream",
    "file:///etc/passwd",
    "json://127.0.0.1/",
    "gotify://127.0.0.1/token",
    "mqtt://127.0.0.1/topic",
    "syslog://",
    "apprise://127.0.0.1/token",
    "ftp://evil.example/",
    "tgram:/x",
    "unknown://x",
)


async def test_no_address_leads_anywhere_else_and_each_refusal_says_what_to_write(opened: Open) -> None:
    for address in ODD:
        reply = await opened.refusal(address)
        assert reply.code == "target_refused", address
        assert SECRET not in str(reply.data), "what was sent is not repeated"
    assert (opened.wire.hosts, opened.wire.connected) == ([], 0)
    reply = await opened.refusal("gotify://127.0.0.1/token")
    assert "Write an https:// address, such as the incoming webhook" in reply.data["detail"]


async def test_a_service_whose_name_leads_to_a_private_place_gets_nothing(opened: Open) -> None:
    monitor = await opened.register(TELEGRAM)
    opened.wire.connected = 0
    for address in ("127.0.0.1", "169.254.169.254", "10.0.0.1", "::1", "64:ff9b::7f00:1"):
        opened.wire.address = address
        reply = await opened.refusal(NTFY)
        assert (reply.code, reply.data["rule"]) == ("target_refused", "address"), address
        await opened.recorder.beat(monitor, status="fail")
        await opened.recorder.deliver()
        assert (opened.wire.connected, opened.services.requests) == (0, []), address
        shown = await opened.target(monitor)
        assert (shown["state"], "its address may not be used" in shown["reason"]) == ("failing", True), address
        await opened.recorder.pass_time(hours=2)


async def test_no_secret_of_an_address_is_shown_again(opened: Open, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.INFO, "aiosqlite")  # which logs every value that is stored
    said = []
    others = await opened.recorder.campus.key("recorder")
    for address in (*DOCUMENTED, *OTHERS):
        key = opened.key if address in DOCUMENTED else others
        reply = await opened.recorder.call("register_monitor", name="a", alert_webhook=address, key=key)
        assert reply.status == 200, (address, reply.data)
        said.append(str({**reply.data, "secret": "", "beat_url": ""}))
        for outcome in ((200, {}, b""), (500, {}, SECRET.encode()), (404, {}, SECRET.encode()))[2 if key == others else 0 :]:
            opened.services.said = outcome
            await opened.recorder.beat(reply.data, status="fail")
            await opened.recorder.beat(reply.data, status="ok")
            await opened.recorder.deliver()
    said += [str((await opened.recorder.call("fleet_status", key=key)).data) for key in (opened.key, others)]
    troubled = (await opened.recorder.campus.site.feature("alerts").troubled_targets()).values()
    assert any(troubled)
    said += [str(one) for one in troubled]
    said.append((await opened.recorder.campus.http.get("/metrics")).text)
    said += [f"{record.getMessage()} {vars(record)}" for record in caplog.records]
    shown = "\n".join(said)
    assert "tgram://…" in shown
    assert not [line for line in said if SECRET[:12] in line]
    for monitor in await replace(opened, key=others).monitors():
        await opened.recorder.call("delete_monitor", monitor_id=monitor["monitor_id"], key=others)


async def test_two_addresses_of_a_service_are_told_apart_by_four_characters(opened: Open) -> None:
    shown = {(await opened.target(await opened.register(f"tgram://{TOKEN}/{chat}")))["address"] for chat in (1234, 1235)}
    assert len(shown) == 2
    assert all(re.fullmatch("tgram://…[0-9a-f]{4}", one) for one in shown)


async def test_an_address_of_a_webhook_is_that_webhook(opened: Open) -> None:
    opened.services.said = (200, {}, b"ok")
    for address, kind, url in (
        ("slack://T0A/B0A/token", "slack", "https://hooks.slack.com/…"),
        ("discord://123/to-ken", "discord", "https://discord.com/…"),
        ("mmosts://chat.good.dev/token", "webhook", "https://chat.good.dev/…"),
    ):
        shown = await opened.target(await opened.register(address))
        assert (shown["kind"], shown["address"]) == (kind, url)


def test_apprise_composes_one_request_to_the_services_own_host() -> None:
    output = "x < y & z > @here " * 300
    for address in (*DOCUMENTED, *OTHERS):
        found = named(address)
        for severity in ("problem", "recovery", "notice"):
            text = AlertText("a <b> @here", ["line & <i>"] * 200, datetime.now(UTC), severity, output, "mon_1")  # type: ignore[arg-type]
            request = composed(found, text, "mon_1")
            assert found.service.is_its(request.url), address
            assert len(request.body) < 40_000, address
            assert b"@here" not in re.sub(rb"(?s)<pre>.*</pre>", b"", request.body), address


def test_every_host_of_a_service_counts_as_everyones() -> None:
    shared: Collection[str] = RecorderSettings().everyones_hosts
    assert {one.host for one in SERVICES} <= set(shared)


async def test_without_the_extra_an_address_is_refused_by_its_name(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monitor = await opened.register(TELEGRAM)
    monkeypatch.setitem(sys.modules, "apprise", None)
    reply = await opened.refusal(NTFY)
    assert reply.data["rule"] == "apprise"
    assert "pip install 'mcp-campus[apprise]'" in reply.data["detail"]
    await opened.recorder.beat(monitor, status="fail")
    await opened.recorder.deliver()
    assert "need the extra `apprise`" in (await opened.target(monitor))["reason"]
    with pytest.raises(TargetRefused):
        composed(named(TELEGRAM), AlertText("a", (), datetime.now(UTC)), "a")


async def test_the_output_of_a_failed_run_is_code_and_names_nobody(opened: Open) -> None:
    output = "2026-11-27T10:33:41Z \x1b[31mERROR\x1b[0m @here </pre><b> ```\n"
    monitor = await opened.register(TELEGRAM)
    await opened.recorder.beat(monitor, status="fail", output=output)
    await opened.recorder.deliver()
    text = opened.services.requests[-1].json["text"]
    assert text.endswith("<pre>2026-11-27T10:33:41Z ERROR @here &lt;/pre&gt;&lt;b&gt; ```</pre>")
