"""The job that reads the names of other schemes from OSV, an ecosystem at a time: all records once a month, else only what changed.

Each ecosystem is a feed: one that cannot be read or looks false is held as it was, and the others are read nevertheless.
"""

import json
import logging
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from buildings.cve.archive.lists import held_copies, note_failure
from buildings.cve.feeds.acceptance import Thresholds, check, check_time
from buildings.cve.feeds.download import Fetcher, FetchLimits, SizeLimits
from buildings.cve.feeds.errors import FeedError, FeedRefused, FeedUnavailable
from buildings.cve.feeds.issue import Issue
from buildings.cve.feeds.vocabulary import note_words
from buildings.cve.names.osv import FEED, MOST_PAIRS, OVERLAP, ChangedNames, Records, address_of, is_read
from buildings.cve.names.store import feed_of, forget_others, load_source, note_unchanged, store_changes, store_whole, stored_records
from buildings.cve.names.zips import Unzip
from buildings.cve.settings import CveSettings
from buildings.cve.tables import AliasSource
from campus import Site

log = logging.getLogger(__name__)

WHOLE_EVERY = timedelta(days=30)
"""Then all records are read again: a record that was deleted is in no list of changes."""
MOST_CHANGES = 1_000
"""More changed records are read from the zip file, in one request. npm, the largest, has some 50 a day that name a CVE."""
LARGEST_RECORD = 16 << 20
WHOLE = Thresholds(first_entries=1, lost=20, lost_share=0.01)
CHANGES = Thresholds(first_entries=0, lost=20)
NamesSite = Site[CveSettings, Any]


async def names(site: NamesSite, *, accept: bool = False) -> bool:
    """Read the names of other schemes, such as GHSA, from OSV's records. `accept` accepts records that look false."""
    return await read_names(site, limits=FetchLimits(), accept=accept)


async def read_names(site: NamesSite, *, limits: FetchLimits, accept: bool = False) -> bool:
    ecosystems = site.settings.osv_ecosystems
    await forget_others(site.storage, ecosystems)
    failed: FeedError | None = None
    changed = False
    for ecosystem in ecosystems:
        reader = EcosystemReader(site=site, ecosystem=ecosystem, limits=limits, accept=accept, now=site.now().replace(microsecond=0))
        try:
            changed |= await reader.read()
        except FeedError as error:
            log.warning("an ecosystem of OSV cannot be used; its older names are kept", extra={"feed": error.feed, "reason": error.reason})
            await note_failure(site.storage, error, at=reader.now)
            failed = error
    if failed:
        raise failed
    return changed


@dataclass(frozen=True, kw_only=True)
class EcosystemReader:
    """Reads one ecosystem."""

    site: NamesSite
    ecosystem: str
    limits: FetchLimits
    accept: bool
    now: datetime

    async def read(self) -> bool:
        """Read what is new; whether there was anything. Raises FeedError."""
        used = await load_source(self.site.storage, self.ecosystem)
        if used is None or self.now - used.whole_at >= WHOLE_EVERY:
            return await self._read_whole(used)
        held = (await held_copies(self.site.storage)).get(self.feed)
        listed = ChangedNames(self.feed, until=used.newest - OVERLAP, most=MOST_CHANGES)
        copy = await self._fetcher().stream(self._address("modified_id.csv"), listed, held=held)
        if copy is None:
            await note_unchanged(self.site.storage, self.ecosystem, now=self.now)
            return False
        listed.finish()
        recent = json.loads(used.recent)
        new = [name for name, modified in listed.names.items() if recent.get(name) != modified.isoformat()]
        if listed.too_many or len(new) > MOST_CHANGES:
            return await self._read_whole(used)
        records = await self._records(new)
        records.check(self.ecosystem)
        before = await stored_records(self.site.storage, self.ecosystem)
        named = {name for name, pairs in records.pairs.items() if pairs}
        lost = (records.pairs.keys() & before) - named
        await self._believe(records, used, lost=len(lost), thresholds=CHANGES)
        added = len(named - before)
        await store_changes(self.site.storage, used, records, lost=len(lost), added=added, copy=copy, now=self.now)
        self._log(records)
        return bool(new)

    async def _read_whole(self, used: AliasSource | None) -> bool:
        whole = WholeFile(self.feed)
        await self._fetcher(archive=True).stream(self._address("all.zip"), whole)
        whole.unzip.finish()
        records = whole.records
        records.check(self.ecosystem)
        if records.newest is None:
            raise FeedRefused(self.feed, "a zip file without any records")
        lost = len(await stored_records(self.site.storage, self.ecosystem) - {name for name, pairs in records.pairs.items() if pairs})
        await self._believe(records, used, lost=lost, thresholds=WHOLE)
        await store_whole(self.site.storage, self.ecosystem, records, now=self.now)
        self._log(records)
        return True

    async def _records(self, names: list[str]) -> Records:
        """The records of these names, one request each; one that was deleted since is left for the next reading of all."""
        records = Records()
        fetcher = self._fetcher()
        for name in names:
            try:
                download = await fetcher.fetch(self._address(f"{name}.json"))
            except FeedUnavailable as error:
                if "404" not in error.reason and "does not exist" not in error.reason:
                    raise
                continue
            assert download, "it is asked for without a condition"
            records.add(name, download.body)
        return records

    async def _believe(self, records: Records, used: AliasSource | None, *, lost: int, thresholds: Thresholds) -> None:
        await note_words(self.site.storage, FEED, records.words, today=self.now.date())
        before = Issue(version=self.ecosystem, issued=used.newest, entries=used.entries) if used else None
        newest = max(filter(None, (records.newest, used.newest if used and thresholds is CHANGES else None)))
        issue = Issue(version=self.ecosystem, issued=newest, entries=records.entries)
        check_time(self.feed, issue, now=self.now)
        if not self.accept:
            check(self.feed, issue, used=before, lost=lost, thresholds=thresholds)

    def _fetcher(self, *, archive: bool = False) -> Fetcher:
        policy, sizes = self.limits.retry_policy, SizeLimits(sent=LARGEST_RECORD, unpacked=LARGEST_RECORD)
        if archive:
            policy, sizes = replace(policy, seconds=self.limits.archive_seconds), SizeLimits(sent=self.limits.archive_bytes)
        return Fetcher(client=self.site.feeds, feed=self.feed, retry_policy=policy, size_limits=sizes)

    def _address(self, file: str) -> str:
        return address_of(self.site.settings.osv_url, self.ecosystem, file)

    def _log(self, records: Records) -> None:
        about = {"feed": self.feed, "records": len(records.changed), "naming_cves": records.entries, "unreadable": records.unreadable[:3]}
        log.info("names read", extra=about)

    @property
    def feed(self) -> str:
        return feed_of(self.ecosystem)


class WholeFile:
    """Takes an ecosystem's zip file; only what is kept of each record stays in memory."""

    def __init__(self, feed: str) -> None:
        self._feed = feed
        self.restart()

    def restart(self) -> None:
        self.unzip = Unzip(self._feed)
        self.records = Records()

    def take(self, chunk: bytes) -> bool:
        for name, content in self.unzip.take(chunk):
            record = name.removesuffix(".json")
            if is_read(record):
                self.records.add(record, content)
                if self.records.count > MOST_PAIRS:
                    raise FeedRefused(self._feed, f"its records have over {MOST_PAIRS:,} names")
        return True
