"""A connection as campus keeps it: uvicorn's HTTP/1.1 protocol, with one timer and with responses that go out in one piece.

A connection owes us a request head from its first moment, and again from the first byte after a response; whatever arrives
meanwhile buys no time. One that is silent after a response is closed after the keep-alive time. One timer per connection
serves both: a request only moves the deadline that the timer looks at.
"""

import asyncio
from math import inf
from urllib.parse import unquote

from httptools import parse_url
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from campus.addresses import plain_address
from campus.http.response_cycle import Exchange

HEAD_SECONDS = 10.0
MAPPED = "::ffff:"
"""How a socket for both families reports an IPv4 address."""


class Connection(HttpToolsProtocol):
    """Requests one after the other, each run when the one before it is answered."""

    head_seconds = HEAD_SECONDS

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn's own signature
        """Start the clock."""
        super().connection_made(transport)
        if self.client and self.client[0].startswith(MAPPED):
            self.client = (plain_address(self.client[0]), self.client[1])
        self._running: RequestResponseCycle | None = None
        self._deadline, self._owes_head = self.loop.time() + self.head_seconds, True
        self._timer = self.loop.call_at(self._deadline, self._look_at_clock)

    @property
    def idle_since(self) -> float:
        """When it began to wait for a request; infinite while one is answered."""
        return self._deadline - (self.head_seconds if self._owes_head else self.timeout_keep_alive)

    def close_idle(self) -> None:
        """Close it for another's sake; no request is lost that had begun to be answered."""
        self._deadline = inf
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clock."""
        self._timer.cancel()
        super().connection_lost(exc)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Without the blanks behind the value, which are no part of it (RFC 9110, 5.5) and which httptools leaves."""
        name, value = name.lower(), value.rstrip(b" \t")
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Begin the request, or queue it."""
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
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, self.app))
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

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        """A request's turn has come: until its response is complete, the connection owes nothing."""
        self._running = cycle
        self._deadline, self._owes_head = inf, False
        self.tasks.add(self.loop.create_task(self._run(cycle, app)))

    async def _run(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        """The task leaves by itself: a callback at its end would cost a fiftieth of a call."""
        try:
            await cycle.run_asgi(app)
        finally:
            if task := asyncio.current_task(self.loop):
                self.tasks.discard(task)

    def _inside_head(self) -> bool:
        """Uvicorn makes the scope when a request begins, and puts the method in when its head is complete."""
        return self.scope is not None and "method" not in self.scope

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
