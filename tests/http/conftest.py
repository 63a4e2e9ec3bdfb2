"""Real sockets for the edge's tests: an app behind the edge on a free port, and a client that sends any bytes."""

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.abc
import pytest
from patience import patience
from starlette.types import ASGIApp

from campus.http.edge import Edge
from campus.http.protocol import LimitedProtocol
from campus.http.server import bind, serve


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"use_uvloop": True}


@dataclass(frozen=True)
class Answer:
    """One HTTP response."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Connection:
    """A TCP connection to the server."""

    stream: anyio.abc.SocketStream

    async def send(self, data: bytes) -> None:
        await self.stream.send(data)

    async def rest(self) -> bytes:
        received = bytearray()
        with anyio.fail_after(patience(20)):
            while True:
                try:
                    received += await self.stream.receive()
                except (anyio.EndOfStream, anyio.BrokenResourceError):
                    return bytes(received)

    async def answer(self) -> Answer:
        received = bytearray()
        with anyio.fail_after(patience(20)):
            while b"\r\n\r\n" not in received:
                received += await self.stream.receive()
            head, _, body = received.partition(b"\r\n\r\n")
            status_line, *lines = head.decode("latin-1").split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
            while len(body) < int(headers.get("content-length", 0)):
                body += await self.stream.receive()
        return Answer(int(status_line.split()[1]), headers, bytes(body))


@dataclass(frozen=True)
class Served:
    """A running server."""

    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @asynccontextmanager
    async def connected(self, address: str = "127.0.0.1") -> AsyncIterator[Connection]:
        async with await anyio.connect_tcp("127.0.0.1", self.port, local_host=address) as stream:
            yield Connection(stream)

    async def ask(self, request: bytes | str) -> Answer:
        async with self.connected() as connection:
            await connection.send(request if isinstance(request, bytes) else request.encode("latin-1"))
            return await connection.answer()

    async def get(self, path: str = "/", *headers: str, method: str = "GET", host: str = "localhost") -> Answer:
        return await self.ask("\r\n".join([f"{method} {path} HTTP/1.1", f"Host: {host}", *headers, "", ""]))


Serving = Callable[..., AbstractAsyncContextManager[Served]]


@asynccontextmanager
async def _serving(app: ASGIApp, *, protocol: type[LimitedProtocol] | None = None, **options: Any) -> AsyncIterator[Served]:
    listener = bind("127.0.0.1", 0)
    port = listener.getsockname()[1]
    started = anyio.Event()
    edge = Edge(app, **{"public_url": f"http://127.0.0.1:{port}", "port": port} | options)
    async with anyio.create_task_group() as tasks:
        more = {name: value for name, value in options.items() if name == "trusted_proxies"}
        tasks.start_soon(lambda: serve(edge, listener, on_started=started.set, protocol=protocol, grace_seconds=2, **more))
        with anyio.fail_after(patience(20)):
            await started.wait()
        yield Served(port)
        tasks.cancel_scope.cancel()


@pytest.fixture
def serving() -> Serving:
    return _serving
