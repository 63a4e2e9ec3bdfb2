"""Strangers at length, on both databases: how soon honest alerts arrive while others' receivers and name servers never answer.

Run by `make faults`, and not by `make test`: it takes some four minutes. The figures are printed, and no time is asserted.
"""

import random
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from threading import Event
from time import perf_counter
from typing import Any

import anyio
import anyio.abc
import httpcore
import pytest
from anyio.streams.tls import TLSListener
from recorder.conftest import authority, open_recorder  # noqa: F401  # fixtures
from recorder.kills import SECRET, TERMS
from sqlalchemy import Connection, insert
from web.conftest import Translated

from buildings.recorder.live import courier_of
from buildings.recorder.secrets import digest_of
from buildings.recorder.signal import Beat
from buildings.recorder.status import registered
from buildings.recorder.tables import MONITORS, TARGETS
from buildings.recorder.transactions import in_transaction
from campus import Problem
from campus.testing import ORIGIN, Clock
from campus.web.client import web_client

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(900)]
HUNG, CALLERS, HOSTS = 2_000, 500, 200
HONEST = 300
SECONDS = 30.0
BEATING = 16
"""Connections that beat."""
BEATS_PER_MONITOR = 120 / 60
"""As many a second as one may beat."""
REGISTERING, FROM = 60, 20
VICTIMS = 200
VICTIM_KINDS = ("refusing", "taking")
PATIENCE = 300.0
PLACES = {"203.0.114.1": "hung", "203.0.114.2": "refusing", "203.0.114.3": "taking"}
"""Where public addresses lead in this test."""


@dataclass
class Internet(httpcore.AsyncNetworkBackend):
    """Servers on this machine at public addresses: one that never answers, one that answers 404, one that answers 200."""

    ports: dict[str, int] = field(default_factory=dict)
    posts: Counter[str] = field(default_factory=Counter)
    arrived: dict[str, float] = field(default_factory=dict)

    async def connect_tcp(self, host: str, port: int, *args: Any, **options: Any) -> httpcore.AsyncNetworkStream:
        if host not in PLACES:
            return await httpcore.AnyIOBackend().connect_tcp(host, port, *args, **options)
        self.posts[PLACES[host]] += 1
        stream = await httpcore.AnyIOBackend().connect_tcp("127.0.0.1", self.ports[PLACES[host]])
        return Translated(stream, (host, port))

    async def hang(self, stream: anyio.abc.ByteStream) -> None:
        async with stream:
            await anyio.sleep(PATIENCE)

    async def answer(self, status: bytes, stream: anyio.abc.ByteStream) -> None:
        async with stream:
            data = await stream.receive()
            self.arrived.setdefault(data.split(b" ", 2)[1].decode(), perf_counter())
            await stream.send(b"HTTP/1.1 %b Said\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" % status)


@asynccontextmanager
async def internet(server: ssl.SSLContext) -> AsyncIterator[Internet]:
    made = Internet()
    async with anyio.create_task_group() as tasks:
        for name, serve in {"hung": made.hang, "refusing": partial(made.answer, b"404"), "taking": partial(made.answer, b"200")}.items():
            listener: Any = await anyio.create_tcp_listener(local_host="127.0.0.1", backlog=4096)
            made.ports[name] = listener.extra(anyio.abc.SocketAttribute.local_port)
            tls = TLSListener(listener, server, standard_compatible=False)
            tasks.start_soon(partial((listener if name == "hung" else tls).serve, partial(_quietly, serve)))
        yield made
        tasks.cancel_scope.cancel()


async def _quietly(serve: Any, stream: anyio.abc.ByteStream) -> None:
    with suppress(anyio.BrokenResourceError, anyio.EndOfStream, anyio.ClosedResourceError, ssl.SSLError):  # the sender gave up
        await serve(stream)


