"""`python -m benchmarks`: runs every comparison and prints one table. Linux only: it reads /proc and pins processes to CPUs."""

import os
import platform
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import cyclopts

from benchmarks.all_of_nvd import nvd_lines
from benchmarks.beats import beat_lines
from benchmarks.comparisons import call_lines
from benchmarks.costs import refresh_lines, start_lines
from benchmarks.feeds import FOLDER, Feeds
from benchmarks.figures import Line, line_of_skipped, table
from benchmarks.keys import key_lines
from benchmarks.mcp_calls import mcp_lines
from benchmarks.outages import outage_lines
from benchmarks.payments import payment_lines
from benchmarks.restarts import restart_lines
from benchmarks.stalls import stall_lines
from benchmarks.uvicorn_parts import part_lines
from benchmarks.watches import watch_lines

ROUNDS = 9
SECONDS = 2.0
COST_ROUNDS = 3
START_ROUNDS = 7
NAMED_ONLY = ("restarts", "uvicorn")


def main(*, rounds: int = ROUNDS, seconds: float = SECONDS, only: str = "", feeds: Path = FOLDER) -> None:
    """Measure campus against its baselines and print medians and goals.

    Parameters
    ----------
    rounds
        How often all servers are restarted, and every comparison is made.
    seconds
        How long campus and each baseline are loaded in a round, in turns of half a second.
    only
        What to measure: refresh, nvd, watches, start, payments, recorder, keys, stalls, a part of the name of a comparison, such as
        "MCP" or "teaser". Two are measured only when they are named: uvicorn, what campus's own parts over uvicorn's protocol save,
        and restarts, how many calls a restart loses.
    feeds
        The folder of the real feed files; without them the shipped sample is served and the refresh is skipped.
    """
    print(f"Python {platform.python_version()}, {os.cpu_count()} CPUs, {rounds} rounds of 2 × {seconds:g} s each", file=sys.stderr)
    with TemporaryDirectory(prefix="campus-bench-") as folder:
        lines = list(measured(Path(folder), Feeds(feeds.resolve()), rounds=rounds, seconds=seconds, only=only))
        print(table(lines or [line_of_skipped(only, reason="no comparison has this in its name")]))
    print("Ratios are medians of all rounds, campus ÷ baseline; CPU is the baseline's per request ÷ campus's. 1 is equal, more is better.")


def measured(folder: Path, feeds: Feeds, *, rounds: int, seconds: float, only: str) -> Iterator[Line]:
    """Every line that was asked for: one part by its name, the comparisons whose names contain `only`, or all but those of NAMED_ONLY."""
    parts = parts_of(folder, feeds, rounds=rounds, seconds=seconds)
    if only in parts:
        yield from parts[only]()
        return
    if not only:
        for name, lines in parts.items():
            if name not in NAMED_ONLY:
                yield from lines()
    if not only.lower().startswith("mcp"):
        yield from call_lines(folder, feeds, rounds=rounds, seconds=seconds, only=only)
    yield from mcp_lines(folder / "mcp", rounds=rounds, seconds=seconds, only=only)


def parts_of(folder: Path, feeds: Feeds, *, rounds: int, seconds: float) -> Mapping[str, Callable[[], Iterable[Line]]]:
    """The parts that can be measured by name; each has a folder of its own."""

    def recorder() -> Iterator[Line]:
        yield from beat_lines(folder / "beats", rounds=rounds, seconds=seconds)
        yield from outage_lines(folder / "outages")

    return {
        "refresh": lambda: refresh_lines(folder, feeds, times=COST_ROUNDS),
        "nvd": lambda: nvd_lines(folder / "nvd", feeds, times=COST_ROUNDS),
        "watches": lambda: watch_lines(folder / "watches", feeds, times=COST_ROUNDS),
        "start": lambda: start_lines(folder / "start", feeds, times=START_ROUNDS),
        "payments": lambda: payment_lines(folder / "payments", feeds, rounds=rounds, seconds=seconds, times=COST_ROUNDS),
        "recorder": recorder,
        "keys": lambda: key_lines(folder / "keys", rounds=rounds, seconds=seconds, times=COST_ROUNDS),
        "stalls": lambda: stall_lines(folder / "stalls", feeds, times=COST_ROUNDS),
        "restarts": lambda: restart_lines(folder / "restarts", times=COST_ROUNDS),
        "uvicorn": lambda: part_lines(folder / "uvicorn", rounds=rounds, seconds=seconds),
    }


if __name__ == "__main__":
    cyclopts.run(main)
