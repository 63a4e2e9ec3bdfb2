"""Costs measured without a side-by-side load: the refresh of the real feeds, and the time from exec to the first answer."""

import gzip
import json
import sqlite3
import subprocess
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from zlib import crc32

from benchmarks.feeds import DAY, FILES, Feeds
from benchmarks.figures import Line, line_of_costs, line_of_skipped
from benchmarks.processes import Server, environment, own_module, run_campus, seconds_to_first_answer, spawn, stop
from tests.serving import CAMPUS, free_port, write_config

CPU_GOAL = 3.0
PEAK_GOAL = 260.0
GROWTH_GOAL = 400.0
WEEK_BEFORE = "epss_scores-2026-08-08.reconstructed.csv.gz"
START_GOAL = 1.3
BUILDINGS = """
[buildings.gateway]
path = "/"

[buildings.cve]
sample = true
{feeds}
"""


def refresh_lines(folder: Path, feeds: Feeds, *, times: int) -> Iterator[Line]:
    """The daily job on full real feeds, each time on an empty database: as a process, and within one."""
    what = f"campus run cve.refresh --day {DAY}"
    if feeds.missing is not None:
        yield line_of_skipped(what, reason=feeds.missing)
        return
    whole, alone = [], []
    for number in range(times):
        config = feeds.config(folder / f"whole{number}", BUILDINGS.format(feeds=feeds.settings))
        whole.append(run_campus("run", "cve.refresh", "--day", str(DAY), "--config", config))
        config = feeds.config(folder / f"alone{number}", BUILDINGS.format(feeds=feeds.settings))
        alone.append(refresh_alone(config))
    yield line_of_costs(f"{what}: CPU of the process", unit="s", costs=[one.cpu for one in whole], goal=CPU_GOAL)
    yield line_of_costs("the same without the start of the process", unit="s", costs=[one["cpu"] for one in alone], goal=CPU_GOAL)
    yield line_of_costs(f"{what}: peak memory", unit="MB", costs=[one.peak for one in whole], goal=PEAK_GOAL)
    if not (feeds.folder / WEEK_BEFORE).is_file():
        yield line_of_skipped("growth of the database by a day", reason=f"there is no {feeds.folder / WEEK_BEFORE}")
        return
    growth = growth_of_a_day(folder / "growth", feeds)
    yield line_of_costs("growth of the database by a day, for good", unit="kB", costs=[growth], goal=GROWTH_GOAL)


def growth_of_a_day(folder: Path, feeds: Feeds) -> float:
    """By how many kB a second list makes the database larger for good: free space in pages, and what is kept for 30 days, are left out.

    Its EPSS has a seventh of what changed in a real week.
    """
    config = feeds.config(folder, BUILDINGS.format(feeds=feeds.settings))
    newest = config.read_text()
    before = feeds.folder / WEEK_BEFORE
    a_day_later = folder / "epss.csv"
    a_day_later.write_text(_a_day_later(before, feeds.folder / FILES["epss_url"]))
    addressed = (feeds.folder / FILES["epss_url"]).as_uri()
    sizes: list[float] = []
    for day, epss in ((DAY, before), (DAY + timedelta(days=1), a_day_later)):
        config.write_text(newest.replace(addressed, epss.as_uri()))
        run_campus("run", "cve.refresh", "--day", str(day), "--config", config)
        with closing(sqlite3.connect(folder / "data" / "cve.db")) as database:
            [[used]] = database.execute("SELECT sum(payload) FROM dbstat")
            [[kept_a_month]] = database.execute("SELECT sum(length(numbers)) FROM ranking_order")
        sizes.append((used - kept_a_month) / 1000)
    return sizes[1] - sizes[0]


def _a_day_later(before: Path, after: Path) -> str:
    """The scores `before`, a day later: with a seventh of the scores that are new or others in those of a week `after`."""
    old, new = (gzip.decompress(path.read_bytes()).decode().splitlines() for path in (before, after))
    scores = {line.partition(",")[0]: line.split(",") for line in old[2:]}
    for line in new[2:]:
        cve_id, score, percentile = line.split(",")
        if crc32(cve_id.encode()) % 7 == 0:
            scores[cve_id] = [cve_id, score, percentile]
    ordered = sorted(float(score) for _, score, _ in scores.values())
    rows = (f"{cve_id},{score},{bisect_right(ordered, float(score)) / len(ordered):.5f}" for cve_id, score, _ in scores.values())
    return "\n".join([old[0].replace("2026-08-08", "2026-08-09"), old[1], *rows, ""])


def refresh_alone(config: Path) -> Mapping[str, float]:
    """CPU and memory of the refresh without the start of its process."""
    command = own_module("refresh_alone", str(config), str(DAY))
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=120, check=True)
    costs: dict[str, float] = json.loads(done.stdout)
    return costs


@dataclass(frozen=True)
class Start:
    """A command that starts a server, and a path that it answers with 200; `goal` is in seconds."""

    what: str
    command: Sequence[str | Path]
    port: int
    path: str
    goal: float | None = None

    def spent(self) -> tuple[float, float]:
        """Seconds from exec to the first 200, and CPU seconds used until then."""
        process = spawn(self.command)
        try:
            return seconds_to_first_answer(process, self.port, self.path), Server(self.port, process.pid).cpu_seconds()
        finally:
            stop(process)


def start_lines(folder: Path, feeds: Feeds, *, times: int) -> Iterator[Line]:
    """Campus, bare FastMCP and bare Starlette."""
    folder.mkdir()
    config = write_config(folder, BUILDINGS.format(feeds=feeds.settings), port=(port := free_port()))
    if feeds.missing is None:
        run_campus("run", "cve.refresh", "--config", config)
    yield from lines_of_starts(_starts(folder, config, port), times=times)


def _starts(folder: Path, config: Path, port: int) -> Sequence[Start]:
    return [
        Start("campus serve: exec to first 200", [CAMPUS, "serve", "--config", config], port, "/v1/brief/teaser", START_GOAL),
        Start("the same of bare FastMCP", own_module("smallest_fastmcp", str(port := free_port())), port, "/healthz"),
        Start("the same of bare Starlette", own_module("bare_starlette", str(port := free_port()), str(folder)), port, "/healthz"),
    ]


def lines_of_starts(starts: Sequence[Start], *, times: int) -> Iterator[Line]:
    """The starts in turns, after one run of each to write its .pyc files."""
    for start in starts:
        start.spent()
    rounds = [[start.spent() for start in starts] for _ in range(times)]
    for start, found in zip(starts, zip(*rounds, strict=True), strict=True):
        seconds, cpu = zip(*found, strict=True)
        yield line_of_costs(start.what, unit="s", costs=seconds, goal=start.goal, cpu=cpu)
