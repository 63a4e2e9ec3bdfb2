"""Strangers at length, on both databases: how soon honest alerts arrive while others' receivers and name servers never answer.

Run by `make faults`, and not by `make test`: it takes some three minutes. No time is asserted.
"""

import socket
import ssl
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from os import getloadavg
from threading import Event
from time import perf_counter
from typing import Any, NamedTuple

import anyio
import httpcore
import pytest
import uvicorn
from lab.faults.outside import Plan, Said, asked, call, process, receive
from outbound.conftest import Translated
from patience import patience
from recorder.conftest import authority, open_recorder  # noqa: F401  # fixtures
from recorder.kills import SCHEDULE
from recorder.receivers import Authority
from recorder.recorders import SECRET, OpenRecorder, Recorder, monitor_row
from serving import free_port
from sqlalchemy import Connection, insert

from buildings.recorder.tables import MONITOR_TARGETS, MONITORS, OWNERS, TARGETS
from campus.outbound.http_clients import guarded_client
from campus.secrets import digest_of
from campus.storage import in_transaction
from campus.testing import ORIGIN, Clock

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(900), pytest.mark.faults("strangers' receivers"), pytest.mark.both_databases]
HUNG, CALLERS, HOSTS = 2_000, 500, 200
HANGING = [f"hung{number}" for number in range(HUNG)]
HONEST = {kind: [f"{kind}{number}" for number in range(100)] for kind in ("keyed", "proven", "new")}
"""Honest monitors: a key's, those without a key whose target took an alert before, and those whose target was never tried."""
SECONDS = 30.0
BEATING = 16
"""Connections that beat."""
REGISTERING, NETWORKS = 60, 20
VICTIM_KINDS = ("refusing", "taking")
VICTIMS = [f"{kind}{number}" for number in range(200) for kind in VICTIM_KINDS]
PATIENCE, LONGEST = 300.0, 840.0
"""Seconds until an alert counts as lost on an idle machine, and at most, below the timeout of the test."""
PLACES = {"203.0.114.1": "hung", "203.0.114.2": "refusing", "203.0.114.3": "taking"}
"""The local servers behind public addresses in this test."""


@dataclass
class Internet(httpcore.AsyncNetworkBackend):
    """Servers on this machine at public addresses: one that never answers, one that answers 404, one that answers 200."""

    ports: Mapping[str, int]
    posts: Counter[str] = field(default_factory=Counter)

    async def connect_tcp(self, host: str, port: int, *args: Any, **options: Any) -> httpcore.AsyncNetworkStream:
        if host not in PLACES:
            return await httpcore.AnyIOBackend().connect_tcp(host, port, *args, **options)
        self.posts[PLACES[host]] += 1
        stream = await httpcore.AnyIOBackend().connect_tcp("127.0.0.1", self.ports[PLACES[host]])
        return Translated(stream, (host, port))


class NameServers:
    """A resolver that never answers for names beginning with `stuck`; other names have one of the public addresses."""

    def __init__(self) -> None:
        self.release = Event()

    def __call__(self, host: str, port: int) -> Sequence[str]:
        if host.startswith("stuck"):
            self.release.wait(PATIENCE)
            raise socket.gaierror("no answer")
        if host == "localhost":
            return ["127.0.0.1"]
        return [address for address, name in PLACES.items() if host.endswith(f"{name}.dev")]


class Row(NamedTuple):
    """A monitor with its own target, the caller that it counts for, and whether the target is proven."""

    name: str
    url: str
    sender: str
    kind: str = "new"

    def target(self, now: datetime) -> dict[str, Any]:
        return {
            "id": f"tgt_{self.name}",
            "kind": "webhook",
            "address": self.url,
            "identity": digest_of(self.name),
            "secret": b"k" * 32,
            "attempts": 0,
            "verified_at": now,
            "owner": self.sender.removeprefix("key:") if self.kind == "keyed" else None,
            "sender": self.sender,
            "host": self.url.split("/")[2].partition(":")[0],
            "health": "new" if self.kind == "new" else "proven",
            "answered_at": now if self.kind == "proven" else None,
        }


def fill(connection: Connection, rows: Sequence[Row]) -> None:
    """The monitors, and the owners of those that have one."""
    now = datetime.now(UTC)
    keyed = [row.sender.removeprefix("key:") for row in rows if row.kind == "keyed"]
    owner = {"monitors": 1, "badge_secret": b"", "ends_at": now + timedelta(days=30)}
    connection.execute(insert(OWNERS), [{"lineage": lineage, "badge_id": lineage, **owner} for lineage in keyed])
    connection.execute(insert(TARGETS), [row.target(now) for row in rows])
    monitors = [{**monitor_row(f"mon_{row.name}", SCHEDULE, now), "name": row.name, "owner": row.target(now)["owner"]} for row in rows]
    connection.execute(insert(MONITORS), monitors)
    links = [{"monitor_id": f"mon_{row.name}", "target_id": f"tgt_{row.name}", "place": 0} for row in rows]
    connection.execute(insert(MONITOR_TARGETS), links)


