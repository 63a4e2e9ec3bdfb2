"""Names of uvicorn that it does not document and that campus/http uses; an upgrade that changes one fails here, with a sentence.

`protocol.py`, `response.py` and `server.py` of campus/http are what to change then.
"""

import asyncio
import inspect
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import uvicorn
from httptools import HttpParserUpgrade
from patience import patience
from starlette.types import Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

pytestmark = pytest.mark.anyio

GET = b"GET /path?query HTTP/1.1\r\nHost: localhost\r\nX-Odd: Yes\r\n\r\n"
MADE_OF = [
    *("scope", "transport", "flow", "logger", "access_logger", "access_log", "default_headers", "message_event"),
    *("expect_100_continue", "keep_alive", "on_response"),
]
RELEASE = f"uvicorn {uvicorn.__version__}"


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers nothing: the request stays unanswered."""
    await asyncio.sleep(3600)


@dataclass(eq=False)
class Wire(asyncio.Transport):
    """A transport without a network."""

    written: bytes = b""
    closed: bool = False
    paused: list[bool] = field(default_factory=list)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("192.0.2.1", 50_000), "sockname": ("192.0.2.2", 80)}.get(name, default)

    def write(self, data: Any) -> None:
        self.written += bytes(data)

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        self.paused.append(True)

    def resume_reading(self) -> None:
        self.paused.append(False)


@contextmanager
def connected(kind: type[HttpToolsProtocol] = HttpToolsProtocol) -> Iterator[HttpToolsProtocol]:
    """A connection of uvicorn's own class."""
    state = ServerState()
    protocol = kind(uvicorn.Config(app, lifespan="off", log_config=None), state, {}, asyncio.get_running_loop())
    protocol.connection_made(Wire())
    try:
        yield protocol
    finally:
        for task in state.tasks:
            task.cancel()


def finish(cycle: RequestResponseCycle) -> None:
    cycle.response_complete = True
    cycle.on_response()


async def test_connection_made_takes_the_transport_and_the_callers_address() -> None:
    with connected() as protocol:
        assert isinstance(protocol.transport, Wire), f"{RELEASE} keeps the transport elsewhere than in `transport`"
        assert protocol.client == ("192.0.2.1", 50_000), f"{RELEASE} keeps the caller's address elsewhere than in `client`"
        assert protocol.loop is asyncio.get_running_loop(), f"{RELEASE} keeps the event loop elsewhere than in `loop`"
        assert protocol in protocol.connections, f"{RELEASE} does not count a connection in `connections`"


async def test_on_message_begin_starts_a_request_and_on_header_adds_to_its_headers() -> None:
    with connected() as protocol:
        protocol.on_message_begin()
        protocol.on_url(b"/pa")
        protocol.on_url(b"th")
        protocol.on_header(b"X-Odd", b"Yes")
        assert protocol.url == b"/path", f"{RELEASE} keeps the request's target elsewhere than in `url`"
        assert protocol.headers == [(b"x-odd", b"Yes")], f"{RELEASE} keeps the request's headers elsewhere than in `headers`"


async def test_on_headers_complete_makes_the_cycle_of_a_request() -> None:
    with connected() as protocol:
        assert protocol.cycle is None, f"{RELEASE} has a `cycle` before the first request"
        assert protocol.scope is None, f"{RELEASE} has a `scope` before the first request"
        protocol.parser.feed_data(GET[:20])
        assert "method" not in protocol.scope, f"{RELEASE} adds the method to the scope before the head is complete"
        protocol.parser.feed_data(GET[20:])
        assert type(protocol.cycle) is RequestResponseCycle, f"{RELEASE} makes another class than RequestResponseCycle for a request"
        path = {name: protocol.scope[name] for name in ("method", "path", "raw_path", "query_string")}
        ours = {"method": "GET", "path": "/path", "raw_path": b"/path", "query_string": b"query"}
        assert path == ours, f"{RELEASE} adds something else to the scope than campus's own on_headers_complete"


