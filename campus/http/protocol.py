"""Connections: uvicorn's HTTP/1.1 protocol with limits on headers, pipelining, connections and time.

Uvicorn has no such limits, so this file builds on its httptools protocol by names that uvicorn does not document. They are looked for
at the start (uvicorn_names.py); what an upgrade changes beyond names, tests/http finds. Measured by
`python -m benchmarks --only uvicorn`: responses in one piece save 4 to 8 % of the CPU of a call with a key, directly and behind
Caddy, and with all limits a call costs no more than on uvicorn's own protocol, which has none.
"""

import asyncio
import logging
from collections.abc import Container
from math import inf
from operator import attrgetter, methodcaller
from typing import Any
from urllib.parse import unquote

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser, parse_url

from campus.addresses import network_of, plain_address
from campus.context import context_of
from campus.http.limits import CALLS, WaitingCalls
from campus.http.response import caller_of
from campus.http.response_cycle import ResponseCycle, closing_response
from campus.http.uvicorn_names import HttpToolsProtocol, RequestResponseCycle
from campus.observability.metrics import RequestMetrics
from campus.shares import Places
from twins import Problem

access = logging.getLogger("campus.access")

HEAD_BYTES = 32 * 1024
HEAD_SECONDS = 10.0
LINGER_SECONDS = 1.0
STOP_SECONDS = 0.5  # How long a connection stays open when the server stops, for a request that is on its way.
UNREAD_SECONDS = 60.0
CONNECTIONS = 4_000
CONNECTIONS_PER_ADDRESS = 256
REFUSALS_ANSWERED = 64
"""How many connections beyond the limit get a response. More are closed without one: each needs a file until the response is read."""
PIPELINED = 32
UNREAD_SHARE = 4  # Of the calls that may run at once, one in four may wait until its caller reads what was written.
LARGEST_READ = 256 * 1024  # what uvloop and asyncio hand over at once


TOO_MANY_CONNECTIONS = Problem(503, "overloaded", "Too many connections are open; try again soon.", headers={"Retry-After": "5"})
"""Every connection that could be closed for this one is being answered."""


class ParserStop(Exception):
    """Raised in a callback of the parser, so that it reads no further."""


class ConnectionLimits:
    """The open connections of one listener: at most `limit`, and at most `per_address` from one address (the /64 of an IPv6 address).

    At a limit, the connection that has been idle for the longest time is closed. A connection from an address in `proxies` counts
    for `limit` only, and is closed only when no other is idle: it carries many callers, and may be about to send the request of one.
    """

    def __init__(self, *, limit: int, per_address: int, proxies: Container[str] = ()) -> None:
        self._proxies = proxies
        self._places: Places[LimitedProtocol] = Places(
            limit=limit, per_holder=per_address, since=attrgetter("idle_since"), end=methodcaller("close_idle")
        )

    def __len__(self) -> int:
        return len(self._places)

    def admit(self, connection: "LimitedProtocol") -> bool:
        """Make room for a connection and count it; False when every connection that could be closed is busy."""
        address = connection.client[0] if connection.client else ""
        return self._places.take(connection, None if address in self._proxies else network_of(address))

    def remove(self, connection: "LimitedProtocol") -> None:
        self._places.release(connection)


