"""Stores each day's forecast and what its grading needs, reads them again, and grades past days."""

import logging
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, timedelta
from functools import partial
from uuid import uuid4

import anyio.to_thread
import orjson
from pydantic import TypeAdapter
from sqlmodel import col, func, select

from buildings.cve.archive.editions import load_leading
from buildings.cve.archive.epss import HistoryChange, earlier_scores, load_scores
from buildings.cve.arguments import number_of, spelled
from buildings.cve.feeds.kev import KevEntry
from buildings.cve.forecast.formula import FORECAST_LENGTH, WINDOW_DAYS, Forecast, Forecaster, Order, Standings
from buildings.cve.forecast.grading import PUBLISHED, RANKINGS, Event, Grade, Names, grade_of, listing_events, precision_at, with_standings
from buildings.cve.forecast.models import ForecastList, ForecastRecord, Precision
from buildings.cve.forecast.results import forecast_list_of, record_of
from buildings.cve.nvd.reading import with_records
from buildings.cve.ranking.edition import Edition
from buildings.cve.ranking.formula import RankedSet
from buildings.cve.tables import LATEST, ArchivedForecast, GradedRecord, RankingOrder, RansomwareFlip, Tables
from campus.storage import Storage

log = logging.getLogger(__name__)

CORRECTABLE_DAYS = 30  # For so long after its day a list can be corrected, and the grades that depend on it.
GRADE: TypeAdapter[Grade] = TypeAdapter(Grade)
COMPLETE = frozenset(name for name, ranking in RANKINGS.items() if ranking.is_complete)
LONGEST_NAMES = 512  # Characters that the names of a complete order have at most; whole orders have more.
STANDINGS_KEPT = ("next_in_kev", "epss")
"""Only the first ranks of these are stored; where an event stood among all CVEs follows from the archives of EPSS and KEV."""


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """What a day's list brings for its forecast: the published list, and the rows to store in the list's own transaction."""

    forecast: ForecastList
    rows: Sequence[Tables]


async def make_outlook(
    storage: Storage, edition: Edition, last: Edition | None, *, history: HistoryChange, corrects: bool = False
) -> Outlook:
    """The forecast of an edition, and what to store with it; `last` is the edition before it. With `corrects` it replaces the day's."""
    epss = edition.facts.issues.epss
    earlier = await earlier_scores(storage, day=epss.issued.date(), model=epss.version, differing=history.steps, without=history.withdraws)
    precision = precision_at(await load_grades(storage))
    published = await load_forecast(storage, edition.day)
    forecaster = await anyio.to_thread.run_sync(Forecaster, edition, earlier)
    forecast = await anyio.to_thread.run_sync(forecaster.forecast)
    nvd = await with_records(storage, edition.nvd, [cve.number for cve in forecast.first[:FORECAST_LENGTH]])
    edition = replace(edition, nvd=nvd)
    made = await anyio.to_thread.run_sync(lambda: _outlook(edition, last, forecaster, forecast, precision))
    if published is None or corrects:
        return made
    # the first forecast of a day stands, and is the one that is graded
    return Outlook(forecast=published, rows=[row for row in made.rows if isinstance(row, RansomwareFlip)])


def _outlook(edition: Edition, last: Edition | None, forecaster: Forecaster, forecast: Forecast, precision: Sequence[Precision]) -> Outlook:
    published = forecast_list_of(edition, forecast, precision=precision, today=edition.day)
    rows: list[Tables] = [ArchivedForecast(day=edition.day, made_at=edition.made_at, forecast=published.model_dump_json())]
    rows += [_row_of(order) for order in forecaster.orders(forecast)]
    rows += flips(edition.facts.kev, last.facts.kev if last else {}, day=edition.day)
    return Outlook(forecast=published, rows=rows)


def flips(kev: Mapping[str, KevEntry], before: Mapping[str, KevEntry], *, day: date) -> list[RansomwareFlip]:
    tied = [cve_id for cve_id, now in kev.items() if now.ransomware and (was := before.get(cve_id)) and was.ransomware is False]
    return [RansomwareFlip(cve_id=cve_id, day=day) for cve_id in tied]


def _row_of(order: Order) -> RankingOrder:
    return RankingOrder(
        day=order.day, ranking=order.ranking, leading=order.leading, total=order.total, numbers=_written(order.numbers), is_final=False
    )


def _written(numbers: Sequence[int]) -> str:
    return orjson.dumps(list(numbers)).decode()


async def load_forecast(storage: Storage, day: date | None = None) -> ForecastList | None:
    chosen = select(ArchivedForecast).order_by(col(ArchivedForecast.day).desc()).limit(1)
    async with storage.read() as session:
        row = (await session.exec(chosen if day is None else chosen.where(col(ArchivedForecast.day) == day))).first()
    return await anyio.to_thread.run_sync(ForecastList.model_validate_json, row.forecast) if row else None


async def load_open_orders(storage: Storage) -> list[Order]:
    made = col(ArchivedForecast.made_at)
    chosen = select(RankingOrder, made).join(ArchivedForecast, col(ArchivedForecast.day) == col(RankingOrder.day))
    async with storage.read() as session:
        rows = list(await session.exec(chosen.where(col(RankingOrder.is_final).is_(False))))

    def opened() -> list[Order]:
        return [
            Order(row.day, row.ranking, orjson.loads(row.numbers), row.leading, row.total, at.astimezone(UTC).date()) for row, at in rows
        ]

    return await anyio.to_thread.run_sync(opened)


