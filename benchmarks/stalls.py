"""How late the event loop is under calls: while feeds are refreshed, a large report is read, used keys are written, alerts are sent."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple
from urllib.request import Request, urlopen

import anyio

from benchmarks import monitors
from benchmarks.beats import beats
from benchmarks.feeds import Feeds
from benchmarks.figures import Line, line_of_costs, line_of_skipped
from benchmarks.keys import CONFIG, LOADED_SECONDS, MANY, fill
from benchmarks.load import Exchange, Target, ask, measure
from benchmarks.outages import OUTAGE_SIZE, cause_outage
from benchmarks.processes import FIRST, HOST, LAST, NO_LIMITS, Server, on_cpu, own_module, running, seconds_to_first_answer, spawn, stop
from benchmarks.wire import get
from tests.recorder.receivers import make_authority
from tests.serving import free_port, write_config

CALLS_PER_SECOND = 2_000
CONNECTIONS = 32
BEATS_PER_SECOND = 500
STORM_SECONDS = 20.0
"""In which the alerts of an outage are sent."""
IDLE_SECONDS = 10.0
FLUSH_SECONDS = 65.0
"""Times of last use are written every minute."""
RELOAD_SECONDS = 7.0
"""After a refresh: every process looks for a newer list every 5 seconds."""
LONGEST_REFRESH = 120.0
P99_GOAL, MAX_GOAL = 5.0, 20.0
FINDINGS, REPORT_GOAL = 13_000, 10.0
"""Of the large report, which has 20 MB; and in how many seconds it is to be answered."""
PATH = "/v1/brief/teaser"


@dataclass(frozen=True)
class Watched:
    """A campus under load whose lags are written to a file."""

    server: Server
    file: Path

    @property
    def calls(self) -> Target:
        """Free calls."""
        return Target(self.server, [Exchange(get(PATH, port=self.server.port), b'{"ok":true,', whole=False)], CONNECTIONS)

    async def lags(self, seconds: float) -> list[float]:
        """The lags in milliseconds during so many seconds of load; each call must be answered with 200."""
        began = time.time()
        await measure(self.calls, seconds=seconds, rate=CALLS_PER_SECOND)
        return self.lags_since(began)

    def lags_since(self, began: float) -> list[float]:
        """The lags in milliseconds since a time."""
        lines = [line.split() for line in self.file.read_text().splitlines()]
        return sorted(1000 * float(late) for at, late in lines if float(at) >= began)

    async def lags_of_refresh(self) -> list[float]:
        """Those from the start of the refresh until its list is served."""
        lags: list[float] = []
        until = time.monotonic() + LONGEST_REFRESH
        while await anyio.to_thread.run_sync(self._is_sample):
            if time.monotonic() > until:
                raise RuntimeError(f"no list was made within {LONGEST_REFRESH:g} s")
            lags += await self.lags(1.0)
        return sorted([*lags, *await self.lags(RELOAD_SECONDS)])

    def _is_sample(self) -> bool:
        with urlopen(f"http://{HOST}:{self.server.port}{PATH}") as answer:  # our own server
            return bool(json.load(answer).get("sample"))


@contextmanager
def watched(folder: Path, text: str, *, environ: Mapping[str, str] | None = None) -> Iterator[Watched]:
    """Serve a campus on one CPU; `environ` is added to its environment."""
    port = free_port()
    file = folder / "lags"
    with on_cpu(FIRST):
        config = write_config(folder, f"{text}{NO_LIMITS}", port=port)
        process = spawn(own_module("watched_campus", str(config), str(file)), environ=environ)
    try:
        seconds_to_first_answer(process, port, "/healthz")
        yield Watched(Server(port, process.pid), file)
    finally:
        stop(process)


def stall_lines(folder: Path, feeds: Feeds, *, times: int) -> Iterator[Line]:
    """The 99th percentile, and by how much the longest lag exceeds that of the same server with nothing else to do."""
    folder.mkdir()
    if feeds.missing is not None:
        yield line_of_skipped("the event loop's lag during a refresh", reason=feeds.missing)
    else:
        yield from _lines("a refresh of the full real feeds", [_refresh(folder / f"refresh{number}", feeds) for number in range(times)])
    yield from _lines(f"a minute in which {MANY:,} used keys are written", [_flush(folder / f"flush{number}") for number in range(times)])
    reports = [_large_report(folder / f"report{number}") for number in range(times)]
    what = f"the reading of a report of {len(report_of(FINDINGS)) / 1e6:.0f} MB"
    yield from _lines(what, [lags for lags, _ in reports])
    costs = [seconds for _, seconds in reports]
    yield line_of_costs("the same: from its sending to its verdicts, beside these calls", unit="s", costs=costs, goal=REPORT_GOAL)
    storms = [_storm(folder / f"storm{number}") for number in range(times)]
    yield from _lines(f"an outage of {OUTAGE_SIZE:,} monitors", storms, calls=f"{BEATS_PER_SECOND:,} beats/s", goals=(None, None))


class Lags(NamedTuple):
    """The lags in milliseconds, sorted: with the work that is measured, and of the same server with nothing else to do."""

    busy: Sequence[float]
    idle: Sequence[float]


def _refresh(folder: Path, feeds: Feeds) -> Lags:
    folder.mkdir()
    text = CONFIG[: CONFIG.index("kev_url")] + feeds.settings

    async def run(campus: Watched) -> Lags:
        return Lags(busy=await campus.lags_of_refresh(), idle=await campus.lags(IDLE_SECONDS))

    with watched(folder, text) as campus, on_cpu(LAST):
        return anyio.run(run, campus, backend_options={"use_uvloop": True})


def _flush(folder: Path) -> Lags:
    folder.mkdir()
    tokens = anyio.run(fill, folder, MANY)

    async def run(campus: Watched) -> Lags:
        await anyio.sleep(LOADED_SECONDS)
        idle = await campus.lags(IDLE_SECONDS)
        (paid,) = ask(campus.server, [get("/v1/brief/today", port=campus.server.port, key=tokens[0])])
        used = [replace(paid, request=get("/v1/brief/today", port=campus.server.port, key=token)) for token in tokens]
        await measure(Target(campus.server, used, CONNECTIONS), seconds=MANY / CALLS_PER_SECOND / 2)
        return Lags(busy=await campus.lags(FLUSH_SECONDS), idle=idle)

    with watched(folder, CONFIG) as campus, on_cpu(LAST):
        return anyio.run(run, campus, backend_options={"use_uvloop": True})


def report_of(findings: int) -> bytes:
    """A report in Grype's form, with a line of a licence and of paths in each finding, as real ones have."""
    filling = "x" * 1_200
    matches = [
        {
            "vulnerability": {"id": f"CVE-2021-{1000 + number}", "severity": "High", "description": filling, "fix": {"versions": ["2"]}},
            "artifact": {"name": f"package-{number % 500}", "version": "1.0", "locations": [{"path": f"/usr/lib/{number}"}]},
        }
        for number in range(findings)
    ]
    return json.dumps({"matches": matches, "descriptor": {"name": "grype"}, "source": {"type": "image"}}).encode()


