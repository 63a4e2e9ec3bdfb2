"""Stores lists, the editions of their briefs and the state of the feeds in the database, and reads them again."""

import logging
from array import array
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from uuid import uuid4

import anyio.to_thread
from pydantic import TypeAdapter
from sqlalchemy import Connection, bindparam
from sqlmodel import col, func, select
from sqlmodel.ext.asyncio.session import AsyncSession

from buildings.cve.archive.editions import archive, read_entries, steps_between, written
from buildings.cve.archive.epss import HistoryChange
from buildings.cve.arguments import spelled
from buildings.cve.feeds.download import Copy
from buildings.cve.feeds.errors import FeedError
from buildings.cve.feeds.kev import KevEntry
from buildings.cve.models import Brief
from buildings.cve.plain_names import plain_name
from buildings.cve.ranking.edition import Edition, Facts, Issues, Removal, is_ahead, listing_days
from buildings.cve.ranking.formula import UNSCORED, RankedSet, scores_of
from buildings.cve.ranking.results import brief_of
from buildings.cve.tables import CVES, LATEST, PRODUCTS, RANKED, ArchivedForecast, BriefEdition, FeedState, GradedRecord, LatestList, Tables
from campus.storage import Storage, among, column_pages, insert_columns

log = logging.getLogger(__name__)

HEAD: TypeAdapter[tuple[dict[str, Removal], Issues]] = TypeAdapter(tuple[dict[str, Removal], Issues])
STORED_KEV = select(CVES.c.number, CVES.c.kev_entry).where(CVES.c.kev_added.is_not(None))


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


async def newest_version(storage: Storage, of: type[LatestList | GradedRecord]) -> str | None:
    async with storage.read() as session:
        return (await session.exec(select(of.version))).first()


async def load_latest(storage: Storage) -> StoredList | None:
    """The stored list; None when there is none, or when it cannot be read because a later version stored it."""
    async with storage.read() as session:
        row = await session.get(LatestList, LATEST)
        published = await _newest_edition(session, row.day) if row else None
        if not row or not published:
            return None
        connection = await session.connection()
        ranked = await connection.run_sync(_ranked)
        texts = [text for _, text in await connection.execute(STORED_KEV.order_by(CVES.c.kev_added.desc(), CVES.c.number))]
    try:
        kev = await anyio.to_thread.run_sync(read_entries, texts)
        removed, issues = HEAD.validate_json(row.facts)
        edition = Edition(day=row.day, made_at=row.made_at, ranked=ranked, facts=Facts(kev=kev, removed=removed, issues=issues))
        return StoredList(version=row.version, edition=edition, brief=Brief.model_validate_json(published.brief))
    except ValueError:
        log.exception("the stored list cannot be read; run the job cve.refresh")
        return None


def _ranked(connection: Connection) -> RankedSet:
    stored = RankedSet(array("q"), array("d"), array("d"), array("I"))
    rows = RANKED.c
    for numbers, ranks, epss, percentiles in column_pages(
        connection, select(rows.number, rows.rank, rows.epss, rows.percentile), rows.number
    ):
        stored.numbers.extend(numbers)
        stored.ranks.extend(ranks)
        for column, values in ((stored.epss, epss), (stored.percentiles, percentiles)):
            column.extend([UNSCORED if value is None else value for value in values] if None in values else values)
    return stored


def _store_ranked(connection: Connection, edition: Edition) -> None:
    """Store every row anew: a day changes the ranks and percentiles of nearly all."""
    ranked = edition.ranked
    scores = scores_of(ranked.numbers, ranked.epss, listing_days(edition.facts.kev), day=edition.day)
    connection.execute(RANKED.delete())
    shown = map(ranked.shown, (ranked.epss, ranked.percentiles))
    insert_columns(connection, RANKED, ranked.numbers, ranked.ranks, scores, *shown)


def _store_kev(connection: Connection, kev: Mapping[str, KevEntry]) -> None:
    """Store the entries that changed, and the names of their products."""
    stored: dict[int, str | None] = dict(connection.execute(STORED_KEV).all())
    changed = steps_between(stored, written(kev))
    known = set(connection.scalars(select(CVES.c.number).where(among(connection, CVES.c.number, changed))))
    if new := [{"number": number} for number in changed if number not in known]:
        connection.execute(CVES.insert(), new)
    rows, products = [], []
    for number, text in changed.items():
        entry = kev.get(spelled(number))
        names = ("listed_by", "due_date", "ransomware")
        added, due, ransomware = (getattr(entry, name) if entry else None for name in names)
        rows.append({"key": number, "kev_added": added, "kev_due": due, "kev_ransomware": ransomware, "kev_entry": text})
        products += [product_row(number, entry.vendor, entry.product, of_kev=True)] if entry else []
    if rows:
        connection.execute(CVES.update().where(CVES.c.number == bindparam("key")), rows)
        connection.execute(PRODUCTS.delete().where(PRODUCTS.c.of_kev, among(connection, PRODUCTS.c.number, changed)))
    if products:
        connection.execute(PRODUCTS.insert(), products)


