"""One request and its response on a connection: uvicorn's cycle, with a response that goes out in one piece.

Uvicorn writes head and body apart, which are two system calls and often two packets, and searches every header with two
expressions. Here a head that says how long its body is waits for the body's first part, and is searched once, as a whole.
"""

from collections.abc import Iterable, Sequence
from http import HTTPStatus

from uvicorn._types import ASGISendEvent
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

Header = tuple[bytes, bytes]

PHRASES = {each.value: each.phrase for each in HTTPStatus}
STATUS_LINES = {status: f"HTTP/1.1 {status} {PHRASES.get(status, '')}".encode("ascii") for status in range(100, 600)}
WITHOUT_BODY = (204, 304)
CLOSE = (b"connection", b"close")
CHUNKED = (b"transfer-encoding", b"chunked")
LAST_CHUNK = b"0\r\n\r\n"
USUAL = frozenset(
    b"access-control-allow-origin access-control-expose-headers allow cache-control content-length content-security-policy"
    b" content-type date etag link location mcp-session-id referrer-policy retry-after strict-transport-security vary warning"
    b" www-authenticate x-content-type-options x-request-id".split()
)
"""Names that responses here have, in lower case."""


class Exchange(RequestResponseCycle):
    """Sends what the app answers. What it keeps of it stands in uvicorn's attributes, which uvicorn and the protocol read."""

    _head = b""
    _is_silent = False

    async def send(self, message: ASGISendEvent) -> None:
        """ASGI's send."""
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        if message["type"] == "http.response.start" and not self.response_started:
            self._begin(message["status"], message.get("headers", ()))
        elif message["type"] == "http.response.body" and self.response_started and not self.response_complete:
            self._go_on(message.get("body", b""), is_last=not message.get("more_body", False))
        else:
            raise RuntimeError(f"{message['type']!r} is not what comes next in a response")

    def _begin(self, status: int, given: Iterable[Header]) -> None:
        self.response_started = True
        self.waiting_for_100_continue = False
        headers = [*self.default_headers, *given]
        named = dict(headers)
        if not (USUAL.issuperset(named) or b"".join(named).islower()):  # as ASGI wants them, and not every app has them
            headers = [(name.lower(), value) for name, value in headers]
            named = dict(headers)
        if CHUNKED[0] in named:
            headers = [header for header in headers if header[0] != CHUNKED[0]]  # ours to say
        if CLOSE[0] in named and any(name == CLOSE[0] and b"close" in value.lower() for name, value in headers):
            self.keep_alive = False
        elif not self.keep_alive:
            headers.append(CLOSE)
        length = named.get(b"content-length")
        self._is_silent = status in WITHOUT_BODY or self.scope["method"] == "HEAD"
        self.expected_content_length = int(length or 0)
        self.chunked_encoding = length is None and not self._is_silent
        if self.chunked_encoding:
            headers.append(CHUNKED)
        self._head = head_of(STATUS_LINES[status], headers)
        if self.chunked_encoding:
            self._write(b"")  # a stream's first part may be long in coming

    def _go_on(self, body: bytes, *, is_last: bool) -> None:
        if self._is_silent:
            body = b""
        elif self.chunked_encoding:
            body = (b"%x\r\n%b\r\n" % (len(body), body) if body else b"") + (LAST_CHUNK if is_last else b"")
        else:
            self.expected_content_length -= len(body)
            if self.expected_content_length < 0 or (is_last and self.expected_content_length):
                raise RuntimeError("a response's body is not as long as its Content-Length says")
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


def head_of(status_line: bytes, headers: Sequence[Header]) -> bytes:
    """The head as it is sent; RuntimeError where a header holds a line break, which would split the response."""
    head = b"\r\n".join([status_line, *map(b": ".join, headers), b"", b""])
    if len(head) - len(head.translate(None, b"\r\n\0")) != 2 * (len(headers) + 2):
        raise RuntimeError("a header of the response holds a line break or a NUL")
    return head
