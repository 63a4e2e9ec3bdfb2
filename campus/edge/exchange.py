"""One request and its response on a connection: uvicorn's cycle, with a response that goes out in one piece.

Uvicorn writes head and body apart, which are two system calls and often two packets, and searches every header with two
expressions. Here a head that says how long its body is waits for the body's first part, and is searched once, as a whole.
"""

from collections.abc import Iterable
from http import HTTPStatus

from uvicorn._types import ASGISendEvent
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

STATUS_LINES = {each.value: f"HTTP/1.1 {each.value} {each.phrase}\r\n".encode("ascii") for each in HTTPStatus}
WITHOUT_BODY = (204, 304)
CLOSE = b"connection: close\r\n"
CHUNKED = b"transfer-encoding: chunked\r\n"
LAST_CHUNK = b"0\r\n\r\n"


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

    def _begin(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        self.response_started = True
        self.waiting_for_100_continue = False
        lines = [STATUS_LINES[status]]
        length = says_close = None
        for name, value in (*self.default_headers, *headers):
            if name == b"transfer-encoding":
                continue  # ours to say
            lines.append(b"%b: %b\r\n" % (name, value))
            if name == b"content-length":
                length = int(value)
            elif name == b"connection" and (says_close := b"close" in value.lower()):
                self.keep_alive = False
        if not (self.keep_alive or says_close):
            lines.append(CLOSE)
        self._is_silent = status in WITHOUT_BODY or self.scope["method"] == "HEAD"
        self.expected_content_length = length or 0
        self.chunked_encoding = length is None and not self._is_silent
        if self.chunked_encoding:
            lines.append(CHUNKED)
        self._head = head_of(lines)
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


def head_of(lines: list[bytes]) -> bytes:
    """The head of these lines, each with its line break; RuntimeError where one holds another, which would split the response."""
    head = b"".join(lines)
    if head.count(b"\n") != len(lines) or head.count(b"\r") != len(lines) or b"\0" in head:
        raise RuntimeError("a header of the response holds a line break or a NUL")
    return head + b"\r\n"