def product_row(number: int, vendor: str, product: str, *, of_kev: bool) -> dict[str, object]:
    """A row of a CVE's product, as KEV or NVD names it."""
    plain = {"plain_vendor": plain_name(vendor), "plain_product": plain_name(product)}
    return {"number": number, "vendor": vendor, "product": product, "of_kev": of_kev, **plain}


async def save(
    storage: Storage,
    edition: Edition,
    *,
    copies: Mapping[str, Copy | None],
    if_served: Sequence[Tables] = (),
    if_archived: Sequence[Tables] = (),
    history: HistoryChange | None = None,
    tell: Callable[[Connection], object] | None = None,
    withdraw: Callable[[AsyncSession], Awaitable[None]] | None = None,
) -> StoredList | None:
    """Store a day's list and publish its brief, all in one transaction; returns the list to serve now.

    None when a later day's list is already stored: then this one is only archived. A list of the future is no such list. A brief
    that differs from the day's published one becomes another edition beside it. `if_served` are further rows to store if it is
    served, `if_archived` those if it is not, `history` what it changes in the history of EPSS. `tell` tells the watches what is news to
    them, if it is served. `withdraw` removes what the list replaces. `copies` are of KEV and EPSS, where these were read, for the next
    conditional requests.
    """
    made = await anyio.to_thread.run_sync(lambda: brief_of(edition, today=edition.day))
    facts = HEAD.dump_json((dict(edition.facts.removed), edition.facts.issues)).decode()
    version = uuid4().hex
    async with storage.write() as session:
        connection = await session.connection()
        brief = await _publish(session, edition, made)
        if withdraw:
            await withdraw(session)
        served = await session.get(LatestList, LATEST)
        if served and served.day > edition.day and not is_ahead(served.day, today=edition.made_at.date()):
            served.version = version
            if history:
                await connection.run_sync(history.store)
            for row in if_archived:
                await session.merge(row)
            return None
        await session.merge(LatestList(id=LATEST, version=version, day=edition.day, made_at=edition.made_at, facts=facts))
        await connection.run_sync(_store_ranked, edition)
        if history:
            await connection.run_sync(history.store)
        await connection.run_sync(_store_kev, edition.facts.kev)
        for row in if_served:
            await session.merge(row)
        for name, copy in copies.items():
            await session.merge(read_state(name, copy))
        await session.flush()
        if tell:
            await connection.run_sync(tell)
        return StoredList(version=version, edition=edition, brief=brief)


async def _publish(session: AsyncSession, edition: Edition, made: Brief) -> Brief:
    """The day's brief: the published one if it says the same, else a new edition."""
    newest = await _newest_edition(session, edition.day)
    published = Brief.model_validate_json(newest.brief) if newest else None
    if published and _says(published) == _says(made):
        return published
    brief = made.model_copy(update={"edition": newest.edition + 1 if newest else 1})
    session.add(BriefEdition(day=edition.day, edition=brief.edition, made_at=edition.made_at, brief=brief.model_dump_json()))
    await (await session.connection()).run_sync(archive, edition, brief.edition)
    return brief


def _says(brief: Brief) -> tuple[object, ...]:
    """What makes a brief another edition: its entries, and the issues of KEV and EPSS behind them."""
    kev = brief.feeds.kev
    epss = brief.feeds.epss
    held = kev.held_because is None, epss.held_because is None
    return brief.entries, kev.version, kev.date, epss.version, epss.date, held, kev.unreadable, epss.unreadable, brief.notices


async def load_brief(storage: Storage, day: date, *, edition: int | None = None) -> Brief | None:
    """A day's brief as published: the newest edition, or the one with that number."""
    async with storage.read() as session:
        row = await session.get(BriefEdition, (day, edition)) if edition else await _newest_edition(session, day)
    return Brief.model_validate_json(row.brief) if row else None


async def _newest_edition(session: AsyncSession, day: date) -> BriefEdition | None:
    editions = select(BriefEdition).where(col(BriefEdition.day) == day).order_by(col(BriefEdition.edition).desc()).limit(1)
    return (await session.exec(editions)).first()


async def first_and_last_day(storage: Storage, archive_of: type[BriefEdition | ArchivedForecast]) -> tuple[date, date] | None:
    """The first and the last day of an archive; None while it is empty."""
    day = col(archive_of.day)
    async with storage.read() as session:
        first, last = (await session.exec(select(func.min(day), func.max(day)))).one()
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


async def note_failure(storage: Storage, error: FeedError, *, at: datetime) -> None:
    """Store why a feed could not be read; its ETag and Last-Modified stay."""
    async with storage.write() as session:
        row = await session.get(FeedState, error.feed) or FeedState(name=error.feed)
        row.failure, row.failed_at = error.reason, at
        session.add(row)


async def forget_failure(storage: Storage, feed: str) -> None:
    """Note that a feed could be read, though nothing was new."""
    async with storage.write() as session:
        if row := await session.get(FeedState, feed):
            row.failure = row.failed_at = None


def read_state(feed: str, copy: Copy | None) -> FeedState:
    """The state of a feed that was read; a copy without ETag and Last-Modified is not worth a condition."""
    if copy is None or not (copy.etag or copy.last_modified):
        return FeedState(name=feed)
    return FeedState(name=feed, url=copy.address, etag=copy.etag, last_modified=copy.last_modified)
