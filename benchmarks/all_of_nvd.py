"""Costs with all of NVD read: a store of 360,000 records made from real ones, then a refresh, verdicts on 1,000 CVEs, and a reload."""

import gzip
import random
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from itertools import cycle
from pathlib import Path

import anyio

from benchmarks.costs import BUILDINGS, CPU_GOAL, PEAK_GOAL, refresh_alone
from benchmarks.feeds import DAY, FILES, Feeds
from benchmarks.figures import Line, line_of_costs, line_of_skipped
from benchmarks.load import ask
from benchmarks.processes import LAST, campus, on_cpu, run_campus
from benchmarks.stalls import IDLE_SECONDS, MAX_GOAL, P99_GOAL, RELOAD_SECONDS, Watched, watched
from benchmarks.wire import get
from buildings.cve.archive.lists import load_latest
from buildings.cve.arguments import spelled
from buildings.cve.feeds.nvd import parse_nvd
from buildings.cve.feeds.nvd_pages import PAGE
from buildings.cve.nvd.reading import load_progress, store_records
from buildings.cve.ranking.enrichment import NvdRecord
from buildings.cve.tables import Tables
from campus.storage.databases import Databases

MANY = 1_000
ASKED = 20
OWN_REFRESH_SECONDS = 20.0
"""A server that starts makes today's list; it has ended by then."""
VERDICTS_GOAL = 30.0
PRODUCT = """
[products.cve]
scope = "cve"
price = "19"
term = "30 days"
"""


def nvd_lines(folder: Path, feeds: Feeds, *, times: int) -> Iterator[Line]:
    """Everything that NVD's size could make dearer."""
    if feeds.missing is not None:
        yield line_of_skipped("costs with all of NVD", reason=feeds.missing)
        return
    config = feeds.config(folder, BUILDINGS.format(feeds=feeds.settings) + PRODUCT)
    run_campus("run", "cve.refresh", "--day", str(DAY), "--config", config)
    real = parse_nvd((feeds.folder / FILES["nvd_url"]).read_bytes()).records
    records = anyio.run(fill, folder, real)
    known = f"with {records:,} NVD records"
    alone = [refresh_alone(config) for _ in range(times)]
    yield line_of_costs(f"a refresh {known}: CPU without the start", unit="s", costs=[one["cpu"] for one in alone], goal=CPU_GOAL)
    yield line_of_costs("the same: peak memory", unit="MB", costs=[one["peak"] for one in alone], goal=PEAK_GOAL)
    yield line_of_costs(
        f"{MANY:,} verdicts {known}: CPU", unit="ms", costs=list(_verdict_costs(folder, config, feeds.folder, times)), goal=VERDICTS_GOAL
    )
    lags = [lags_of_a_reload(folder, config) for _ in range(times)]
    p99s = [one[int(0.99 * len(one))] for one, _ in lags]
    excess = [one[-1] - idle[-1] for one, idle in lags]
    what = f"lag of the event loop while a list and {known.removeprefix('with ')} are loaded"
    yield line_of_costs(f"{what}: p99", unit="ms", costs=p99s, goal=P99_GOAL)
    yield line_of_costs("the same: longest, above an idle server's", unit="ms", costs=excess, goal=MAX_GOAL)


async def fill(folder: Path, real: Sequence[NvdRecord]) -> int:
    """Store a record of every ranked CVE, each with what a real record says; returns their number."""
    texts = cycle(real)
    async with Databases.open("sqlite:data", folder=folder) as databases:
        storage = await databases.storage_of("cve", Tables)
        stored = await load_latest(storage)
        assert stored is not None, "the first list was made"
        numbers = stored.edition.ranked.numbers
        for start in range(0, len(numbers), PAGE):
            records = [replace(next(texts), cve_id=spelled(number)) for number in numbers[start : start + PAGE]]
            await store_records(storage, records, last=await load_progress(storage), position=None, read_at=datetime.now(UTC))
    return len(numbers)


def _verdict_costs(folder: Path, config: Path, folder_of_feeds: Path, times: int) -> Iterator[float]:
    """Milliseconds of the server's CPU for each call about 1,000 CVEs at random, over HTTP and with a key."""
    text = config.read_text().partition("\n")[2].partition("\n")[2]
    rows = gzip.decompress((folder_of_feeds / FILES["epss_url"]).read_bytes()).decode().splitlines()[2:]
    cve_ids = [row.partition(",")[0] for row in rows]
    generator = random.Random(0)
    for _ in range(times):
        with campus(folder, text) as (server, served):
            key = served.key("cve")
            wanted = [generator.sample(cve_ids, MANY) for _ in range(ASKED + 1)]
            paths = [f"/v1/cve/verdicts?cve_ids={','.join(ids)}" for ids in wanted]
            ask(server, [get(paths[0], port=server.port, key=key)])
            before = server.cpu_seconds()
            ask(server, [get(path, port=server.port, key=key) for path in paths[1:]])
            yield 1000 * (server.cpu_seconds() - before) / ASKED


def lags_of_a_reload(folder: Path, config: Path) -> tuple[Sequence[float], Sequence[float]]:
    """The lags of a server while it loads the list and what it keeps of NVD's records, as if all had changed; and when it is idle."""
    text = config.read_text().partition("\n")[2].partition("\n")[2]

    async def run(server: Watched) -> tuple[Sequence[float], Sequence[float]]:
        await server.lags(OWN_REFRESH_SECONDS)
        idle = await server.lags(IDLE_SECONDS)
        await anyio.to_thread.run_sync(_mark_all_as_changed, folder / "data" / "cve.db")
        return await server.lags(RELOAD_SECONDS), idle

    with watched(folder, text) as server, on_cpu(LAST):
        return anyio.run(run, server, backend_options={"use_uvloop": True})


def _mark_all_as_changed(file: Path) -> None:
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("UPDATE nvd_state SET version = version + 1")
        database.execute("UPDATE latest_list SET version = version || '+'")
