"""How the edge itself answers: problems and JSON, as ASGI messages or as the bytes of a whole response."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus

import orjson
from starlette.types import Send

from campus.errors import EXPLAINED_AT
from twins import Answer, Problem, problem_answer, send_answer

JSON = ((b"content-type", b"application/json"), (b"cache-control", b"no-store"))
LAST_WORDS = ((b"x-content-type-options", b"nosniff"), (b"connection", b"close"))


async def send_problem(send: Send, problem: Problem, request_id: str | None) -> None:
    """Answer with a problem (RFC 9457)."""
    await send_answer(send, problem_answer(problem, types=EXPLAINED_AT, request_id=request_id))


async def send_json(send: Send, data: Mapping[str, object], *, status: int) -> None:
    """Answer with JSON that nobody keeps."""
    await send_answer(send, Answer(status, orjson.dumps(data), JSON))


def last_answer(problem: Problem) -> bytes:
    """A whole HTTP/1.1 response, for a connection on which no request could be read; it says that the connection ends."""
    answer = problem_answer(problem, types=EXPLAINED_AT)
    headers: Sequence[tuple[bytes, bytes]] = (*answer.headers, *LAST_WORDS, (b"content-length", b"%d" % len(answer.body)))
    status = f"HTTP/1.1 {problem.status} {HTTPStatus(problem.status).phrase}".encode("ascii")
    return b"\r\n".join([status, *(name + b": " + value for name, value in headers), b"", answer.body])
