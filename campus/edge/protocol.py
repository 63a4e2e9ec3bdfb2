"""Uvicorn's HTTP/1.1 protocol with the limits that it lacks: on a request's head, on connections and on pipelining.

A connection owes us a request head from its first moment, and again from the first byte of the next one; whatever arrives
meanwhile buys no time. One that is silent after a response is closed after the keep-alive time. One timer per connection
serves both: a request only moves the deadline that the timer looks at.
"""

import asyncio
import logging
from math import inf
from typing import Any
from urllib.parse import unquote

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser, parse_url
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from campus.edge.exchange import Exchange
from campus.edge.refusal import last_answer
from twins import Problem

access = logging.getLogger("campus.access")

HEAD_SECONDS = 10.0
HEAD_BYTES = 32 * 1024
LINGER_SECONDS = 1.0
CONNECTIONS = 4_000
PIPELINED = 32
LARGEST_READ = 256 * 1024  # what uvloop and asyncio hand over at once


class ParserStop(Exception):
    """The parser is to read no further."""


class GuardedProtocol(HttpToolsProtocol):
    """One connection. The limits are the class's; `guarded` makes a class with others."""

    head_seconds = HEAD_SECONDS
    head_bytes = HEAD_BYTES
    linger_seconds = LINGER_SECONDS
    connections_limit = CONNECTIONS

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn's own signature
        """Start the clock; one connection too many is told so."""
        super().connection_made(transport)
        self._received = 0
        self._refused = False
        self._problem = Problem(400, "invalid_http", "The request is not HTTP/1.1.")
        self._running: RequestResponseCycle | None = None
        self._deadline, self._owes_head = self.loop.time() + self.head_seconds, True
        self._timer = self.loop.call_at(self._deadline, self._look_at_clock)
        if len(self.connections) > self.connections_limit:
            self._refuse(Problem(503, "overloaded", "Too many connections are open; try again soon.", headers={"Retry-After": "5"}))

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clock. Uvicorn tells the last request's app that the caller has gone; the one that runs may be an earlier one."""
        self._timer.cancel()
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
        elif not self._owes_head and not self._is_busy():
            self._wait_for_head()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Without the blanks behind the value, which are no part of it (RFC 9110, 5.5) and which httptools leaves."""
        name, value = name.lower(), value.rstrip(b" \t")
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Measure the head, exactly when what was received since it began could be too much; then begin its request, or queue it."""
        if self._received > self.head_bytes and self._head_size() > self.head_bytes:
            self._problem = self._head_too_large()
            raise ParserStop
        scope, parser = self.scope, self.parser
        scope["method"] = parser.get_method().decode("ascii")
        if (version := parser.get_http_version()) != "1.1":
            scope["http_version"] = version
        if parser.should_upgrade():
            return
        url = parse_url(self.url)
        scope["raw_path"], path = url.path, url.path.decode("ascii")
        scope["path"] = unquote(path) if "%" in path else path
        scope["query_string"] = url.query or b""
        was_busy, self.cycle = self._is_busy(), self._exchange(keep_alive=version != "1.0" and parser.should_keep_alive())
        if was_busy:
            self._queue(self.cycle)
        else:
            self._start_asgi_task(self.cycle, self.app)

    def on_response_complete(self) -> None:
        """Called at the end of a response: the next request's turn, or the connection is idle."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        elif self._inside_head():
            self._wait_for_head()
        else:
            self._wait(self.timeout_keep_alive)

    def _queue(self, cycle: RequestResponseCycle) -> None:
        self.flow.pause_reading()
        self.pipeline.appendleft((cycle, self.app))
        if len(self.pipeline) > PIPELINED:
            raise ParserStop

    def _exchange(self, *, keep_alive: bool) -> Exchange:
        return Exchange(
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

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        """A request's turn has come: until its response is complete, the connection owes nothing."""
        self._running = cycle
        self._deadline, self._owes_head = inf, False
        super()._start_asgi_task(cycle, app)

    def _inside_head(self) -> bool:
        """Uvicorn makes the scope when a request begins, and puts the method in when its head is complete."""
        return self.scope is not None and "method" not in self.scope

    def _head_size(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + len(": \r\n") for name, value in self.headers)

    def _head_too_large(self) -> Problem:
        return Problem(431, "head_too_large", f"The request's head is over {self.head_bytes:,} bytes; send fewer or shorter headers.")

    def _refuse(self, problem: Problem) -> None:
        """Answer and close; a while later, since closing with unread data would destroy the answer on its way."""
        self._refused, self._deadline = True, inf
        access.info("refused", extra={"status": problem.status, "code": problem.code})
        if self._tell_running() and not self._is_about(self._running):
            self.transport.close()
            return
        self.transport.write(last_answer(problem))
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

    def _is_busy(self) -> bool:
        """Whether the last request that came in is still to be answered."""
        return self.cycle is not None and not self.cycle.response_complete

    def _wait_for_head(self) -> None:
        self._owes_head = True
        self._wait(self.head_seconds)

    def _wait(self, seconds: float) -> None:
        """Close the connection after so long, unless a request begins. The timer is wound up only where it would ring too late."""
        self._deadline = self.loop.time() + seconds
        if self._deadline < self._timer.when():
            self._timer.cancel()
            self._timer = self.loop.call_at(self._deadline, self._look_at_clock)

    def _look_at_clock(self) -> None:
        now = self.loop.time()
        if self._deadline <= now:
            self.transport.close()
        else:
            self._timer = self.loop.call_at(min(self._deadline, now + self.head_seconds), self._look_at_clock)


def guarded(**limits: Any) -> type[GuardedProtocol]:
    """The protocol with other limits: head_seconds, head_bytes, linger_seconds, connections_limit."""
    return type("GuardedProtocol", (GuardedProtocol,), limits)
