"""The limits of calls, bodies and connections, and their refusals; edge.py and protocol.py ask them."""

import math
from collections.abc import Awaitable, Container, Mapping
from operator import attrgetter, methodcaller
from typing import Protocol

import anyio
from starlette.types import Message, Receive, Scope

from campus.addresses import network_of
from campus.context import context_of
from campus.http.response import OutgoingResponse, caller_of
from campus.http.waiting import WaitingCalls
from campus.shares import Counts, Places
from twins import Begun, Problem

CALLS = 1_000
BODY_SECONDS = 30.0
WAITING_SHARE = 2
"""Of the calls that may run at once, one in two may wait for its body, so that bodies that do not come leave room for the others."""
HELD_BYTES = 64 * 1024 * 1024
HELD_PER_ADDRESS = 8 * 1024 * 1024
"""How many bytes the bodies of running calls may have, in all and of one address: a call holds its body until it is answered."""
UNCOUNTED_BYTES = 16 * 1024
"""Bodies up to this size that came with their heads need no limits: the number of calls bounds them."""
LONGEST_NUMBER = 15
"""How many digits of a Content-Length are read."""


def body_problem(headers: Mapping[bytes, bytes], limit: int) -> Problem | None:
    """Why the body that the headers announce is not read at all, else None."""
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
    """Whether the request says that a body follows."""
    return b"content-length" in headers or b"transfer-encoding" in headers


def is_small(scope: Scope, headers: Mapping[bytes, bytes]) -> bool:
    """Whether a body has arrived as a whole, and is so small that it needs no limits. Its announced length is a number."""
    announced = headers.get(b"content-length")
    return announced is not None and int(announced) == context_of(scope).arrived_bytes and int(announced) <= UNCOUNTED_BYTES


def too_large(limit: int, *, headers: Mapping[str, str] | None = None) -> Problem:
    """413."""
    return Problem(413, "body_too_large", f"The request body is over {limit:,} bytes; send less.", headers=headers)


def too_slow(seconds: float) -> Problem:
    """408. The rest of the body may still arrive, so the connection ends."""
    detail = f"The request body did not arrive within {seconds:g} s; send it in one go."
    return Problem(408, "body_timeout", detail, headers={"Connection": "close"})


def too_many_calls() -> Problem:
    """503: as many calls are running as are allowed."""
    return Problem(503, "overloaded", "Too many calls are being answered; try again soon.", headers={"Retry-After": "1"})


def too_many_bodies() -> Problem:
    """503: the body has not arrived, and others wait for theirs. Its rest may still arrive, so the connection ends."""
    detail = "Too many calls wait for their bodies; try again soon, and send the body in one go."
    return Problem(503, "overloaded", detail, headers={"Retry-After": "5", "Connection": "close"})


def too_many_bytes() -> Problem:
    """503: as many bytes of bodies are held as are allowed. The rest of the body is dropped."""
    detail = "Too many large bodies are being answered; try again soon, with fewer at the same time."
    return Problem(503, "overloaded", detail, headers={"Retry-After": "1"})


def too_many_connections() -> Problem:
    """503: every connection that could be closed for this one is being answered."""
    return Problem(503, "overloaded", "Too many connections are open; try again soon.", headers={"Retry-After": "5"})


class HeldBody:
    """What one call takes of the bytes of all bodies, which its network holds: what has arrived of its body."""

    __slots__ = ("_held", "_network", "_size")

    def __init__(self, held: Counts[str], address: str) -> None:
        self._held = held
        self._network = network_of(address)
        self._size = 0

    def take(self, size: int) -> bool:
        """Count more bytes of the body; False if they are too many."""
        if not self._held.has_room(self._network, size):
            return False
        self._held.add(self._network, size)
        self._size += size
        return True

    def release(self) -> None:
        """The call was answered."""
        if self._size:
            self._held.remove(self._network, self._size)


class LimitedBody:
    """ASGI's receive for a request with a body, counted in `held`; one that is too large or too slow, or one too many, is refused.

    Raising an error here would not do: apps catch whatever is raised while they read, and answer 500. The problem is sent
    at once in the app's place instead, and the app is told that the caller has disconnected.
    """

    __slots__ = ("_client", "_deadline", "_held", "_left", "_limit", "_receive", "_response", "_seconds", "_waiting")

    def __init__(
        self,
        receive: Receive,
        response: OutgoingResponse,
        *,
        limit: int,
        seconds: float,
        waiting: WaitingCalls,
        held: HeldBody,
        client: tuple[str, int] | None,
    ) -> None:
        """`waiting` counts the bodies that have not arrived, this one as one of the address of `client`."""
        self._receive = receive
        self._response = response
        self._limit = self._left = limit
        self._seconds = seconds
        self._deadline: float | None = None
        self._waiting = waiting
        self._held = held
        self._client = client

    async def receive(self) -> Message:
        """The next message; a disconnect when the body is too large or too slow."""
        begun = Begun(self._receive())  # what has arrived needs no time limit
        message = begun.result if begun.is_over else await self._in_time(begun)
        if message is None:
            is_late = self._deadline is not None and anyio.current_time() >= self._deadline
            return await self._refuse(too_slow(self._seconds) if is_late else too_many_bodies())
        size = len(message.get("body", b""))
        self._left -= size
        if self._left < 0:
            return await self._refuse(too_large(self._limit))
        if not self._held.take(size):
            return await self._refuse(too_many_bytes())
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


class OpenConnection(Protocol):
    """A connection as `ConnectionLimits` sees it."""

    client: tuple[str, int] | None

    @property
    def idle_since(self) -> float:
        """When it began to wait for a request; infinite while a request is being answered."""
        ...

    def close_idle(self) -> None:
        """End it at once, to make room for another: also if its caller has not read all of the last response."""
        ...


class ConnectionLimits:
    """The open connections of one listener: at most `limit`, and at most `per_address` from one address (the /64 of an IPv6 address).

    At a limit, the connection that has been idle for the longest time is closed. A connection from an address in `proxies` counts
    for `limit` only, and is closed only when no other is idle: it carries many callers, and may be about to send the request of one.
    """

    def __init__(self, *, limit: int, per_address: int, proxies: Container[str] = ()) -> None:
        self._proxies = proxies
        self._places: Places[OpenConnection] = Places(
            limit=limit, per_holder=per_address, since=attrgetter("idle_since"), end=methodcaller("close_idle")
        )

    def __len__(self) -> int:
        return len(self._places)

    def admit(self, connection: OpenConnection) -> bool:
        """Make room for a connection and count it; False when every connection that could be closed is busy."""
        address = connection.client[0] if connection.client else ""
        return self._places.take(connection, None if address in self._proxies else network_of(address))

    def remove(self, connection: OpenConnection) -> None:
        """Stop counting a connection; one that is not counted changes nothing."""
        self._places.release(connection)
