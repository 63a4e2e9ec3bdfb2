"""Compares campus with its baselines: the requests, the check that both answer the same, and the rounds in which they alternate."""

import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import anyio

from benchmarks.feeds import Feeds
from benchmarks.figures import Line, Pair, line_of_pairs
from benchmarks.load import Target, WrongAnswerError, ask, measure
from benchmarks.processes import LAST, Server, on_cpu
from benchmarks.servers import LISTS, Servers, open_servers
from benchmarks.wire import get

Reader = Callable[[bytes], Any]
VERDICTS = 2_000
WARM_UP_SECONDS = 0.5
TURN_SECONDS = 0.5
"""The longest turn of one side: other load on the machine comes and goes within seconds."""


@dataclass(frozen=True)
class Comparison:
    """Campus and a baseline under the same requests; `goal` is the share of the baseline's speed that campus should reach.

    `meanwhile` runs while it is campus's turn.
    """

    what: str
    goal: float
    campus: Target
    baseline: Target
    meanwhile: Callable[[], AbstractContextManager[object]] = nullcontext


def comparisons(servers: Servers) -> Iterator[Comparison]:
    """The comparisons of calls."""
    yield _of_list(servers, "paid brief, bytes kept ÷ Starlette + orjson", goal=0.95, name="brief", key=servers.key)
    yield _of_list(
        servers, "paid brief, bytes kept ÷ the same bytes by Starlette", goal=0.85, name="brief", key=servers.key, below="/bytes"
    )
    yield _of_list(servers, "paid brief, made anew ÷ Starlette + orjson", goal=0.5, name="uncached", key=servers.key)
    yield _of_list(servers, "teaser ÷ Starlette + orjson", goal=0.85, name="teaser", key=None)
    yield _of_verdicts(servers, "verdicts of random CVEs ÷ the same by hand", goal=0.5)
    yield _of_page(servers, "start page ÷ list_buildings as JSON", page="/", twin="/v1/gateway/list_buildings")
    yield _of_page(servers, "list page ÷ teaser as JSON", page="/cve", twin="/v1/brief/teaser")


def _of_list(servers: Servers, what: str, *, goal: float, name: str, key: str | None, below: str = "") -> Comparison:
    bare = servers.bare_starlette
    ours = target_of(servers.campus, [get(LISTS[name], port=servers.campus.port, key=key)])
    return checked(Comparison(what, goal, ours, target_of(bare, [get(f"/{name}{below}", port=bare.port)])))


def _of_verdicts(servers: Servers, what: str, *, goal: float) -> Comparison:
    (drawn,) = ask(servers.handwritten, [get(f"/draw/{VERDICTS}", port=servers.handwritten.port)])
    paths = [f"/v1/cve/{cve_id}" for cve_id in json.loads(drawn.body)]
    ours = target_of(servers.campus, [get(path, port=servers.campus.port, key=servers.key) for path in paths])
    return checked(
        Comparison(what, goal, ours, target_of(servers.handwritten, [get(path, port=servers.handwritten.port) for path in paths]))
    )


def _of_page(servers: Servers, what: str, *, page: str, twin: str) -> Comparison:
    """A page as a browser asks for it, and the same campus's JSON of what it shows: at most twice the cost."""
    server = servers.campus
    return Comparison(
        what,
        0.5,
        target_of(server, [get(page, port=server.port, accept="text/html")]),
        target_of(server, [get(twin, port=server.port)]),
    )


def target_of(server: Server, requests: Sequence[bytes]) -> Target:
    """A load of these requests, whose answers are those to single ones."""
    return Target(server, ask(server, requests))


def checked(comparison: Comparison, *, read: tuple[Reader, Reader] = (json.loads, json.loads)) -> Comparison:
    """The comparison, once both sides are known to answer the same. `read` returns the answer in each side's body."""
    pairs = zip(cycle(comparison.campus.exchanges), comparison.baseline.exchanges, strict=False)
    for ours, theirs in pairs:
        if read[0](ours.body) != read[1](theirs.body):
            raise WrongAnswerError(f"{comparison.what}: {ours.body[:300]!r} differs from the baseline: {theirs.body[:300]!r}")
    return comparison


def call_lines(folder: Path, feeds: Feeds, *, rounds: int, seconds: float, only: str) -> Iterator[Line]:
    """The comparisons whose names contain `only`."""

    @contextmanager
    def opened(number: int) -> Iterator[Sequence[Comparison]]:
        with open_servers(folder / f"campus{number}", feeds) as servers:
            yield [one for one in comparisons(servers) if only.lower() in one.what.lower()]

    found = in_turns(opened, rounds=rounds, seconds=seconds)
    yield from lines_of(found)


def lines_of(found: Sequence["Found"]) -> Iterator[Line]:
    """A line of the table for each comparison."""
    for one in found:
        yield line_of_pairs(one.comparison.what, goal=one.comparison.goal, pairs=one.pairs)


@dataclass(frozen=True)
class Found:
    """A comparison of the first round, and what was measured in each round."""

    comparison: Comparison
    pairs: list[Pair]


def in_turns(opened: Callable[[int], AbstractContextManager[Sequence[Comparison]]], *, rounds: int, seconds: float) -> list[Found]:
    """The rounds of each comparison; `opened(round)` starts all servers and returns the comparisons.

    All servers restart in each round: memory layout alone changes a process's speed by a tenth.
    """
    found: list[Found] = []
    for number in range(rounds):
        with opened(number) as chosen, on_cpu(LAST):
            if not chosen:
                break
            found = found or [Found(one, []) for one in chosen]
            pairs = anyio.run(_round, chosen, number, seconds, backend_options={"use_uvloop": True})
        for one, pair in zip(found, pairs, strict=True):
            one.pairs.append(pair)
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
    share = max((pair.own_share for one in found for pair in one.pairs), default=0.0)
    print(f"the load took at most {share:.0%} of its CPU", file=sys.stderr)
    return found


async def _round(chosen: Sequence[Comparison], number: int, seconds: float) -> list[Pair]:
    """Every comparison once, its sides in turns, so that other load on the machine affects all of them alike."""
    for comparison in chosen:
        await _pair(comparison, seconds=WARM_UP_SECONDS, campus_first=True)
    return [await _turns(comparison, number, seconds=seconds) for comparison in chosen]


async def _turns(comparison: Comparison, number: int, *, seconds: float) -> Pair:
    """The turns of one round, enough to load each side for `seconds`; the sides alternate in going first, from round to round too."""
    count = math.ceil(seconds / TURN_SECONDS)
    pairs = [await _pair(comparison, seconds=seconds / count, campus_first=(number + turn) % 2 == 0) for turn in range(count)]
    return sum(pairs[1:], pairs[0])


async def _pair(comparison: Comparison, *, seconds: float, campus_first: bool) -> Pair:
    theirs = None if campus_first else await measure(comparison.baseline, seconds=seconds)
    with comparison.meanwhile():
        ours = await measure(comparison.campus, seconds=seconds)
    return Pair(ours, theirs or await measure(comparison.baseline, seconds=seconds))
