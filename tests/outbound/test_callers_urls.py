"""What happens on the wire: one lookup, a checked connection, a short and bounded exchange, and no way round."""

import gzip
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event
from typing import Any

import anyio
import anyio.abc
import anyio.lowlevel
import httpx
import pytest
from anyio.abc import SocketAttribute, SocketStream
from httpcore import AnyIOBackend
from outbound.conftest import Names, Network, OpenClient, OpenReceiver
from patience import patience

from campus.errors import TargetRefused
from campus.outbound.http_clients import certificate_authorities, feeds_client
from campus.outbound.public_hosts import Resolver

pytestmark = pytest.mark.anyio
HOOK, PUBLIC = "hooks.good.dev", "93.184.215.14"
URL = f"https://{HOOK}/in?token=1"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nX-Kind: good\r\n\r\nfine"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n"
"""Seconds after which a wait is given up: a bound, not an expectation."""
LITTLE = patience(1)
"""Seconds for an exchange that is meant to run out of them."""


async def test_a_public_target_gets_the_request_over_tls_after_one_lookup(open_receiver: OpenReceiver, open_client: OpenClient) -> None:
    asked = Names()
    async with open_receiver(OK) as receiver:
        web = open_client(asked, Network({PUBLIC: receiver.port}))
        response = await web.post(URL, content=b'{"a":1}', headers={"webhook-id": "m1"})
    assert (response.status_code, response.content, response.headers["x-kind"]) == (200, b"fine", "good")
    assert asked.asked == [HOOK]
    head, _, body = receiver.requests[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /in?token=1 HTTP/1.1\r\n")
    assert b"host: hooks.good.dev\r\n" in head.lower() + b"\r\n"
    assert b"webhook-id: m1" in head.lower()
    assert body == b'{"a":1}'


@pytest.mark.parametrize("url", [URL, "https://Hooks.GOOD.dev:443", 'https://hooks.good.dev:8443/a%20b/"{}|?q="%C3%A9='])
async def test_an_alert_is_posted_as_httpx_would_post_it(url: str, open_receiver: OpenReceiver, open_client: OpenClient) -> None:
    async with open_receiver(OK) as receiver:
        web = open_client(Names([[PUBLIC], [PUBLIC]]), Network({PUBLIC: receiver.port}))
        answers = [await web.post(url, content=b"{}", headers={"webhook-id": "m1"}), await web.post_bytes(url, b"{}", {"webhook-id": "m1"})]
    assert [(one.status_code, one.content, one.headers) for one in answers] == [(200, b"fine", answers[0].headers)] * 2
    first, second = ({line.lower() for line in one.split(b"\r\n")} for one in receiver.requests)
    assert first - second == {b"accept: */*", b"connection: keep-alive"}
    assert second - first == set()


@pytest.mark.faults("strangers' targets")
async def test_a_name_that_moves_to_a_private_address_is_refused_at_the_next_delivery(
    open_receiver: OpenReceiver, open_client: OpenClient
) -> None:
    async with open_receiver(OK) as receiver:
        net = Network({PUBLIC: receiver.port, "127.0.0.1": receiver.port})
        web = open_client(Names([[PUBLIC], ["127.0.0.1"]]), net)
        assert (await web.post(URL)).status_code == 200
        with pytest.raises(TargetRefused) as caught:
            await web.post(URL)
    assert caught.value.rule == "address"
    assert net.dialled == [PUBLIC]
    assert receiver.connections == 1


@pytest.mark.faults("strangers' targets")
async def test_what_was_right_at_registration_is_checked_again_at_delivery(open_client: OpenClient) -> None:
    net = Network()
    web = open_client(Names([[PUBLIC], [PUBLIC, "10.0.0.1"]]), net)
    await web.check_target(URL)
    with pytest.raises(TargetRefused):
        await web.post(URL)
    assert net.dialled == []


@pytest.mark.faults("strangers' targets")
async def test_a_connection_that_ends_elsewhere_or_nobody_knows_where_is_dropped_before_anything_is_sent(
    open_receiver: OpenReceiver, open_client: OpenClient
) -> None:
    async with open_receiver(OK, tls=False) as receiver:
        places = {PUBLIC: receiver.port}
        for network in (Network(places, honest=False), Network(places, knows_peers=False)):
            with pytest.raises(TargetRefused, match="did not lead to the address that was checked"):
                await open_client(Names(), network).post(URL)
    assert receiver.requests == []


async def test_the_next_address_is_tried_when_one_does_not_answer(open_receiver: OpenReceiver, open_client: OpenClient) -> None:
    async with open_receiver(OK) as receiver:
        net = Network({PUBLIC: receiver.port})
        assert (await open_client(Names([["8.8.8.8", PUBLIC]]), net).post(URL)).status_code == 200
    assert net.dialled == ["8.8.8.8", PUBLIC]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.faults("strangers' targets")
async def test_a_redirect_is_an_answer_that_cannot_be_followed(status: int, open_receiver: OpenReceiver, open_client: OpenClient) -> None:
    answer = f"HTTP/1.1 {status} Moved\r\nLocation: https://{HOOK}/other\r\nContent-Length: 0\r\n\r\n".encode()
    async with open_receiver(answer) as receiver:
        web = open_client(Names(), Network({PUBLIC: receiver.port}))
        response = await web.post(URL, content=b"x", follow_redirects=True)
    assert response.status_code == status
    assert receiver.connections == 1


async def test_a_target_whose_certificate_is_not_believed_gets_nothing(open_receiver: OpenReceiver, open_client: OpenClient) -> None:
    async with open_receiver(OK) as receiver:
        web = open_client(Names(), Network({PUBLIC: receiver.port}))
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            await web.post("https://another.good.dev/")
    assert receiver.requests == []


async def trickle(stream: anyio.abc.ByteStream) -> None:
    """One byte of a head at a time, for ever."""
    for byte in HEAD[:-4] + b"\r\nX-More: " + b"a" * 100_000:
        await stream.send(bytes([byte]))
        await anyio.sleep(0.02)


async def silence(stream: anyio.abc.ByteStream) -> None:
    await anyio.sleep_forever()


async def slow_body(stream: anyio.abc.ByteStream) -> None:
    await stream.send(HEAD)
    while True:
        await stream.send(b"a")
        await anyio.sleep(0.02)


async def early_hints(stream: anyio.abc.ByteStream) -> None:
    while True:
        await stream.send(b"HTTP/1.1 103 Early Hints\r\n\r\n")
        await anyio.sleep(0.001)


@pytest.mark.parametrize("answer", [silence, trickle, slow_body, early_hints], ids=lambda answer: answer.__name__)
async def test_a_slow_answer_is_cut(answer: Callable[..., Any], open_receiver: OpenReceiver, open_client: OpenClient) -> None:
    async with open_receiver(answer) as receiver:
        web = open_client(Names(), Network({PUBLIC: receiver.port}), seconds=LITTLE)
        with anyio.fail_after(patience(20)), pytest.raises(httpx.TimeoutException):
            await web.post(URL, content=b"x", timeout=patience(20))
    assert receiver.connections == 1


async def endless_body(stream: anyio.abc.ByteStream) -> None:
    await stream.send(b"HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        await stream.send(b"3e8\r\n" + b"a" * 1000 + b"\r\n")


async def test_of_an_endless_answer_four_kilobytes_are_read(open_receiver: OpenReceiver, open_client: OpenClient) -> None:
    async with open_receiver(endless_body) as receiver:
        web = open_client(Names(), Network({PUBLIC: receiver.port}))
        with anyio.fail_after(patience(20)):
            response = await web.post(URL)
    assert response.status_code == 500
    assert response.content == b"a" * 4096


async def endless_head(stream: anyio.abc.ByteStream) -> None:
    await stream.send(b"HTTP/1.1 200 OK\r\n")
    while True:
        await stream.send(b"X-More: " + b"a" * 1000 + b"\r\n")


async def test_an_endless_head_is_an_error(open_receiver: OpenReceiver, open_client: OpenClient) -> None:
    async with open_receiver(endless_head) as receiver:
        web = open_client(Names(), Network({PUBLIC: receiver.port}))
        with anyio.fail_after(patience(20)), pytest.raises(httpx.RemoteProtocolError):
            await web.post(URL)


async def test_a_packed_answer_stays_packed(open_receiver: OpenReceiver, open_client: OpenClient) -> None:
    bomb = gzip.compress(b"0" * 3_000_000)
    async with open_receiver(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb) + bomb) as receiver:
        response = await open_client(Names(), Network({PUBLIC: receiver.port})).post(URL)
    assert response.content == bomb[:4096]
    assert b"accept-encoding: identity" in receiver.requests[0].lower()


async def test_no_cookie_is_kept_from_one_delivery_to_the_next(open_receiver: OpenReceiver, open_client: OpenClient) -> None:
    async with open_receiver(b"HTTP/1.1 200 OK\r\nSet-Cookie: a=b\r\nContent-Length: 0\r\n\r\n") as receiver:
        web = open_client(Names(), Network({PUBLIC: receiver.port}))
        await web.post(URL)
        await web.post(URL)
    assert receiver.connections == 2
    assert all(b"cookie" not in request.lower() for request in receiver.requests)


async def test_a_proxy_of_the_environment_is_not_used(
    open_receiver: OpenReceiver, open_client: OpenClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_receiver(OK) as receiver, open_receiver(OK, tls=False) as proxy:
        for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        assert (await open_client(Names(), Network({PUBLIC: receiver.port})).post(URL)).status_code == 200
    assert (receiver.connections, proxy.connections) == (1, 0)


async def test_an_allowed_host_may_be_here_over_http_and_at_any_port(open_receiver: OpenReceiver, open_client: OpenClient) -> None:
    async with open_receiver(OK, tls=False) as plain:
        web = open_client(Names([["127.0.0.1"]]), AnyIOBackend(), allowed_hosts={"127.0.0.1", "localhost", "receiver"})
        for host in ("127.0.0.1", "localhost", "receiver"):
            assert (await web.post(f"http://{host}:{plain.port}/in")).content == b"fine"
        for url in (
            f"http://a.localhost:{plain.port}/",
            f"http://u@localhost:{plain.port}/",
            "http://localhost/#a",
            f"http://[::1]:{plain.port}/",
        ):
            with pytest.raises(TargetRefused):
                await web.post(url)


async def test_an_allowed_host_is_believed_no_more_than_another_over_tls(open_receiver: OpenReceiver, open_client: OpenClient) -> None:
    async with open_receiver(OK) as receiver:
        web = open_client(Names([["127.0.0.1"]]), AnyIOBackend(), allowed_hosts={"localhost", "127.0.0.1"})
        assert (await web.post(f"https://localhost:{receiver.port}/in")).content == b"fine"
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            await web.post(f"https://127.0.0.1:{receiver.port}/in")


async def test_a_name_that_leads_nowhere_is_an_error_that_may_pass(open_client: OpenClient) -> None:
    def unknown(host: str, port: int) -> Sequence[str]:
        raise OSError("Name or service not known")

    web = open_client(unknown, Network())
    for calling in (web.check_target, web.post):
        with pytest.raises(httpx.ConnectError, match=r"hooks\.good\.dev cannot be looked up"):
            await calling(URL)
    with pytest.raises(httpx.ConnectError):
        await open_client(lambda host, port: (), Network()).check_target(URL)


async def test_a_target_that_nobody_answers_at_is_an_error_that_may_pass(open_client: OpenClient) -> None:
    with pytest.raises(httpx.ConnectError):
        await open_client(Names(), Network()).post(URL)


async def test_name_servers_that_never_answer_are_given_up_and_take_no_more_threads_than_they_may() -> None:
    release, begun = Event(), []

    def stuck(host: str, port: int) -> Sequence[str]:
        begun.append(host)
        release.wait(patience(20))
        return ["8.8.8.8"]

    lookup = Resolver(stuck, seconds=0.1, at_once=2, threads=3)
    try:
        for number in range(3):
            with pytest.raises(TimeoutError):
                await lookup.addresses(f"{number}.dev", 443)
        with pytest.raises(OSError, match="too many lookups get no answer"):
            await lookup.addresses("4.dev", 443)
        assert begun == ["0.dev", "1.dev", "2.dev"]
    finally:
        release.set()
    with anyio.fail_after(patience(20)):
        while not (found := await answers(lookup)):
            await anyio.lowlevel.checkpoint()
    assert found == ["8.8.8.8"]


async def answers(lookup: Resolver) -> Sequence[str]:
    """What the lookup gives, nothing as long as its threads are taken."""
    try:
        return await lookup.addresses("5.dev", 443)
    except OSError:
        return []


async def test_a_feed_that_leads_to_a_file_of_this_machine_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("mine")
    (tmp_path / "feed").write_text("fine")
    places = {"/file": f"file://{tmp_path}/secret", "/FILE": f"FILE:{tmp_path}/secret", "/moved": "/feed", "/web": None}

    async def answer(stream: SocketStream) -> None:
        async with stream:
            place = places.get((await stream.receive()).split()[1].decode())
            head = f"302 Found\r\nLocation: {place}" if place else "200 OK"
            await stream.send(f"HTTP/1.1 {head}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())

    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as tasks,
        feeds_client(certificate_authorities()) as client,
    ):
        tasks.start_soon(listener.serve, answer)
        url = f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}"
        for path in ("/file", "/FILE"):
            with pytest.raises(httpx.UnsupportedProtocol, match="leads to an address of the kind file:"):
                await client.get(f"{url}{path}")
        assert (await client.get(f"{url}/moved")).status_code == 200
        assert (await client.get(f"file://{tmp_path}/feed")).text == "fine"
        tasks.cancel_scope.cancel()
