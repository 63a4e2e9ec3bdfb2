"""What strangers do delays nobody else's alerts: receivers that hang, names that are not found, monitors without number."""

import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from importlib import import_module
from threading import Event
from typing import Any

import anyio
import httpcore
import pytest
from patience import patience
from recorder.receivers import Authority, Receiver
from recorder.recorders import OpenRecorder, Recorder

from campus.features.alerts.retries import WAITS
from campus.features.alerts.targets import CHECKS_PER_HOST, CONCURRENT_CHECKS
from campus.outbound.http_clients import GuardedClient, GuardedTransport, guarded_client
from campus.outbound.public_hosts import AT_ONCE, GuardedNetwork, Resolver, UrlRules, system_resolver
from campus.testing import ORIGIN

pytestmark = pytest.mark.anyio
STRANGERS = 20
NAMES = 24


@asynccontextmanager
async def delivering(recorder: Recorder) -> AsyncIterator[None]:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(recorder.campus.site.state.dispatcher.run, every=0.1))
        yield
        tasks.cancel_scope.cancel()


async def until(condition: Callable[[], object]) -> None:
    with anyio.fail_after(patience(60)):
        while not condition():  # noqa: ASYNC110  # what is waited for happens in a server, which rings no bell
            await anyio.sleep(0.02)


async def fail_all(recorder: Recorder, urls: Sequence[str], **arguments: Any) -> None:
    for url in urls:
        await recorder.beat(await recorder.register(url, **arguments), status="fail")


async def test_an_alert_overtakes_those_whose_receivers_never_answer(
    open_recorder: OpenRecorder, authority: Authority, receiver: Receiver
) -> None:
    patient = guarded_client(ORIGIN, allowed_hosts=["localhost"], trust=authority.client, seconds=10 * patience(60))
    settings = {"monitors_per_host": 1_000}
    async with open_recorder(web=patient, settings=settings) as recorder:
        await fail_all(recorder, [receiver.url(f"/hung/{number}") for number in range(STRANGERS)])
        async with delivering(recorder):
            await until(lambda: receiver.held)
            async with recorder.calling_from("2001:db8::1") as other:
                await fail_all(other, [receiver.url("/first"), receiver.url("/second")])
            await fail_all(recorder, [receiver.url("/keyed")], key="recorder")
            await until(lambda: len(receiver.requests) == 3)
            assert len(receiver.held) <= 8, "of one sender at one host that took nothing yet"


async def test_targets_that_took_an_alert_before_do_not_wait_for_new_ones(
    open_recorder: OpenRecorder, authority: Authority, receiver: Receiver
) -> None:
    patient = guarded_client(ORIGIN, allowed_hosts=["localhost"], trust=authority.client, seconds=10 * patience(60))
    settings = {"shared_hosts": ["localhost"], "deliveries": 16}
    async with open_recorder(web=patient, settings=settings) as recorder, AsyncExitStack() as stack:
        honest = await recorder.register(receiver.url("/honest"))
        await recorder.beat(honest, status="fail")
        await recorder.deliver()
        for number in range(STRANGERS):
            stranger = await stack.enter_async_context(recorder.calling_from(f"192.0.2.{number + 1}"))
            await fail_all(stranger, [receiver.url(f"/hung/{number}")])
        async with delivering(recorder):
            await until(lambda: len(receiver.held) == 10)
            await recorder.beat(honest)
            await fail_all(recorder, [receiver.url("/keyed")], key="recorder")
            await until(lambda: len(receiver.requests) == 3)
            assert len(receiver.held) == 10, "five eighths of what may be under way"


async def test_new_targets_of_a_sender_whose_others_fail_come_after_those_of_other_senders(
    open_recorder: OpenRecorder, receiver: Receiver
) -> None:
    async with open_recorder(settings={"deliveries": 1}) as recorder, recorder.calling_from("192.0.2.1") as other:
        receiver.answer(404, 200)
        await fail_all(recorder, [receiver.url("/0")])
        await recorder.deliver()
        await fail_all(recorder, [receiver.url("/1"), receiver.url("/2")])
        await fail_all(other, [receiver.url("/other")])
        await recorder.deliver()
    assert [one.path for one in receiver.requests] == ["/0", "/other", "/1", "/2"]


async def test_a_new_target_that_hangs_is_given_up_sooner_while_others_wait(
    open_recorder: OpenRecorder, authority: Authority, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_module("campus.features.alerts.dispatcher"), "HURRIED_SECONDS", 2.0)
    patient = guarded_client(ORIGIN, allowed_hosts=["localhost"], trust=authority.client, seconds=10 * patience(60))
    async with open_recorder(web=patient, settings={"deliveries": 1}) as recorder, recorder.calling_from("192.0.2.1") as other:
        await fail_all(recorder, [receiver.url("/hung")])
        async with delivering(recorder):
            await until(lambda: receiver.held)
            await fail_all(other, [receiver.url("/other")])
            await until(lambda: receiver.requests)
    assert [one.path for one in receiver.requests] == ["/other"]


