"""Compares beats, acknowledged when they are on disk, with a response that stores nothing and a route that stores one by one."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from benchmarks.comparisons import Comparison, in_turns
from benchmarks.disk import SLOW_MILLISECONDS, slow_disk, sync_seconds
from benchmarks.figures import Line, line_of_costs, line_of_pairs, line_of_skipped
from benchmarks.load import Exchange, Target, ask
from benchmarks.monitors import CONFIG, MONITORS, beat_path, fill, monitor_id
from benchmarks.processes import Server, baseline, campus
from benchmarks.wire import get

CONNECTIONS = 64
"""Beats that arrive at once are stored in one group."""
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
    yield line_of_costs("a sync of one page on this disk", unit="µs", costs=[seconds * 1e6 for seconds in sync_seconds(folder)])
    yield line_of_costs("CPU per beat", unit="µs", costs=[pair.campus.cpu * 1e6 for one in found for pair in one.pairs])


def _comparisons(folder: Path, stack: ExitStack) -> Iterator[Comparison]:
    """On this disk."""
    folder.mkdir()
    fill(folder, MONITORS)
    server, _ = stack.enter_context(campus(folder, CONFIG))
    ours = beats(server, MONITORS)
    yield Comparison("beats on disk ÷ a bare ASGI reply", 0.28, ours, _replies(stack.enter_context(baseline("bare_asgi"))))
    for mode, goal in (("NORMAL", 1.3), ("FULL", 3.0)):
        one_by_one = stack.enter_context(baseline("beats_one_by_one", str(folder / f"{mode}.db"), mode))
        yield Comparison(f"beats on disk ÷ an UPDATE and commit each, {mode}", goal, ours, beats(one_by_one, MONITORS))


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


def _replies(server: Server) -> Target:
    return replace(Target(server, ask(server, [get(beat_path(0), port=server.port)])), connections=CONNECTIONS)
