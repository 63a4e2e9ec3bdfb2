"""`python -m benchmarks`: runs every comparison and prints one table. Linux only: it reads /proc and pins processes to CPUs."""

import os
import platform
import sys
from collections.abc import Iterator
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
from benchmarks.stalls import stall_lines
from benchmarks.uvicorn_parts import part_lines
from benchmarks.watches import watch_lines

ROUNDS = 9
SECONDS = 2.0
COST_ROUNDS = 3
START_ROUNDS = 7


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
        "MCP" or "teaser", or uvicorn: what campus's own parts over uvicorn's protocol save, measured only when it is named.
    feeds
        The folder of the real feed files; without them the shipped sample is served and the refresh is skipped.
    """
    print(f"Python {platform.python_version()}, {os.cpu_count()} CPUs, {rounds} rounds of 2 × {seconds:g} s each", file=sys.stderr)
    with TemporaryDirectory(prefix="campus-bench-") as folder:
        lines = list(measured(Path(folder), Feeds(feeds.resolve()), rounds=rounds, seconds=seconds, only=only))
        print(table(lines or [line_of_skipped(only, reason="no comparison has this in its name")]))
    print("Ratios are medians of all rounds, campus ÷ baseline; CPU is the baseline's per request ÷ campus's. 1 is equal, more is better.")


def measured(folder: Path, feeds: Feeds, *, rounds: int, seconds: float, only: str) -> Iterator[Line]:
    """Every line that was asked for."""
    if only in ("", "refresh"):
        yield from refresh_lines(folder, feeds, times=COST_ROUNDS)
    if only in ("", "nvd"):
        yield from nvd_lines(folder / "nvd", feeds, times=COST_ROUNDS)
    if only in ("", "watches"):
        yield from watch_lines(folder / "watches", feeds, times=COST_ROUNDS)
    if only in ("", "start"):
        yield from start_lines(folder / "start", feeds, times=START_ROUNDS)
    if only in ("", "payments"):
        yield from payment_lines(folder / "payments", feeds, rounds=rounds, seconds=seconds, times=COST_ROUNDS)
    if only in ("", "recorder"):
        yield from beat_lines(folder / "beats", rounds=rounds, seconds=seconds)
        yield from outage_lines(folder / "outages")
    if only in ("", "keys"):
        yield from key_lines(folder / "keys", rounds=rounds, seconds=seconds, times=COST_ROUNDS)
    if only in ("", "stalls"):
        yield from stall_lines(folder / "stalls", feeds, times=COST_ROUNDS)
    if only == "uvicorn":
        yield from part_lines(folder / "uvicorn", rounds=rounds, seconds=seconds)
    if only not in ("refresh", "nvd", "watches", "start", "payments", "recorder", "keys", "stalls", "uvicorn"):
        if not only.lower().startswith("mcp"):
            yield from call_lines(folder, feeds, rounds=rounds, seconds=seconds, only=only)
        yield from mcp_lines(folder / "mcp", rounds=rounds, seconds=seconds, only=only)


if __name__ == "__main__":
    cyclopts.run(main)
