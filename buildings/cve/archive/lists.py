"""Stores lists, the editions of their briefs and the state of the feeds in the database, and reads them again."""

import logging
import zlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from uuid import uuid4

import anyio.to_thread
from pydantic import TypeAdapter
from sqlalchemy import Connection
from sqlmodel import col, delete, func, select
from sqlmodel.ext.asyncio.session import AsyncSession

from buildings.cve.archive.editions import LISTINGS, edition_set
from buildings.cve.feeds.download import Copy
from buildings.cve.feeds.kev import KevEntry
from buildings.cve.models import Brief
from buildings.cve.ranking.edition import Edition, Facts, Issues, Removal, is_ahead
from buildings.cve.ranking.formula import RankedSet
from buildings.cve.ranking.results import brief_of
from buildings.cve.tables import LATEST, BriefEdition, FeedState, LatestList, Tables
from campus.storage import Storage

log = logging.getLogger(__name__)

ENTRIES_AT_ONCE = 100
"""KEV is stored in pieces of so many entries: reading it at once stops the whole process for 12 ms."""

FACTS: TypeAdapter[Facts] = TypeAdapter(Facts)
HEAD: TypeAdapter[tuple[dict[str, Removal], Issues]] = TypeAdapter(tuple[dict[str, Removal], Issues])


@dataclass(frozen=True, kw_only=True)
class StoredList:
    """The stored list: the edition, the brief as published, and the version that changes with every stored list."""

    version: str
    edition: Edition
    brief: Brief


@dataclass(frozen=True, kw_only=True)
class Failure:
    feed: str
    reason: str
    at: datetime


async def newest_version(storage: Storage) -> str | None:
    async with storage.read() as session:
        return (await session.exec(select(LatestList.version))).first()


async def load_latest(storage: Storage) -> StoredList | None:
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


def _opened(row: LatestList, published: BriefEdition) -> StoredList:
    edition = Edition(day=row.day, made_at=row.made_at, ranked=RankedSet.unpack(row.ranked), facts=_facts(row.facts))
    return StoredList(version=row.version, edition=edition, brief=_brief(published))


def _facts(block: bytes) -> Facts:
    """The facts that `_packed_facts` packed, or those of an older version, which are in one piece."""
    first, *pieces = zlib.decompress(block).split(b"\n")
    if not pieces:
        return FACTS.validate_json(first)
    removed, issues = HEAD.validate_json(first)
    kev: dict[str, KevEntry] = {}
    for piece in pieces:
        kev |= LISTINGS.validate_json(piece)
    return Facts(kev=kev, removed=removed, issues=issues)


def _packed_facts(facts: Facts) -> bytes:
    entries = list(facts.kev.items())
    pieces = [dict(entries[start : start + ENTRIES_AT_ONCE]) for start in range(0, max(len(entries), 1), ENTRIES_AT_ONCE)]
    lines = [HEAD.dump_json((dict(facts.removed), facts.issues)), *map(LISTINGS.dump_json, pieces)]
    return zlib.compress(b"\n".join(lines))


async def save(
    storage: Storage,
    edition: Edition,
    *,
    copies: Mapping[str, Copy | None],
    if_served: Sequence[Tables] = (),
    if_archived: Sequence[Tables] = (),
    tell: Callable[[Connection], object] | None = None,
    withdraw: Callable[[AsyncSession], Awaitable[None]] | None = None,
) -> StoredList | None:
    """Store a day's list and publish its brief, all in one transaction; returns the list to serve now.

    None when a later day's list is already stored: then this one is only archived. A list of the future is no such list. A brief
    that differs from the day's published one becomes another edition beside it. `if_served` are further rows to store if it is
    served, `if_archived` those if it is not. `tell` tells the watches what is news to them, if it is served. `withdraw` removes what
    the list replaces. `copies` are of KEV and EPSS, where these were read, for the next conditional requests.
    """
    made = await anyio.to_thread.run_sync(lambda: brief_of(edition, today=edition.day))
    latest = await anyio.to_thread.run_sync(_packed, edition)
    async with storage.write() as session:
        brief = await _publish(session, edition, made)
        if withdraw:
            await withdraw(session)
        shown = (await session.exec(select(col(LatestList.day)))).first()
        if shown is None or shown <= edition.day or is_ahead(shown, today=edition.made_at.date()):
            await session.exec(delete(LatestList))  # merge would read the 10 MB of the list before
            session.add(latest)
            for row in if_served:
                await session.merge(row)
            await _note_copies(session, copies)
            if tell:
                await (await session.connection()).run_sync(tell)
            return StoredList(version=latest.version, edition=edition, brief=brief)
        for row in if_archived:
            await session.merge(row)
        served = await session.get_one(LatestList, LATEST)
        served.version = latest.version
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
    session.add(await edition_set(session, edition, brief.edition))
    return brief


def _says(brief: Brief) -> tuple[object, ...]:
    """What makes a brief another edition: its entries, and the issues of KEV and EPSS behind them."""
    kev = brief.feeds.kev
    epss = brief.feeds.epss
    held = kev.held_because is None, epss.held_because is None
    return brief.entries, kev.version, kev.date, epss.version, epss.date, held, kev.unreadable, epss.unreadable, brief.notices


def _packed(edition: Edition) -> LatestList:
    return LatestList(
        id=LATEST,
        version=uuid4().hex,
        day=edition.day,
        made_at=edition.made_at,
        ranked=edition.ranked.pack(),
        facts=_packed_facts(edition.facts),
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


async def all_days(storage: Storage) -> list[date]:
    async with storage.read() as session:
        return list(await session.exec(select(col(BriefEdition.day)).distinct().order_by(col(BriefEdition.day))))


async def held_copies(storage: Storage) -> dict[str, Copy]:
    async with storage.read() as session:
        rows = await session.exec(select(FeedState))
        return {row.name: Copy(address=row.url, etag=row.etag, last_modified=row.last_modified) for row in rows if row.url}


async def failures(storage: Storage) -> list[Failure]:
    async with storage.read() as session:
        rows = await session.exec(select(FeedState).order_by(col(FeedState.name)))
        return [Failure(feed=row.name, reason=row.failure, at=row.failed_at) for row in rows if row.failure and row.failed_at]


async def note_failure(storage: Storage, failure: Failure) -> None:
    """Store why a feed could not be read; its ETag and Last-Modified stay."""
    async with storage.write() as session:
        row = await session.get(FeedState, failure.feed) or FeedState(name=failure.feed)
        row.failure = failure.reason
        row.failed_at = failure.at
        session.add(row)


async def _note_copies(session: AsyncSession, copies: Mapping[str, Copy | None]) -> None:
    for name, copy in copies.items():
        await session.merge(read_state(name, copy))


def read_state(feed: str, copy: Copy | None) -> FeedState:
    """The state of a feed that was read; a copy without ETag and Last-Modified is not worth a condition."""
    if copy is None or not (copy.etag or copy.last_modified):
        return FeedState(name=feed)
    return FeedState(name=feed, url=copy.address, etag=copy.etag, last_modified=copy.last_modified)


def _brief(row: BriefEdition) -> Brief:
    return Brief.model_validate_json(zlib.decompress(row.brief))
