"""Stores lists, the editions of their briefs and the state of the feeds in the database, and reads them again."""

import logging
import zlib
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from uuid import uuid4

import anyio.to_thread
from pydantic import TypeAdapter
from sqlmodel import col, func, select
from sqlmodel.ext.asyncio.session import AsyncSession

from buildings.cve.arguments import number_of
from buildings.cve.edition import Edition, Facts, listing_days
from buildings.cve.feeds.download import Copy
from buildings.cve.feeds.kev import KevEntry
from buildings.cve.models import Brief
from buildings.cve.ranking import RankedSet
from buildings.cve.results import brief_of
from buildings.cve.tables import LATEST, BriefEdition, EditionSet, FeedState, LatestList, Tables
from campus import Storage

log = logging.getLogger(__name__)

LONGEST_BASE = timedelta(days=30)
"""How long KEV is archived as differences from one whole catalog: that takes 2 KB a day instead of 33."""

FACTS: TypeAdapter[Facts] = TypeAdapter(Facts)
LISTINGS: TypeAdapter[dict[str, KevEntry]] = TypeAdapter(dict[str, KevEntry])


@dataclass(frozen=True, kw_only=True)
class KevDifference:
    """What is different in a catalog: entries that are new or changed, and the identifiers of those that are gone."""

    changed: dict[str, KevEntry]
    gone: list[str]


Columns = tuple[list[int], list[float], list[float], list[int]]
COLUMNS: TypeAdapter[Columns] = TypeAdapter(Columns)
DIFFERENCE: TypeAdapter[KevDifference] = TypeAdapter(KevDifference)


@dataclass(frozen=True, kw_only=True)
class Stored:
    """The stored list: the edition, the brief as published, and the version that changes with every stored list."""

    version: str
    edition: Edition
    brief: Brief


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Why a feed could not be read the last time."""

    feed: str
    reason: str
    at: datetime


async def newest_version(storage: Storage) -> str | None:
    """The version of the newest stored list; None while there is none."""
    async with storage.read() as session:
        return (await session.exec(select(LatestList.version))).first()


async def load_latest(storage: Storage) -> Stored | None:
    """The stored list; None when there is none, or when it cannot be read because a later version stored it."""
    async with storage.read() as session:
        row = await session.get(LatestList, LATEST)
        published = await _newest_edition(session, row.day) if row else None
    if not row or not published:
        return None
    try:
        return await anyio.to_thread.run_sync(_opened, row, published)
    except (ValueError, zlib.error):
        log.exception("the stored list cannot be read; run the job cve.refresh")
        return None


def _opened(row: LatestList, published: BriefEdition) -> Stored:
    facts = FACTS.validate_json(zlib.decompress(row.facts))
    edition = Edition(day=row.day, made_at=row.made_at, ranked=RankedSet.unpack(row.ranked), facts=facts)
    return Stored(version=row.version, edition=edition, brief=_brief(published))


async def save(storage: Storage, edition: Edition, *, copies: Mapping[str, Copy], forecast: Sequence[Tables] = ()) -> Stored | None:
    """Store a day's list and publish its brief, all in one transaction; returns the list to serve now.

    None when a later day's list is already stored: then this one is only archived. A brief that differs from the day's
    published one becomes another edition beside it. `forecast` are the rows of its forecast, which are stored only if it is
    served. `copies` are of KEV and EPSS, where these were read, for the next conditional requests.
    """
    made = await anyio.to_thread.run_sync(lambda: brief_of(edition, today=edition.day))
    latest = await anyio.to_thread.run_sync(_packed, edition)
    async with storage.write() as session:
        brief = await _publish(session, edition, made)
        shown = (await session.exec(select(col(LatestList.day)))).first()
        if shown is None or shown <= edition.day:
            await session.merge(latest)
            for row in forecast:
                await session.merge(row)
            await _note_copies(session, copies)
            return Stored(version=latest.version, edition=edition, brief=brief)
        row = await session.get_one(LatestList, LATEST)
        row.version = latest.version
        return None


async def _publish(session: AsyncSession, edition: Edition, made: Brief) -> Brief:
    """The day's brief: the published one if it says the same, else a new edition."""
    newest = await _newest_edition(session, edition.day)
    published = _brief(newest) if newest else None
    if published and _says(published) == _says(made):
        return published
    brief = made.model_copy(update={"edition": newest.edition + 1 if newest else 1})
    packed = zlib.compress(brief.model_dump_json().encode())
    session.add(BriefEdition(day=edition.day, edition=brief.edition, made_at=edition.made_at, brief=packed))
    session.add(await _edition_set(session, edition, brief.edition))
    return brief


async def _edition_set(session: AsyncSession, edition: Edition, number: int) -> EditionSet:
    """The edition's archived set: KEV as what is different from the last whole one of the month before, else whole."""
    kev, first = dict(edition.facts.kev), edition.day - LONGEST_BASE
    whole = select(EditionSet).where(col(EditionSet.base_day).is_(None), col(EditionSet.day).between(first, edition.day))
    base = (await session.exec(whole.order_by(col(EditionSet.day).desc(), col(EditionSet.edition).desc()).limit(1))).first()
    removed = [number_of(cve_id) for cve_id in edition.facts.removed if edition.ranked.find(cve_id)]
    leading = edition.ranked.only({*listing_days(kev), *removed})
    columns = removed, leading.epss.tolist(), leading.percentiles.tolist(), leading.ranks.tolist()
    ranked = zlib.compress(COLUMNS.dump_json(columns), 9)
    if base is None:
        return EditionSet(day=edition.day, edition=number, ranked=ranked, kev=zlib.compress(LISTINGS.dump_json(kev), 9))
    before = _listings(base)
    changed = {cve_id: entry for cve_id, entry in kev.items() if before.get(cve_id) != entry}
    difference = zlib.compress(DIFFERENCE.dump_json(KevDifference(changed=changed, gone=sorted(before.keys() - kev.keys()))), 9)
    return EditionSet(day=edition.day, edition=number, base_day=base.day, base_edition=base.edition, ranked=ranked, kev=difference)


