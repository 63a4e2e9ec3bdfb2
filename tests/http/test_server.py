"""Taking an address, and leaving it: signals and cancellation let calls finish."""

import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import IO

import anyio
import pytest
from patience import patience
from starlette.types import Receive, Scope, Send

from campus.errors import ServeError
from campus.http.protocol import STOP_SECONDS
from campus.http.server import bind, inherited_listener, serve
from tests import forkserver
from tests.forkserver import PIPE, Forked

pytestmark = pytest.mark.anyio

PROGRAM = """
import anyio
from campus.http.edge import Edge
from campus.http.protocol import with_limits
from campus.http.server import bind, serve

async def app(scope, receive, send):
    print("begun", flush=True)
    await anyio.sleep({seconds})
    await send({{"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]}})
    await send({{"type": "http.response.body", "body": b"done"}})

async def main():
    with bind("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        edge = Edge(app, public_url="http://localhost", port=port)
        protocol = with_limits(stop_seconds={stop})
        await serve(edge, listener, on_started=lambda: print(port, flush=True), grace_seconds={grace}, protocol=protocol)
    print("closed", flush=True)

anyio.run(main, backend_options={{"use_uvloop": True}})
"""
GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


@contextmanager
def running(*, seconds: float, grace: int = 10, stop: float = STOP_SECONDS) -> Iterator[tuple[Forked, IO[str], int]]:
    program = PROGRAM.format(seconds=seconds, grace=grace, stop=stop)
    with forkserver.shared().start(program, stdout=PIPE) as process:
        assert process.stdout is not None
        yield process, process.stdout, int(process.stdout.readline())


def read_all(client: socket.socket) -> bytes:
    received = b""
    while part := client.recv(65536):
        received += part
    return received


def refused_from_now_on(port: int) -> None:
    while True:
        try:
            connect(port).close()
        except ConnectionRefusedError:
            return
        time.sleep(0.01)


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=patience(20))


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_a_call_in_flight_is_answered_after_the_signal_to_stop(sent: signal.Signals) -> None:
    with running(seconds=1) as (process, said, port), connect(port) as client, connect(port) as idle:
        client.sendall(GET)
        assert said.readline() == "begun\n"
        process.send_signal(sent)
        assert idle.recv(1) == b""  # closed soon: from here on the server is stopping
        with pytest.raises(ConnectionRefusedError):
            connect(port)
        answer = read_all(client)
        rest, code = said.read(), process.wait(patience(20))
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.endswith(b"done")
    assert b"connection: close" in answer
    assert rest == "closed\n"  # what stood around serve() was closed too
    assert code == 0


def test_a_request_on_its_way_to_a_server_that_stops_is_answered() -> None:
    with running(seconds=0.2, stop=patience(20)) as (process, said, port), connect(port) as used, connect(port) as new:
        used.sendall(GET)
        assert used.recv(65536).endswith(b"done")
        new.sendall(GET[:9])
        process.terminate()
        refused_from_now_on(port)
        used.sendall(GET)
        new.sendall(GET[9:])
        answers = [read_all(used), read_all(new)]
        rest = said.read()
    assert [(answer[:12], answer[-4:], b"connection: close" in answer) for answer in answers] == [(b"HTTP/1.1 200", b"done", True)] * 2
    assert rest.endswith("closed\n")


async def test_callers_wait_in_the_socket_of_systemd_until_the_next_process_serves() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    @asynccontextmanager
    async def served() -> AsyncIterator[None]:
        started = anyio.Event()
        environ = {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1"}
        listener = inherited_listener(environ, descriptor=os.dup(opened.fileno()))
        assert listener is not None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: serve(app, listener, on_started=started.set))
            await started.wait()
            yield
            tasks.cancel_scope.cancel()

    with bind("127.0.0.1", 0) as opened:
        async with served():
            pass
        async with await anyio.connect_tcp("127.0.0.1", opened.getsockname()[1]) as client:
            await client.send(GET)
            async with served():
                with anyio.fail_after(patience(10)):
                    assert (await client.receive()).startswith(b"HTTP/1.1 204 ")


def test_sockets_of_systemd_that_cannot_be_served_are_refused_with_what_to_write() -> None:
    assert inherited_listener({"LISTEN_PID": "1", "LISTEN_FDS": "1"}) is None  # they are another process's
    own = {"LISTEN_PID": str(os.getpid())}
    with pytest.raises(ServeError, match="passes 2 sockets, and campus takes one: write one ListenStream="):
        inherited_listener(own | {"LISTEN_FDS": "2"})
    with socket.socket(socket.AF_UNIX) as unix, pytest.raises(ServeError, match=r"as in ListenStream=127\.0\.0\.1:8000"):
        inherited_listener(own | {"LISTEN_FDS": "1"}, descriptor=os.dup(unix.fileno()))


def test_a_call_that_does_not_end_does_not_keep_the_server() -> None:
    with running(seconds=1_000, grace=1) as (process, said, port), connect(port) as client:
        client.sendall(GET)
        assert said.readline() == "begun\n"
        process.terminate()
        rest = said.read()
    assert rest == "closed\n"


async def test_cancellation_lets_calls_finish_too() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        begun.set()
        await anyio.sleep(0.3)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
        await send({"type": "http.response.body", "body": b"done"})

    begun, started = anyio.Event(), anyio.Event()
    with bind("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: serve(app, listener, on_started=started.set))
            await started.wait()
            async with await anyio.connect_tcp("127.0.0.1", port) as client:
                await client.send(GET)
                await begun.wait()
                tasks.cancel_scope.cancel()
                with anyio.CancelScope(shield=True), anyio.fail_after(patience(10)):
                    answer = await client.receive()
    assert answer.startswith(b"HTTP/1.1 200 ")


def test_an_address_in_use_is_said_so_in_a_sentence() -> None:
    with bind("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(ServeError, match=f"port {port} on 127.0.0.1 is in use by another program; stop that one, or set another port"):
            bind("127.0.0.1", port)


def test_an_address_is_free_again_right_after() -> None:
    with bind("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with connect(port):
            first.accept()[0].close()
    bind("127.0.0.1", port).close()


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid", "x" * 70 + ".example", "2001:db8::1"])
def test_a_host_of_another_machine_is_said_so_in_a_sentence(host: str) -> None:
    with pytest.raises(ServeError, match="is not an address of this machine"):
        bind(host, 0)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may open every port")
def test_a_port_for_root_is_said_so_in_a_sentence() -> None:
    with pytest.raises(ServeError, match="may not be opened by this user"):
        bind("127.0.0.1", 80)


def test_a_name_is_looked_up_and_ipv4_comes_first() -> None:
    with bind("localhost", 0) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_all_addresses_of_ipv6_are_those_of_ipv4_too() -> None:
    with bind("::", 0) as listener, connect(listener.getsockname()[1]) as client:
        assert client.getpeername()[0] == "127.0.0.1"


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="only Linux gives up on a stalled connection")
async def test_a_caller_that_takes_no_data_is_given_up() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x" * 20_000_000, "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass
        given_up.set()

    given_up, started = anyio.Event(), anyio.Event()
    with bind("127.0.0.1", 0) as listener:
        assert listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 300)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: serve(app, listener, on_started=started.set))
            await started.wait()
            async with await anyio.connect_tcp("127.0.0.1", listener.getsockname()[1]) as client:
                await client.send(GET)
                with anyio.fail_after(patience(60)):
                    await given_up.wait()
            tasks.cancel_scope.cancel()