class NameServers:
    """Names that begin with `stuck` are never answered for; what else is not this machine is at one of the public addresses."""

    def __init__(self) -> None:
        self.release = Event()

    def __call__(self, host: str, port: int) -> Sequence[str]:
        if host.startswith("stuck"):
            self.release.wait(PATIENCE)
            raise socket.gaierror("no answer")
        if host == "localhost":
            return ["127.0.0.1"]
        return [address for address, name in PLACES.items() if host.endswith(f"{name}.dev")]


def fill(connection: Connection, rows: Sequence[tuple[str, str, str, str]]) -> None:
    """A monitor for each name, URL, sender and health of its target, with a target of its own."""
    now = datetime.now(UTC)
    hosts = [url.split("/")[2].partition(":")[0] for _, url, _, _ in rows]
    fixed = {"kind": "webhook", "secret": b"k" * 32, "attempts": 0, "verified_at": now}
    connection.execute(
        insert(TARGETS),
        [
            {**fixed, "id": f"tgt_{name}", "address": url, "identity": digest_of(name), "sender": sender, "host": host, "health": health}
            | {"answered_at": now if health == "proven" else None}
            for (name, url, sender, health), host in zip(rows, hosts, strict=True)
        ],
    )
    plain = {"unverified": False, "beats": 0, "history": b"", "minute": 0, "minute_beats": 0, "capsules": 0, "fence": 0}
    agreed = {"secret_digest": digest_of(SECRET), "registered_at": now, **TERMS._asdict(), **registered(TERMS, now)._asdict(), **plain}
    connection.execute(
        insert(MONITORS),
        [{**agreed, "id": f"mon_{name}", "badge_id": f"badge_{name}", "name": name, "webhook": f"tgt_{name}"} for name, *_ in rows],
    )


def monitors(net: Internet) -> list[tuple[str, str, str, str]]:
    """All of them: strangers', whose receivers hang, and honest ones, of which every second has had an alert before."""
    hung = [
        (f"hung{number}", f"https://h{number % HOSTS}.hung.dev/{number}", f"net:198.51.{number % CALLERS}", "new") for number in range(HUNG)
    ]
    url = f"https://localhost:{net.ports['taking']}/honest"
    honest = [(f"honest{number}", f"{url}{number}", f"net:192.0.2.{number}", ("new", "proven")[number % 2]) for number in range(HONEST)]
    victims = [
        (f"{kind}{number}", f"https://one.{kind}.dev/{number}", "net:198.18.0.1", "new")
        for kind in VICTIM_KINDS
        for number in range(VICTIMS)
    ]
    return hung + honest + victims