async def test_a_cycle_is_made_of_what_campus_makes_its_own_of() -> None:
    made_of = (
        "scope transport flow logger access_logger access_log default_headers message_event expect_100_continue keep_alive on_response"
    )
    assert list(inspect.signature(RequestResponseCycle).parameters) == made_of.split(), (
        f"{RELEASE} makes a RequestResponseCycle of other things"
    )
    with connected() as protocol:
        protocol.on_message_begin()
        assert protocol.expect_100_continue is False, f"{RELEASE} keeps elsewhere than in `expect_100_continue` that a caller waits for it"
        assert protocol.flow.read_paused is False, f"{RELEASE} says elsewhere than in `flow` whether reading is paused"
        assert protocol.server_state.default_headers == [], f"{RELEASE} keeps the default headers elsewhere than in `server_state`"
        assert (protocol.logger.name, protocol.access_logger.name) == ("uvicorn.error", "uvicorn.access"), (
            f"{RELEASE} logs under other names"
        )


async def test_start_asgi_task_runs_the_app_and_forgets_the_task_at_its_end() -> None:
    async def answering(scope: Scope, receive: Receive, send: Send) -> None:
        ran.append(scope["path"])

    ran: list[str] = []
    with connected() as protocol:
        protocol.parser.feed_data(GET)
        first = set(protocol.tasks)
        assert len(first) == 1, f"{RELEASE} keeps a request's task elsewhere than in `tasks`, which the end of the server waits for"
        protocol._start_asgi_task(protocol.cycle, answering)  # type: ignore[arg-type]  # Starlette's types for the same
        [task] = protocol.tasks - first
        await task
        await asyncio.sleep(0)  # for its callbacks
        assert protocol.tasks == first, f"{RELEASE} does not forget a task at its end"
    assert ran == ["/path"], f"{RELEASE} does not run the app that is given to _start_asgi_task"


async def test_should_upgrade_decides_whether_uvicorn_leaves_an_offer_to_upgrade_alone() -> None:
    class Upgrading(HttpToolsProtocol):
        def _should_upgrade(self) -> bool:
            asked.append(True)
            return True

    asked: list[bool] = []
    with connected(Upgrading) as protocol, pytest.raises(HttpParserUpgrade):
        protocol.parser.feed_data(GET.replace(b"X-Odd: Yes", b"Connection: Upgrade\r\nUpgrade: h2c"))
    assert asked, f"{RELEASE} does not ask _should_upgrade: it would run a request that campus parses again"
    assert protocol.cycle is None, f"{RELEASE} runs a request that offers to upgrade although _should_upgrade is true"


async def test_pipeline_has_the_queued_requests_the_next_one_at_its_end() -> None:
    with connected() as protocol:
        protocol.parser.feed_data(GET)
        first = protocol.cycle
        assert not protocol.pipeline, f"{RELEASE} queues the first request too"
        protocol.parser.feed_data(GET)
        second = protocol.cycle
        protocol.parser.feed_data(GET)
        assert protocol.pipeline[-1][0] is second, f"{RELEASE} takes the next request from another end of `pipeline`"
        finish(first)
        assert len(protocol.pipeline) == 1, f"{RELEASE} does not start the next request in on_response_complete"


async def test_the_keep_alive_time_and_the_number_of_requests_have_their_names() -> None:
    with connected() as protocol:
        assert protocol.timeout_keep_alive == protocol.config.timeout_keep_alive, f"{RELEASE} has no `timeout_keep_alive`"
        protocol.parser.feed_data(GET)
        finish(protocol.cycle)
        assert protocol.server_state.total_requests == 1, f"{RELEASE} counts requests elsewhere than in `server_state.total_requests`"
        assert protocol.timeout_keep_alive_task is not None, (
            f"{RELEASE} starts no timer in on_response_complete, which campus overrides for that"
        )


async def test_on_message_complete_ends_the_body_of_the_latest_request() -> None:
    with connected() as protocol:
        protocol.parser.feed_data(GET.replace(b"GET", b"POST").replace(b"X-Odd: Yes", b"Content-Length: 4"))
        assert protocol.cycle.more_body, f"{RELEASE} says elsewhere than in `more_body` whether a body is still to come"
        protocol.parser.feed_data(b"body")
        assert not protocol.cycle.more_body, f"{RELEASE} does not end a body in on_message_complete"


async def test_connection_lost_tells_the_latest_request() -> None:
    with connected() as protocol:
        protocol.parser.feed_data(GET)
        protocol.connection_lost(None)
        assert protocol.cycle.disconnected, f"{RELEASE} says elsewhere than in `disconnected` that the caller has left"
        assert protocol.cycle.message_event.is_set(), f"{RELEASE} wakes receive() by something else than `message_event`"


