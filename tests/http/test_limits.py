"""Bodies: too large, too slow, and not as announced."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress

import anyio
import httpx
import pytest
from patience import patience
from starlette.types import Receive, Scope, Send

from campus.http.edge import Edge
from campus.http.limits import HELD_PER_ADDRESS, WAITING_PER_ADDRESS
from tests import patient

pytestmark = pytest.mark.anyio

LIMIT = 1000


async def respond(send: Send, body: bytes, status: int = 200) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", str(len(body)).encode())]})
    await send({"type": "http.response.body", "body": body})


async def length(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the length of the body, and 500 to whatever stops it from reading."""
    body, more = b"", True
    try:
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ConnectionError
            body += message.get("body", b"")
            more = message.get("more_body", False)
    except Exception:
        await respond(send, b"swallowed", 500)
    else:
        await respond(send, str(len(body)).encode())


async def silent(scope: Scope, receive: Receive, send: Send) -> None:
    await respond(send, b"never read")


def chunked(*chunks: bytes) -> bytes:
    body = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)
    return b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" + body


def sized(announced: object, body: bytes = b"", *more: str) -> bytes:
    head = ["POST / HTTP/1.1", "Host: localhost", f"Content-Length: {announced}", *more, "", ""]
    return "\r\n".join(head).encode() + body


async def test_a_body_of_exactly_the_limit_is_taken(serving) -> None:
    async with serving(length, body_bytes=LIMIT) as served:
        assert (await served.ask(sized(LIMIT, b"x" * LIMIT))).body == b"1000"
        assert (await served.ask(chunked(b"x" * 600, b"x" * 400, b""))).body == b"1000"
        assert (await served.get()).body == b"0"


async def test_an_announced_body_over_the_limit_is_refused_without_running_the_app(serving) -> None:
    ran = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        ran.append(scope["path"])
        await length(scope, receive, send)

    async with serving(app, body_bytes=LIMIT) as served:
        answer = await served.ask(sized(LIMIT + 1))
    assert (answer.status, answer.json()["code"], ran) == (413, "body_too_large", [])
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["request_id"] == answer.headers["x-request-id"]


async def test_a_chunked_body_over_the_limit_is_413_although_the_app_swallows_everything(serving) -> None:
    finished = anyio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await length(scope, receive, send)
        finished.set()  # its own answer went nowhere, and made no noise

    async with serving(app, body_bytes=LIMIT) as served:
        answer = await served.ask(chunked(*[b"x" * 100] * 11))
        with anyio.fail_after(patience(10)):
            await finished.wait()
    assert (answer.status, answer.json()["code"]) == (413, "body_too_large")


async def test_a_chunked_body_over_the_limit_is_413_also_when_the_app_raises(serving, caplog) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        raise ValueError("the caller has gone")

    async with serving(app, body_bytes=LIMIT) as served:
        answer = await served.ask(chunked(*[b"x" * 100] * 11))
    assert answer.status == 413
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_a_body_over_the_limit_is_413_under_any_server() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(11):
            yield b"x" * 100

    edge = Edge(length, public_url="http://campus.example", port=80, body_bytes=LIMIT)
    async with patient.AsyncClient(transport=httpx.ASGITransport(edge), base_url="http://campus.example") as client:
        answer = await client.post("/", content=chunks())
    assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")


async def test_after_a_refused_body_the_connection_serves_the_next_request(serving) -> None:
    async with serving(length, body_bytes=LIMIT) as served, served.connected() as connection:
        await connection.send(sized(300_000, b"x" * 300_000))
        assert (await connection.answer()).status == 413
        await connection.send(sized(3, b"abc"))
        assert (await connection.answer()).body == b"3"


async def test_a_large_upload_can_be_finished_and_its_refusal_read(serving) -> None:
    async with serving(length, body_bytes=LIMIT) as served, patient.AsyncClient() as client:
        answer = await client.post(served.url, content=b"x" * 3_000_000)
    assert answer.status_code == 413


async def test_a_caller_that_asks_before_sending_gets_its_refusal_instead_of_100(serving) -> None:
    async with serving(length, body_bytes=LIMIT) as served, served.connected() as connection:
        await connection.send(sized(LIMIT + 1, b"", "Expect: 100-continue"))
        answer = await connection.rest()
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"connection: close" in answer.lower()


async def test_a_caller_that_asks_before_sending_gets_100_continue(serving) -> None:
    async with serving(length, body_bytes=LIMIT) as served, served.connected() as connection:
        await connection.send(sized(3, b"", "Expect: 100-continue"))
        assert (await connection.answer()).status == 100
        await connection.send(b"abc")
        assert (await connection.answer()).body == b"3"


@pytest.mark.parametrize("request_", [sized(10, b"abc"), chunked(b"abc")], ids=["sized", "chunked"])
@pytest.mark.faults("slow bodies")
async def test_a_body_that_does_not_arrive_in_time_is_408_and_ends_the_connection(serving, request_: bytes) -> None:
    async with serving(length, body_seconds=0.3) as served, served.connected() as connection:
        await connection.send(request_)
        answer = await connection.rest()
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b'"code":"body_timeout"' in answer
    assert answer.count(b"HTTP/1.1") == 1


