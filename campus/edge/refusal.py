"""How the edge itself answers: problems as JSON, as ASGI messages or as the bytes of a whole response."""

from collections.abc import Mapping
from typing import Any

import orjson
from starlette.types import Message, Send
from twins import Problem

ERRORS = "/errors/"
NO_STORE = (b"cache-control", b"no-store")


def problem_messages(problem: Problem, request_id: str | None) -> tuple[Message, Message]:
    """The two messages that answer with a problem (RFC 9457)."""
    body = orjson.dumps(problem.body(ERRORS, request_id=request_id))
    more = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in problem.headers.items()]
    return _messages(problem.status, body, [(b"content-type", b"application/problem+json"), NO_STORE, *more])


async def send_json(send: Send, data: Mapping[str, Any], *, status: int = 200) -> None:
    """Answer with JSON that nobody keeps."""
    for message in _messages(status, orjson.dumps(data), [(b"content-type", b"application/json"), NO_STORE]):
        await send(message)


def problem_bytes(problem: Problem) -> bytes:
    """A whole HTTP/1.1 response, for a connection on which no request could be read; it says that the connection ends."""
    start, body = problem_messages(problem, None)
    title = problem.body()["title"]
    headers = [*start["headers"], (b"x-content-type-options", b"nosniff"), (b"connection", b"close")]
    lines = [f"HTTP/1.1 {problem.status} {title}".encode("latin-1"), *(name + b": " + value for name, value in headers)]
    return b"\r\n".join([*lines, b"", body["body"]])


def _messages(status: int, body: bytes, headers: list[tuple[bytes, bytes]]) -> tuple[Message, Message]:
    headers.append((b"content-length", str(len(body)).encode()))
    return {"type": "http.response.start", "status": status, "headers": headers}, {"type": "http.response.body", "body": body}
