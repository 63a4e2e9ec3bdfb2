"""How long quiet callers wait beside one that calls as fast as it is answered: a key, an address, one that does not pay; by [limits].

Others' load on the machine hides the difference: there, run it as `chrt -r 5 make bench ARGS="--only fairness"`.
"""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from math import ceil
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import anyio

from benchmarks.comparisons import TURN_SECONDS, WARM_UP_SECONDS
from benchmarks.figures import Line, line_of_costs
from benchmarks.load import Connection, Target, ask, measure
from benchmarks.processes import LAST, Server, campus, environment, on_cpu, own_module
from benchmarks.uvicorn_parts import CONFIG
from benchmarks.wire import get

GOAL = 1.5
QUIET = 8
"""Callers with a key each, so that none reaches its limit."""
RATE = 400
GREEDY_ADDRESS = "127.0.0.2"
BURST_SECONDS = 4.0
"""In which a greedy caller spends its minute."""
SETTLE_SECONDS = 1.5
"""In which the last refusals, which wait longer the more there are, are sent."""
PAID, FREE = "/v1/brief/today", "/v1/brief/teaser"


@dataclass(frozen=True)
class Greedy:
    """A kind of greedy caller."""

    what: str
    path: str
    has_key: bool = False
    connections: int = 64


KINDS = (
    Greedy("a greedy key", PAID, has_key=True),
    Greedy("a greedy address", FREE),
    Greedy("an address that does not pay", PAID),
    Greedy("an address with 256 connections", FREE, connections=256),
)


class TimedConnection(Connection):
    """A connection that notes how long each answer took, in seconds."""

    def __init__(self, *given: Any, waits: list[float]) -> None:
        super().__init__(*given)
        self._waits = waits
        self._sent_at = perf_counter()

    def on_message_complete(self) -> None:
        """Called by the parser when an answer is complete."""
        self._waits.append(perf_counter() - self._sent_at)
        super().on_message_complete()

    def _go_on(self) -> None:
        self._sent_at = perf_counter()
        super()._go_on()


def fairness_lines(folder: Path, *, rounds: int, seconds: float) -> Iterator[Line]:
    """The 99th percentile of the quiet callers' waits beside each kind of greedy one ÷ without it, in turns."""
    folder.mkdir()
    with campus(folder, CONFIG, limits="") as (server, served), on_cpu(LAST):
        exchanges = ask(server, [get(PAID, port=server.port, key=served.key("cve")) for _ in range(QUIET)])
        quiet = Target(server, exchanges, QUIET)
        for kind in KINDS:
            request = get(kind.path, port=server.port, key=served.key("cve") if kind.has_key else None)
            with running_greedy(server, kind, request) as process:
                ratios = [_ratio(quiet, process, seconds=seconds) for _ in range(rounds)]
            yield line_of_costs(f"a quiet caller's p99 beside {kind.what} ÷ without", unit="×", costs=ratios, goal=GOAL)


@contextmanager
def running_greedy(server: Server, kind: Greedy, request: bytes) -> Iterator["subprocess.Popen[bytes]"]:
    """A greedy caller that has spent its minute, stopped."""
    command = own_module("greedy_caller", str(server.port), GREEDY_ADDRESS, str(kind.connections))
    process = subprocess.Popen(command, env={**os.environ, **environment()}, stdin=subprocess.PIPE)
    try:
        assert process.stdin is not None
        process.stdin.write(request)
        process.stdin.close()
        sleep(BURST_SECONDS)
        process.send_signal(signal.SIGSTOP)
        yield process
    finally:
        process.kill()
        process.wait()


def _ratio(quiet: Target, greedy: "subprocess.Popen[bytes]", *, seconds: float) -> float:
    alone: list[float] = []
    beside: list[float] = []
    _listen(quiet, [], WARM_UP_SECONDS)
    for _ in range(ceil(seconds / TURN_SECONDS)):
        sleep(SETTLE_SECONDS)
        _listen(quiet, alone, TURN_SECONDS)
        greedy.send_signal(signal.SIGCONT)
        sleep(SETTLE_SECONDS)
        _listen(quiet, beside, TURN_SECONDS)
        greedy.send_signal(signal.SIGSTOP)
    return p99_of(beside) / p99_of(alone)


def _listen(quiet: Target, waits: list[float], seconds: float) -> None:
    timed = partial(TimedConnection, waits=waits)
    anyio.run(partial(measure, quiet, seconds=seconds, rate=RATE, connection=timed), backend_options={"use_uvloop": True})


def p99_of(waits: list[float]) -> float:
    """The wait that one answer in a hundred exceeds."""
    return sorted(waits)[int(0.99 * len(waits))]