@dataclass(frozen=True)
class Attribute:
    """What campus takes an attribute of the response cycle for."""

    name: str
    holds: Callable[[Any, HttpToolsProtocol], bool]

    def __str__(self) -> str:
        return self.name


ATTRIBUTES = [
    Attribute("scope", lambda found, protocol: found["method"] == "GET"),
    Attribute("transport", lambda found, protocol: found is protocol.transport),
    Attribute("default_headers", lambda found, protocol: list(found) == protocol.server_state.default_headers),
    Attribute("on_response", lambda found, protocol: found == protocol.on_response_complete),
    Attribute("message_event", lambda found, protocol: isinstance(found, asyncio.Event)),
    Attribute("keep_alive", lambda found, protocol: found is True),
    Attribute("disconnected", lambda found, protocol: found is False),
    Attribute("response_started", lambda found, protocol: found is False),
    Attribute("response_complete", lambda found, protocol: found is False),
    Attribute("waiting_for_100_continue", lambda found, protocol: found is False),
    Attribute("chunked_encoding", lambda found, protocol: found is None),
    Attribute("expected_content_length", lambda found, protocol: found == 0),
]


@pytest.mark.parametrize("attribute", ATTRIBUTES, ids=str)
async def test_a_response_cycle_begins_with(attribute: Attribute) -> None:
    with connected() as protocol:
        protocol.parser.feed_data(GET)
        found = getattr(protocol.cycle, attribute.name, "nothing")
        assert attribute.holds(found, protocol), (
            f"{RELEASE} begins a response with {attribute.name} = {found!r}, which ResponseCycle cannot use"
        )


async def test_flow_says_whether_writing_is_paused_and_waits_until_it_is_not() -> None:
    with connected() as protocol:
        protocol.parser.feed_data(GET)
        flow = protocol.cycle.flow
        protocol.pause_writing()
        assert flow.write_paused is True, f"{RELEASE} says elsewhere than in `flow.write_paused` that the caller does not read"
        waiting = asyncio.ensure_future(flow.drain())
        await asyncio.sleep(0)
        assert not waiting.done(), f"{RELEASE} does not wait in `flow.drain`"
        protocol.resume_writing()
        await asyncio.wait_for(waiting, patience(10))


async def test_run_asgi_sends_by_the_method_that_a_subclass_has() -> None:
    sent: list[Any] = []

    class Recording(RequestResponseCycle):
        async def send(self, message: Any) -> None:
            sent.append(message["type"])
            self.response_started = self.response_complete = True

    async def answering(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200})

    with connected() as protocol:
        protocol.parser.feed_data(GET)
        parts = inspect.signature(RequestResponseCycle).parameters
        cycle = Recording(
            **{name: getattr(protocol.cycle, name, None) for name in parts if name != "expect_100_continue"}, expect_100_continue=False
        )
        await cycle.run_asgi(answering)  # type: ignore[arg-type]  # Starlette's types for the same
    assert sent == ["http.response.start"], f"{RELEASE} does not give an app the cycle's own `send`"


def test_a_signal_is_handled_by_handle_exit_which_campus_overrides() -> None:
    handled: list[int] = []

    class Handling(uvicorn.Server):
        def handle_exit(self, sig: int, frame: Any) -> None:
            handled.append(sig)

    server = Handling(uvicorn.Config(app))
    with server.capture_signals():
        signal.raise_signal(signal.SIGTERM)
    assert handled == [signal.SIGTERM], f"{RELEASE} handles signals elsewhere than in `handle_exit`, or raises them once more"
    for name in ("should_exit", "force_exit", "started"):
        assert getattr(server, name, None) is False, f"{RELEASE} begins with another `Server.{name}` than False"
    for name in ("serve", "startup", "shutdown"):
        assert "sockets" in inspect.signature(getattr(server, name)).parameters, f"{RELEASE} does not take sockets= in `Server.{name}`"


def test_the_proxy_middleware_says_which_addresses_it_trusts() -> None:
    middleware = ProxyHeadersMiddleware(app, trusted_hosts=["10.0.0.0/8"])  # type: ignore[arg-type]  # Starlette's types for the same
    for address, trusted in (("10.1.2.3", True), ("192.0.2.1", False)):
        assert (address in middleware.trusted_hosts) is trusted, f"{RELEASE} does not say by `in trusted_hosts` whom it trusts"