@pytest.fixture
def unanswered() -> list[str]:
    """The names that were looked up and get no answer."""
    return []


@pytest.fixture
def stuck(authority: Authority, unanswered: list[str]) -> Iterator[GuardedClient]:
    """A client whose name servers do not answer for names that begin with `hang`, until the test is over, and which waits long."""
    release = Event()

    def resolve(host: str, port: int) -> Sequence[str]:
        if host.startswith("hang"):
            unanswered.append(host)
            release.wait(10 * patience(60))
            raise socket.gaierror("no answer")
        return system_resolver(host, port)

    dial = GuardedNetwork(Resolver(resolve, seconds=10 * patience(60)), allowed_hosts=["localhost"], network=httpcore.AnyIOBackend())
    yield GuardedClient(
        GuardedTransport(rules=UrlRules("campus.test", ["localhost"]), network=dial, trust=authority.client, seconds=10 * patience(60))
    )
    release.set()


async def test_unanswered_names_delay_no_delivery(
    open_recorder: OpenRecorder, receiver: Receiver, stuck: GuardedClient, unanswered: list[str]
) -> None:
    async with open_recorder(web=stuck) as recorder, AsyncExitStack() as stack, anyio.create_task_group() as tasks:
        monitor = await recorder.register(receiver.url(), key="recorder")
        for number in range(NAMES):
            stranger = await stack.enter_async_context(recorder.calling_from(f"192.0.2.{number}"))
            tasks.start_soon(partial(stranger.call, "register_monitor", name="a", alert_webhook=f"https://hang{number}.good.dev/"))
        await until(lambda: len(unanswered) >= AT_ONCE)
        await recorder.beat(monitor, status="fail")
        with anyio.fail_after(patience(60)):
            assert await recorder.deliver() == 1
        assert receiver.types == ["monitor.failed"]
        tasks.cancel_scope.cancel()


async def test_unanswered_names_delay_no_other_callers_registration(
    open_recorder: OpenRecorder, receiver: Receiver, stuck: GuardedClient, unanswered: list[str]
) -> None:
    async with open_recorder(web=stuck) as recorder, recorder.calling_from("192.0.2.1") as other, anyio.create_task_group() as tasks:
        for number in range(NAMES):
            url = f"https://hang{number}.good.dev/"
            tasks.start_soon(partial(recorder.call, "register_monitor", name="a", alert_webhook=url))
        await until(lambda: len(unanswered) >= CONCURRENT_CHECKS)
        with anyio.fail_after(patience(60)):
            assert "found or reached" not in str((await other.register(receiver.url()))["notes"])
        tasks.cancel_scope.cancel()


async def test_names_that_are_not_answered_do_not_hold_up_their_owners_other_registrations(
    open_recorder: OpenRecorder, receiver: Receiver, stuck: GuardedClient, unanswered: list[str]
) -> None:
    async with open_recorder(web=stuck) as recorder, anyio.create_task_group() as tasks:

        def register(url: str) -> None:
            tasks.start_soon(partial(recorder.call, "register_monitor", name="a", alert_webhook=url))

        for number in range(CONCURRENT_CHECKS + 1):
            register(f"https://hang.good.dev/{number}")
        await until(lambda: len(unanswered) == CHECKS_PER_HOST)
        with anyio.fail_after(patience(60)):
            assert "looked up" not in str((await recorder.register(receiver.url()))["notes"]), "one slow name"
        register("https://hang2.good.dev/")
        await until(lambda: len(unanswered) == CONCURRENT_CHECKS)
        with anyio.fail_after(patience(60)):
            assert "alert_webhook was not looked up" in str((await recorder.register(receiver.url("/b")))["notes"]), "two slow names"
        tasks.cancel_scope.cancel()


async def test_registrations_of_one_address_are_limited(open_recorder: OpenRecorder) -> None:
    async with open_recorder(settings={"registrations_per_minute": 6}) as recorder:
        for number in range(6):
            await recorder.register(f"https://localhost/{number}")
        refused = await recorder.call("register_monitor", name="a", alert_webhook="https://localhost/x")
        assert (refused.status, refused.code) == (429, "too_many_registrations")
        assert "try again in 10 s" in refused.data["detail"]
        assert refused.headers["Retry-After"] == "10"
        assert refused.headers["RateLimit-Policy"] == '"registrations";q=6;w=60'
        assert refused.headers["RateLimit"] == '"registrations";r=0;t=10'
        over_mcp = replace(recorder, campus=replace(recorder.campus, frame="mcp"))
        refused = await over_mcp.call("register_monitor", name="a", alert_webhook="https://localhost/x")
        assert refused.code == "too_many_registrations"
        await recorder.register("https://localhost/x", key="recorder")
        recorder.clock.move(timedelta(seconds=10))
        await recorder.register("https://localhost/x")


