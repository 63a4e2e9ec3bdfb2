"""Answers: their bytes and headers, problems as answers, ETags and 304, and how an answer is sent."""

import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson
from pydantic_core import to_json
from starlette.types import Scope, Send

from twins.problems import NO_TYPE, PROBLEM_JSON, Problem

RawHeaders = tuple[tuple[bytes, bytes], ...]
JSON_HEADER = (b"content-type", b"application/json")
PRIVATE = (b"cache-control", b"private, no-store")
AS_PYDANTIC = orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_SUBCLASS


class Answer(NamedTuple):
    """A finished response. `headers` are as in ASGI: lower-case names, latin-1. Content-Length is added when it is sent.

    It cannot be changed: `adding` and `_replace` return a new one.
    """

    status: int
    body: bytes
    headers: RawHeaders = ()

    def adding(self, headers: Mapping[str, str]) -> "Answer":
        """The same answer with more headers."""
        return self._replace(headers=(*self.headers, *raw_headers(headers)))


def raw_headers(headers: Mapping[str, str]) -> RawHeaders:
    """Headers in the form of ASGI."""
    return tuple((name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items())


def json_answer(body: bytes, *, status: int = 200, cache: str | None = None) -> Answer:
    """An answer of JSON bytes: with a strong ETag if it has a Cache-Control value; without one nobody may store it."""
    if cache is None:
        return Answer(status, body, (JSON_HEADER, PRIVATE))
    return Answer(status, body, (JSON_HEADER, (b"cache-control", cache.encode("latin-1")), (b"etag", etag_of(body).encode())))


def etag_of(body: bytes) -> str:
    """A strong entity tag for these bytes."""
    return f'"{hashlib.sha256(body).hexdigest()}"'


def or_not_modified(answer: Answer, scope: Scope) -> Answer:
    """The answer, or 304 if the request's If-None-Match contains its ETag."""
    if not (known := _known_etags(scope)) or scope["method"] not in ("GET", "HEAD") or answer.status != 200:
        return answer
    etag = next((value for name, value in answer.headers if name == b"etag"), None)
    if etag is None or known.isdisjoint((etag, b"*")):
        return answer
    return Answer(304, b"", tuple(header for header in answer.headers if header[0] != b"content-type"))


def _known_etags(scope: Scope) -> set[bytes]:
    values = [value for name, value in scope["headers"] if name == b"if-none-match"]
    return {each.strip().removeprefix(b"W/") for each in b",".join(values).split(b",")} if values else set()


def problem_answer(problem: Problem, *, types: str = NO_TYPE, request_id: str | None = None) -> Answer:
    """The answer for a problem."""
    headers = ((b"content-type", PROBLEM_JSON.encode()), (b"cache-control", b"no-store"), *raw_headers(problem.headers))
    return Answer(problem.status, _problem_json(problem.body(types, request_id=request_id)), headers)


def _problem_json(body: Mapping[str, Any]) -> bytes:
    """The bytes that pydantic would write. orjson takes a third of the time; pydantic writes values that JSON has no type for."""
    try:
        return orjson.dumps(body, option=AS_PYDANTIC)
    except orjson.JSONEncodeError:
        return to_json(body, inf_nan_mode="null", fallback=str)


async def send_answer(send: Send, answer: Answer, *, with_body: bool = True) -> None:
    """Send an answer. Without its body (for HEAD) the headers are the same."""
    headers = answer.headers
    if answer.status not in (204, 304):
        headers = (*headers, (b"content-length", b"%d" % len(answer.body)))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body if with_body else b""})
