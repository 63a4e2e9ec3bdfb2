"""The load generator: connections that send prebuilt requests one after the other and check every answer.

It uses asyncio's protocols instead of anyio's streams: they need a third of the CPU that a server needs for the same request,
so that on a machine of two CPUs the server is the bottleneck.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from http.client import HTTPResponse
from itertools import cycle, islice
from socket import create_connection
from time import perf_counter, process_time
from typing import cast

from httptools import HttpResponseParser

from benchmarks.figures import Measured
from benchmarks.processes import HOST, Server

CONNECTIONS = 4
GIVE_UP_SECONDS = 30
SHOWN = 300


class WrongAnswerError(Exception):
    """A server's answer under load differs from its answer to a single request."""


@dataclass(frozen=True)
class Exchange:
    """A request as bytes, and the status and body of its answer.

    If the body differs each time, `whole` is false and `body` is its constant beginning.
    """

    request: bytes
    body: bytes
    status: int = 200
    whole: bool = True

    def is_answered_by(self, status: int, body: bytes) -> bool:
        """Whether an answer is the expected one."""
        return status == self.status and (body == self.body if self.whole else body.startswith(self.body))


@dataclass(frozen=True)
class Target:
    """A server, the requests that it gets in turn, and over how many connections."""

    server: Server
    exchanges: Sequence[Exchange]
    connections: int = CONNECTIONS


def ask(server: Server, requests: Sequence[bytes], *, status: int = 200) -> list[Exchange]:
    """Send each request once over one connection and return the answers, which must have the status."""
    exchanges = []
    with create_connection((HOST, server.port), timeout=30) as connection:
        for request in requests:
            connection.sendall(request)
            response = HTTPResponse(connection)
            response.begin()
            body = response.read()
            if response.status != status:
                raise WrongAnswerError(f"port {server.port} answered {response.status}: {body[:SHOWN]!r}")
            exchanges.append(Exchange(request, body, status))
    return exchanges


class Tally:
    """The shared state of a load's connections."""

    def __init__(self, connections: int) -> None:
        self.answered = 0
        self.ending = False
        self.busy = connections
        self.finished = asyncio.Event()
        self.wrong: str | None = None

    def end(self) -> None:
        """Send no more; requests that were sent are still awaited, since the server works on them."""
        self.ending = True

    def leave(self) -> None:
        """Called by a connection that has its last answer."""
        self.busy -= 1
        if not self.busy:
            self.finished.set()

    def fail(self, reason: str) -> None:
        """End the load at once, since its figures are invalid."""
        self.wrong = self.wrong or reason
        self.ending = True
        self.finished.set()


class Connection(asyncio.Protocol):
    """One keep-alive connection, which sends the next request when the last answer is complete and correct.

    `pause` is the minimum of seconds between two requests.
    """

    def __init__(self, exchanges: Iterator[Exchange], tally: Tally, pause: float) -> None:
        self._exchanges = exchanges
        self._tally = tally
        self._pause = pause
        self._due = 0.0
        self._parser = HttpResponseParser(self)
        self._chunks: list[bytes] = []
        self._current = next(exchanges)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own, which is no subclass
        self._due = asyncio.get_running_loop().time()
        self._transport.write(self._current.request)

    def data_received(self, data: bytes) -> None:
        """Parse the received bytes."""
        self._parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the load, since the server must keep the connection open until its end."""
        if not self._tally.ending:
            self._tally.fail("the server closed a connection")

    def on_body(self, chunk: bytes) -> None:
        """Called by the parser for each part of a body."""
        self._chunks.append(chunk)

    def on_message_complete(self) -> None:
        """Called by the parser when an answer is complete."""
        tally = self._tally
        body = b"".join(self._chunks)
        self._chunks.clear()
        if not self._current.is_answered_by(self._parser.get_status_code(), body):
            tally.fail(f"status {self._parser.get_status_code()} and {body[:SHOWN]!r} instead of {self._current.body[:SHOWN]!r}")
        tally.answered += 1
        if not self._pause:
            self._go_on()
            return
        self._due += self._pause
        loop = asyncio.get_running_loop()
        loop.call_at(max(self._due, loop.time()), self._go_on)

    def _go_on(self) -> None:
        if self._tally.ending:
            self._transport.close()
            self._tally.leave()
            return
        self._current = next(self._exchanges)
        self._transport.write(self._current.request)


async def measure(
    target: Target, *, seconds: float, rate: float | None = None, connection: Callable[..., Connection] = Connection
) -> Measured:
    """Load a server for some seconds and wait for the last answer. Raises WrongAnswerError when one is not as expected.

    `rate` is the number of requests per second; without it, as many as the server answers.
    """
    loop = asyncio.get_running_loop()
    tally = Tally(target.connections)
    pause = target.connections / rate if rate else 0.0
    cpu = target.server.cpu_seconds()
    own = process_time()
    began = perf_counter()
    for number in range(target.connections):
        exchanges = islice(cycle(target.exchanges), number * len(target.exchanges) // target.connections, None)
        await loop.create_connection(partial(connection, exchanges, tally, pause), HOST, target.server.port)
    loop.call_later(seconds, tally.end)
    await asyncio.wait_for(tally.finished.wait(), seconds + GIVE_UP_SECONDS)
    elapsed = perf_counter() - began
    own = process_time() - own
    if tally.wrong:
        raise WrongAnswerError(f"port {target.server.port}: {tally.wrong}")
    return Measured(tally.answered, elapsed, target.server.cpu_seconds() - cpu, own)
