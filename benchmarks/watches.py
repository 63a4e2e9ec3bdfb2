"""What watches cost: CPU of matching a real list with 1,000 and 10,000 of them, and a server's lag while it follows their keys."""

import random
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import anyio
from sqlalchemy import Connection, Row, bindparam, func, insert, select

from benchmarks.costs import BUILDINGS
from benchmarks.feeds import DAY, FILES, Feeds
from benchmarks.figures import Line, line_of_costs, line_of_skipped
from benchmarks.processes import run_campus
from buildings.cve.archive.lists import load_latest, product_row
from buildings.cve.arguments import number_of
from buildings.cve.feeds.kev import KevEntry
from buildings.cve.plain_names import plain_name
from buildings.cve.ranking.edition import Edition
from buildings.cve.ranking.formula import EPSS_POINTS
from buildings.cve.tables import ALERTS, CVES, PRODUCTS, RANKED, WATCH_NEWS, WATCH_OWNERS, WATCHES, Tables
from buildings.cve.watches.matching import Watched
from buildings.cve.watches.news import ListMatching, follow_owners, owners_of
from campus.storage import Storage, in_snapshot, in_transaction
from campus.storage.databases import Databases

HALF_A_YEAR_BEFORE = date(2026, 1, 30)
COUNTS = (1_000, 10_000)
PER_OWNER = 20
TICK, TICKS_BEFORE = 0.002, 20
LOW_SCORES = 0.2
"""The share of watches that begin at a score of 5 instead of 25."""
DRIFTING, DRIFT = 0.01, 0.3
"""The share of CVEs whose EPSS differs a day later (6 % in a week of the real feeds), and by how much of itself at most."""
HIGHEST_EPSS = 0.99
MATCHING_GOAL, NEWS_GOAL, LAG_GOAL = 1.0, 2.0, 20.0


@dataclass(frozen=True)
class Costs:
    """CPU seconds of the first list after the watches were made, of half a year's news at once, of the list a day later, and of the same
    list again.

    `told` and `told_usual` are how many watches had news of the half year and of the day. `lag` is the longest lag of the event loop,
    in milliseconds, while the keys of as many owners were followed.
    """

    first: float
    at_once: float
    usual: float
    again: float
    told: int
    told_usual: int
    lag: float


def watch_lines(folder: Path, feeds: Feeds, *, times: int) -> Iterator[Line]:
    """The costs of matching; each time the watches are made anew."""
    if lacking := [name for name in FILES.values() if not (feeds.folder / name).is_file()]:
        yield line_of_skipped("a list matched with watches", reason=f"there is no {feeds.folder / lacking[0]}")
        return
    data = made(folder, feeds)
    for count in COUNTS:
        costs = [anyio.run(measured, data, count) for _ in range(times)]
        goal, news_goal, lag_goal = (MATCHING_GOAL, NEWS_GOAL, LAG_GOAL) if count == COUNTS[-1] else (None, None, None)
        usual = f"a usual list matched with {count:,} watches, news to {costs[0].told_usual:,}: CPU"
        yield line_of_costs(usual, unit="s", costs=[one.usual for one in costs], goal=news_goal)
        yield line_of_costs(
            f"the same list again, without news to {count:,} watches: CPU", unit="s", costs=[one.again for one in costs], goal=goal
        )
        yield line_of_costs(f"the first list matched with {count:,} new watches: CPU", unit="s", costs=[one.first for one in costs])
        what = f"half a year's additions to KEV at once, news to {costs[0].told:,} of {count:,} watches: CPU"
        yield line_of_costs(what, unit="s", costs=[one.at_once for one in costs])
        what = f"lag of the event loop while the keys of {count:,} owners of watches are followed: longest"
        yield line_of_costs(what, unit="ms", costs=[one.lag for one in costs], goal=lag_goal)


async def measured(data: Path, count: int) -> Costs:
    """Match a list without the last half year's additions to KEV, the whole one, and a usual one after it; then follow the keys."""
    async with Databases.open(f"sqlite:{data}") as databases:
        storage = await databases.storage_of("cve", Tables)
        stored = await load_latest(storage)
        assert stored is not None, "a list was made before"
        edition = replace(stored.edition, nvd=replace(stored.edition.nvd, is_complete=True))
        newest = await in_transaction(storage, lambda connection: prepare(connection, edition, count))
        first, _ = await match(storage, edition)
        await in_transaction(storage, lambda connection: list_again(connection, newest))
        at_once, told = await match(storage, edition)
        await in_transaction(storage, drift)
        usual, told_usual = await match(storage, edition)
        again, _ = await match(storage, edition)
        await in_transaction(storage, lambda connection: fill(connection, edition, count, per_owner=1))
        return Costs(first, at_once, usual, again, told, told_usual, await lag_of_following(storage))