class LimitedProtocol(HttpToolsProtocol):
    """One connection with all limits. They are attributes of the class; `with_limits` makes a class with others.

    A head must be complete `head_seconds` after the connection was opened, and after the first byte that follows a response;
    further bytes do not extend the time. A connection that sends nothing after a response is closed after the keep-alive time.
    One timer per connection serves both: a request only moves the deadline, which the timer reads when it fires.
    """

    head_bytes = HEAD_BYTES
    head_seconds = HEAD_SECONDS
    linger_seconds = LINGER_SECONDS
    stop_seconds = STOP_SECONDS
    connections_limit = CONNECTIONS
    connections_per_address = CONNECTIONS_PER_ADDRESS
    unread_limit = CALLS // UNREAD_SHARE
    unread_seconds = UNREAD_SECONDS
    limits: ConnectionLimits
    requests: RequestMetrics
    unread: WaitingCalls
    is_stopping = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn's own signature
        """Start the timer, and admit the connection. At a limit it replaces an idle one, or is refused if all others are busy."""
        super().connection_made(transport)
        if self.client:  # a socket for both families reports IPv4 addresses mapped into IPv6
            self.client = (plain_address(self.client[0]), self.client[1])
        self._running: RequestResponseCycle | None = None
        self._deadline = self.loop.time() + self.head_seconds
        self._awaits_head = True
        self._timer = self.loop.call_at(self._deadline, self._check_deadline)
        self._received, self._is_read, self._is_refused = 0, False, False
        self._problem = Problem(400, "invalid_http", "The request is not HTTP/1.1.")
        if not self.limits.admit(self):
            if len(self.connections) - len(self.limits) > REFUSALS_ANSWERED:
                self._is_refused = True
                self.requests.refused("overloaded")
                transport.abort()
                return
            self._refuse(TOO_MANY_CONNECTIONS)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the app of the running request that the caller has left. Uvicorn would tell that of the latest one, which may be queued."""
        self.limits.remove(self)
        self._disconnect_running()
        self._timer.cancel()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Called by the server when it stops: the running request is the last, or one that arrives within a moment.

        Closing an idle connection at once would lose a request that was sent and is not read yet: under load most have one.
        """
        self.is_stopping = True
        self.head_seconds = self.stop_seconds
        self.timeout_keep_alive = self.stop_seconds  # type: ignore[assignment]  # uvicorn's own is in whole seconds
        if self._is_busy():
            self.cycle.keep_alive = False
        else:
            self._close_in(self.stop_seconds)

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        self._received += len(data)
        self._is_read = False
        self._feed(data)
        if self._is_read and not self._is_in_head():
            self._received = 0
        elif self._received > self.head_bytes + LARGEST_READ and not self._is_refused:
            self._refuse(self._head_too_large())  # trailers are without end, too
        if not (self._is_refused or self._awaits_head or self._is_busy()):
            self._wait(is_for_head=True)  # also when it was the rest of a refused body

    def on_body(self, body: bytes) -> None:
        """Note that what arrives is a body, and in the scope how much of it has arrived."""
        self._is_read = True
        scope: Any = self.scope  # uvicorn's type has no keys of others
        context_of(scope).arrived_bytes += len(body)
        super().on_body(body)

    @property
    def idle_since(self) -> float:
        """When it began to wait for a request; infinite while a request is being answered."""
        return self._deadline - (self.head_seconds if self._awaits_head else self.timeout_keep_alive)

    def close_idle(self) -> None:
        """End the connection to make room for another; it is idle, so no request is lost.

        What its caller has not read is lost: a connection that waits for that would keep its file and its memory, uncounted.
        """
        self._deadline = inf
        self.transport.abort()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser. Blanks after the value are no part of it (RFC 9110, 5.5); httptools leaves them in."""
        name = name.lower()
        value = value.rstrip(b" \t")
        if name == b"transfer-encoding" and value.lower() != b"chunked":  # a proxy in front may see another end of the body
            self._problem = Problem(400, "invalid_http", "Transfer-Encoding is not chunked alone; send the body as it is, or chunked.")
            raise ParserStop
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Start the request or queue it: as uvicorn does, but with `ResponseCycle`, for which uvicorn has no option.

        The head is measured exactly if the bytes received since it began may exceed the limit; the queue is limited too.
        """
        if self._received > self.head_bytes and self._head_size() > self.head_bytes:
            self._problem = self._head_too_large()
            raise ParserStop
        self._is_read = True
        scope = self.scope
        parser = self.parser
        scope["method"] = parser.get_method().decode("ascii")
        if (version := parser.get_http_version()) != "1.1":
            if version != "1.0":
                self._problem = Problem(505, "invalid_http", f"HTTP/{version} is not spoken here; send HTTP/1.1.")
                raise ParserStop
            scope["http_version"] = version
        if parser.should_upgrade():
            return  # the head is parsed again without the offer
        url = parse_url(self.url)
        scope["raw_path"] = url.path
        path = url.path.decode("ascii")
        scope["path"] = unquote(path) if "%" in path else path
        scope["query_string"] = url.query or b""
        self.headers = []  # further fields are trailers of the body, which must not pass for what a proxy checked or set
        was_busy = self._is_busy()
        self.cycle = self._new_cycle(keep_alive=version != "1.0" and not self.is_stopping and parser.should_keep_alive())
        if was_busy:
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, self.app))
            if len(self.pipeline) > PIPELINED:
                raise ParserStop
        else:
            self._run(self.cycle)

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        if not self.transport.is_closing():
            self._continue()

    def resume_writing(self) -> None:
        """Called by the transport when the caller has read most of what was written: a request may have waited for that."""
        super().resume_writing()
        if self.pipeline and self._running is not None and self._running.response_complete and not self.transport.is_closing():
            self._continue()

    def _continue(self) -> None:
        """Start the next queued request, or wait for one.

        While the caller does not read, none is started: its response could not be written, and it would be one of the calls that
        may run at once. Who queues requests and reads nothing is disconnected after the time for a head.
        """
        if self.pipeline and self.flow.write_paused:
            self._wait(is_for_head=True)
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._run(self.pipeline.pop()[0])
        else:
            self._wait(is_for_head=self._is_in_head())

    def _new_cycle(self, *, keep_alive: bool) -> ResponseCycle:
        cycle = ResponseCycle(
            scope=self.scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue,
            keep_alive=keep_alive,
            on_response=self.on_response_complete,
        )
        cycle.unread = self.unread
        cycle.unread_seconds = self.unread_seconds
        return cycle

    def _run(self, cycle: RequestResponseCycle) -> None:
        """Run the app for a request; until its response is complete, no time limit applies."""
        self._running = cycle
        self._deadline = inf
        self._awaits_head = False
        self._start_asgi_task(cycle, self.app)

    def _is_in_head(self) -> bool:
        """Uvicorn makes the scope when a request begins; the method is added when its head is complete."""
        return self.scope is not None and "method" not in self.scope

    def _is_busy(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _wait(self, *, is_for_head: bool) -> None:
        self._awaits_head = is_for_head
        self._close_in(self.head_seconds if is_for_head else self.timeout_keep_alive)

    def _close_in(self, seconds: float) -> None:
        """Close the connection at this time. The timer is set anew only if it would fire too late."""
        self._deadline = self.loop.time() + seconds
        if self._deadline < self._timer.when():
            self._timer.cancel()
            self._timer = self.loop.call_at(self._deadline, self._check_deadline)

    def _check_deadline(self) -> None:
        now = self.loop.time()
        if self._deadline <= now:
            self.transport.close()
        else:
            self._timer = self.loop.call_at(min(self._deadline, now + self.head_seconds), self._check_deadline)

    def _should_upgrade(self) -> bool:
        """Called by uvicorn. True leaves requests that offer an upgrade to `_feed`."""
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
        """The head without the offer to upgrade, for a new parser: the old one would take the body for data of the other protocol.

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
        """Answer with a problem, and close a moment later: closing with unread data would destroy the answer on its way.

        From then on the connection is idle, and makes room for others even if its caller reads nothing.
        """
        self._is_refused = True
        self._close_in(self.linger_seconds)
        self.requests.refused(problem.code)
        access.info("refused", extra={"client": caller_of(self.client), "status": problem.status, "code": problem.code})
        running = self._disconnect_running()
        if running and (running.response_started or not running.more_body):
            self.transport.close()  # what arrives is another request's: an answer would be taken for that of the running one
            return
        self.transport.write(closing_response(problem))

    def _disconnect_running(self) -> RequestResponseCycle | None:
        """Tell the app that runs, if any, that its caller has left; what it sends from now on is dropped."""
        running = self._running
        if running is None or running.response_complete:
            return None
        running.disconnected = True
        running.message_event.set()
        return running


def with_limits(**limits: Any) -> type[LimitedProtocol]:
    return type("LimitedProtocol", (LimitedProtocol,), limits)


def of_listener(
    protocol: type[LimitedProtocol], *, trusted_proxies: Container[str], requests: RequestMetrics | None = None
) -> type[LimitedProtocol]:
    """The protocol of one listener, whose connections are counted together, and in `requests` those that are refused."""
    limits = ConnectionLimits(limit=protocol.connections_limit, per_address=protocol.connections_per_address, proxies=trusted_proxies)
    shared = {"limits": limits, "unread": WaitingCalls(limit=protocol.unread_limit), "requests": requests or RequestMetrics()}
    return type(protocol.__name__, (protocol,), shared)
