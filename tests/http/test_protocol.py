"""Connections that owe a request, or send too much of one."""

import asyncio

import anyio
import pytest
from patience import patience
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from campus.http.protocol import PIPELINED, LimitedProtocol, with_limits

pytestmark = pytest.mark.anyio

QUICK = with_limits(head_seconds=0.3, linger_seconds=0.2)
HEAD_BYTES = 8_000
SMALL = with_limits(head_bytes=HEAD_BYTES, linger_seconds=0.2)
PATIENT = with_limits(linger_seconds=2 * patience(20))
GET = b"GET /%s HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def path(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the path, after a moment when it says so."""
    if "slow" in scope["path"]:
        await anyio.sleep(0.5)
    body = scope["path"].encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", str(len(body)).encode())]})
    await send({"type": "http.response.body", "body": body})


async def ignore(scope: Scope, receive: Receive, send: Send) -> None:
    """Reads the whole body."""
    while (await receive()).get("more_body"):
        pass
    await path(scope, receive, send)


@pytest.mark.faults("slow bodies")
async def test_a_connection_that_never_completes_its_head_is_closed(serving) -> None:
    async with serving(path, protocol=QUICK) as served, served.connected() as connection:
        await connection.send(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
        assert await connection.rest() == b""


async def test_a_connection_that_says_nothing_is_closed(serving) -> None:
    async with serving(path, protocol=QUICK) as served, served.connected() as connection:
        assert await connection.rest() == b""


@pytest.mark.parametrize("before", [b"", GET % b"first"], ids=["on a new connection", "after a response"])
@pytest.mark.parametrize("drop", [b"\r\n", b"X-A: b\r\n"], ids=["empty lines", "header lines"])
@pytest.mark.faults("slow bodies")
async def test_dripping_does_not_buy_time(serving, before: bytes, drop: bytes) -> None:
    async with serving(path, protocol=QUICK) as served, served.connected() as connection, anyio.create_task_group() as tasks:
        if before:
            await connection.send(before)
            assert (await connection.answer()).body == b"/first"
        if drop.strip():
            await connection.send(b"GET / HTTP/1.1\r\n")

        async def drip() -> None:
            while True:
                await connection.send(drop)
                await anyio.sleep(0.1)

        tasks.start_soon(until_broken, drip)
        assert await connection.rest() == b""
        tasks.cancel_scope.cancel()


async def until_broken(send) -> None:
    try:
        await send()
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        return


async def test_the_rest_of_a_refused_body_does_not_hold_the_connection(serving) -> None:
    async with serving(path, protocol=QUICK, body_bytes=10) as served, served.connected() as connection:
        await connection.send(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n")
        assert (await connection.answer()).status == 413
        await connection.send(b"a little")
        assert await connection.rest() == b""


@pytest.mark.faults("slow bodies")
async def test_two_hundred_half_requests_go_and_others_are_served_meanwhile(serving) -> None:
    protocol = with_limits(head_seconds=patience(2), linger_seconds=0.2)  # the other request arrives within it, on a busy machine too
    async with serving(path, protocol=protocol) as served, anyio.create_task_group() as tasks:
        closed = []

        async def half() -> None:
            async with served.connected() as connection:
                await connection.send(b"GET / HTTP/1.1\r\nHost:")
                closed.append(await connection.rest())

        for _ in range(200):
            tasks.start_soon(half)
        assert (await served.get("/meanwhile")).body == b"/meanwhile"
    assert closed == [b""] * 200


async def test_a_call_may_take_longer_than_a_head(serving) -> None:
    async with serving(path, protocol=QUICK) as served:
        assert (await served.get("/slow")).body == b"/slow"


LINE = "X-Line: " + "y" * 1_990
LINES = "\r\n".join([LINE] * 10)


HEADS = {
    "lines of 2,000": f"GET / HTTP/1.1\r\nHost: localhost\r\n{LINES}\r\n\r\n",
    "one line": f"GET / HTTP/1.1\r\nHost: localhost\r\nX-One: {'y' * 9_000}\r\n\r\n",
    "path": f"GET /{'y' * 9_000} HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "query": f"GET /?{'y' * 9_000} HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "many short lines": "GET / HTTP/1.1\r\nHost: localhost\r\n" + "A:\r\n" * 3_000 + "\r\n",
    "without an end": "GET / HTTP/1.1\r\nHost: localhost\r\n" + f"{LINE}\r\n" * 200,
    "one line without an end": f"GET / HTTP/1.1\r\nHost: localhost\r\nX-One: {'y' * 400_000}",
}


async def test_a_head_over_the_limit_is_431(serving) -> None:
    async with serving(path, protocol=SMALL) as served:
        for name, head in HEADS.items():
            answer = await served.ask(head)
            assert (answer.status, answer.json()["code"]) == (431, "head_too_large"), name
            assert answer.headers["content-type"] == "application/problem+json"
            assert answer.headers["connection"] == "close"


async def test_a_head_over_the_limit_in_small_pieces_is_431(serving) -> None:
    async with serving(path, protocol=SMALL) as served, served.connected() as connection:
        await connection.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
        for _ in range(5):
            await connection.send(LINE.encode() + b"\r\n")
            await anyio.sleep(0.01)
        await connection.send(b"\r\n")
        assert (await connection.answer()).status == 431


async def test_a_head_just_within_the_limit_is_served(serving) -> None:
    async with serving(path, protocol=SMALL) as served:
        assert (await served.get("/", *[LINE] * 3)).status == 200


async def test_a_body_beside_the_head_does_not_count_as_head(serving) -> None:
    async with serving(ignore, protocol=SMALL) as served, served.connected() as connection:
        for _ in range(3):
            await connection.send(b"POST /ok HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n" + b"x" * 100_000)
            assert (await connection.answer()).body == b"/ok"


async def test_requests_sent_ahead_are_answered_in_order_and_their_heads_are_not_added_up(serving) -> None:
    async with serving(path, protocol=SMALL) as served, served.connected() as connection:
        one = "GET /{} HTTP/1.1\r\nHost: localhost\r\n" + LINE + "\r\n\r\n"
        await connection.send(
            "".join(one.format(number) for number in range(10)).encode()
            + b"GET /last HTTP/1.1\r\nConnection: close\r\nHost: localhost\r\n\r\n"
        )
        answers = await connection.rest()
    found = [part.rpartition(b"\r\n\r\n")[2] for part in answers.split(b"HTTP/1.1 200 OK")[1:]]
    assert found == [f"/{number}".encode() for number in range(10)] + [b"/last"]


async def test_too_many_requests_sent_ahead_end_the_connection(serving) -> None:
    ran = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        ran.append(scope["path"])
        await path(scope, receive, send)

    async with serving(app, protocol=SMALL) as served, served.connected() as connection:
        await connection.send(GET % b"slow" + GET % b"x" * (PIPELINED + 5))
        assert await connection.rest() == b""
    assert set(ran) <= {"/slow"}


async def test_a_caller_that_sends_ahead_and_leaves_makes_no_error(serving, caplog) -> None:
    ran, begun, done = [], anyio.Event(), anyio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        ran.append(scope["path"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        begun.set()
        while (await receive())["type"] != "http.disconnect":
            pass
        await send({"type": "http.response.body", "body": b"x" * 1_000})
        done.set()

    async with serving(app) as served:
        with anyio.fail_after(patience(20)):
            async with served.connected() as connection:
                await connection.send(GET % b"first" + GET % b"x" * 3)
                await begun.wait()
            await done.wait()
    assert ran == ["/first"]
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


class Large:
    """An app whose responses are larger than what the two ends of a connection hold unread; it notes the paths that it is asked."""

    BODY = b"\0" * 2**24

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.has_answered = anyio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.asked.append(scope["path"])
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(self.BODY))]})
        await send({"type": "http.response.body", "body": self.BODY})
        self.has_answered.set()