def _listings(row: EditionSet) -> dict[str, KevEntry]:
    return LISTINGS.validate_json(zlib.decompress(row.kev))


def _says(brief: Brief) -> tuple[object, ...]:
    """What makes a brief another edition: its entries, and the issues of KEV and EPSS behind them."""
    kev, epss = brief.feeds.kev, brief.feeds.epss
    return brief.entries, kev.version, kev.date, kev.held_because is None, epss.version, epss.date


def _packed(edition: Edition) -> LatestList:
    return LatestList(
        id=LATEST,
        version=uuid4().hex,
        day=edition.day,
        made_at=edition.made_at,
        ranked=edition.ranked.pack(),
        facts=zlib.compress(FACTS.dump_json(edition.facts)),
    )


async def load_brief(storage: Storage, day: date, *, edition: int | None = None) -> Brief | None:
    """A day's brief as published: the newest edition, or the one with that number."""
    async with storage.read() as session:
        row = await session.get(BriefEdition, (day, edition)) if edition else await _newest_edition(session, day)
    return _brief(row) if row else None


async def _newest_edition(session: AsyncSession, day: date) -> BriefEdition | None:
    editions = select(BriefEdition).where(col(BriefEdition.day) == day).order_by(col(BriefEdition.edition).desc()).limit(1)
    return (await session.exec(editions)).first()


async def archived_days(storage: Storage) -> tuple[date, date] | None:
    """The first and the last day in the archive; None while it is empty."""
    async with storage.read() as session:
        first, last = (await session.exec(select(func.min(col(BriefEdition.day)), func.max(col(BriefEdition.day))))).one()
    return (first, last) if first else None


async def load_leading(storage: Storage, day: date) -> tuple[RankedSet, dict[str, KevEntry]] | None:
    """The ranks of CVEs in KEV or removed from it, and KEV itself, as of a day's newest edition."""
    async with storage.read() as session:
        of_day = select(EditionSet).where(col(EditionSet.day) == day).order_by(col(EditionSet.edition).desc()).limit(1)
        row = (await session.exec(of_day)).first()
        base = await session.get(EditionSet, (row.base_day, row.base_edition)) if row and row.base_day else None
    if row is None or (row.base_day and base is None):
        return None
    catalog = _catalog(row, base)
    return _leading(zlib.decompress(row.ranked), catalog), catalog


def _leading(block: bytes, kev: Mapping[str, KevEntry]) -> RankedSet:
    """The ranks of an edition's set: as columns of decimals, which take half the space of a packed set, or packed as in old archives."""
    if not block.startswith(b"["):
        return RankedSet.unpack(block)
    removed, epss, percentiles, ranks = COLUMNS.validate_json(block)
    return RankedSet(array("q", sorted({*listing_days(kev), *removed})), array("d", epss), array("d", percentiles), array("I", ranks))


def _catalog(row: EditionSet, base: EditionSet | None) -> dict[str, KevEntry]:
    if base is None:
        return _listings(row)
    difference = DIFFERENCE.validate_json(zlib.decompress(row.kev))
    return {cve_id: entry for cve_id, entry in _listings(base).items() if cve_id not in difference.gone} | difference.changed


async def all_days(storage: Storage) -> list[date]:
    """Every day in the archive, the first one first."""
    async with storage.read() as session:
        return list(await session.exec(select(col(BriefEdition.day)).distinct().order_by(col(BriefEdition.day))))


async def held_copies(storage: Storage) -> dict[str, Copy]:
    """The address, ETag and Last-Modified of each feed as it was last read."""
    async with storage.read() as session:
        rows = await session.exec(select(FeedState))
        return {row.name: Copy(address=row.url, etag=row.etag, last_modified=row.last_modified) for row in rows if row.url}


async def failures(storage: Storage) -> list[Failure]:
    """The feeds that could not be read the last time."""
    async with storage.read() as session:
        rows = await session.exec(select(FeedState).order_by(col(FeedState.name)))
        return [Failure(feed=row.name, reason=row.failure, at=row.failed_at) for row in rows if row.failure and row.failed_at]


async def note_failure(storage: Storage, failure: Failure) -> None:
    """Store why a feed could not be read; its ETag and Last-Modified stay."""
    async with storage.write() as session:
        row = await session.get(FeedState, failure.feed) or FeedState(name=failure.feed)
        row.failure, row.failed_at = failure.reason, failure.at
        session.add(row)


async def _note_copies(session: AsyncSession, copies: Mapping[str, Copy]) -> None:
    for name, copy in copies.items():
        await session.merge(read_state(name, copy))


def read_state(feed: str, copy: Copy | None) -> FeedState:
    """The state of a feed that was read; a copy without ETag and Last-Modified is not worth a condition."""
    if copy is None or not (copy.etag or copy.last_modified):
        return FeedState(name=feed)
    return FeedState(name=feed, url=copy.address, etag=copy.etag, last_modified=copy.last_modified)


def _brief(row: BriefEdition) -> Brief:
    return Brief.model_validate_json(zlib.decompress(row.brief))
