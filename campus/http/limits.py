"""How many calls may run at once, how large a body may be, and how long it may take to arrive."""

import math
from collections.abc import Mapping

import anyio
from starlette.types import Message, Receive

from campus.http.response import Reply
from twins import Problem

CALLS = 1_000
BODY_BYTES = 1024 * 1024
BODY_SECONDS = 30.0
MANY_DIGITS = 16


def body_problem(headers: Mapping[bytes, bytes], limit: int) -> Problem | None:
    """Why the body that the headers announce is not even begun, else None."""
    announced = headers.get(b"content-length")
    if announced is None:
        return None
    if not announced.isdigit():
        return Problem(400, "invalid_http", "Content-Length is not a number.")
    if len(announced) < MANY_DIGITS and int(announced) <= limit:
        return None
    # A caller that waits for 100 Continue has sent no body: only the end of the connection keeps it from being mixed up.
    return too_large(limit, headers={"Connection": "close"} if b"expect" in headers else None)


def has_body(headers: Mapping[bytes, bytes]) -> bool:
    """Whether the request says that a body follows."""
    return b"content-length" in headers or b"transfer-encoding" in headers


def too_large(limit: int, *, headers: Mapping[str, str] | None = None) -> Problem:
    """413."""
    return Problem(413, "body_too_large", f"The request body is over {limit:,} bytes; send less.", headers=headers)


def too_many() -> Problem:
    """503: as many calls run as may."""
    return Problem(503, "overloaded", "Too many calls are being answered; try again soon.", headers={"Retry-After": "1"})


def too_slow(seconds: float) -> Problem:
    """408; the rest of the body may still come, so that the connection ends."""
    detail = f"The request body did not arrive within {seconds:g} s; send it in one go."
    return Problem(408, "body_timeout", detail, headers={"Connection": "close"})


class BodyGuard:
    """ASGI's receive for a request with a body.

    Raising from here would not do: apps catch whatever is raised while they read, and answer 500. So the refusal
    goes out at once in the app's place, and the app is told that the caller has gone.
    """

    __slots__ = ("_deadline", "_left", "_limit", "_receive", "_reply", "_seconds")

    def __init__(self, receive: Receive, reply: Reply, *, limit: int, seconds: float) -> None:
        self._receive = receive
        self._reply = reply
        self._limit = self._left = limit
        self._seconds = seconds
        self._deadline: float | None = None

    async def receive(self) -> Message:
        """The next message; the caller's departure when the body is too large or too slow."""
        message = await self._receive() if self._deadline == math.inf else await self._in_time()
        if message is None:
            return await self._refuse(too_slow(self._seconds))
        self._left -= len(message.get("body", b""))
        if self._left < 0:
            return await self._refuse(too_large(self._limit))
        if not message.get("more_body"):
            self._deadline = math.inf
        return message

    async def _in_time(self) -> Message | None:
        """The next part of the body; None when the time for all of it is over. Time runs from the first read."""
        if self._deadline is None:
            self._deadline = anyio.current_time() + self._seconds
        with anyio.CancelScope(deadline=self._deadline):
            return await self._receive()
        return None

    async def _refuse(self, problem: Problem) -> Message:
        await self._reply.refuse(problem)
        return _gone()


def _gone() -> Message:
    """What an app is told when its caller has left."""
    return {"type": "http.disconnect"}