async def test_addresses_of_one_ipv6_network_are_one_caller(open_recorder: OpenRecorder) -> None:
    async with open_recorder(settings={"registrations_per_minute": 1}) as recorder, AsyncExitStack() as stack:
        callers = [
            await stack.enter_async_context(recorder.calling_from(address))
            for address in ("2001:db8::1", "2001:db8::ffff:1", "2001:db8:0:1::1", "192.0.2.1", "::ffff:192.0.2.1")
        ]
        replies = [
            await one.call("register_monitor", name="a", alert_webhook=f"https://localhost/{place}") for place, one in enumerate(callers)
        ]
    assert [reply.status for reply in replies] == [200, 429, 200, 200, 429]


async def test_monitors_without_a_key_at_one_host_are_limited_by_caller(open_recorder: OpenRecorder) -> None:
    async with open_recorder(settings={"monitors_per_host": 3}) as recorder:
        mine = [await recorder.register(f"https://localhost/{number}") for number in range(3)]
        refused = await recorder.call("register_monitor", name="a", alert_webhook="https://localhost/3")
        assert (refused.status, refused.code) == (409, "monitor_limit_reached")
        assert "localhost" in refused.data["detail"]
        async with recorder.calling_from("192.0.2.1") as other:
            await other.register("https://localhost/3")
        await recorder.register("https://localhost/4", key="recorder")
        await recorder.call("delete_monitor", monitor_id=mine[0]["monitor_id"], secret=mine[0]["secret"])
        await recorder.register("https://localhost/5")
    async with open_recorder(settings={"monitors_per_host": 3, "shared_hosts": ["localhost"]}) as recorder:
        for number in range(4):
            await recorder.register(f"https://localhost/{number}")


async def test_a_monitor_that_flaps_sends_a_few_messages_a_minute_and_a_digest_of_the_rest(recorder: Recorder, receiver: Receiver) -> None:
    monitor = await recorder.register(receiver.url(), name="flapping")
    for _ in range(20):
        for status in ("fail", "ok"):
            await recorder.beat(monitor, status=status)
            await recorder.deliver()
        await recorder.pass_time(seconds=1)
    assert len(receiver.requests) == 6
    await recorder.pass_time(seconds=39)
    assert await recorder.deliver() == 0
    await recorder.pass_time(seconds=1)
    assert await recorder.deliver() == 1
    events = [event for one in receiver.requests for event in one.json.get("events", [one.json])]
    pair = ["monitor.failed", "monitor.recovered"]
    assert [event["type"] for event in events] == [*pair * 3, "monitor.recovered", *pair * 4]
    assert [event["omitted"]["count"] for event in events if event["omitted"]] == [20 - 7]
    assert await recorder.alerts(monitor) == []


async def test_a_host_that_takes_nothing_is_asked_a_few_times_however_many_monitors_name_it(recorder: Recorder, receiver: Receiver) -> None:
    receiver.answer(404)
    await fail_all(recorder, [receiver.url(f"/{number}") for number in range(12)])
    for _ in range(24):
        await recorder.deliver()
        recorder.clock.move(timedelta(hours=1))
    assert len(receiver.requests) <= 5 * len(WAITS)
    receiver.answer(200)
    for _ in range(24):
        await recorder.deliver()
        recorder.clock.move(timedelta(hours=1))
    taken = {one.path for one in receiver.requests[-12:]}
    assert len(taken) == 12, "once it answers, each alert arrives"


async def test_one_address_has_a_host_sent_to_so_often_a_minute(open_recorder: OpenRecorder, receiver: Receiver) -> None:
    async with open_recorder(settings={"alerts_per_host": 5}) as recorder, recorder.calling_from("192.0.2.1") as other:
        await fail_all(recorder, [receiver.url(f"/{number}") for number in range(13)])
        await fail_all(other, [receiver.url("/other")])
        await recorder.deliver()
        assert len(receiver.requests) == 6
        assert "/other" in {one.path for one in receiver.requests}
        for sent in (11, 14):
            for _ in range(20):
                recorder.clock.move(timedelta(seconds=3))
                await recorder.deliver()
            assert len(receiver.requests) == sent


def test_a_client_apart_is_guarded_alike(authority: Authority) -> None:
    web = guarded_client(ORIGIN, allowed_hosts=["localhost"], trust=authority.client)
    for one in (web, web.apart()):
        with pytest.raises(Exception, match="only https"):
            one.check_url("http://good.dev/")
    assert isinstance(web.apart(), GuardedClient)