def prepare(connection: Connection, edition: Edition, count: int) -> Sequence[Row[Any]]:
    """Insert watches, a product of KEV's for each CVE that one may be about, and a list without the last half year's additions.

    Returns the rows of these.
    """
    fill(connection, edition, count)
    chance = random.Random(1)
    names = [(one.vendor.lower(), one.product.lower()) for one in edition.facts.kev.values()]
    connection.execute(PRODUCTS.delete().where(PRODUCTS.c.of_kev.is_(False)))
    scored = connection.scalars(select(RANKED.c.number).where(RANKED.c.score >= 1)).all()
    connection.execute(PRODUCTS.insert(), [product_row(number, *chance.choice(names), of_kev=False) for number in scored])
    columns = CVES.c.number, CVES.c.kev_added, RANKED.c.score
    chosen = select(*columns).join(RANKED, RANKED.c.number == CVES.c.number).where(CVES.c.kev_added > HALF_A_YEAR_BEFORE)
    newest = list[Row[Any]](connection.execute(chosen))
    hidden = [{"key": row.number} for row in newest]
    connection.execute(CVES.update().where(CVES.c.number == bindparam("key")).values(kev_added=None), hidden)
    likely = EPSS_POINTS * func.coalesce(RANKED.c.epss, 0)
    connection.execute(RANKED.update().where(RANKED.c.number == bindparam("key")).values(score=likely), hidden)
    return newest


def list_again(connection: Connection, newest: Sequence[Row[Any]]) -> None:
    rows = [{"key": row.number, "added": row.kev_added, "points": row.score} for row in newest]
    connection.execute(CVES.update().where(CVES.c.number == bindparam("key")).values(kev_added=bindparam("added")), rows)
    connection.execute(RANKED.update().where(RANKED.c.number == bindparam("key")).values(score=bindparam("points")), rows)


def drift(connection: Connection) -> None:
    """Make the list that of a day later. The ranks stay: only news are told in their order."""
    chance = random.Random(3)
    rows = connection.execute(select(RANKED.c.number, RANKED.c.epss).where(RANKED.c.epss.is_not(None))).all()
    drifting = [(row, min(row.epss * chance.uniform(1 - DRIFT, 1 + DRIFT), HIGHEST_EPSS)) for row in rows if chance.random() < DRIFTING]
    changed = [{"key": row.number, "later": epss, "more": EPSS_POINTS * (epss - row.epss)} for row, epss in drifting]
    values = {"epss": bindparam("later"), "score": RANKED.c.score + bindparam("more")}
    connection.execute(RANKED.update().where(RANKED.c.number == bindparam("key")).values(**values), changed)


async def lag_of_following(storage: Storage) -> float:
    """The longest lag of the event loop, in milliseconds, while the keys of all owners are looked at; none has changed."""
    longest = 0.0

    async def tick() -> None:
        nonlocal longest
        while True:
            began = perf_counter()
            await anyio.sleep(TICK)
            longest = max(longest, perf_counter() - began - TICK)

    ends = await in_snapshot(
        storage, lambda connection: dict(connection.execute(select(WATCH_OWNERS.c.lineage, WATCH_OWNERS.c.ends_at)).all())
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tick)
        await anyio.sleep(TICKS_BEFORE * TICK)
        longest = 0.0
        async for owners in owners_of(storage):
            await follow_owners(storage, ends, owners, now=datetime.now(UTC))
        await anyio.sleep(TICKS_BEFORE * TICK)
        tasks.cancel_scope.cancel()
    return 1000 * longest


def made(folder: Path, feeds: Feeds) -> Path:
    """The folder of the data of a campus that made a list of the real feeds."""
    config = feeds.config(folder, BUILDINGS.format(feeds=feeds.settings))
    run_campus("run", "cve.refresh", "--day", str(DAY), "--config", config)
    return folder / "data"


def fill(connection: Connection, edition: Edition, count: int, *, per_owner: int = PER_OWNER) -> None:
    """Insert watches as users make them: a few vendors and products of KEV, and some CVEs."""
    chance = random.Random(2)
    listings = list(edition.facts.kev.values())
    for table in (ALERTS, WATCH_NEWS, WATCHES, WATCH_OWNERS):
        connection.execute(table.delete())
    ids = sorted(edition.facts.kev, key=number_of)
    ends_at = datetime.now(UTC) + timedelta(days=30)
    owners = [f"owner_{number}" for number in range(count // per_owner)]
    connection.execute(insert(WATCH_OWNERS), [{"lineage": one, "ends_at": ends_at} for one in owners])
    rows = [_watch(owner, chance.sample(listings, 4), chance.sample(ids, 20), chance) for owner in owners for _ in range(per_owner)]
    connection.execute(insert(WATCHES), rows)


def _watch(owner: str, listings: Sequence[KevEntry], ids: Sequence[str], chance: random.Random) -> dict[str, object]:
    one, other, third, fourth = listings
    criteria = Watched(
        vendors=[plain_name(one.vendor), plain_name(other.vendor)],
        products=[plain_name(third.product), f"{plain_name(fourth.vendor)}:{plain_name(fourth.product)}"],
        cve_ids=list(ids),
        least_score=5.0 if chance.random() < LOW_SCORES else 25.0,
    )
    fresh = {"known": b"", "needs_baseline": True, "nvd_complete": True, "told": 0}
    about = {"id": f"watch_{secrets.token_hex(8)}", "lineage": owner, "name": "routers", "made_at": datetime.now(UTC)}
    return {**about, "criteria": criteria.model_dump_json(exclude_none=True).encode(), "least_score": criteria.least_score, **fresh}


async def match(storage: Storage, edition: Edition) -> tuple[float, int]:
    """CPU seconds of matching the rows that are stored, and how many watches have news."""
    began = process_time()
    told = await in_transaction(storage, ListMatching(edition, datetime.now(UTC)))
    return process_time() - began, told
