"""Stores lists, their archive and the state of the feeds in the database, and reads them again."""

import logging
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from uuid import uuid4

import anyio.to_thread
from pydantic import TypeAdapter
from sqlmodel import col, delete, func, select
from sqlmodel.ext.asyncio.session import AsyncSession

from buildings.cve.edition import Edition, Facts, listing_days
from buildings.cve.feeds.download import Copy
from buildings.cve.feeds.kev import KevEntry
from buildings.cve.models import Brief
from buildings.cve.ranking import RankedSet
from buildings.cve.results import brief_of
from buildings.cve.tables import LATEST, ArchivedBrief, ArchivedSet, FeedState, LatestList, Tables
from campus import Storage

log = logging.getLogger(__name__)

ARCHIVED_EPSS = 0.1
"""A day's archived set holds KEV and every CVE with at least this EPSS."""

FACTS: TypeAdapter[Facts] = TypeAdapter(Facts)
LISTINGS: TypeAdapter[dict[str, KevEntry]] = TypeAdapter(dict[str, KevEntry])


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
        archived = await session.get(ArchivedBrief, row.day) if row else None
    if not row or not archived:
        return None
    try:
        return await anyio.to_thread.run_sync(_opened, row, archived)
    except (ValueError, zlib.error):
        log.exception("the stored list cannot be read; run the job cve.refresh")
        return None


def _opened(row: LatestList, archived: ArchivedBrief) -> Stored:
    facts = FACTS.validate_json(zlib.decompress(row.facts))
    edition = Edition(day=row.day, made_at=row.made_at, ranked=RankedSet.unpack(row.ranked), facts=facts)
    return Stored(version=row.version, edition=edition, brief=_brief(archived))


async def save(storage: Storage, edition: Edition, *, copies: Mapping[str, Copy | None], forecast: Sequence[Tables] = ()) -> Stored | None:
    """Store a day's list and archive its brief, all in one transaction; returns the list to serve now.

    None when a later day's list is already stored: then this one is only archived. `forecast` are the rows of its forecast,
    which are stored only if it is served. `copies` are of the feeds that were read, for the next conditional requests; None
    where the server sent no ETag or Last-Modified.
    """
    brief = await anyio.to_thread.run_sync(lambda: brief_of(edition, today=edition.day))
    latest, archived, leading = await anyio.to_thread.run_sync(_packed, edition, brief)
    async with storage.write() as session:
        shown = (await session.exec(select(col(LatestList.day)))).first()
        await session.merge(archived)
        await session.merge(leading)
        if shown is None or shown <= edition.day:
            await session.merge(latest)
            for row in forecast:
                await session.merge(row)
            await _note_copies(session, copies)
            return Stored(version=latest.version, edition=edition, brief=brief)
        row = await session.get_one(LatestList, LATEST)
        row.version = latest.version
        return None


def _packed(edition: Edition, brief: Brief) -> tuple[LatestList, ArchivedBrief, ArchivedSet]:
    leading = edition.ranked.cut(listing_days(edition.facts.kev), least_epss=ARCHIVED_EPSS)
    latest = LatestList(
        id=LATEST,
        version=uuid4().hex,
        day=edition.day,
        made_at=edition.made_at,
        ranked=edition.ranked.pack(),
        facts=zlib.compress(FACTS.dump_json(edition.facts)),
    )
    archived = ArchivedBrief(day=edition.day, made_at=edition.made_at, brief=zlib.compress(brief.model_dump_json().encode()))
    kev = zlib.compress(LISTINGS.dump_json(dict(edition.facts.kev)))
    return latest, archived, ArchivedSet(day=edition.day, ranked=zlib.compress(leading.pack()), kev=kev)


async def load_brief(storage: Storage, day: date) -> Brief | None:
    """The archived brief of a day."""
    async with storage.read() as session:
        row = await session.get(ArchivedBrief, day)
    return _brief(row) if row else None


async def archived_days(storage: Storage) -> tuple[date, date] | None:
    """The first and the last day in the archive; None while it is empty."""
    async with storage.read() as session:
        first, last = (await session.exec(select(func.min(col(ArchivedBrief.day)), func.max(col(ArchivedBrief.day))))).one()
    return (first, last) if first else None


async def load_leading(storage: Storage, day: date) -> tuple[RankedSet, dict[str, KevEntry]] | None:
    """The archived part of a day's ranked set, and KEV as it was."""
    async with storage.read() as session:
        row = await session.get(ArchivedSet, day)
    return (RankedSet.unpack(zlib.decompress(row.ranked)), LISTINGS.validate_json(zlib.decompress(row.kev))) if row else None


async def all_days(storage: Storage) -> list[date]:
    """Every day in the archive, the first one first."""
    async with storage.read() as session:
        return list(await session.exec(select(col(ArchivedBrief.day)).order_by(col(ArchivedBrief.day))))


async def held_copies(storage: Storage) -> dict[str, Copy]:
    """The URL, ETag and Last-Modified of each feed that the stored list was made from."""
    async with storage.read() as session:
        rows = await session.exec(select(FeedState))
        return {row.name: Copy(url=row.url, etag=row.etag, last_modified=row.last_modified) for row in rows if row.url}


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


async def _note_copies(session: AsyncSession, copies: Mapping[str, Copy | None]) -> None:
    await session.exec(delete(FeedState).where(col(FeedState.name).in_(copies)))
    for name, copy in copies.items():
        if copy:
            session.add(FeedState(name=name, url=copy.url, etag=copy.etag, last_modified=copy.last_modified))


def _brief(row: ArchivedBrief) -> Brief:
    return Brief.model_validate_json(zlib.decompress(row.brief))
