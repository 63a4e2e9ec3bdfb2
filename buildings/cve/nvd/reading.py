"""Reads NVD into the database, a page and the position after it in one transaction, and loads what calls ask for."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from functools import partial
from typing import Any

import anyio
import anyio.to_thread
from pydantic import TypeAdapter
from sqlalchemy import Connection, bindparam, select

from buildings.cve.archive.lists import forget_failure, held_copies, product_row, read_state
from buildings.cve.arguments import number_of
from buildings.cve.feeds.download import Copy, Fetcher, FetchLimits
from buildings.cve.feeds.errors import FeedRefused
from buildings.cve.feeds.issue import Issue
from buildings.cve.feeds.nvd import FEED, NvdPage
from buildings.cve.feeds.nvd_pages import Position, fetch_page, is_file, pause_between_pages
from buildings.cve.feeds.vocabulary import note_words
from buildings.cve.nvd.records import NvdRecords, line_of
from buildings.cve.ranking.edition import Edition
from buildings.cve.ranking.enrichment import REJECTED_STATUS, NvdRecord, patch_of
from buildings.cve.settings import CveSettings
from buildings.cve.tables import CVES, DETAILS, LATEST, PRODUCTS, WEAKNESSES, NvdState
from campus import Site
from campus.storage import Storage, among, column_pages, in_snapshot

log = logging.getLogger(__name__)

PAGES_BEFORE_LIST = 5
"""How many pages are read before a list is made, of 2,000 records each: KEV's CVEs take one, a day's changes mostly one."""
FORMAT = "2.0"
FIRST_HELD = 5_000  # The records of so many first ranks are in memory, 600 bytes each; to read another takes 1.5 ms.
ONE_RECORD = select(DETAILS.c.record).where(DETAILS.c.number == bindparam("wanted"))
NvdSite = Site[CveSettings, Any]
POSITION: TypeAdapter[Position] = TypeAdapter(Position)


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far NVD was read: the version of the stored records, their number, and the position, None after a file."""

    version: int = 0
    entries: int = 0
    position: Position | None = None


async def read_on(site: NvdSite, *, limits: FetchLimits, before_list: bool = False) -> None:
    """Read on until every record is stored as it is now. Raises FeedError; what was read until then is stored.

    With `before_list` only what a list waits for: the records of KEV's CVEs the first time, then some pages of what changed.
    """
    fetcher = Fetcher(client=site.feeds, feed=FEED, retry_policy=limits.retry_policy, size_limits=limits.size_limits)
    progress = await load_progress(site.storage)
    if is_file(site.settings.nvd_url):
        return await _read_file(site, fetcher, progress)
    key = site.settings.nvd_api_key
    pages = 0
    while not before_list or pages < PAGES_BEFORE_LIST:
        position = progress.position or Position()
        if position.is_current(site.now()):
            return await forget_failure(site.storage, FEED)
        if position.phase == "all" and before_list:
            return None
        position = position.begun(site.now())
        if pages:
            await anyio.sleep(pause_between_pages(limits.nvd_window, has_key=key is not None))
        fetched = await fetch_page(fetcher, position.address(site.settings.nvd_url), api_key=key.get_secret_value() if key else None)
        assert fetched is not None, "pages are requested without a condition"
        progress = await _stored(site, fetched[0], progress, position)
        pages += 1
    return None


async def _stored(site: NvdSite, page: NvdPage, last: Progress, position: Position) -> Progress:
    """Store a page; returns where the reading is then. Another process may have read on: then its position counts."""
    after = position.after(page)
    stored = await store_records(site.storage, page.records, last=last, position=after, read_at=site.now())
    site.count("nvd_records", len(page.records))
    await note_words(site.storage, FEED, page.words, today=site.now().date())
    about = {"phase": position.phase, "records": position.start + page.count, "of": page.total}
    log.info("NVD page read", extra=about)
    return stored or await load_progress(site.storage)


async def _read_file(site: NvdSite, fetcher: Fetcher, last: Progress) -> None:
    held = (await held_copies(site.storage)).get(FEED) if last.version else None
    fetched = await fetch_page(fetcher, site.settings.nvd_url, held=held)
    if fetched is None:
        return await forget_failure(site.storage, FEED)
    page, copy = fetched
    if not page.count:
        raise FeedRefused(FEED, "a file without any records")
    await store_records(site.storage, page.records, last=last, position=None, read_at=page.issue.issued, copy=copy)
    await note_words(site.storage, FEED, page.words, today=site.now().date())
    return None


async def load_progress(storage: Storage) -> Progress:
    async with storage.read() as session:
        return _progress(await session.get(NvdState, LATEST))


async def load_state(storage: Storage, held: NvdRecords) -> NvdRecords:
    """How far NVD was read, without its records; `held` itself when nothing changed since it was loaded."""
    async with storage.read() as session:
        state = await session.get(NvdState, LATEST)
    if state is None or state.version == held.version:
        return held
    position = _progress(state).position
    return NvdRecords(
        version=state.version,
        entries=state.entries,
        total=position.total if position and position.phase == "all" else None,
        is_complete=position is not None and position.phase == "changes",
        issue=Issue(version=FORMAT, issued=state.read_at, entries=state.entries),
    )


async def with_records(storage: Storage, nvd: NvdRecords, numbers: Iterable[int]) -> NvdRecords:
    """The same, with the records of these CVEs."""
    missing = [] if nvd.holds_all else [number for number in numbers if number not in nvd.lines]
    return nvd.with_lines(await in_snapshot(storage, partial(lines_in, numbers=missing))) if missing else nvd


