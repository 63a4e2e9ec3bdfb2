"""Stores each day's forecast and what its grading needs, reads them again, and grades past days."""

import logging
import zlib
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from uuid import uuid4

import anyio.to_thread
from pydantic import TypeAdapter
from sqlmodel import col, func, select, update

from buildings.cve.arguments import number_of
from buildings.cve.edition import Edition
from buildings.cve.epss_store import HistoryRows, earlier_scores
from buildings.cve.feeds.kev import KevEntry
from buildings.cve.forecast import WINDOW_DAYS, EarlierScores, Forecaster, Order
from buildings.cve.forecast_models import ForecastList, ForecastRecord, Precision
from buildings.cve.forecast_results import forecast_list_of, record_of
from buildings.cve.grading import PUBLISHED, RANKINGS, Event, Grade, grade_of, listing_events, precision_at
from buildings.cve.ranking import little_endian
from buildings.cve.tables import LATEST, ArchivedForecast, GradedRecord, RankingOrder, RansomwareFlip, Tables
from campus import Storage

log = logging.getLogger(__name__)

CORRECTABLE_DAYS = 30
"""For so long after its day a list can be corrected, and the grades that depend on it."""
GRADE: TypeAdapter[Grade] = TypeAdapter(Grade)


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """What a day's list brings for its forecast: the published list, and the rows to store in the list's own transaction."""

    forecast: ForecastList
    rows: Sequence[Tables]


async def make_outlook(
    storage: Storage, edition: Edition, last: Edition | None, *, history: HistoryRows, corrects: bool = False
) -> Outlook:
    """The forecast of an edition, and what to store with it; `last` is the edition before it. With `corrects` it replaces the day's."""
    earlier = await earlier_scores(storage, edition.facts.issues.epss, added=history)
    precision = precision_at(await load_grades(storage))
    published = await load_forecast(storage, edition.day)
    made = await anyio.to_thread.run_sync(lambda: _outlook(edition, last, earlier, precision))
    if published is None or corrects:
        return made
    # the first forecast of a day stands, and is the one that is graded
    return Outlook(forecast=published, rows=[row for row in made.rows if isinstance(row, RansomwareFlip)])


def _outlook(edition: Edition, last: Edition | None, earlier: EarlierScores | None, precision: Sequence[Precision]) -> Outlook:
    forecaster = Forecaster(edition, earlier)
    forecast = forecaster.forecast()
    published = forecast_list_of(edition, forecast, precision=precision, today=edition.day)
    packed = zlib.compress(published.model_dump_json().encode(), 9)
    rows: list[Tables] = [ArchivedForecast(day=edition.day, made_at=edition.made_at, forecast=packed)]
    rows += [_row_of(order) for order in forecaster.orders(forecast)]
    rows += flips(edition.facts.kev, last.facts.kev if last else {}, day=edition.day)
    return Outlook(forecast=published, rows=rows)


def flips(kev: Mapping[str, KevEntry], before: Mapping[str, KevEntry], *, day: date) -> list[RansomwareFlip]:
    """The CVEs that KEV listed before and ties to ransomware only now."""
    tied = [cve_id for cve_id, now in kev.items() if now.ransomware and (was := before.get(cve_id)) and not was.ransomware]
    return [RansomwareFlip(cve_id=cve_id, day=day) for cve_id in tied]


def _row_of(order: Order) -> RankingOrder:
    return RankingOrder(
        day=order.day, ranking=order.ranking, leading=order.leading, total=order.total, numbers=_packed(order.numbers), is_final=False
    )


def _packed(numbers: Sequence[int]) -> bytes:
    return zlib.compress(little_endian(array("q", numbers)).tobytes(), 9)


def _order(row: RankingOrder) -> Order:
    numbers = array("q")
    numbers.frombytes(zlib.decompress(row.numbers))
    return Order(row.day, row.ranking, little_endian(numbers), row.leading, row.total)


async def load_forecast(storage: Storage, day: date | None = None) -> ForecastList | None:
    """The archived forecast of a day, as it was published; by default the newest."""
    chosen = select(ArchivedForecast).order_by(col(ArchivedForecast.day).desc()).limit(1)
    async with storage.read() as session:
        row = (await session.exec(chosen if day is None else chosen.where(col(ArchivedForecast.day) == day))).first()
    return await anyio.to_thread.run_sync(lambda: ForecastList.model_validate_json(zlib.decompress(row.forecast))) if row else None