async def test_a_request_sent_ahead_is_not_begun_before_the_response_to_the_one_before_is_read(serving) -> None:
    large = Large()
    async with serving(large) as served, served.connected() as connection:
        await connection.send(GET % b"first" + b"GET /last HTTP/1.1\r\nConnection: close\r\nHost: localhost\r\n\r\n")
        with anyio.fail_after(patience(20)):
            await large.has_answered.wait()
        await anyio.sleep(0.2)
        assert large.asked == ["/first"]
        assert (await connection.rest()).count(b"\0") == 2 * len(large.BODY)
    assert large.asked == ["/first", "/last"]


async def test_who_sends_ahead_and_does_not_read_is_disconnected(serving) -> None:
    large = Large()
    async with serving(large, protocol=QUICK) as served, served.connected() as connection:
        await connection.send(GET % b"first" + GET % b"second")
        with anyio.fail_after(patience(20)):
            await large.has_answered.wait()
        await anyio.sleep(patience(1))
        assert (await connection.rest()).count(b"\0") == len(large.BODY)
    assert large.asked == ["/first"]


GARBAGE = {
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "a word": b"GARBAGE\r\n\r\n",
    "a version": b"GET / HTTP/9.9\r\n\r\n",
    "bytes in the path": b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a space before the colon": b"GET / HTTP/1.1\r\nHost : localhost\r\n\r\n",
    "a zero byte": b"GET / HTTP/1.1\r\nHost: local\x00host\r\n\r\n",
    "CONNECT": b"CONNECT example.org:443 HTTP/1.1\r\nHost: example.org\r\n\r\n",
}


async def test_what_is_not_http_is_400(serving) -> None:
    async with serving(path, protocol=SMALL) as served:
        for name, garbage in GARBAGE.items():
            answer = await served.ask(garbage)
            assert (answer.status, answer.json()["code"]) == (400, "invalid_http"), name


VERSIONS_AND_CODINGS = (
    ("GET / HTTP/2.0", "", 505),
    ("GET / HTTP/0.9", "", 505),
    ("GET /", "", 505),
    ("GET / HTTP/1.0", "", 200),
    ("POST / HTTP/1.1", "Transfer-Encoding: gzip, chunked\r\n", 400),
    ("POST / HTTP/1.1", "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n", 400),
    ("POST / HTTP/1.1", "Transfer-Encoding: Chunked\r\n", 200),
)


