"""A connection with the limits that uvicorn lacks: on a request's head, on connections and on pipelining."""

import asyncio
import logging
from collections.abc import Container
from math import inf
from typing import Any

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from campus.http.connection import Connection
from campus.http.limits import ConnectionLimits, too_many_connections
from campus.http.request_ids import caller_of
from campus.http.response import closing_response
from twins import Problem

access = logging.getLogger("campus.access")

HEAD_BYTES = 32 * 1024
LINGER_SECONDS = 1.0
CONNECTIONS = 4_000
CONNECTIONS_PER_ADDRESS = 256
TOLD = 64
"""How many connections beyond the limit are told so; more are closed without a word, since each takes a file while it is told."""
PIPELINED = 32
LARGEST_READ = 256 * 1024  # what uvloop and asyncio hand over at once


class ParserStop(Exception):
    """The parser is to read no further."""


class GuardedProtocol(Connection):
    """One connection. The limits are the class's; `guarded` makes a class with others."""

    head_bytes = HEAD_BYTES
    linger_seconds = LINGER_SECONDS
    connections_limit = CONNECTIONS
    connections_per_address = CONNECTIONS_PER_ADDRESS
    limits: ConnectionLimits

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn's own signature
        """One connection too many, of all or of its address, takes the place of an idle one; it is refused when all are busy."""
        super().connection_made(transport)
        self._received = 0
        self._refused = False
        self._problem = Problem(400, "invalid_http", "The request is not HTTP/1.1.")
        if not self.limits.admit(self):
            if len(self.connections) - len(self.limits) > TOLD:
                self._refused = True
                transport.abort()
                return
            self._refuse(too_many_connections())

    def connection_lost(self, exc: Exception | None) -> None:
        """Uvicorn tells the last request's app that the caller has gone; the one that runs may be an earlier one."""
        self.limits.remove(self)
        self._tell_running()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what has come, and see what the connection still owes."""
        if self._refused:
            return
        self._received += len(data)
        self._feed(data)
        if not self._inside_head():
            self._received = 0
        elif self._received > self.head_bytes + LARGEST_READ and not self._refused:
            self._refuse(self._head_too_large())
        if not (self._refused or self._owes_head or self._is_busy()):
            self._wait_for_head()  # whatever came, be it the rest of a refused body

    def on_headers_complete(self) -> None:
        """Measure the head, exactly when what was received since it began could be too much."""
        if self._received > self.head_bytes and self._head_size() > self.head_bytes:
            self._problem = self._head_too_large()
            raise ParserStop
        super().on_headers_complete()
        if len(self.pipeline) > PIPELINED:
            raise ParserStop

    def _should_upgrade(self) -> bool:
        """Asked by uvicorn, which then leaves a request that offers to upgrade to us."""
        return True

    def _feed(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except HttpParserUpgrade as offer:
            if self.parser.get_method() == b"CONNECT":
                self._refuse(self._problem)
            else:
                self._feed(self._without_offer() + data[offer.args[0] :])
        except HttpParserError:
            self._refuse(self._problem)

    def _without_offer(self) -> bytes:
        """The head once more, without the offer, for a new parser: the old one takes the body for the other protocol's.

        Java's client, for one, offers h2c with the first request on each connection, whatever its body.
        """
        lines = [b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode("ascii"))]
        lines += [name + b": " + value for name, value in self.headers if name != b"upgrade"]
        self.parser = HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
        return b"\r\n".join([*lines, b"", b""])

    def _head_size(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + len(": \r\n") for name, value in self.headers)

    def _head_too_large(self) -> Problem:
        return Problem(431, "head_too_large", f"The request's head is over {self.head_bytes:,} bytes; send fewer or shorter headers.")

    def _refuse(self, problem: Problem) -> None:
        """Answer and close; a while later, since closing with unread data would destroy the answer on its way."""
        self._refused, self._deadline = True, inf
        access.info("refused", extra={"client": caller_of(self.client), "status": problem.status, "code": problem.code})
        if self._tell_running() and not self._is_about(self._running):
            self.transport.close()
            return
        self.transport.write(closing_response(problem))
        self.loop.call_later(self.linger_seconds, self.transport.close)

    def _is_about(self, running: RequestResponseCycle | None) -> bool:
        """Whether what comes in belongs to the running request: else an answer would be taken for that request's."""
        return running is not None and running.more_body and not running.response_started

    def _tell_running(self) -> bool:
        """Tell the app that runs, if any, that its caller has gone; it sends to nowhere from now on."""
        running = self._running
        if running is None or running.response_complete:
            return False
        running.disconnected = True
        running.message_event.set()
        return True


def guarded(**limits: Any) -> type[GuardedProtocol]:
    """The protocol with other limits: head_seconds, head_bytes, linger_seconds, connections_limit, connections_per_address."""
    return type("GuardedProtocol", (GuardedProtocol,), limits)


def served(protocol: type[GuardedProtocol], *, trusted_proxies: Container[str]) -> type[GuardedProtocol]:
    """The protocol of one listener, which counts its connections."""
    limits = ConnectionLimits(limit=protocol.connections_limit, per_address=protocol.connections_per_address, proxies=trusted_proxies)
    return type(protocol.__name__, (protocol,), {"limits": limits})
