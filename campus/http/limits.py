"""The limits of calls and of their bodies, and their refusals."""

import math
from collections.abc import Awaitable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import attrgetter, methodcaller

import anyio
from starlette.types import Message, Receive, Scope

from campus.addresses import network_of
from campus.config import LARGEST_WHOLE_BODY
from campus.context import context_of
from campus.http.response import OutgoingResponse
from campus.shares import Counts, Places
from twins import Begun, Problem

CALLS = 1_000
BODY_SECONDS = 30.0
WAITING_PER_ADDRESS = 64
WAITING_SHARE = 2
"""Of the calls that may run at once, one in two may wait for its body, so that bodies that do not come leave room for the others."""
HELD_BYTES = 64 * 1024 * 1024
HELD_PER_ADDRESS = 8 * 1024 * 1024
"""How many bytes the bodies of running calls may have, in all and of one address: a call holds its body until it is answered."""
HELD_WHOLE_BYTES = 48 * 1024 * 1024
"""The same of bodies that are one argument as they stand: two large ones at a time, of callers with a key."""
WHOLE_BODY_SECONDS = 120.0
UNCOUNTED_BYTES = 16 * 1024  # Bodies up to this size that came with their heads need no limits: the number of calls bounds them.
LONGEST_NUMBER = 15  # How many digits of a Content-Length are read.


TOO_MANY_CALLS = Problem(503, "overloaded", "Too many calls are being answered; try again soon.", headers={"Retry-After": "1"})
TOO_MANY_BODIES = Problem(  # the body has not arrived, and others wait for theirs; its rest may still arrive, so the connection ends
    503,
    "overloaded",
    "Too many calls wait for their bodies; try again soon, and send the body in one go.",
    headers={"Retry-After": "5", "Connection": "close"},
)
TOO_MANY_BYTES = Problem(  # of bodies that are held; the rest of the body is dropped
    503,
    "overloaded",
    "Too many large bodies are being answered; try again soon, with fewer at the same time.",
    headers={"Retry-After": "1"},
)


def body_problem(headers: Mapping[bytes, bytes], limit: int) -> Problem | None:
    announced = headers.get(b"content-length")
    if announced is None:
        return None
    if not announced.isdigit():
        return Problem(400, "invalid_http", "Content-Length is not a number.")
    if len(announced) <= LONGEST_NUMBER and int(announced) <= limit:
        return None
    # A caller that waits for 100 Continue has not sent the body yet. The connection ends, so that it is not taken for the next request.
    return too_large(limit, headers={"Connection": "close"} if b"expect" in headers else None)


def has_body(headers: Mapping[bytes, bytes]) -> bool:
    return b"content-length" in headers or b"transfer-encoding" in headers


def is_small(scope: Scope, headers: Mapping[bytes, bytes]) -> bool:
    """Whether a body has arrived as a whole, and is so small that it needs no limits. Its announced length is a number."""
    announced = headers.get(b"content-length")
    return announced is not None and int(announced) == context_of(scope).arrived_bytes and int(announced) <= UNCOUNTED_BYTES


def too_large(limit: int, *, headers: Mapping[str, str] | None = None) -> Problem:
    return Problem(413, "body_too_large", f"The request body is over {limit:,} bytes; send less.", headers=headers)


def too_slow(seconds: float) -> Problem:
    """408. The rest of the body may still arrive, so the connection ends."""
    detail = f"The request body did not arrive within {seconds:g} s; send it in one go."
    return Problem(408, "body_timeout", detail, headers={"Connection": "close"})


class WaitingCalls:
    """The calls that wait for their callers, to send a body or to read what was written.

    They are at most `limit`, and at most `per_address` of one address (the /64 of an IPv6 address).

    One more takes the place of the one that has waited longest: of its own address, or of the address with the most. Without this
    somebody behind a proxy, whose connections are not limited, could take all calls by beginning bodies, or by reading nothing.
    """

    def __init__(self, *, limit: int, per_address: int = WAITING_PER_ADDRESS) -> None:
        self._places: Places[anyio.CancelScope] = Places(
            limit=limit, per_holder=per_address, since=attrgetter("deadline"), end=methodcaller("cancel")
        )

    @contextmanager
    def joined(self, address: str, wait: anyio.CancelScope) -> Iterator[None]:
        """Count a wait. Its scope is cancelled when another needs the place, and the scope's deadline tells how long it has waited."""
        self._places.take(wait, network_of(address))
        try:
            yield
        finally:
            self._places.release(wait)