async def test_another_version_of_http_and_a_coding_besides_chunked_are_refused(serving) -> None:
    async with serving(path) as served:
        for line, more, status in VERSIONS_AND_CODINGS:
            answer = await served.ask(f"{line}\r\nHost: localhost\r\n{more}\r\n" + "0\r\n\r\n" * bool(more))
            assert answer.status == status, (line, more)
            assert status == 200 or answer.json()["code"] == "invalid_http"


async def test_a_stream_reaches_a_caller_of_http_1_0_without_chunks_and_ends_with_its_connection(serving) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        await send({"type": "http.response.body", "body": b"data: 1\n\n", "more_body": True})
        await send({"type": "http.response.body", "body": b"data: 2\n\n"})

    async with serving(app) as served, served.connected() as connection:
        await connection.send(b"GET / HTTP/1.0\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n")
        head, _, body = (await connection.rest()).partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head.lower()
    assert b"connection: close" in head.lower()
    assert body == b"data: 1\n\ndata: 2\n\n"


CHUNK = b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"


async def test_a_broken_chunk_is_400_and_the_app_learns_that_the_caller_has_gone(serving) -> None:
    seen, begun, done = [], anyio.Event(), anyio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append((await receive())["type"])
        begun.set()
        seen.append((await receive())["type"])
        done.set()

    async with serving(app, protocol=PATIENT) as served, served.connected() as connection:
        await connection.send(CHUNK)
        with anyio.fail_after(patience(20)):
            await begun.wait()
            await connection.send(b"nonsense\r\n")
            await done.wait()
        assert (await connection.answer()).status == 400
    assert seen == ["http.request", "http.disconnect"]


async def test_a_broken_chunk_puts_no_second_answer_into_one_that_has_begun(serving) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"10")]})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        begun.set()
        while (await receive())["type"] != "http.disconnect":
            pass

    begun = anyio.Event()
    async with serving(app, protocol=SMALL) as served, served.connected() as connection:
        await connection.send(CHUNK)
        with anyio.fail_after(patience(20)):
            await begun.wait()
        await connection.send(b"nonsense\r\n")
        answer = await connection.rest()
    assert answer.count(b"HTTP/1.1") == 1
    assert answer.endswith(b"half")


async def test_a_broken_request_behind_a_good_one_is_not_answered_in_its_place(serving) -> None:
    async with serving(path, protocol=SMALL) as served, served.connected() as connection:
        await connection.send(GET % b"slow" + b"GARBAGE\r\n\r\n")
        assert b"400" not in await connection.rest()


@pytest.mark.parametrize("protocol", ["websocket", "h2c"])
async def test_an_offer_to_upgrade_is_passed_over(serving, protocol: str, caplog) -> None:
    async with serving(path) as served:
        answer = await served.get(
            "/here", "Connection: Upgrade", f"Upgrade: {protocol}", "Sec-WebSocket-Key: dGhlIHNhbXBsZQ==", "Sec-WebSocket-Version: 13"
        )
    assert answer.body == b"/here"
    assert "pip install" not in caplog.text


@pytest.mark.parametrize("pieces", [1, 7, 1000], ids=["at once", "in pieces", "byte by byte"])
async def test_an_offer_to_upgrade_does_not_lose_the_body(serving, pieces: int) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        await Response(await Request(scope, receive).body() + b" " + headers[b"x-more"])(scope, receive, send)

    head = "POST / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nX-More: 1\r\n"
    sized, chunked = "Content-Length: 4\r\n\r\nbody", "Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n"
    async with serving(app) as served, served.connected() as connection:
        for request in (head + sized, head + chunked, head + sized):
            data = request.encode()
            step = max(1, len(data) // pieces)
            for start in range(0, len(data), step):
                await connection.send(data[start : start + step])
            assert (await connection.answer()).body == b"body 1"


async def test_one_connection_too_many_is_refused_and_the_others_are_served(serving) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        begun.release()
        await release.wait()
        await path(scope, receive, send)

    begun, release = anyio.Semaphore(0), anyio.Event()
    protocol = with_limits(connections_limit=2, linger_seconds=0.2)
    async with serving(app, protocol=protocol) as served, served.connected() as first, served.connected() as second:
        with anyio.fail_after(patience(20)):
            for connection in (first, second):
                await connection.send(GET % b"one")
                await begun.acquire()
        async with served.connected() as third:
            answer = await third.answer()
        release.set()
        for connection in (first, second):
            assert (await connection.answer()).body == b"/one"
    assert (answer.status, answer.json()["code"], answer.headers["retry-after"]) == (503, "overloaded", "5")


async def test_a_call_that_was_answered_leaves_no_task_behind(serving) -> None:
    connections: list[LimitedProtocol] = []

    class Remembered(LimitedProtocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            connections.append(self)

    async with serving(path, protocol=Remembered) as served:
        for _ in range(3):
            assert (await served.get()).status == 200
        await anyio.wait_all_tasks_blocked()
        assert not connections[0].tasks