def _large_report(folder: Path) -> tuple[Lags, float]:
    """A key sends a large report while others call; and how many seconds its answer took."""
    folder.mkdir()
    (token,) = anyio.run(fill, folder, 1)
    report = report_of(FINDINGS)
    took: list[float] = []

    def send(port: int) -> None:
        address = f"http://{HOST}:{port}/v1/cve/verdicts"
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        began = time.monotonic()
        with urlopen(Request(address, data=report, headers=headers)) as answer:  # our own server
            assert json.load(answer)["accounting"]["findings"] == FINDINGS
        took.append(time.monotonic() - began)

    async def run(campus: Watched) -> Lags:
        idle = await campus.lags(IDLE_SECONDS)
        began = time.time()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.to_thread.run_sync, send, campus.server.port)
            await measure(campus.calls, seconds=IDLE_SECONDS, rate=CALLS_PER_SECOND)
        return Lags(busy=campus.lags_since(began), idle=idle)

    with watched(folder, CONFIG) as campus, on_cpu(LAST):
        return anyio.run(run, campus, backend_options={"use_uvloop": True}), took[0]


def _storm(folder: Path) -> Lags:
    """An outage of half of all monitors, whose alerts are sent to a receiver on the other CPU, while the others beat."""
    folder.mkdir()
    authority = make_authority(folder)

    async def run(campus: Watched, database: monitors.MonitorDatabase) -> Lags:
        living = beats(campus.server, OUTAGE_SIZE)
        began = time.time()
        await measure(living, seconds=IDLE_SECONDS, rate=BEATS_PER_SECOND)
        idle = campus.lags_since(began)
        began = time.time()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.to_thread.run_sync, partial(cause_outage, database, OUTAGE_SIZE))
            await measure(living, seconds=STORM_SECONDS, rate=BEATS_PER_SECOND)
        return Lags(busy=campus.lags_since(began), idle=idle)

    with ExitStack() as stack, on_cpu(LAST):
        _, port = stack.enter_context(running("webhook_receiver", str(authority.file), cpu=LAST))
        monitors.fill(folder, 2 * OUTAGE_SIZE, receiver_url=f"https://localhost:{port}/")
        campus = stack.enter_context(watched(folder, monitors.CONFIG, environ={"SSL_CERT_FILE": str(authority.file)}))
        database = stack.enter_context(monitors.opened(folder))
        return anyio.run(run, campus, database, backend_options={"use_uvloop": True})


def _lines(
    what: str,
    found: Sequence[Lags],
    *,
    calls: str = f"{CALLS_PER_SECOND:,} calls/s",
    goals: tuple[float | None, float | None] = (P99_GOAL, MAX_GOAL),
) -> Iterator[Line]:
    p99s = [lags.busy[int(0.99 * len(lags.busy))] for lags in found]
    excess = [lags.busy[-1] - lags.idle[-1] for lags in found]
    yield line_of_costs(f"lag of the event loop in {what}, {calls}: p99", unit="ms", costs=p99s, goal=goals[0])
    yield line_of_costs("the same: longest, above an idle server's", unit="ms", costs=excess, goal=goals[1])