@dataclass(frozen=True)
class BodyBounds:
    """What the bodies of one listener may take: each so many bytes and seconds, and all together."""

    size: int
    seconds: float
    waiting: WaitingCalls  # Those that have not arrived.
    held: Counts[str] = field(default_factory=lambda: Counts(HELD_BYTES, HELD_PER_ADDRESS))
    held_whole: Counts[str] = field(default_factory=lambda: Counts(HELD_WHOLE_BYTES, LARGEST_WHOLE_BODY))


class LimitedBody:
    """ASGI's receive for a request with a body; one that is too large or too slow, or one too many, is refused.

    Raising an error here would not do: apps catch whatever is raised while they read, and answer 500. The problem is sent
    at once in the app's place instead, and the app is told that the caller has disconnected.
    """

    __slots__ = (
        *("_announced", "_bounds", "_client", "_deadline", "_held", "_left", "_limit", "_network", "_receive", "_response", "_seconds"),
        "_taken",
    )

    def __init__(
        self,
        receive: Receive,
        response: OutgoingResponse,
        bounds: BodyBounds,
        *,
        announced: Problem | None,
        client: str,
    ) -> None:
        """While it has not arrived, it counts as one of the address of `client`.

        `announced` is the problem of a body that is too large by its own head: it is sent when somebody wants to read it.
        """
        self._announced: Problem | None = announced
        self._bounds = bounds
        self._receive = receive
        self._response = response
        self._limit = self._left = bounds.size
        self._seconds = bounds.seconds
        self._deadline: float | None = None
        self._client = client
        self._network = network_of(client)
        self._held = bounds.held
        self._taken = 0
        """How many of the bytes of all bodies it takes, which its network holds: those that have arrived."""

    def allow(self, limit: int) -> None:
        """Let the body have this many bytes, and more time. For a caller who may send them, before the body is read."""
        if self._left == self._limit < limit:
            self._limit = self._left = limit
            self._announced = None
            self._seconds = max(self._seconds, WHOLE_BODY_SECONDS)
            self._held = self._bounds.held_whole

    def release(self) -> None:
        """Give back the bytes that it holds: the call is answered."""
        if self._taken:
            self._held.remove(self._network, self._taken)

    async def receive(self) -> Message:
        """The next message; a disconnect when the body is too large or too slow."""
        if self._announced is not None:
            return await self._refuse(self._announced)
        begun = Begun(self._receive())  # what has arrived needs no time limit
        message = begun.result if begun.is_over else await self._in_time(begun)
        if message is None:
            is_late = self._deadline is not None and anyio.current_time() >= self._deadline
            return await self._refuse(too_slow(self._seconds) if is_late else TOO_MANY_BODIES)
        size = len(message.get("body", b""))
        self._left -= size
        if self._left < 0:
            return await self._refuse(too_large(self._limit))
        if not self._held.has_room(self._network, size):
            return await self._refuse(TOO_MANY_BYTES)
        self._held.add(self._network, size)
        self._taken += size
        if not message.get("more_body"):
            self._deadline = math.inf
        return message

    async def _in_time(self, message: Awaitable[Message]) -> Message | None:
        """The next part of the body; None when the time for the whole body is over, or another takes its place.

        The time starts with the first wait.
        """
        if self._deadline == math.inf:
            return await message  # the body has arrived: this tells when the caller leaves
        if self._deadline is None:
            self._deadline = anyio.current_time() + self._seconds
        with anyio.CancelScope(deadline=self._deadline) as wait, self._bounds.waiting.joined(self._client, wait):
            return await message
        return None

    async def _refuse(self, problem: Problem) -> Message:
        await self._response.refuse(problem)
        return {"type": "http.disconnect"}
