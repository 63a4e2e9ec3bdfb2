"""A recorder in a campus of its own, a TLS receiver for its webhooks, a mailbox for its mail, and time in the test's hands."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import anyio.abc
import httpx
import pytest
from aiosmtpd.smtp import SMTP, Envelope
from anyio.streams.tls import TLSListener
from recorder.tls import Authority, make_authority
from sqlalchemy import select, update

from buildings.recorder import building
from buildings.recorder.sweep import keep_time
from buildings.recorder.tables import ALERTS, MONITORS, TARGETS, TICKS
from buildings.recorder.watch import deliver_now, sweep_now
from campus import in_snapshot, in_transaction
from campus.app import assemble
from campus.asgi import open_app
from campus.config import Config
from campus.outbound.callers_urls import GuardedClient, guarded_client
from campus.testing import ORIGIN, Built, Clock, Frame, Reply, TestCampus

NOON = datetime(2026, 8, 21, 12, 0, tzinfo=UTC)
PRODUCTS = {name: {"scope": name, "price": "19", "term": "30 days"} for name in ("recorder", "cve", "all")}


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Whose certificate the receiver shows."""
    return make_authority(tmp_path_factory.mktemp("tls"))


@dataclass(frozen=True)
class Received:
    """One request as the receiver got it."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Receiver:
    """An HTTPS server that keeps what it is sent; `answers` are given in their order, the last one for ever."""

    port: int
    requests: list[Received] = field(default_factory=list)
    answers: list[tuple[int, dict[str, str], bytes]] = field(default_factory=lambda: [(200, {}, b"")])
    bell: anyio.Event = field(default_factory=anyio.Event)
    held: list[str] = field(default_factory=list)
    """Paths of the requests that get no answer: those to /hung."""

    def url(self, path: str = "/hook") -> str:
        return f"https://localhost:{self.port}{path}"

    def answer(self, *statuses: int, headers: Mapping[str, str] | None = None, body: bytes = b"") -> None:
        self.answers = [(status, dict(headers or {}), body) for status in statuses]

    @property
    def types(self) -> list[str]:
        return [one.json["type"] for one in self.requests]

    async def serve(self, stream: anyio.abc.ByteStream) -> None:
        with suppress(anyio.BrokenResourceError, anyio.EndOfStream, anyio.ClosedResourceError, ssl.SSLError):
            async with stream:
                received = await _read_request(stream)
                if received.path.startswith("/hung"):
                    self.held.append(received.path)
                    await anyio.sleep_forever()
                self.requests.append(received)
                status, headers, body = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                lines = [
                    f"HTTP/1.1 {status} Said",
                    f"Content-Length: {len(body)}",
                    *(f"{name}: {value}" for name, value in headers.items()),
                ]
                await stream.send(("\r\n".join([*lines, "Connection: close", "", ""])).encode() + body)


async def _read_request(stream: anyio.abc.ByteStream) -> Received:
    data = b""
    while b"\r\n\r\n" not in data:
        data += await stream.receive()
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    while len(body) < int(headers.get("content-length", "0")):
        body += await stream.receive()
    method, path, _ = first.split(" ")
    return Received(method, path, headers, body)


@pytest.fixture
async def receiver(authority: Authority) -> AsyncIterator[Receiver]:
    """A real TLS server on this machine."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    served = Receiver(listener.extra(anyio.abc.SocketAttribute.local_port))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(TLSListener(listener, authority.server, standard_compatible=False).serve, served.serve)
        yield served
        tasks.cancel_scope.cancel()
    await listener.aclose()


@dataclass
class Mailbox:
    """An SMTP server that keeps what it takes; `refusal` is what it says to every recipient instead."""

    port: int = 0
    messages: list[EmailMessage] = field(default_factory=list)
    refusal: str | None = None

    async def handle_RCPT(self, server: Any, session: Any, envelope: Envelope, address: str, options: Any) -> str:
        envelope.rcpt_tos.append(address)
        return self.refusal or "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Envelope) -> str:
        assert isinstance(envelope.content, bytes)
        message = message_from_bytes(envelope.content, policy=policy.default)
        assert isinstance(message, EmailMessage)
        self.messages.append(message)
        return "250 OK"

    def link(self, purpose: str) -> str:
        """The path of the last link of a kind that a message holds."""
        words = [word for message in self.messages for word in str(message.get_content()).split() if f"/email/{purpose}/" in word]
        return words[-1].removeprefix(ORIGIN)


@pytest.fixture
async def mailbox() -> AsyncIterator[Mailbox]:
    box = Mailbox()
    server = await asyncio.get_running_loop().create_server(lambda: SMTP(box, loop=asyncio.get_running_loop()), "127.0.0.1", 0)
    box.port = server.sockets[0].getsockname()[1]
    yield box
    server.close()
    await server.wait_closed()


