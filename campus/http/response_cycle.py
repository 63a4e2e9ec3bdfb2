"""How a response is written: its head as bytes, made once for all responses with the same headers, and in one write with its body."""

from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import NamedTuple

import anyio
from starlette.types import Message

from campus.http.limits import WaitingCalls
from campus.http.response import CACHED_RESPONSES, CHANGING, LONGEST_KEPT, Header, caller_of
from campus.http.uvicorn_names import RequestResponseCycle
from campus.problems import EXPLAINED_AT
from twins import Problem, problem_answer

PHRASES = {each.value: each.phrase for each in HTTPStatus}
STATUS_LINES = {status: f"HTTP/1.1 {status} {PHRASES.get(status, '')}\r\n".encode("ascii") for status in range(100, 600)}

USUAL_NAMES = frozenset(
    b"access-control-allow-origin access-control-expose-headers allow cache-control content-length content-security-policy"
    b" content-type date etag link location mcp-session-id referrer-policy retry-after strict-transport-security vary warning"
    b" www-authenticate x-content-type-options x-request-id".split()
)
"""Names of headers that responses here have, in lower case."""

CLOSE: Header = (b"connection", b"close")
CHUNKED: Header = (b"transfer-encoding", b"chunked")
CLOSING: Sequence[Header] = ((b"x-content-type-options", b"nosniff"), CLOSE)
WITHOUT_BODY = (204, 304)


def lines_of(headers: Sequence[Header]) -> bytes:
    """Headers as bytes, a line each; RuntimeError where one contains a line break, which would split the response."""
    lines = b"\r\n".join([*map(b": ".join, headers), b""])
    if len(lines) - len(lines.translate(None, b"\r\n\0")) != 2 * len(headers):
        raise RuntimeError("a header of the response contains a line break or a NUL")
    return lines


class Head(NamedTuple):
    """What an app's headers come to: their lines, the length of the body if they tell it, and whether the connection is closed then."""

    lines: bytes
    length: int | None
    closes: bool


def head_of(status: int, headers: Sequence[Header]) -> Head:
    named = dict(headers)
    if not (USUAL_NAMES.issuperset(named) or b"".join(named).islower()):  # ASGI wants lower case, and not every app complies
        headers = [(name.lower(), value) for name, value in headers]
        named = dict(headers)
    kept = [header for header in headers if header[0] != CHUNKED[0]]  # ResponseCycle adds it where it is needed
    closes = any(name == CLOSE[0] and b"close" in value.lower() for name, value in kept)
    length = named.get(b"content-length")
    return Head(STATUS_LINES[status] + lines_of(kept), None if length is None else int(length), closes)


class KeptHeads(dict[tuple[int, Sequence[Header]], Head]):
    """The heads of the latest responses, without long ones, by status and headers: looking one up makes it. A list cannot be a key."""

    def __missing__(self, key: tuple[int, Sequence[Header]]) -> Head:
        found = head_of(*key)
        if len(found.lines) <= LONGEST_KEPT:
            if len(self) == CACHED_RESPONSES:
                self.clear()
            self[key] = found
        return found


class ResponseCycle(RequestResponseCycle):
    """One response, head and body in one write where possible. Its state is in uvicorn's attributes, which uvicorn reads too.

    Uvicorn writes head and body separately, with two system calls and often two packets, and searches every header with two
    regular expressions. Here a head that says how long its body is waits for the body's first part, and headers that were sent
    before are written as they were.
    """

    unread: WaitingCalls
    """The calls whose callers have not read what was written, on all connections; each may take `unread_seconds` for a part."""
    unread_seconds: float
    _heads = KeptHeads()
    _head = b""
    _has_no_body = False
    _ends_by_closing = False

    async def send(self, message: Message) -> None:  # type: ignore[override]  # Starlette's messages are any mapping
        if self.flow.write_paused and not self.disconnected:
            await self._drain()
        if self.disconnected:
            return
        if message["type"] == "http.response.start" and not self.response_started:
            self._start(message["status"], message.get("headers", ()))
        elif message["type"] == "http.response.body" and self.response_started and not self.response_complete:
            self._send_body(message.get("body", b""), is_last=not message.get("more_body", False))
        else:
            raise RuntimeError(f"{message['type']!r} cannot be sent at this point of a response")

    async def _drain(self) -> None:
        """Wait until the caller has read most of what was written. It is disconnected if that takes long, or another takes its place."""
        with (
            anyio.CancelScope(deadline=anyio.current_time() + self.unread_seconds) as wait,
            self.unread.joined(caller_of(self.scope.get("client")), wait),
        ):
            await self.flow.drain()
        if wait.cancelled_caught:
            self.disconnected = True
            self.transport.abort()

    def _start(self, status: int, given: Iterable[Header]) -> None:
        self.response_started = True
        self.waiting_for_100_continue = False
        own = [*self.default_headers]
        same = tuple(given)
        while same and same[-1][0] in CHANGING:
            own.append(same[-1])
            same = same[:-1]
        try:
            head = self._heads[status, same]
        except TypeError:  # lists for pairs, which ASGI allows too
            head = head_of(status, same)
        if head.closes:
            self.keep_alive = False
        elif not self.keep_alive:
            own.append(CLOSE)
        self._has_no_body = status in WITHOUT_BODY or self.scope["method"] == "HEAD"
        self.expected_content_length = head.length or 0
        self._ends_by_closing = head.length is None and self.scope["http_version"] == "1.0"  # which knows no chunks
        self.chunked_encoding = head.length is None and not self._has_no_body and not self._ends_by_closing
        if self.chunked_encoding:
            own.append(CHUNKED)
        self._head = b"%b%b\r\n" % (head.lines, lines_of(own))
        if head.length is None and not self._has_no_body:
            self._write(b"")  # the first part of a stream may come much later

    def _send_body(self, body: bytes, *, is_last: bool) -> None:
        if self._has_no_body:
            body = b""
        elif self.chunked_encoding:
            body = (b"%x\r\n%b\r\n" % (len(body), body) if body else b"") + (b"0\r\n\r\n" if is_last else b"")
        elif not self._ends_by_closing:
            self.expected_content_length -= len(body)
            if self.expected_content_length < 0 or (is_last and self.expected_content_length):
                raise RuntimeError("the length of a response's body is not its Content-Length")
        self._write(body)
        if is_last:
            self._finish()

    def _write(self, data: bytes) -> None:
        if self._head:
            data, self._head = self._head + data, b""
        if data:
            self.transport.write(data)

    def _finish(self) -> None:
        self.response_complete = True
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()


def closing_response(problem: Problem) -> bytes:
    """A whole response as bytes, for a connection on which no request could be read; it says that the connection ends."""
    answer = problem_answer(problem, types=EXPLAINED_AT)
    lines = lines_of((*answer.headers, *CLOSING, (b"content-length", b"%d" % len(answer.body))))
    return STATUS_LINES[problem.status] + lines + b"\r\n" + answer.body
