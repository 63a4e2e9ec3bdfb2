"""Stores each day's forecast, what its grading needs and how EPSS changed, reads them again, and grades past days."""

import logging
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from uuid import uuid4

import anyio.to_thread
from pydantic import TypeAdapter
from sqlmodel import col, func, select

from buildings.cve.arguments import number_of
from buildings.cve.edition import Edition
from buildings.cve.feeds.acceptance import Issue
from buildings.cve.forecast import EarlierScores, Forecaster, Order
from buildings.cve.forecast_models import ForecastList, ForecastRecord, Precision
from buildings.cve.forecast_results import forecast_list_of, record_of
from buildings.cve.grading import PUBLISHED, RANKINGS, Event, Grade, grade_of, listing_events, precision_at
from buildings.cve.ranking import UNSCORED, Scores, little_endian
from buildings.cve.tables import LATEST, ArchivedForecast, EpssChange, GradedRecord, RankingOrder, RansomwareFlip, Tables
from campus import Storage

log = logging.getLogger(__name__)

WEEK = timedelta(days=7)
LONGEST_WEEK = timedelta(days=10)
"""Scores of 7 to 10 days before are compared with: some days have no list."""

GRADE: TypeAdapter[Grade] = TypeAdapter(Grade)


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """What a day's list brings for its forecast: the published list, and the rows to store in the list's own transaction."""

    forecast: ForecastList
    rows: Sequence[Tables]


async def make_outlook(storage: Storage, edition: Edition, last: Edition | None) -> Outlook:
    """The forecast of an edition, and what to store with it; `last` is the edition that was served before."""
    change = await _change_of(storage, edition, last)
    earlier = await earlier_scores(storage, edition.facts.issues.epss, newest=change)
    precision, published = precision_at(await load_grades(storage)), await load_forecast(storage, edition.day)
    made = await anyio.to_thread.run_sync(lambda: _outlook(edition, last, earlier, change, precision))
    if published is None:
        return made
    # the first forecast of a day stands, and is the one that is graded
    return Outlook(forecast=published, rows=[row for row in made.rows if isinstance(row, RansomwareFlip | EpssChange)])


def _outlook(
    edition: Edition, last: Edition | None, earlier: EarlierScores | None, change: EpssChange | None, precision: Sequence[Precision]
) -> Outlook:
    forecaster = Forecaster(edition, earlier)
    forecast = forecaster.forecast()
    published = forecast_list_of(edition, forecast, precision=precision, today=edition.day)
    packed = zlib.compress(published.model_dump_json().encode(), 9)
    rows: list[Tables] = [ArchivedForecast(day=edition.day, made_at=edition.made_at, forecast=packed)]
    rows += [_row_of(order) for order in forecaster.orders(forecast)]
    rows += [RansomwareFlip(cve_id=cve_id, day=edition.day) for cve_id in flips(edition, last)]
    return Outlook(forecast=published, rows=[*rows, change] if change else rows)


def flips(edition: Edition, last: Edition | None) -> list[str]:
    """The CVEs that KEV listed before and ties to ransomware only now."""
    before = last.facts.kev if last else {}
    return [cve_id for cve_id, now in edition.facts.kev.items() if now.ransomware and (was := before.get(cve_id)) and not was.ransomware]


async def _change_of(storage: Storage, edition: Edition, last: Edition | None) -> EpssChange | None:
    """How EPSS changed since the last list; None when it did not, or when there is nothing to compare with."""
    if last is None or last.day > edition.day:
        return None
    new, old = edition.facts.issues.epss, last.facts.issues.epss
    if new.issued.date() > old.issued.date():
        return await anyio.to_thread.run_sync(lambda: _change(dict_of(last.ranked.scores()), edition.ranked.scores(), old=old, new=new))
    async with storage.read() as session:
        row = await session.get(EpssChange, new.issued.date())
    if row is None or new == old:
        return None
    before = Issue(version=row.previous_model, issued=datetime.combine(row.previous_day, old.issued.timetz()), entries=0)
    changes = row.changes
    return await anyio.to_thread.run_sync(
        lambda: _change(undone(dict_of(last.ranked.scores()), unpack_changes(changes)), edition.ranked.scores(), old=before, new=new)
    )


def _change(before: Mapping[int, float], after: Scores, *, old: Issue, new: Issue) -> EpssChange:
    return EpssChange(
        day=new.issued.date(),
        model=new.version,
        previous_day=old.issued.date(),
        previous_model=old.version,
        changes=pack_changes(changes_between(before, after)),
    )


def dict_of(scores: Scores) -> dict[int, float]:
    """Scores by CVE number."""
    return dict(zip(scores.numbers, scores.epss, strict=True))


