"""Compares beats, acknowledged when on disk, with a reply that stores nothing and a route that stores one by one; and refused beats."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from time import time

import anyio

from benchmarks.busy_interpreter import BEATS
from benchmarks.comparisons import Comparison, in_turns
from benchmarks.disk import SLOW_MILLISECONDS, slow_disk, sync_seconds
from benchmarks.figures import Line, line_of_costs, line_of_pairs, line_of_skipped
from benchmarks.load import Exchange, Target, ask, measure
from benchmarks.monitors import CONFIG, MONITORS, beat_path, fill, monitor_id
from benchmarks.processes import LAST, ROOT, Server, baseline, campus, on_cpu, own_module
from benchmarks.wire import get
from buildings.recorder.beats.rules import BEATS_PER_MINUTE
from campus.cli.running import SWITCH_SECONDS

CONNECTIONS = 64
"""Beats that arrive at once are stored in one group."""
POSTED = {CONNECTIONS: 0.35, 256: 0.35}
"""Connections, and the goal: the share of a bare reply's speed."""
BODY = b'{"status":"ok","next_in":90}'
REFUSED_SECONDS = 2.0
SLOWED = f"the same where a sync takes {SLOW_MILLISECONDS} ms longer"


def beat_lines(folder: Path, *, rounds: int, seconds: float) -> Iterator[Line]:
    """Beats against their baselines, on this disk and on one with slower syncs."""
    folder.mkdir(parents=True)
    slow = slow_disk(folder)

    @contextmanager
    def opened(number: int) -> Iterator[Sequence[Comparison]]:
        with ExitStack() as stack:
            yield [*_comparisons(folder / f"beats{number}", stack), *(_slowed(folder / f"slow{number}", stack, slow) if slow else ())]

    found = in_turns(opened, rounds=rounds, seconds=seconds)
    for one in found:
        yield line_of_pairs(one.comparison.what, goal=one.comparison.goal, pairs=one.pairs, judged=["req/s"])
    if not slow:
        yield line_of_skipped(SLOWED, reason="there is no C compiler")
    yield from refusal_lines(folder / "refusals", times=rounds)
    yield from busy_lines(folder / "busy")
    yield line_of_costs("a sync of one page on this disk", unit="µs", costs=[seconds * 1e6 for seconds in sync_seconds(folder)])
    yield line_of_costs("CPU per beat", unit="µs", costs=[pair.campus.cpu * 1e6 for one in found for pair in one.pairs])


def _comparisons(folder: Path, stack: ExitStack) -> Iterator[Comparison]:
    """On this disk."""
    folder.mkdir()
    fill(folder, MONITORS)
    server, _ = stack.enter_context(campus(folder, CONFIG))
    ours = beats(server, MONITORS)
    bare = stack.enter_context(baseline("bare_asgi"))
    for connections, goal in POSTED.items():
        what = f"beats by POST with a body, {connections} connections ÷ a bare ASGI reply"
        posted = posts(server, connections=connections)
        yield Comparison(what, goal, posted, replace(_replies(bare, posted.exchanges[0].request), connections=connections))
    yield Comparison("beats by GET on disk ÷ a bare ASGI reply", 0.28, ours, _replies(bare, ours.exchanges[0].request))
    for mode, goal in (("NORMAL", 1.3), ("FULL", 3.0)):
        one_by_one = stack.enter_context(baseline("beats_one_by_one", str(folder / f"{mode}.db"), mode))
        yield Comparison(f"beats on disk ÷ an UPDATE and commit each, {mode}", goal, ours, beats(one_by_one, MONITORS))
    alone = "beats by POST with a body, 1 connection, which waits for each ÷ an UPDATE and commit each, FULL"
    yield Comparison(alone, 1.0, posts(server, connections=1), posts(one_by_one, connections=1))


def _slowed(folder: Path, stack: ExitStack, environ: Mapping[str, str]) -> Iterator[Comparison]:
    """On a slow one."""
    folder.mkdir()
    fill(folder, MONITORS)
    server, _ = stack.enter_context(campus(folder, CONFIG, environ=environ))
    one_by_one = stack.enter_context(baseline("beats_one_by_one", str(folder / "FULL.db"), "FULL", environ=environ))
    yield Comparison(SLOWED, 3.0, beats(server, MONITORS), beats(one_by_one, MONITORS))


def beats(server: Server, count: int, *, step: int = 1) -> Target:
    """A load of beats for each of the monitors, or for every `step`-th, over many connections."""
    exchanges = [_beat(server, number) for number in range(0, count, step)]
    ask(server, [exchanges[0].request])
    return Target(server, exchanges, CONNECTIONS)


def _beat(server: Server, number: int) -> Exchange:
    begins = f'{{"ok":true,"monitor_id":"{monitor_id(number)}","state":"alive",'
    return Exchange(get(beat_path(number), port=server.port), begins.encode(), whole=False)


def posts(server: Server, *, connections: int) -> Target:
    """A load of beats by POST with a body, for each of the monitors."""
    requests = [post(beat_path(number), BODY, port=server.port) for number in range(MONITORS)]
    return Target(server, [replace(_beat(server, number), request=one) for number, one in enumerate(requests)], connections)


def post(path: str, body: bytes, *, port: int) -> bytes:
    """A POST of JSON as a client library would send it."""
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUser-Agent: benchmarks\r\nAccept: application/json\r\n"
    return f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def _replies(server: Server, request: bytes) -> Target:
    """The bare server under the same requests, but for the port in their Host."""
    return Target(server, ask(server, [request]), CONNECTIONS)


def refusal_lines(folder: Path, *, times: int) -> Iterator[Line]:
    """The CPU of a beat that is refused because its monitor had too many, as a share of that of an accepted one."""
    folder.mkdir()
    fill(folder, MONITORS)
    shares = []
    with campus(folder, CONFIG) as (server, _), on_cpu(LAST):
        for number in range(times):
            shares.append(anyio.run(_refused_share, server, number, backend_options={"use_uvloop": True}))
    yield line_of_costs("CPU of a refused beat ÷ of an accepted one", unit="", costs=shares, goal=1.0)


def busy_lines(folder: Path) -> Iterator[Line]:
    """A transaction of beats beside a thread that computes, with Python's switch interval and with that of `campus serve`."""
    folder.mkdir()
    fill(folder, MONITORS)
    what = f"a transaction of {BEATS} beats beside a busy thread, switch interval"
    for name, interval in (("Python's default", sys.getswitchinterval()), ("campus's", SWITCH_SECONDS)):
        alone, busy = json.loads(subprocess.check_output([*own_module("busy_interpreter", str(folder), str(interval))], cwd=ROOT))
        yield line_of_costs(f"{what} {name} ({1000 * interval:g} ms)", unit="ms", costs=busy)
    yield line_of_costs("the same alone", unit="ms", costs=alone)


async def _refused_share(server: Server, number: int) -> float:
    if (second := time() % 60) > 60 - 4 * REFUSED_SECONDS:
        await anyio.sleep(60 - second)  # all within one minute, since each has a limit of its own
    path = get(beat_path(number), port=server.port)
    ask(server, [path] * BEATS_PER_MINUTE)
    (refused,) = ask(server, [path], status=429)
    begins = refused.body.partition(b'"detail"')[0]
    others = Target(server, [_beat(server, other) for other in range(MONITORS // 2, MONITORS)], CONNECTIONS)
    accepted = await measure(others, seconds=REFUSED_SECONDS)
    refusals = await measure(Target(server, [replace(refused, body=begins, whole=False)], CONNECTIONS), seconds=REFUSED_SECONDS)
    return refusals.cpu / accepted.cpu