def rows_of(ports: Mapping[str, int]) -> list[Row]:
    hung = [
        Row(name, f"https://h{number % HOSTS}.hung.dev/{number}", f"net:198.51.{number % CALLERS}") for number, name in enumerate(HANGING)
    ]
    url = f"https://localhost:{ports['taking']}/"
    honest = [
        Row(name, url + name, f"{'key:lin' if kind == 'keyed' else 'net:'}{name}", kind) for kind, names in HONEST.items() for name in names
    ]
    victims = [Row(name, f"https://one.{name.rstrip('0123456789')}.dev/{name}", "net:198.18.0.1") for name in VICTIMS]
    return hung + honest + victims


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
    open_recorder: OpenRecorder,  # noqa: F811  # the fixture
    authority: Authority,  # noqa: F811
    storage_url: str,
    names: Any,
    record_property: Callable[[str, object], None],
) -> None:
    settings = {"shared_hosts": ["localhost"], "registrations_per_minute": 30}
    with process(receive, str(authority.file)) as receivers:
        net = Internet(await asked(receivers))
        web = guarded_client(ORIGIN, allowed_hosts=["localhost"], resolve=names, network=net, trust=_trusting(authority.client))
        async with open_recorder(storage=storage_url, web=web, settings=settings, clock=Now()) as recorder:
            await in_transaction(recorder.campus.site.storage, partial(fill, rows=rows_of(net.ports)))
            figures = await _among_strangers(recorder, net, receivers)
    record_property("figures", f"{storage_url.partition(':')[0]}: {figures}")


def _trusting(client: ssl.SSLContext) -> ssl.SSLContext:
    client.check_hostname = False
    return client


async def _among_strangers(recorder: Recorder, net: Internet, receivers: Any) -> str:
    site = recorder.campus.site
    config = uvicorn.Config(recorder.campus.app, port=free_port(), lifespan="off", log_level="error")
    server = uvicorn.Server(config)
    honest = [name for some in HONEST.values() for name in some]
    plan = Plan(config.port, SECRET, (HANGING, VICTIMS), BEATING, REGISTERING, NETWORKS, honest, SECONDS)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(site.state.dispatcher.run, every=1.0))
        async with anyio.create_task_group() as served:
            served.start_soon(server.serve)
            while not server.started:  # noqa: ASYNC110  # uvicorn has no event to wait for
                await anyio.sleep(0.02)
            began = perf_counter()
            with process(call, plan) as callers:
                said, late = await _all_arrived(callers, receivers, honest)
                seconds = perf_counter() - began
            server.should_exit = server.force_exit = True
        tasks.cancel_scope.cancel()
    return _report(net, said, late, seconds)


async def _all_arrived(callers: Any, receivers: Any, honest: Sequence[str]) -> tuple[Said, Mapping[str, float]]:
    deadline = perf_counter() + min(patience(PATIENCE), LONGEST)
    while True:
        await anyio.sleep(0.5)
        arrived, said = await asked(receivers), await asked(callers)
        missing = sorted(said.sent.keys() - arrived.keys())
        if len(said.sent) == len(honest) and not missing:
            return said, {path[1:]: arrived[path] - at for path, at in said.sent.items()}
        if perf_counter() > deadline:
            raise AssertionError(
                f"{len(said.sent)} of {len(honest)} honest beats sent; without an alert: {missing}; load {getloadavg()[0]:.0f}"
            )


def _report(net: Internet, said: Said, late: Mapping[str, float], seconds: float) -> str:
    kinds = "; ".join(f"{kind} {_spread(sorted(late[name] for name in names))}" for kind, names in HONEST.items())
    a_minute = {kind: round(net.posts[kind] / seconds * 60) for kind in VICTIM_KINDS}
    return (
        f"{len(late)} honest alerts in {seconds:.0f} s (goal: p99 5 s), by target: {kinds}; all {_spread(sorted(late.values()))};"
        f" meanwhile {HUNG:,} targets hung ({net.posts['hung']:,} tries), {said.beats / seconds:,.0f} beats/s failed and recovered,"
        f" {REGISTERING} connections registered names that are never resolved ({said.registrations[200]:,} taken,"
        f" {said.registrations[429]:,} refused); for {len(VICTIMS) // 2} monitors of one caller {a_minute['taking']} messages a minute"
        f" went to a host that takes them, {a_minute['refusing']} to one that does not; load {getloadavg()[0]:.0f}"
    )


def _spread(late: Sequence[float]) -> str:
    return f"p50 {late[len(late) // 2]:.2f} s, p99 {late[len(late) * 99 // 100]:.2f} s, max {late[-1]:.2f} s"
