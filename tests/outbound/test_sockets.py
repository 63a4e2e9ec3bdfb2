"""No exchange leaves its connection open, however it ends: its sockets are those that this process did not have before."""

import gc
import ssl
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from os import readlink, scandir
from socketserver import BaseRequestHandler, ThreadingTCPServer
from threading import Event, Thread

import anyio
import httpx
import pytest
from outbound.conftest import Authority
from patience import patience

from campus.outbound import GuardedClient
from campus.outbound.http_clients import KeptConnections, guarded_client

pytestmark = pytest.mark.anyio
POSTS = 12
"""Seconds after which a wait is given up: a bound, not an expectation."""


class Server(ThreadingTCPServer):
    """It hangs before the handshake or after the request, or closes at once; `reached` counts who got as far as that."""

    allow_reuse_address = True
    request_queue_size = 2 * POSTS

    def __init__(self, behaviour: str, tls: ssl.SSLContext) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.behaviour, self.tls = behaviour, tls
        self.over = Event()
        self.reached: list[None] = []


class Handler(BaseRequestHandler):
    """One connection."""

    server: Server

    def handle(self) -> None:
        if self.server.behaviour == "hangs after the request":
            with suppress(OSError), self.server.tls.wrap_socket(self.request, server_side=True) as stream:
                stream.recv(4096)
                self._wait()
        elif self.server.behaviour == "hangs before the handshake":
            self._wait()
        else:
            self.server.reached.append(None)

    def _wait(self) -> None:
        self.server.reached.append(None)
        self.server.over.wait(10 * patience(60))


@contextmanager
def serving(behaviour: str, tls: ssl.SSLContext) -> Iterator[Server]:
    with Server(behaviour, tls) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.over.set()
            server.shutdown()
            thread.join()


def slowly(host: str, port: int) -> Sequence[str]:
    """A lookup that leaves little of the exchange's time for the handshake."""
    time.sleep(0.7)
    return ["127.0.0.1"]


def at_once(host: str, port: int) -> Sequence[str]:
    return ["127.0.0.1"]


async def posted(web: GuardedClient, url: str) -> None:
    with suppress(httpx.TransportError):
        await web.post(url, content=b"{}")


async def post_all(web: GuardedClient, server: Server, *, cancelled: bool) -> None:
    async with anyio.create_task_group() as tasks:
        for _ in range(POSTS):
            tasks.start_soon(posted, web, f"https://localhost:{server.server_address[1]}/hook")
        if cancelled:
            with anyio.fail_after(patience(60)):
                while len(server.reached) < POSTS:  # noqa: ASYNC110  # the server's threads ring no bell
                    await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()


def open_sockets() -> set[str]:
    found = set()
    with scandir("/proc/self/fd") as numbers:
        for number in numbers:
            with suppress(FileNotFoundError):  # the listing's own
                found.add(readlink(number.path))
    return {name for name in found if name.startswith("socket:")}


ENDS: dict[str, tuple[Callable[[str, int], Sequence[str]], float]] = {
    "out of time": (at_once, 0.5),
    "out of time after a slow lookup": (slowly, 1.0),
    "cancelled": (at_once, 10 * patience(60)),
}


@pytest.mark.parametrize("kept", [None, KeptConnections()], ids=["own connections", "kept connections"])
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("behaviour", ["hangs before the handshake", "hangs after the request", "closes"])
async def test_an_exchange_that_ends_early_closes_its_connection(
    authority: Authority, behaviour: str, end: str, kept: KeptConnections | None
) -> None:
    resolve, seconds = ENDS[end]
    web = guarded_client("https://campus.dev", allowed_hosts=["localhost"], resolve=resolve, trust=authority.client, seconds=seconds)
    gc.collect()  # what tests before this one left, and the warnings about it
    before = open_sockets()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with serving(behaviour, authority.server) as server:
            await post_all(web.apart(lookups=POSTS, kept=kept), server, cancelled=end == "cancelled")
        for _ in range(10):  # a transport closes its socket in the loop's next turns
            await anyio.sleep(0.01)
        left = open_sockets() - before
        gc.collect()
    assert (left, [str(one.message) for one in warned if issubclass(one.category, ResourceWarning)]) == (set(), [])