@dataclass
class Scene:
    """A recorder among strangers, and what was counted."""

    recorder: Any
    net: Internet
    beats: int = 0
    registrations: Counter[int] = field(default_factory=Counter)
    sent: dict[str, float] = field(default_factory=dict)

    async def beat(self, name: str, status: Any) -> None:
        await self.recorder.town.site.state.beat(Beat(f"mon_{name}", digest_of(SECRET), datetime.now(UTC), status))
        self.recorder.town.site.state.news.ring()

    async def flap(self, names: Sequence[str], *, first: int, step: int) -> None:
        """Let one monitor after the other fail, and recover in the next round: as fast as beats are acknowledged, or may be sent."""
        began, number = perf_counter(), first
        while True:
            await self._flap(names[number % len(names)], "ok" if number // len(names) % 2 else "fail")
            number += step
            await anyio.sleep(max(began + (number - first) / (BEATS_PER_MONITOR * len(names)) - perf_counter(), 0))

    async def _flap(self, name: str, status: str) -> None:
        with suppress(Problem):  # too many in this minute
            await self.beat(name, status)
            self.beats += 1

    async def register(self, caller: Any, worker: int, url: str) -> None:
        """Register one monitor after the other."""
        number = 0
        while True:
            number += 1
            reply = await caller.call("register_monitor", name="a", alert_webhook=url.format(f"{worker}x{number}"))
            self.registrations[reply.status] += 1
            await anyio.sleep(1.0 if reply.status == 429 else 0.0)

    async def fail_honestly(self) -> None:
        """Each honest monitor fails once, at moments of its own."""
        for number in random.Random(1).sample(range(HONEST), HONEST):
            await anyio.sleep(SECONDS / HONEST)
            self.sent[f"/honest{number}"] = perf_counter()
            await self.beat(f"honest{number}", "fail")

    async def all_arrive(self) -> list[float]:
        with anyio.fail_after(PATIENCE):
            while not self.sent.keys() <= self.net.arrived.keys():  # noqa: ASYNC110  # the receiver rings no bell
                await anyio.sleep(0.1)
        return sorted(self.net.arrived[path] - at for path, at in self.sent.items())


class Now(Clock):
    """The machine's own clock."""

    def __call__(self) -> datetime:
        return datetime.now(UTC)

    def elapsed(self) -> float:
        return perf_counter()


@pytest.fixture
def names() -> Any:
    servers = NameServers()
    yield servers
    servers.release.set()


async def test_honest_alerts_arrive_whatever_strangers_do(
    open_recorder: Any,  # noqa: F811  # the fixture
    authority: Any,  # noqa: F811
    storage_url: str,
    names: Any,
    capsys: pytest.CaptureFixture[str],
) -> None:
    settings = {"shared_hosts": ["localhost"], "registrations_per_minute": 30}
    async with internet(authority.server) as net:
        web = web_client(ORIGIN, allowed_hosts=["localhost"], resolve=names, network=net, trust=_trusting(authority.client))
        async with open_recorder(storage=storage_url, web=web, settings=settings, clock=Now()) as recorder:
            await in_transaction(recorder.town.site.storage, partial(fill, rows=monitors(net)))
            figures = await _among_strangers(Scene(recorder, net))
    with capsys.disabled():
        print(f"\n{storage_url.partition(':')[0]}: {figures}")


def _trusting(client: ssl.SSLContext) -> ssl.SSLContext:
    """The receivers' one certificate is localhost's, and believed for the other names too."""
    client.check_hostname = False
    return client


async def _among_strangers(scene: Scene) -> str:
    state = scene.recorder.town.site.state
    async with AsyncExitStack() as stack, anyio.create_task_group() as tasks:
        callers = [await stack.enter_async_context(scene.recorder.calling_from(f"203.0.113.{number}")) for number in range(FROM)]
        tasks.start_soon(courier_of(scene.recorder.town.site).run, state.news.let_through, partial(state.news.wait, 1.0))
        for names in (
            [f"hung{number}" for number in range(HUNG)],
            [f"{kind}{number}" for number in range(VICTIMS) for kind in VICTIM_KINDS],
        ):
            for first in range(BEATING):
                tasks.start_soon(partial(scene.flap, names, first=first, step=BEATING))
        for worker in range(REGISTERING):
            tasks.start_soon(scene.register, callers[worker % FROM], worker, "https://stuck{}.dev/")
        began = perf_counter()
        await scene.fail_honestly()
        late = await scene.all_arrive()
        seconds = perf_counter() - began
        tasks.cancel_scope.cancel()
    assert len(late) == HONEST
    return _told(scene, late, seconds)


def _told(scene: Scene, late: Sequence[float], seconds: float) -> str:
    posts, taken = scene.net.posts, scene.registrations
    p50, p99 = late[len(late) // 2], late[len(late) * 99 // 100]
    a_minute = {kind: round(posts[kind] / seconds * 60) for kind in VICTIM_KINDS}
    return (
        f"{HONEST} honest alerts in {seconds:.0f} s: p50 {p50:.2f} s, p99 {p99:.2f} s, max {late[-1]:.2f} s (goal: p99 5 s);"
        f" meanwhile {HUNG:,} targets hung ({posts['hung']:,} tries), {scene.beats / seconds:,.0f} beats/s failed and recovered,"
        f" {REGISTERING} connections registered names that are never answered for ({taken[200]:,} taken, {taken[429]:,} refused);"
        f" for {VICTIMS} monitors of one caller {a_minute['taking']} messages a minute went to a host that takes them,"
        f" {a_minute['refusing']} to one that does not"
    )