async def load_names(storage: Storage) -> Names:
    async with storage.read() as session:
        rows = list(await session.exec(select(RankingOrder).where(col(RankingOrder.is_final))))
    return await anyio.to_thread.run_sync(lambda: {(row.day, row.ranking): _named(row, orjson.loads(row.numbers)) for row in rows})


async def load_grades(storage: Storage) -> list[Grade]:
    async with storage.read() as session:
        blocks = list(await session.exec(select(RankingOrder.grade).order_by(col(RankingOrder.day), col(RankingOrder.ranking))))
    return [GRADE.validate_json(block) for block in blocks if block]


async def load_flips(storage: Storage) -> list[Event]:
    async with storage.read() as session:
        rows = await session.exec(select(RansomwareFlip).order_by(col(RansomwareFlip.day)))
        return [Event(number_of(row.cve_id), row.day) for row in rows]


async def load_flips_of(storage: Storage, cve_id: str) -> list[date]:
    async with storage.read() as session:
        return list(await session.exec(select(col(RansomwareFlip.day)).where(col(RansomwareFlip.cve_id) == cve_id)))


async def grade_lists(storage: Storage, edition: Edition) -> None:
    known_until = min(edition.facts.issues.kev.issued.date(), edition.day)
    listings = listing_events(edition)
    tied = await load_flips(storage)
    graded = {(one.day, one.ranking): one for one in await load_grades(storage)}
    changed = []
    standings: dict[date, Mapping[str, Standings]] = {}
    names = dict(await load_names(storage))
    for order in await load_open_orders(storage):
        found = grade_of(order, tied if RANKINGS[order.ranking].is_complete else listings, known_until=known_until)
        if found.is_final:
            names[order.day, order.ranking] = _named(found, order.numbers)
            if order.ranking in STANDINGS_KEPT and found.events:
                if order.day not in standings:
                    standings[order.day] = await _standings_on(storage, edition, order.day, found.events)
                found = with_standings(found, standings[order.day])
        if graded.get((order.day, order.ranking)) != found:
            graded[order.day, order.ranking] = found
            changed.append(found)
    made = partial(record_of, edition, [graded[key] for key in sorted(graded)], names)
    record = await anyio.to_thread.run_sync(made)
    if changed or record != await load_record(storage):
        await _save_grades(storage, changed, names, record)
    hits = sum(len(one.hits) for one in graded.values() if one.ranking == PUBLISHED)
    log.info("lists graded", extra={"kev": str(edition.facts.issues.kev), "lists": len(graded), "forecast_hits": hits})


def _named(graded: Grade | RankingOrder, numbers: Sequence[int]) -> Sequence[int]:
    return numbers[: graded.leading] if graded.ranking in COMPLETE else numbers


async def _standings_on(storage: Storage, latest: Edition, day: date, events: Iterable[int]) -> Mapping[str, Standings]:
    published = await load_forecast(storage, day)
    archived = await load_leading(storage, day, edition=1)
    feed = published.feeds.epss if published else None
    if published is None or archived is None or feed is None or feed.date is None or feed.version is None:
        return {}
    scores = await load_scores(storage, feed.date)
    if scores is None:
        log.warning("the AUC of a list cannot be computed: its EPSS is not archived", extra={"day": str(day)})
        return {}
    earlier = await earlier_scores(storage, day=feed.date, model=feed.version)
    facts = replace(latest.facts, kev=archived[1], removed={})
    first = [entry.cve_id for entry in published.entries]

    def found() -> Mapping[str, Standings]:
        # what NVD rejects was not ranked; what the list names was not rejected then
        rejected = {number for number, rank in zip(latest.ranked.numbers, latest.ranked.ranks, strict=True) if not rank}
        rejected -= {number_of(cve_id) for cve_id in first}
        ranks = array("I", (number not in rejected for number in scores.numbers))
        forecaster = Forecaster(
            replace(latest, day=day, ranked=RankedSet(scores.numbers, scores.epss, scores.epss, ranks), facts=facts), earlier
        )
        if first != [spelled(cve.number) for cve in forecaster.forecast(FORECAST_LENGTH).first]:
            log.warning("the AUC of a list cannot be computed: the archives lead to another list", extra={"day": str(day)})
            return {}
        return forecaster.standings(events)

    return await anyio.to_thread.run_sync(found)


async def _save_grades(storage: Storage, grades: Sequence[Grade], names: Names, record: ForecastRecord) -> None:
    async with storage.write() as session:
        for grade in grades:
            row = await session.get(RankingOrder, (grade.day, grade.ranking))
            if row is not None:
                row.grade = GRADE.dump_json(grade).decode()
                row.is_final = grade.is_final
        settled = col(RankingOrder.day) < record.day - timedelta(days=WINDOW_DAYS + CORRECTABLE_DAYS)
        is_whole = col(RankingOrder.ranking).in_(COMPLETE) & (func.length(col(RankingOrder.numbers)) > LONGEST_NAMES)
        for row in await session.exec(select(RankingOrder).where(col(RankingOrder.is_final), settled, is_whole)):
            row.numbers = _written(names[row.day, row.ranking])
        await session.merge(GradedRecord(id=LATEST, version=uuid4().hex, record=record.model_dump_json()))


async def load_record(storage: Storage) -> ForecastRecord | None:
    async with storage.read() as session:
        row = await session.get(GradedRecord, LATEST)
    return ForecastRecord.model_validate_json(row.record) if row else None