async def forecast_days(storage: Storage) -> tuple[date, date] | None:
    """The first and the last day with a forecast; None while there is none."""
    async with storage.read() as session:
        first, last = (await session.exec(select(func.min(col(ArchivedForecast.day)), func.max(col(ArchivedForecast.day))))).one()
    return (first, last) if first else None


async def load_open_orders(storage: Storage) -> list[Order]:
    """The rankings of past days whose grade is not final."""
    async with storage.read() as session:
        rows = list(await session.exec(select(RankingOrder).where(col(RankingOrder.is_final).is_(False))))
    return await anyio.to_thread.run_sync(lambda: [_order(row) for row in rows])


async def load_grades(storage: Storage) -> list[Grade]:
    """Every grade so far, those that are not final included."""
    async with storage.read() as session:
        blocks = list(await session.exec(select(RankingOrder.grade).order_by(col(RankingOrder.day), col(RankingOrder.ranking))))
    return [GRADE.validate_json(block) for block in blocks if block]


async def load_flips(storage: Storage) -> list[Event]:
    """When KEV tied which CVE to ransomware after it had listed it."""
    async with storage.read() as session:
        rows = await session.exec(select(RansomwareFlip).order_by(col(RansomwareFlip.day)))
        return [Event(number_of(row.cve_id), row.day) for row in rows]


async def load_flips_of(storage: Storage, cve_id: str) -> list[date]:
    """When KEV tied one CVE to ransomware after it had listed it."""
    async with storage.read() as session:
        return list(await session.exec(select(col(RansomwareFlip.day)).where(col(RansomwareFlip.cve_id) == cve_id)))


async def grade_lists(storage: Storage, edition: Edition) -> None:
    """Grade every past day's rankings against what an edition shows, and store the public record."""
    known_until = min(edition.facts.issues.kev.issued.date(), edition.day)
    listings = listing_events(edition)
    tied = await load_flips(storage)
    graded = {(one.day, one.ranking): one for one in await load_grades(storage)}
    changed = []
    for order in await load_open_orders(storage):
        found = grade_of(order, tied if RANKINGS[order.ranking].is_complete else listings, known_until=known_until)
        if graded.get((order.day, order.ranking)) != found:
            graded[order.day, order.ranking] = found
            changed.append(found)
    record = record_of(edition, [graded[key] for key in sorted(graded)])
    if changed or record != await load_record(storage):
        await _save_grades(storage, changed, record)
    hits = sum(len(one.hits) for one in graded.values() if one.ranking == PUBLISHED)
    log.info("lists graded", extra={"kev": str(edition.facts.issues.kev), "lists": len(graded), "forecast_hits": hits})


async def _save_grades(storage: Storage, grades: Sequence[Grade], record: ForecastRecord) -> None:
    """Store grades and the record of all. The order behind a final grade is dropped when no correction can change the grade."""
    async with storage.write() as session:
        for one in grades:
            row = await session.get(RankingOrder, (one.day, one.ranking))
            if row is not None:
                row.grade = GRADE.dump_json(one)
                row.is_final = one.is_final
        old = col(RankingOrder.is_final) & (col(RankingOrder.day) < record.day - timedelta(days=WINDOW_DAYS + CORRECTABLE_DAYS))
        await session.exec(update(RankingOrder).where(old, col(RankingOrder.numbers) != b"").values(numbers=b""))
        await session.merge(GradedRecord(id=LATEST, version=uuid4().hex, record=zlib.compress(record.model_dump_json().encode())))


async def newest_record_version(storage: Storage) -> str | None:
    """The version of the stored record; None while there is none."""
    async with storage.read() as session:
        return (await session.exec(select(GradedRecord.version))).first()


async def load_record(storage: Storage) -> ForecastRecord | None:
    """The stored record; None while nothing has been graded."""
    async with storage.read() as session:
        row = await session.get(GradedRecord, LATEST)
    return ForecastRecord.model_validate_json(zlib.decompress(row.record)) if row else None