@pytest.mark.faults("slow bodies")
async def test_bodies_that_do_not_come_take_no_call_from_others_and_the_longest_wait_makes_room(serving) -> None:
    async with serving(length, calls=6) as served, AsyncExitStack() as stack:
        waiting = []
        for number in range(8):  # 127.0.0.1 is a trusted proxy: each caller behind it is an address of its own
            waiting.append(await stack.enter_async_context(served.connected()))
            await waiting[-1].send(sized(10, b"abc", f"X-Forwarded-For: 192.0.2.{number % 4}"))
            assert (await served.ask(sized(3, b"abc", "X-Forwarded-For: 198.51.100.1"))).body == b"3", number
        for number, connection in enumerate(waiting[:5]):
            refused = await connection.rest()
            assert refused.startswith(b"HTTP/1.1 503 "), number
            assert b'"code":"overloaded"' in refused
        for connection in waiting[5:]:
            await connection.send(b"defghij")
            assert (await connection.answer()).body == b"10"


@pytest.mark.faults("slow bodies")
async def test_one_address_may_wait_for_a_limited_number_of_bodies(serving) -> None:
    async with serving(length) as served, AsyncExitStack() as stack:
        waiting = []
        for _ in range(WAITING_PER_ADDRESS + 1):
            waiting.append(await stack.enter_async_context(served.connected()))
            await waiting[-1].send(sized(10, b"abc"))
            assert (await served.get()).body == b"0"
        assert (await waiting[0].rest()).startswith(b"HTTP/1.1 503 ")
        for connection in waiting[1:]:
            await connection.send(b"defghij")
            assert (await connection.answer()).body == b"10"


async def test_a_call_whose_body_has_arrived_waits_for_none(serving) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        running.append(scope)
        await receive()  # as apps do to learn that their caller leaves

    running: list[Scope] = []
    async with serving(app, calls=4) as served, AsyncExitStack() as stack:
        connections = [await stack.enter_async_context(served.connected()) for _ in range(3)]
        for number, connection in enumerate(connections):
            await connection.send(sized(3, b"abc"))
            with anyio.fail_after(patience(10)):
                while len(running) <= number:  # noqa: ASYNC110  # as many callers as wait for their answers
                    await anyio.sleep(0.01)
        with pytest.raises(TimeoutError), anyio.fail_after(0.1):
            await connections[0].rest()


async def test_the_time_for_a_body_does_not_run_after_it_has_arrived(serving) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        with anyio.move_on_after(0.5):
            await receive()
            raise AssertionError("nothing more was to come")
        await respond(send, b"in peace")

    async with serving(app, body_seconds=0.2) as served:
        assert (await served.ask(sized(3, b"abc"))).body == b"in peace"


async def test_a_caller_that_leaves_in_the_middle_of_its_body_makes_no_error(serving, caplog) -> None:
    async with serving(length) as served, served.connected() as connection:
        await connection.send(sized(10, b"abc"))
    assert not [record for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")]


async def test_what_comes_after_the_announced_body_is_no_part_of_it(serving) -> None:
    async with serving(length) as served, served.connected() as connection:
        await connection.send(sized(3, b"abcdef GARBAGE\r\n\r\n"))
        answer = await connection.rest()
    assert b"abcdef" not in answer
    assert b"swallowed" not in answer


async def test_a_content_length_that_lies_is_refused(serving) -> None:
    lies = ["-1", "+5", "1e3", "5, 6", "0x10", "five", "9" * 25, "5\r\nContent-Length: 6", "5\r\nTransfer-Encoding: chunked"]
    async with serving(length) as served:
        for announced in lies:
            answer = await served.ask(sized(announced, b"abcde"))
            assert answer.status in (400, 413), announced
            assert answer.headers["content-type"] == "application/problem+json"


async def test_the_trailers_of_a_body_are_no_headers_and_end(serving) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await respond(send, repr([scope["client"][0], dict(scope["headers"])]).encode())

    body = chunked(b"abc").replace(b"Host", b"X-Forwarded-For: 192.0.2.1\r\nHost")
    async with serving(app) as served, served.connected() as connection:
        await connection.send(body + b"0\r\nX-Forwarded-For: 192.0.2.2\r\nAuthorization: Bearer x\r\nHost: evil.example\r\n\r\n")
        answer = await connection.answer()  # a proxy may pass trailers on, and sets the header itself
        assert (answer.status, b"192.0.2.1" in answer.body) == (200, True)
        assert all(part not in answer.body for part in (b"192.0.2.2", b"Bearer", b"evil"))
    async with serving(length) as served, served.connected() as connection:
        await connection.send(body + b"0\r\n")
        with suppress(anyio.BrokenResourceError):
            for _ in range(40):
                await connection.send(b"X-Endless: trailer\r\n" * 1_000)
        answer = await connection.rest()
    assert answer.startswith(b"HTTP/1.1 431 ")


async def test_an_app_need_not_read_the_body(serving) -> None:
    async with serving(silent) as served, served.connected() as connection:
        await connection.send(sized(5, b"abcde"))
        assert (await connection.answer()).body == b"never read"
        await connection.send(sized(5, b"abcde"))
        assert (await connection.answer()).body == b"never read"


async def test_the_bytes_that_running_calls_hold_are_bounded_for_each_address_and_in_all_and_free_again_afterwards(serving) -> None:
    go_on = anyio.Event()

    async def holding(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive()).get("more_body"):
            pass
        await go_on.wait()
        await respond(send, b"held")

    statuses: list[int] = []
    large = HELD_PER_ADDRESS // 8
    async with serving(holding, body_bytes=large) as served:

        async def ask(body: bytes) -> None:
            statuses.append((await served.ask(sized(len(body), body))).status)
            if statuses[-1] == 503:
                go_on.set()

        async with anyio.create_task_group() as callers:
            for _ in range(10):
                callers.start_soon(ask, b"x" * large)
        assert set(statuses) == {200, 503}
        assert (await served.ask(sized(large, b"x" * large))).status == 200
