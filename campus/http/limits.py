"""The limits of calls and of their bodies, and their refusals."""

import math
from collections.abc import Awaitable, Iterator, Mapping
from contextlib import contextmanager
from operator import attrgetter, methodcaller

import anyio
from starlette.types import Message, Receive, Scope

from campus.addresses import network_of
from campus.context import context_of
from campus.http.response import OutgoingResponse, caller_of
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


class HeldBody:
    """What one call takes of the bytes of all bodies, which its network holds: what has arrived of its body."""

    __slots__ = ("_held", "_network", "_size")

    def __init__(self, held: Counts[str], address: str) -> None:
        self._held = held
        self._network = network_of(address)
        self._size = 0

    def count_in(self, held: Counts[str]) -> None:
        """Count what arrives among these bodies. Before any of it has."""
        self._held = held

    def take(self, size: int) -> bool:
        if not self._held.has_room(self._network, size):
            return False
        self._held.add(self._network, size)
        self._size += size
        return True

    def release(self) -> None:
        if self._size:
            self._held.remove(self._network, self._size)


class LimitedBody:
    """ASGI's receive for a request with a body, counted in `held`; one that is too large or too slow, or one too many, is refused.

    Raising an error here would not do: apps catch whatever is raised while they read, and answer 500. The problem is sent
    at once in the app's place instead, and the app is told that the caller has disconnected.
    """

    __slots__ = (
        *("_announced", "_client", "_deadline", "_held", "_held_whole", "_left", "_limit", "_receive", "_response", "_seconds"),
        "_waiting",
    )

    def __init__(
        self,
        receive: Receive,
        response: OutgoingResponse,
        *,
        announced: Problem | None,
        limit: int,
        seconds: float,
        waiting: WaitingCalls,
        held: HeldBody,
        held_whole: Counts[str],
        client: tuple[str, int] | None,
    ) -> None:
        """`waiting` counts the bodies that have not arrived, this one as one of the address of `client`.

        `announced` is the problem of a body that is too large by its own head: it is sent when somebody wants to read it.
        """
        self._announced: Problem | None = announced
        self._held_whole = held_whole
        self._receive = receive
        self._response = response
        self._limit = self._left = limit
        self._seconds = seconds
        self._deadline: float | None = None
        self._waiting = waiting
        self._held = held
        self._client = client

    def allow(self, limit: int) -> None:
        """Let the body have this many bytes, and more time. For a caller who may send them, before the body is read."""
        if self._left == self._limit < limit:
            self._limit = self._left = limit
            self._announced = None
            self._seconds = max(self._seconds, WHOLE_BODY_SECONDS)
            self._held.count_in(self._held_whole)

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
        if not self._held.take(size):
            return await self._refuse(TOO_MANY_BYTES)
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
        with anyio.CancelScope(deadline=self._deadline) as wait, self._waiting.joined(caller_of(self._client), wait):
            return await message
        return None

    async def _refuse(self, problem: Problem) -> Message:
        await self._response.refuse(problem)
        return {"type": "http.disconnect"}