def changes_between(before: Mapping[int, float], after: Scores) -> dict[int, float]:
    """The earlier scores of all CVEs whose score is another now, UNSCORED for those that had none."""
    changed = {number: was for number, now in zip(after.numbers, after.epss, strict=True) if (was := before.get(number, UNSCORED)) != now}
    gone = before.keys() - set(after.numbers) if len(before) + len(changed) > len(after.numbers) else ()
    return changed | {number: before[number] for number in gone}


def undone(scores: Mapping[int, float], changes: Mapping[int, float]) -> dict[int, float]:
    """The scores before the changes."""
    return {number: score for number, score in {**scores, **changes}.items() if score != UNSCORED}


def pack_changes(changes: Mapping[int, float]) -> bytes:
    """Changes as one compressed block: a line each, with the distance to the number before and the earlier score."""
    lines, before = [], 0
    for number in sorted(changes):
        score = changes[number]
        lines.append(f"{number - before} {'' if score == UNSCORED else repr(score)}")
        before = number
    return zlib.compress("\n".join(lines).encode(), 9)


def unpack_changes(block: bytes) -> dict[int, float]:
    """The changes in a block that `pack_changes` returned."""
    changes, number = {}, 0
    for line in zlib.decompress(block).decode().splitlines():
        distance, _, score = line.partition(" ")
        number += int(distance)
        changes[number] = float(score) if score else UNSCORED
    return changes


@dataclass(frozen=True)
class EarlierEpss:
    """The scores of `previous_day` that changed after it, in columns by ascending CVE number; UNSCORED where there was none."""

    previous_day: date
    numbers: "array[int]"
    scores: "array[float]"

    def score(self, number: int, later: float | None) -> float | None:
        """The score of a CVE on `previous_day`; `later` is the one after it."""
        row = bisect_left(self.numbers, number)
        if row == len(self.numbers) or self.numbers[row] != number:
            return later
        return None if self.scores[row] == UNSCORED else self.scores[row]


async def load_earlier_epss(storage: Storage, last_day: date, *, days: int) -> list[EarlierEpss]:
    """How EPSS changed in the days before `last_day`, the latest change first, as far back as the changes follow one another."""
    async with storage.read() as session:
        before = select(EpssChange).where(col(EpssChange.day) <= last_day).order_by(col(EpssChange.day).desc()).limit(days)
        rows = list(await session.exec(before))
    return await anyio.to_thread.run_sync(_earlier_epss, rows, last_day)


def _earlier_epss(rows: Sequence[EpssChange], last_day: date) -> list[EarlierEpss]:
    found: list[EarlierEpss] = []
    for row in rows:
        if row.day != (found[-1].previous_day if found else last_day):
            break
        changes = sorted(unpack_changes(row.changes).items())
        numbers, scores = array("q", (number for number, _ in changes)), array("d", (score for _, score in changes))
        found.append(EarlierEpss(row.previous_day, numbers, scores))
    return found


async def earlier_scores(storage: Storage, issue: Issue, *, newest: EpssChange | None) -> EarlierScores | None:
    """EPSS 7 to 10 days before an issue by the same model, from the stored changes and the `newest`, which may not be stored yet."""
    last_day = issue.issued.date()
    async with storage.read() as session:
        found = select(EpssChange).where(col(EpssChange.day) <= last_day).order_by(col(EpssChange.day).desc()).limit(LONGEST_WEEK.days)
        stored = [row for row in await session.exec(found) if newest is None or row.day != newest.day]
    chain, day = [], last_day
    for row in [newest, *stored] if newest else stored:
        if row.day != day or row.previous_model != issue.version:
            return None
        chain.append(row.changes)
        day = row.previous_day
        if last_day - day >= WEEK:
            break
    if not WEEK <= last_day - day <= LONGEST_WEEK:
        return None
    return await anyio.to_thread.run_sync(lambda: _overlaid(day, chain))


def _overlaid(day: date, chain: Sequence[bytes]) -> EarlierScores:
    changed: dict[int, float] = {}
    for block in chain:
        changed.update(unpack_changes(block))
    return EarlierScores(day=day, changed=changed)


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
    return ForecastList.model_validate_json(zlib.decompress(row.forecast)) if row else None


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


async def grade_lists(storage: Storage, edition: Edition) -> None:
    """Grade every past day's rankings against what an edition shows, and store the public record."""
    known_until = min(edition.facts.issues.kev.issued.date(), edition.day)
    listings, tied = listing_events(edition), await load_flips(storage)
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
    """Store grades and the record of all. The order behind a final grade is not needed any more, and is dropped."""
    async with storage.write() as session:
        for one in grades:
            row = await session.get(RankingOrder, (one.day, one.ranking))
            if row is not None:
                row.grade, row.is_final = GRADE.dump_json(one), one.is_final
                row.numbers = b"" if one.is_final else row.numbers
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
