"""What a list costs for the watches of its readers: CPU of matching 1,000 and 10,000 watches with two real lists, half a year apart."""

import random
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from time import process_time

import anyio
from sqlalchemy import Connection, insert

from benchmarks.costs import BUILDINGS
from benchmarks.feeds import DAY, FILES, Feeds
from benchmarks.figures import Line, line_of_costs, line_of_skipped
from benchmarks.processes import run_campus
from buildings.cve.arguments import number_of, spelled
from buildings.cve.edition import Edition
from buildings.cve.enrichment import Affected, NvdRecord
from buildings.cve.feeds.kev import KevEntry
from buildings.cve.nvd_records import packed
from buildings.cve.store import load_latest
from buildings.cve.tables import WATCH_OWNERS, WATCHES, Tables
from buildings.cve.watch_matching import CRITERIA, Criteria, scores_of
from buildings.cve.watch_news import list_matching
from campus import Storage, in_transaction
from campus.storage import Databases

HALF_A_YEAR_BEFORE = date(2026, 1, 30)
EARLIER = {"kev_url": "known_exploited_vulnerabilities-2026.01.29.json", "epss_url": "epss_scores-2026-01-30.ORIGINAL.csv.gz"}
COUNTS = (1_000, 10_000)
PER_OWNER = 20
LOW_SCORES = 0.2
"""The share of watches that begin at a score of 5 instead of 25."""
MATCHING_GOAL = 1.5


@dataclass(frozen=True)
class Costs:
    """CPU seconds of the first list after the watches were made, and of the list half a year later; and how many had news."""

    first: float
    later: float
    told: int


def watch_lines(folder: Path, feeds: Feeds, *, times: int) -> Iterator[Line]:
    """The cost of matching, each time on a new database."""
    needed = [*EARLIER.values(), *FILES.values()]
    if lacking := [name for name in needed if not (feeds.folder / name).is_file()]:
        yield line_of_skipped("a list matched with watches", reason=f"there is no {feeds.folder / lacking[0]}")
        return
    for count in COUNTS:
        costs = [anyio.run(measured, folder / f"{count}-{number}", feeds, count) for number in range(times)]
        goal = MATCHING_GOAL if count == COUNTS[-1] else None
        what = f"a list half a year later matched with {count:,} watches, of which {costs[0].told:,} have news: CPU"
        yield line_of_costs(what, unit="s", costs=[one.later for one in costs], goal=goal)
        yield line_of_costs(f"the first list matched with {count:,} new watches: CPU", unit="s", costs=[one.first for one in costs])


async def measured(folder: Path, feeds: Feeds, count: int) -> Costs:
    """Match two real lists with this many watches."""
    earlier, later = made(folder / "earlier", feeds, HALF_A_YEAR_BEFORE, EARLIER), made(folder / "later", feeds, DAY, {})
    first, second = await edition_in(earlier), await edition_in(later)
    async with Databases.open(f"sqlite:{later}") as databases:
        storage = await databases.storage_of("cve", Tables)
        await in_transaction(storage, lambda connection: fill(connection, second, count))
        costs = [await match(storage, first, None), await match(storage, second, first)]
    return Costs(costs[0][0], *costs[1])


def made(folder: Path, feeds: Feeds, day: date, files: dict[str, str]) -> Path:
    """The folder of the data of a campus that made the list of a day."""
    folder.mkdir(parents=True)
    config = feeds.config(folder, BUILDINGS.format(feeds=feeds.settings))
    text = config.read_text()
    for key, name in files.items():
        text = text.replace((feeds.folder / FILES[key]).as_uri(), (feeds.folder / name).as_uri())
    config.write_text(text)
    run_campus("run", "cve.refresh", "--day", str(day), "--config", config)
    return folder / "data"


async def edition_in(data: Path) -> Edition:
    """The stored list, with a record of NVD's for each CVE that a watch may be about: products as many as NVD names."""
    async with Databases.open(f"sqlite:{data}") as databases:
        stored = await load_latest(await databases.storage_of("cve", Tables))
    assert stored is not None, f"no list was made in {data}"
    edition, chance = stored.edition, random.Random(1)
    names = sorted({(one.vendor.lower(), one.product.lower()) for one in edition.facts.kev.values()})
    records = [
        NvdRecord(spelled(number), "Analyzed", edition.day, affected=tuple(Affected(*name, "*") for name in chance.sample(names, 3)))
        for number in scores_of(edition, 1)
    ]
    return replace(edition, nvd=packed(records, issue=edition.facts.issues.kev))


def fill(connection: Connection, edition: Edition, count: int) -> None:
    """Insert watches as users make them: a few vendors and products of KEV, and some CVEs."""
    chance, listings = random.Random(2), list(edition.facts.kev.values())
    ids, ends_at = sorted(edition.facts.kev, key=number_of), datetime.now(UTC) + timedelta(days=30)
    owners = [f"owner_{number}" for number in range(count // PER_OWNER)]
    connection.execute(insert(WATCH_OWNERS), [{"lineage": one, "ends_at": ends_at, "asked_on": 0, "asked": 0} for one in owners])
    rows = [_watch(owner, chance.sample(listings, 4), chance.sample(ids, 20), chance) for owner in owners for _ in range(PER_OWNER)]
    connection.execute(insert(WATCHES), rows)


def _watch(owner: str, listings: Sequence[KevEntry], ids: Sequence[str], chance: random.Random) -> dict[str, object]:
    one, other, third, fourth = listings
    criteria = Criteria(
        vendors=(one.vendor, other.vendor),
        products=(third.product, f"{fourth.vendor}:{fourth.product}"),
        cve_ids=tuple(ids),
        least_score=5.0 if chance.random() < LOW_SCORES else 25.0,
    )
    fresh = {"known": b"", "needs_baseline": True, "nvd_complete": False, "told": 0}
    about = {"id": f"watch_{secrets.token_hex(8)}", "lineage": owner, "name": "routers", "made_at": datetime.now(UTC)}
    return {**about, "criteria": CRITERIA.dump_json(criteria), "least_score": criteria.least_score, **fresh}


async def match(storage: Storage, edition: Edition, last: Edition | None) -> tuple[float, int]:
    """CPU seconds of matching a list, and how many watches have news."""
    began = process_time()
    matching = await list_matching(storage, edition, last, now=datetime.now(UTC))
    told = await in_transaction(storage, matching)
    return process_time() - began, told
