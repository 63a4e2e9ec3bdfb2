"""Compares campus with its baselines: the requests, the check that both answer the same, and the rounds in which they alternate."""

import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import anyio

from benchmarks.feeds import Feeds
from benchmarks.figures import Line, Pair, line_of_pairs, line_of_skipped
from benchmarks.load import Target, WrongAnswerError, ask, measure
from benchmarks.processes import LAST, Server, on_cpu
from benchmarks.servers import LISTS, Servers, open_servers
from benchmarks.wire import LEGACY, MODERN, call_tool, get, result_of

ARGUMENTS = {"country": "US"}
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
    yield _of_list(servers, "paid brief, bytes kept ÷ Starlette + orjson", goal=0.9, name="brief", key=servers.key)
    yield _of_list(servers, "paid brief, made anew ÷ Starlette + orjson", goal=0.5, name="uncached", key=servers.key)
    yield _of_list(servers, "teaser ÷ Starlette + orjson", goal=0.85, name="teaser", key=None)
    yield _of_verdicts(servers, "verdicts of random CVEs ÷ the same by hand", goal=0.5)
    mcp = {
        "MCP 2026-07-28, an argument, 1 tool": (2, "one", MODERN, ARGUMENTS),
        "MCP 2026-07-28, an argument, 30 tools": (8, "thirty", MODERN, ARGUMENTS),
        "MCP 2026-07-28, no arguments": (0.88, "one", MODERN, {}),
        "MCP 2025-11-25, an argument": (0.88, "one", LEGACY, ARGUMENTS),
        "MCP 2025-11-25, an argument, 30 tools": (0.88, "thirty", LEGACY, ARGUMENTS),
    }
    for what, (goal, building, revision, arguments) in mcp.items():
        yield _of_tool(servers, f"{what} ÷ bare FastMCP", goal=goal, building=building, revision=revision, arguments=arguments)


def _of_list(servers: Servers, what: str, *, goal: float, name: str, key: str | None) -> Comparison:
    ours = _target(servers.campus, [get(LISTS[name], port=servers.campus.port, key=key)])
    return _checked(Comparison(what, goal, ours, _target(servers.bare_starlette, [get(f"/{name}", port=servers.bare_starlette.port)])))


def _of_verdicts(servers: Servers, what: str, *, goal: float) -> Comparison:
    (drawn,) = ask(servers.handwritten, [get(f"/draw/{VERDICTS}", port=servers.handwritten.port)])
    paths = [f"/v1/cve/{cve_id}" for cve_id in json.loads(drawn.body)]
    ours = _target(servers.campus, [get(path, port=servers.campus.port, key=servers.key) for path in paths])
    return _checked(
        Comparison(what, goal, ours, _target(servers.handwritten, [get(path, port=servers.handwritten.port) for path in paths]))
    )


def _of_tool(servers: Servers, what: str, *, goal: float, building: str, revision: str, arguments: dict[str, str]) -> Comparison:
    bare = servers.one if building == "one" else servers.thirty

    def request(path: str, server: Server, key: str | None) -> bytes:
        return call_tool(path, "brief", arguments, port=server.port, revision=revision, key=key)

    ours = _target(servers.campus, [request(f"/{building}/mcp", servers.campus, servers.key)])
    return _checked(Comparison(what, goal, ours, _target(bare, [request("/mcp", bare, None)])), mcp=True)


def _target(server: Server, requests: Sequence[bytes]) -> Target:
    return Target(server, ask(server, requests))


def _checked(comparison: Comparison, *, mcp: bool = False) -> Comparison:
    """The comparison, once both sides are known to answer the same."""
    read = result_of if mcp else json.loads
    for ours, theirs in zip(comparison.campus.exchanges, comparison.baseline.exchanges, strict=True):
        if read(ours.body) != read(theirs.body):
            raise WrongAnswerError(f"{comparison.what}: {ours.body[:300]!r} differs from the baseline: {theirs.body[:300]!r}")
    return comparison


def call_lines(folder: Path, feeds: Feeds, *, rounds: int, seconds: float, only: str) -> Iterator[Line]:
    """The comparisons whose names contain `only`."""

    @contextmanager
    def opened(number: int) -> Iterator[Sequence[Comparison]]:
        with open_servers(folder / f"campus{number}", feeds) as servers:
            yield [one for one in comparisons(servers) if only.lower() in one.what.lower()]

    found = in_turns(opened, rounds=rounds, seconds=seconds)
    yield from lines_of(found) if found else [line_of_skipped(only, reason="no comparison has this in its name")]


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
