"""How a response goes out: in one piece, framed as its headers say, and never split by what stands in a header."""

from typing import Any

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

pytestmark = pytest.mark.anyio
GET = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def answering(*parts: bytes, headers: list[tuple[bytes, bytes]], status: int = 200) -> ASGIApp:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": status, "headers": headers})
        for number, part in enumerate(parts, start=1):
            await send({"type": "http.response.body", "body": part, "more_body": number < len(parts)})

    return app


async def said(serving: Any, app: ASGIApp, request: bytes = GET) -> bytes:
    async with serving(app) as served, served.connected() as connection:
        await connection.send(request)
        received: bytes = await connection.rest()
        return received


@pytest.mark.parametrize("bad", [b"a\r\nset-cookie: x=1", b"a\nset-cookie: x=1", b"a\rset-cookie: x=1", b"a\0"])
@pytest.mark.parametrize("place", ["name", "value"])
async def test_a_header_that_would_split_the_response_is_not_sent(serving: Any, bad: bytes, place: str) -> None:
    header = (bad, b"x") if place == "name" else (b"x-odd", bad)
    assert b"set-cookie" not in await said(serving, answering(b"ok", headers=[header, (b"content-length", b"2")]))


@pytest.mark.parametrize("body", [b"o", b"okay"], ids=["shorter", "longer"])
async def test_a_body_that_is_not_as_long_as_its_head_says_is_not_sent(serving: Any, body: bytes) -> None:
    assert await said(serving, answering(body, headers=[(b"content-length", b"2")])) == b""


async def test_a_response_of_unknown_length_goes_out_in_chunks(serving: Any) -> None:
    head, _, body = (await said(serving, answering(b"one", b"", b"three", headers=[]))).partition(b"\r\n\r\n")
    assert b"transfer-encoding: chunked" in head
    assert body == b"3\r\none\r\n5\r\nthree\r\n0\r\n\r\n"


async def test_a_response_in_parts_of_known_length_is_one_body_and_head_gets_none(serving: Any) -> None:
    app = answering(b"one", b"two", headers=[(b"content-length", b"6")])
    head, _, body = (await said(serving, app)).partition(b"\r\n\r\n")
    assert (body, head.count(b"connection: close")) == (b"onetwo", 1)
    silent, _, nothing = (await said(serving, app, GET.replace(b"GET", b"HEAD"))).partition(b"\r\n\r\n")
    assert nothing == b""
    assert b"content-length: 6" in silent


async def test_names_in_capitals_frame_a_response_all_the_same(serving: Any) -> None:
    head, _, body = (await said(serving, answering(b"ok", headers=[(b"Content-Length", b"2"), (b"X-Odd", b"Yes")]))).partition(b"\r\n\r\n")
    assert body == b"ok"
    assert b"\r\nx-odd: Yes" in head
    assert b"chunked" not in head
    assert await said(serving, answering(b"okay", headers=[(b"Content-Length", b"2")])) == b""


async def test_a_status_without_a_name_is_sent(serving: Any) -> None:
    assert (await said(serving, answering(b"ok", headers=[(b"content-length", b"2")], status=299))).startswith(b"HTTP/1.1 299 \r\n")


async def test_one_connection_header_that_says_close_is_enough(serving: Any) -> None:
    headers = [(b"connection", b"close"), (b"connection", b"x-odd"), (b"content-length", b"2")]
    keeping = GET.replace(b"Connection: close\r\n", b"")
    assert (await said(serving, answering(b"ok", headers=headers), keeping * 2)).count(b"HTTP/1.1 200") == 1, "the second is not answered"
