"""Reads NVD into the database, a page and the position after it in one transaction, and loads what changed since.

Descriptions are stored apart from the records, which each process holds in memory: all of them are ten times as large. Those of 64
consecutive numbers are one compressed block, which is read when one is shown.
"""

import logging
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import anyio
import anyio.to_thread
import orjson
from pydantic import TypeAdapter
from sqlmodel import col, delete, select

from buildings.cve.archive.lists import held_copies, read_state
from buildings.cve.arguments import number_of
from buildings.cve.feeds.download import Copy, Fetcher, FetchLimits
from buildings.cve.feeds.errors import FeedRefused
from buildings.cve.feeds.issue import Issue
from buildings.cve.feeds.nvd import FEED, NvdPage
from buildings.cve.feeds.nvd_pages import Position, fetch_page, is_file, pause_between_pages
from buildings.cve.feeds.vocabulary import note_words
from buildings.cve.nvd.records import NvdRecords, merged, page_numbers
from buildings.cve.ranking.enrichment import NvdRecord
from buildings.cve.settings import CveSettings
from buildings.cve.tables import LATEST, FeedState, NvdDescriptions, NvdRecordPage, NvdState
from campus import Site
from campus.storage import Storage

log = logging.getLogger(__name__)

BLOCK_BITS = 6
PAGES_BEFORE_LIST = 5
"""How many pages are read before a list is made, of 2,000 records each: KEV's CVEs take one, a day's changes mostly one."""
FORMAT = "2.0"
NvdSite = Site[CveSettings, Any]
POSITION: TypeAdapter[Position] = TypeAdapter(Position)


def block_of(cve_id: str) -> int:
    return number_of(cve_id) >> BLOCK_BITS


def with_descriptions(blocks: Mapping[int, bytes], records: Iterable[NvdRecord]) -> dict[int, bytes]:
    """The blocks of these records, with their descriptions in place of older ones; `blocks` has what is stored of them."""
    changed: dict[int, dict[str, str]] = defaultdict(dict)
    for record in records:
        changed[block_of(record.cve_id)][record.cve_id] = record.description
    return {block: zlib.compress(orjson.dumps({**_unpacked(blocks.get(block)), **new})) for block, new in changed.items()}


def find_description(block: bytes | None, cve_id: str) -> str | None:
    """The description of a CVE; None if its record was not read, or has none."""
    return _unpacked(block).get(cve_id) or None


def _unpacked(block: bytes | None) -> dict[str, str]:
    found: dict[str, str] = orjson.loads(zlib.decompress(block)) if block else {}
    return found


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far NVD was read: the version of the stored records, their number, and the position, None after a file."""

    version: int = 0
    entries: int = 0
    position: Position | None = None


async def read_before_list(site: NvdSite, *, limits: FetchLimits) -> None:
    """Read what a list waits for: the records of KEV's CVEs the first time, then what changed; not all records. Raises FeedError."""
    await _read(site, limits, most_pages=PAGES_BEFORE_LIST, reads_all=False)


async def read_to_the_end(site: NvdSite, *, limits: FetchLimits) -> None:
    """Read on until every record is stored as it is now. Raises FeedError; what was read until then is stored."""
    await _read(site, limits, most_pages=None, reads_all=True)


async def _read(site: NvdSite, limits: FetchLimits, *, most_pages: int | None, reads_all: bool) -> None:
    fetcher = Fetcher(client=site.feeds, feed=FEED, retry_policy=limits.retry_policy, size_limits=limits.size_limits)
    progress = await load_progress(site.storage)
    if is_file(site.settings.nvd_url):
        return await _read_file(site, fetcher, progress)
    key = site.settings.nvd_api_key
    pages = 0
    while most_pages is None or pages < most_pages:
        position = progress.position or Position()
        if position.is_current(site.now()):
            return await forget_failure(site.storage)
        if position.phase == "all" and not reads_all:
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
        return await forget_failure(site.storage)
    page, copy = fetched
    if not page.count:
        raise FeedRefused(FEED, "a file without any records")
    await store_records(site.storage, page.records, last=last, position=None, read_at=page.issue.issued, copy=copy)
    await note_words(site.storage, FEED, page.words, today=site.now().date())
    return None


async def load_progress(storage: Storage) -> Progress:
    async with storage.read() as session:
        return _progress(await session.get(NvdState, LATEST))


async def load_records(storage: Storage, held: NvdRecords) -> NvdRecords:
    """NVD's records as they are stored; `held` itself when nothing changed since it was loaded."""
    async with storage.read() as session:
        state = await session.get(NvdState, LATEST)
        if state is None or state.version == held.version:
            return held
        known = held if held.version < state.version else NvdRecords()
        changed = await session.exec(select(NvdRecordPage.page, NvdRecordPage.records).where(col(NvdRecordPage.version) > known.version))
        pages = {**known.pages, **dict(changed.all())}
    position = _progress(state).position
    return NvdRecords(
        pages=pages,
        version=state.version,
        entries=state.entries,
        total=position.total if position and position.phase == "all" else None,
        is_complete=position is not None and position.phase == "changes",
        issue=Issue(version=FORMAT, issued=state.read_at, entries=state.entries),
        outlines=known.outlines,
    )


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
    pages, blocks = page_numbers(records), {block_of(record.cve_id) for record in records}
    async with storage.read() as session:
        rows = await session.exec(select(NvdRecordPage).where(col(NvdRecordPage.page).in_(pages)))
        stored = {row.page: row.records for row in rows}
        described = await session.exec(select(NvdDescriptions).where(col(NvdDescriptions.block).in_(blocks)))
        descriptions = {row.block: row.packed for row in described}
    changed, added = await anyio.to_thread.run_sync(merged, stored, records)
    new = await anyio.to_thread.run_sync(with_descriptions, descriptions, records)
    async with storage.write() as session:
        if _progress(await session.get(NvdState, LATEST)).version != last.version:
            return None
        progress = Progress(version=last.version + 1, entries=last.entries + added, position=position)
        await session.exec(delete(NvdRecordPage).where(col(NvdRecordPage.page).in_(changed)))
        session.add_all(NvdRecordPage(page=page, version=progress.version, records=block) for page, block in changed.items())
        await session.exec(delete(NvdDescriptions).where(col(NvdDescriptions.block).in_(new)))
        session.add_all(NvdDescriptions(block=block, packed=packed) for block, packed in new.items())
        text = POSITION.dump_json(position).decode() if position else None
        state = NvdState(id=LATEST, version=progress.version, entries=progress.entries, read_at=read_at, position=text)
        await session.merge(state)
        await session.merge(read_state(FEED, copy))
        return progress


async def load_description(storage: Storage, cve_id: str) -> str | None:
    async with storage.read() as session:
        row = await session.get(NvdDescriptions, block_of(cve_id))
    return find_description(row.packed if row else None, cve_id)


async def forget_failure(storage: Storage) -> None:
    """Note that NVD could be read, though nothing was new."""
    async with storage.write() as session:
        if row := await session.get(FeedState, FEED):
            row.failure = row.failed_at = None


def _progress(state: NvdState | None) -> Progress:
    if state is None:
        return Progress()
    position = POSITION.validate_json(state.position) if state.position else None
    return Progress(version=state.version, entries=state.entries, position=position)