async def with_its_records(storage: Storage, edition: Edition) -> Edition:
    """An edition with the records of its first 5,000 CVEs, and of those in KEV or removed from it: they are asked for most."""
    kev = [number_of(cve_id) for cve_id in (*edition.facts.kev, *edition.facts.removed)]
    first = await anyio.to_thread.run_sync(edition.ranked.first, FIRST_HELD)
    return replace(edition, nvd=await with_records(storage, edition.nvd, [*kev, *(number for number, _ in first)]))


def lines_in(connection: Connection, numbers: Iterable[int]) -> dict[int, str | None]:
    """The stored records of CVEs, by number; None where there is none."""
    wanted = list(numbers)
    if len(wanted) == 1:  # the question of most calls: a page of it would cost three times as much
        return {wanted[0]: connection.scalar(ONE_RECORD, {"wanted": wanted[0]})}
    chosen = select(DETAILS.c.number, DETAILS.c.record).where(among(connection, DETAILS.c.number, wanted))
    found: dict[int, str | None] = dict.fromkeys(wanted)
    for page in column_pages(connection, chosen, DETAILS.c.number):
        found.update(zip(*page, strict=True))
    return found


async def for_a_list(storage: Storage, nvd: NvdRecords, *, as_of: date | None) -> NvdRecords:
    """The same, with what a list of today or, with `as_of`, of a past day needs of all records."""
    rejects = select(CVES.c.number).where(CVES.c.status == REJECTED_STATUS)

    def read(connection: Connection) -> NvdRecords:
        rejected = connection.scalars(rejects.where(CVES.c.modified <= as_of) if as_of else rejects)
        names: dict[str, str] = {}  # there are few different ones
        named = select(CVES.c.number, CVES.c.vendor).where(CVES.c.vendor.is_not(None))
        vendors: list[tuple[int, str]] = []
        for numbers, found in column_pages(connection, named, CVES.c.number):
            vendors += zip(numbers, map(names.setdefault, found, found), strict=True)
        return replace(nvd, as_of=as_of, rejected=frozenset(rejected), vendors=vendors)

    return await in_snapshot(storage, read)


async def store_records(
    storage: Storage,
    records: Sequence[NvdRecord],
    *,
    last: Progress,
    position: Position | None,
    read_at: datetime,
    copy: Copy | None = None,
) -> Progress | None:
    """Store records and the position after them; None, storing nothing, if another process stored some since `last`.

    `copy` is of a file. The feed's last failure is forgotten.
    """
    async with storage.write() as session:
        if _progress(await session.get(NvdState, LATEST)).version != last.version:
            return None
        added = await (await session.connection()).run_sync(_store, {number_of(one.cve_id): one for one in records})
        progress = Progress(version=last.version + 1, entries=last.entries + added, position=position)
        text = POSITION.dump_json(position).decode() if position else None
        state = NvdState(id=LATEST, version=progress.version, entries=progress.entries, read_at=read_at, position=text)
        await session.merge(state)
        await session.merge(read_state(FEED, copy))
        return progress


def _store(connection: Connection, records: Mapping[int, NvdRecord]) -> int:
    """Store records in place of older ones; returns how many are of CVEs that had none."""
    chosen = select(CVES.c.number, CVES.c.status).where(among(connection, CVES.c.number, records))
    stored = dict(connection.execute(chosen).all())
    rows = {number: _columns(record) for number, record in records.items()}
    if new := [{"number": number, **row} for number, row in rows.items() if number not in stored]:
        connection.execute(CVES.insert(), new)
    if changed := [{"key": number, **rows[number]} for number in stored]:
        connection.execute(CVES.update().where(CVES.c.number == bindparam("key")), changed)
    for table in (DETAILS, WEAKNESSES):
        connection.execute(table.delete().where(among(connection, table.c.number, records)))
    connection.execute(PRODUCTS.delete().where(PRODUCTS.c.of_kev.is_(False), among(connection, PRODUCTS.c.number, records)))
    details = [{"number": number, "record": line_of(one), "description": one.description} for number, one in records.items()]
    weaknesses = [{"number": number, "cwe": cwe} for number, one in records.items() for cwe in one.cwes]
    products = [product_row(number, vendor, product, of_kev=False) for number, one in records.items() for vendor, product in one.products]
    for table, added in ((DETAILS, details), (WEAKNESSES, weaknesses), (PRODUCTS, products)):
        if added:
            connection.execute(table.insert(), added)
    return sum(stored.get(number) is None for number in records)


def _columns(record: NvdRecord) -> dict[str, Any]:
    rating, ssvc = record.rating, record.ssvc
    return {
        "status": record.status,
        "published": record.published,
        "modified": record.modified,
        "severity": rating.severity if rating else None,
        "severity_source": rating.source if rating else None,
        "cvss": rating.score if rating else None,
        "patch_status": patch_of(record, cve_id=record.cve_id, end_of_life=None).status,
        "exploit_url": record.exploit_url,
        "vendor": record.vendor,
        "product": record.product,
        "exploitation": ssvc.exploitation if ssvc else None,
        "automatable": ssvc.automatable if ssvc else None,
        "technical_impact": ssvc.technical_impact if ssvc else None,
    }


async def load_description(storage: Storage, number: int) -> str | None:
    """The description of a CVE; None if its record was not read, or has none."""
    chosen = select(DETAILS.c.description).where(DETAILS.c.number == number)
    return await in_snapshot(storage, lambda connection: connection.scalar(chosen)) or None


def _progress(state: NvdState | None) -> Progress:
    if state is None:
        return Progress()
    position = POSITION.validate_json(state.position) if state.position else None
    return Progress(version=state.version, entries=state.entries, position=position)