@dataclass(frozen=True)
class Recorder:
    """A campus with a recorder, and what only a test may do to it."""

    campus: TestCampus
    clock: Clock

    async def call(self, tool: str, /, **arguments: Any) -> Reply:
        return await self.campus.call(tool, **arguments)

    @asynccontextmanager
    async def calling_from(self, address: str) -> AsyncIterator["Recorder"]:
        """The same recorder, called from another address."""
        transport = httpx.ASGITransport(self.campus.app, client=(address, 1))
        async with httpx.AsyncClient(transport=transport, base_url=ORIGIN) as http:
            yield replace(self, campus=replace(self.campus, http=http))

    async def register(self, webhook: str | None = "https://localhost/hook", **arguments: Any) -> dict[str, Any]:
        """Register a monitor that must be taken; gives the answer."""
        reply = await self.call("register_monitor", **{"name": "worker", "alert_webhook": webhook, **arguments})
        assert reply.status == 200, reply.data
        found: dict[str, Any] = reply.data
        return found

    async def beat(self, monitor: Mapping[str, Any], **arguments: Any) -> Reply:
        return await self.call("heartbeat", monitor_id=monitor["monitor_id"], secret=monitor["secret"], **arguments)

    async def pass_time(self, **span: float) -> None:
        """Let time pass as it does for a recorder that watches all the while: no outage."""
        self.clock.move(timedelta(**span))
        await in_transaction(self.campus.site.storage, lambda connection: _at_work(connection, self.clock()))

    async def sweep(self) -> int:
        return await sweep_now(self.campus.site)

    async def deliver(self) -> int:
        return await deliver_now(self.campus.site)

    async def alerts(self, monitor: Mapping[str, Any]) -> list[tuple[str, int]]:
        """The kinds and epochs of the alerts that wait, in their order."""
        chosen = select(ALERTS.c.kind, ALERTS.c.epoch).where(ALERTS.c.monitor_id == monitor["monitor_id"]).order_by(ALERTS.c.id)
        return [
            (kind, epoch)
            for kind, epoch in await in_snapshot(self.campus.site.storage, lambda connection: connection.execute(chosen).all())
        ]

    async def row(self, monitor: Mapping[str, Any]) -> Any:
        chosen = select(MONITORS).where(MONITORS.c.id == monitor["monitor_id"])
        return await in_snapshot(self.campus.site.storage, lambda connection: connection.execute(chosen).one_or_none())

    async def targets(self) -> Sequence[Any]:
        return await in_snapshot(self.campus.site.storage, lambda connection: connection.execute(select(TARGETS)).all())


def _at_work(connection: Any, now: datetime) -> None:

    if not connection.execute(update(TICKS).values(at=now).returning(TICKS.c.id)).all():
        keep_time(connection, now)


OpenRecorder = Callable[..., AbstractAsyncContextManager[Recorder]]


@pytest.fixture
def open_recorder(authority: Authority) -> OpenRecorder:
    """`async with open_recorder(frame="mcp", storage=url) as recorder`."""

    @asynccontextmanager
    async def opened(
        frame: Frame = "http",
        *,
        storage: str = "sqlite:data",
        clock: Clock | None = None,
        mailbox: Mailbox | None = None,
        settings: Mapping[str, Any] | None = None,
        web: GuardedClient | None = None,
    ) -> AsyncIterator[Recorder]:
        clock = clock or Clock(NOON)
        mail = {"mail": {"host": "127.0.0.1", "port": mailbox.port, "sender": "alerts@campus.test", "tls": "none"}} if mailbox else {}
        web = web or guarded_client(ORIGIN, allowed_hosts=["localhost"], trust=authority.client)
        with TemporaryDirectory() as folder:
            config = Config.model_validate(
                {
                    "server": {"public_url": ORIGIN, "openapi": "recorder"},
                    "storage": {"url": storage},
                    "products": PRODUCTS,
                    "buildings": {"recorder": {"registrations_per_minute": 10_000, **(settings or {})}},
                    "folder": Path(folder),
                    **mail,
                }
            )
            async with AsyncExitStack() as stack:
                installed = [Built("recorder", building)]
                campus = await stack.enter_async_context(
                    assemble(config, exclusive=False, clock=clock, elapsed=clock.elapsed, installed=installed, web=web)
                )
                app = await stack.enter_async_context(open_app(campus))
                http = await stack.enter_async_context(httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=ORIGIN))
                yield Recorder(TestCampus(campus, app, http, frame, "recorder"), clock)

    return opened


@pytest.fixture
async def recorder(open_recorder: OpenRecorder) -> AsyncIterator[Recorder]:
    """On SQLite, called over HTTP."""
    async with open_recorder() as opened:
        yield opened


@pytest.fixture
async def anywhere(open_recorder: OpenRecorder, storage_url: str) -> AsyncIterator[Recorder]:
    """On SQLite and on PostgreSQL, a test each, called over HTTP."""
    async with open_recorder(storage=storage_url) as opened:
        yield opened


@pytest.fixture(params=["http", "mcp"])
async def both_ways(request: pytest.FixtureRequest, open_recorder: OpenRecorder) -> AsyncIterator[Recorder]:
    """Called over HTTP and over MCP, a test each."""
    async with open_recorder(request.param) as opened:
        yield opened
