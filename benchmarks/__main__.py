"""`python -m benchmarks`: runs every comparison and prints one table. Linux only: it reads /proc and pins processes to CPUs."""

import os
import platform
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import cyclopts

from benchmarks.alerts import alert_lines
from benchmarks.all_of_nvd import nvd_lines
from benchmarks.beats import beat_lines
from benchmarks.beats_in_postgres import postgres_lines
from benchmarks.comparisons import call_lines
from benchmarks.costs import refresh_lines, start_lines
from benchmarks.fairness import fairness_lines
from benchmarks.feeds import FOLDER, Feeds
from benchmarks.figures import Line, line_of_skipped, table
from benchmarks.keys import key_lines
from benchmarks.mcp_calls import mcp_lines
from benchmarks.outages import outage_lines
from benchmarks.outages_in_postgres import postgres_outage_lines
from benchmarks.payments import payment_lines
from benchmarks.search import search_lines
from benchmarks.sizing import sizing_lines
from benchmarks.stalls import stall_lines
from benchmarks.traces import trace_lines
from benchmarks.uvicorn_parts import part_lines
from benchmarks.watches import watch_lines

SECONDS = 2.0
NAMED_ONLY = ("outage", "postgres", "sizing", "uvicorn")


@dataclass(frozen=True)
class Rounds:
    """How often each comparison is made, each cost is measured that takes long, and each start."""

    comparisons: int = 9
    costs: int = 3
    starts: int = 7

    @classmethod
    def of(cls, given: int | None) -> "Rounds":
        """As often as the caller says; None leaves each its own number."""
        return cls() if given is None else cls(given, given, given)


def main(*, rounds: int | None = None, seconds: float = SECONDS, only: str = "", feeds: Path = FOLDER) -> None:
    """Measure campus against its baselines and print medians and goals.

    Parameters
    ----------
    rounds
        How often all servers are restarted, and every comparison is made: 9 times by default. Costs that take long to measure, such as
        refresh, nvd, watches and stalls, are measured 3 times by default, and starts 7 times.
    seconds
        How long campus and each baseline are loaded in a round, in turns of half a second.
    only
        What to measure: refresh, nvd, search, watches, start, payments, recorder, alerts, keys, stalls, fairness, traces, or a part of
        the name of a comparison, such as "MCP" or "teaser". Four are measured only when they are named: uvicorn, what campus's own parts
        over uvicorn's protocol save, postgres, beats of several processes in PostgreSQL, outage, a million monitors in it after ten
        minutes, and sizing, the figures of docs/sizing.md.
    feeds
        The folder of the real feed files; without them the shipped sample is served and the refresh is skipped.
    """
    often = Rounds.of(rounds)
    print(
        f"Python {platform.python_version()}, {os.cpu_count()} CPUs, {often.comparisons} rounds of 2 × {seconds:g} s each", file=sys.stderr
    )
    with TemporaryDirectory(prefix="campus-bench-") as folder:
        lines = list(measured(Path(folder), Feeds(feeds.resolve()), rounds=often, seconds=seconds, only=only))
        print(table(lines or [line_of_skipped(only, reason="no comparison has this in its name")]))
    print("Ratios are medians of all rounds, campus ÷ baseline; CPU is the baseline's per request ÷ campus's. 1 is equal, more is better.")


def measured(folder: Path, feeds: Feeds, *, rounds: Rounds, seconds: float, only: str) -> Iterator[Line]:
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
        yield from call_lines(folder, feeds, rounds=rounds.comparisons, seconds=seconds, only=only)
    yield from mcp_lines(folder / "mcp", rounds=rounds.comparisons, seconds=seconds, only=only)


def parts_of(folder: Path, feeds: Feeds, *, rounds: Rounds, seconds: float) -> Mapping[str, Callable[[], Iterable[Line]]]:
    """The parts that can be measured by name; each has a folder of its own."""

    def recorder() -> Iterator[Line]:
        yield from beat_lines(folder / "beats", rounds=rounds.comparisons, seconds=seconds)
        yield from outage_lines(folder / "outages")

    return {
        "refresh": lambda: refresh_lines(folder, feeds, times=rounds.costs),
        "nvd": lambda: nvd_lines(folder / "nvd", feeds, times=rounds.costs),
        "search": lambda: search_lines(folder / "search", feeds, times=rounds.costs),
        "watches": lambda: watch_lines(folder / "watches", feeds, times=rounds.costs),
        "start": lambda: start_lines(folder / "start", feeds, times=rounds.starts),
        "payments": lambda: payment_lines(folder / "payments", feeds, rounds=rounds.comparisons, seconds=seconds, times=rounds.costs),
        "recorder": recorder,
        "alerts": lambda: alert_lines(folder / "alerts", times=rounds.costs),
        "outage": lambda: postgres_outage_lines(folder / "outage"),
        "postgres": lambda: postgres_lines(rounds=rounds.costs, seconds=seconds),
        "keys": lambda: key_lines(folder / "keys", rounds=rounds.comparisons, seconds=seconds, times=rounds.costs),
        "stalls": lambda: stall_lines(folder / "stalls", feeds, times=rounds.costs),
        "fairness": lambda: fairness_lines(folder / "fairness", rounds=rounds.comparisons, seconds=seconds),
        "sizing": lambda: sizing_lines(folder / "sizing", feeds, rounds=rounds.costs, seconds=seconds),
        "traces": lambda: trace_lines(folder / "traces", rounds=rounds.comparisons, seconds=seconds),
        "uvicorn": lambda: part_lines(folder / "uvicorn", rounds=rounds.comparisons, seconds=seconds),
    }


if __name__ == "__main__":
    cyclopts.run(main)
