"""What a search costs: questions of a morning over all CVEs of the real feeds, with a record of NVD's for each, made from real ones."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import cycle
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import anyio
from sqlalchemy import Connection, select

from benchmarks.costs import BUILDINGS
from benchmarks.feeds import DAY, FILES, Feeds
from benchmarks.figures import Line, line_of_costs, line_of_skipped
from benchmarks.processes import run_campus
from buildings.cve.archive.lists import load_latest
from buildings.cve.arguments import spelled
from buildings.cve.feeds.nvd import parse_nvd
from buildings.cve.nvd.reading import Progress, store_records
from buildings.cve.ranking.enrichment import NvdRecord
from buildings.cve.search.criteria import Criteria
from buildings.cve.search.queries import days_of, found_of, page_of
from buildings.cve.search.unknown import notes_on
from buildings.cve.tables import RANKED, Tables
from campus.storage import Storage, in_snapshot
from campus.storage.databases import Databases

P50_GOAL, LONGEST_GOAL = 5.0, 500.0
RECORDS_AT_ONCE = 20_000
QUESTIONS: Sequence[tuple[str, Mapping[str, Any]]] = (
    *(("rank", {"vendors": [name], "kev": True}) for name in ("Microsoft", "Cisco", "Fortinet", "Apache", "Zyxel")),
    *(("rank", {"vendors": [name], "least_epss": 0.1}) for name in ("Cisco", "Tenda", "D-Link")),
    *(("rank", {"products": [name]}) for name in ("apache:log4j2", "Exchange Server", "wordpress")),
    ("rank", {"packages": ["pkg:npm/lodash"]}),
    ("due", {"due_days": 7}),
    ("rise", {"kev": False, "least_rise": 0.00001}),
    ("rank", {"ransomware": True, "kev_days": 30}),
    ("rank", {"cwes": ["CWE-78"], "kev": True}),
    ("rank", {"vendors": ["Tenda"], "least_severity": "CRITICAL", "exploit_reference": True}),
    ("rank", {"cve_ids": ["CVE-2021-44228", "CVE-2024-3094"]}),
    ("rank", {"text": "deserialization", "kev": True}),
    ("rank", {"text": "deserialization java"}),
    ("rank", {"exploitation": "active", "automatable": "yes", "technical_impact": "total"}),
    ("rank", {"vendors": ["nosuchvendor"]}),
    ("rank", {"vendors": ["Microsoft"]}),
)


def search_lines(folder: Path, feeds: Feeds, *, times: int) -> Iterator[Line]:
    """The CPU of the median question, and of the dearest."""
    if feeds.missing is not None:
        yield line_of_skipped("searches", reason=feeds.missing)
        return
    config = feeds.config(folder, BUILDINGS.format(feeds=feeds.settings))
    run_campus("run", "cve.refresh", "--day", str(DAY), "--config", config)
    real = parse_nvd((feeds.folder / FILES["nvd_url"]).read_bytes()).records
    costs = anyio.run(measured, folder / "data", real, times)
    what = f"a search, of {len(QUESTIONS)} questions over all CVEs"
    yield line_of_costs(f"{what}: CPU of the median one", unit="ms", costs=[median(one) for one in costs], goal=P50_GOAL)
    yield line_of_costs("the same: of the dearest", unit="ms", costs=[max(one) for one in costs], goal=LONGEST_GOAL)


async def measured(data: Path, real: Sequence[NvdRecord], times: int) -> list[list[float]]:
    """The milliseconds of each question, as often as asked for; all were asked once before."""
    async with Databases.open(f"sqlite:{data}") as databases:
        storage = await databases.storage_of("cve", Tables)
        await fill(storage, real)
        stored = await load_latest(storage)
        assert stored is not None, "a list was made before"
        edition = stored.edition

        def ask(connection: Connection, sort: str, sent: Mapping[str, Any]) -> None:
            criteria, days = Criteria(**sent), days_of(connection, edition, today=edition.day)
            page = page_of(connection, criteria, days, sort=sort, limit=25, offset=0)
            notes_on(connection, criteria, days, edition.facts.kev)
            assert len([found_of(row) for row in page.rows]) <= page.total

        async def cost(sort: str, sent: Mapping[str, Any]) -> float:
            began = process_time()
            await in_snapshot(storage, lambda connection: ask(connection, sort, sent))
            return 1000 * (process_time() - began)

        return [[await cost(*each) for each in QUESTIONS] for _ in range(times + 1)][1:]


async def fill(storage: Storage, real: Sequence[NvdRecord]) -> None:
    """Store a record of every ranked CVE, each with what a real record says."""
    texts = cycle(real)
    numbers = await in_snapshot(storage, lambda connection: connection.scalars(select(RANKED.c.number).order_by(RANKED.c.number)).all())
    progress: Progress | None = None
    for start in range(0, len(numbers), RECORDS_AT_ONCE):
        records = [replace(next(texts), cve_id=spelled(number)) for number in numbers[start : start + RECORDS_AT_ONCE]]
        progress = await store_records(storage, records, last=progress or Progress(version=1), position=None, read_at=datetime.now(UTC))
