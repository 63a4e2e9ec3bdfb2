"""Receivers and callers for the runs with strangers, in separate processes."""

import random
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from time import perf_counter
from typing import Any

import anyio
import anyio.abc
import httpx
from anyio.streams.tls import TLSListener

from tests import patient

PATIENCE = 300.0
BEATS_PER_MONITOR = 120 / 60
"""The most beats a second that one monitor accepts."""


@contextmanager
def process(main: Callable[..., None], *words: Any) -> Iterator[Connection]:
    spawning = get_context("spawn")
    here, there = spawning.Pipe()
    made = spawning.Process(target=main, args=(there, *words), daemon=True)
    made.start()
    try:
        yield here
    finally:
        made.terminate()
        made.join()


async def asked(pipe: Connection, question: object = None) -> Any:
    pipe.send(question)
    return await anyio.to_thread.run_sync(pipe.recv)


def receive(pipe: Connection, certificate: str) -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate)
    anyio.run(_receive, pipe, server)


async def _receive(pipe: Connection, server: ssl.SSLContext) -> None:
    ports: dict[str, int] = {}
    arrived: dict[str, float] = {}
    async with anyio.create_task_group() as tasks:
        for name, serve in {
            "hung": _hang,
            "refusing": partial(_answer, arrived, b"404"),
            "taking": partial(_answer, arrived, b"200"),
        }.items():
            listener: Any = await anyio.create_tcp_listener(local_host="127.0.0.1", backlog=4096)
            ports[name] = listener.extra(anyio.abc.SocketAttribute.local_port)
            tls = listener if name == "hung" else TLSListener(listener, server, standard_compatible=False)
            tasks.start_soon(tls.serve, partial(_quietly, serve))
        await anyio.to_thread.run_sync(pipe.recv)
        pipe.send(ports)
        while True:
            await anyio.to_thread.run_sync(pipe.recv)
            pipe.send(arrived)


async def _hang(stream: anyio.abc.ByteStream) -> None:
    async with stream:
        with anyio.move_on_after(PATIENCE):
            while True:
                await stream.receive()


async def _answer(arrived: dict[str, float], status: bytes, stream: anyio.abc.ByteStream) -> None:
    async with stream:
        data = await stream.receive()
        arrived.setdefault(data.split(b" ", 2)[1].decode(), perf_counter())
        await stream.send(b"HTTP/1.1 %b Said\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" % status)


async def _quietly(serve: Any, stream: anyio.abc.ByteStream) -> None:
    with suppress(anyio.BrokenResourceError, anyio.EndOfStream, anyio.ClosedResourceError, ssl.SSLError):  # the sender disconnected
        await serve(stream)


@dataclass(frozen=True)
class Plan:
    """What callers do to the recorder at `port`.

    Those in `flapping` fail and recover, by `beating` connections; `registering` connections from `networks` addresses
    register names that are never resolved; each of `honest` fails once within `seconds`.
    """

    port: int
    secret: str
    flapping: Sequence[Sequence[str]]
    beating: int
    registering: int
    networks: int
    honest: Sequence[str]
    seconds: float


@dataclass
class Said:
    """What callers sent and received."""

    beats: int = 0
    registrations: Counter[int] = field(default_factory=Counter)
    sent: dict[str, float] = field(default_factory=dict)


def call(pipe: Connection, plan: Plan) -> None:
    anyio.run(_call, pipe, plan)


async def _call(pipe: Connection, plan: Plan) -> None:
    said = Said()
    async with anyio.create_task_group() as tasks:
        for names in plan.flapping:
            for first in range(plan.beating):
                tasks.start_soon(_flap, plan, said, names, first)
        for worker in range(plan.registering):
            tasks.start_soon(_register, plan, said, worker)
        tasks.start_soon(_fail_honestly, plan, said)
        while True:
            await anyio.to_thread.run_sync(pipe.recv)
            pipe.send(said)


async def _beat(plan: Plan, stream: anyio.abc.ByteStream, name: str, status: str) -> None:
    body = b'{"status":"%b"}' % status.encode()
    path = f"/v1/recorder/beat/mon_{name}/{plan.secret}"
    head = f"POST {path} HTTP/1.1\r\nHost: campus.test\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    await stream.send(head.encode() + body)
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += await stream.receive()
    said, _, rest = answer.partition(b"\r\n\r\n")
    length = next(int(line[15:]) for line in said.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    while len(rest) < length:
        rest += await stream.receive()


@asynccontextmanager
async def _connected(plan: Plan) -> AsyncIterator[anyio.abc.ByteStream]:
    async with await anyio.connect_tcp("127.0.0.1", plan.port) as stream:
        yield stream


async def _flap(plan: Plan, said: Said, names: Sequence[str], first: int) -> None:
    """Let one monitor after the other fail, and recover in the next round, as fast as beats are accepted."""
    began, number = perf_counter(), first
    async with _connected(plan) as stream:
        while True:
            await _beat(plan, stream, names[number % len(names)], "ok" if number // len(names) % 2 else "fail")
            said.beats += 1
            number += plan.beating
            await anyio.sleep(max(began + (number - first) / (BEATS_PER_MONITOR * len(names)) - perf_counter(), 0))


async def _register(plan: Plan, said: Said, worker: int) -> None:
    """Register one monitor after the other."""
    transport, number = httpx.AsyncHTTPTransport(local_address=f"127.0.2.{worker % plan.networks + 1}"), 0
    async with patient.AsyncClient(transport=transport, base_url=f"http://127.0.0.1:{plan.port}", timeout=PATIENCE) as client:
        while True:
            number += 1
            given = {"name": "a", "alert_webhook": f"https://stuck{worker}x{number}.dev/"}
            reply = await client.post("/v1/recorder/monitors", json=given)
            said.registrations[reply.status_code] += 1
            await anyio.sleep(1.0 if reply.status_code == 429 else 0.0)


async def _fail_honestly(plan: Plan, said: Said) -> None:
    """Let each honest monitor fail once, at a random time."""
    async with _connected(plan) as stream:
        for name in random.Random(1).sample(plan.honest, len(plan.honest)):
            await anyio.sleep(plan.seconds / len(plan.honest))
            said.sent[f"/{name}"] = perf_counter()
            await _beat(plan, stream, name, "fail")
