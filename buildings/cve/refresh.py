"""The daily jobs: read KEV, EPSS and NVD, make the day's list and forecast, or keep the last and say why; and grade past lists."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime

import anyio.to_thread
import httpx

from buildings.cve.edition import Edition, make_edition
from buildings.cve.enrichment import NvdRecord
from buildings.cve.feeds import acceptance, epss, kev, nvd
from buildings.cve.feeds.acceptance import FeedError, FeedUnavailable, Issue, Thresholds
from buildings.cve.feeds.download import Copy, Download, Fetcher, RetryPolicy, SizeLimits
from buildings.cve.feeds.epss import EpssDay, parse_epss
from buildings.cve.feeds.kev import KevCatalog, parse_kev
from buildings.cve.feeds.nvd_pages import WINDOW_SECONDS, NvdRead, read_nvd
from buildings.cve.forecast_store import grade_lists, make_outlook
from buildings.cve.latest import CveSite
from buildings.cve.settings import CveSettings
from buildings.cve.store import Failure, held_copies, load_brief, note_failure, save
from campus import JobFailed

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class FetchLimits:
    """Timeouts, size limits, and the window of NVD's rate limit in seconds."""

    retry_policy: RetryPolicy = field(default_factory=RetryPolicy)
    size_limits: SizeLimits = field(default_factory=SizeLimits)
    nvd_window: float = WINDOW_SECONDS


@dataclass(frozen=True, kw_only=True)
class FeedContents:
    """The contents of the three feeds; `nvd_failure` says why NVD could not be read.

    `copies` are of the feeds that were read, None where the server sent no ETag or Last-Modified.
    """

    kev: KevCatalog
    epss: EpssDay
    nvd: tuple[NvdRecord, ...]
    nvd_issue: Issue | None
    nvd_failure: FeedError | None
    copies: Mapping[str, Copy | None]


@dataclass(frozen=True, kw_only=True)
class FeedReader:
    """Reads the feeds for the list after `last`; `held` are the copies that it was made from.

    `accept` skips the thresholds of acceptance.py.
    """

    client: httpx.AsyncClient
    settings: CveSettings
    limits: FetchLimits
    last: Edition | None
    held: Mapping[str, Copy]
    accept: bool

    async def read(self) -> FeedContents:
        """Read all three. Raises FeedUnavailable or FeedRefused when KEV or EPSS cannot be used."""
        catalog, kev_copy = await self._kev()
        # Before EPSS: a page of NVD and the scores are both large, and need not be in memory together.
        read, failure = await self._nvd()
        day, epss_copy = await self._epss()
        return FeedContents(
            kev=catalog,
            epss=day,
            nvd=read.records if read else tuple(self.last.facts.nvd.values()) if self.last else (),
            nvd_issue=read.issue if read else None,
            nvd_failure=failure,
            copies={kev.FEED: kev_copy, epss.FEED: epss_copy} | ({nvd.FEED: read.copy} if read else {}),
        )

    async def _kev(self) -> tuple[KevCatalog, Copy | None]:
        held = self.held.get(kev.FEED)
        download = await self._kev_download(self._fetcher(kev.FEED), held)
        if download is None:
            return self._unchanged.kev, held
        catalog = await anyio.to_thread.run_sync(parse_kev, download.body, self.limits.size_limits.unpacked)
        self._check(kev.FEED, catalog.issue, acceptance.KEV)
        return catalog, download.copy

    async def _kev_download(self, fetcher: Fetcher, held: Copy | None) -> Download | None:
        mirror = self.settings.kev_mirror_url
        try:
            return await fetcher.fetch(self.settings.kev_url, held=held)
        except FeedUnavailable as first:
            if mirror is None:
                raise
            log.warning("KEV cannot be read; trying its mirror", extra={"reason": first.reason})
            try:
                return await fetcher.fetch(mirror, held=held)
            except FeedUnavailable as second:
                raise FeedUnavailable(kev.FEED, f"{first.reason}; its mirror: {second.reason}") from None

    async def _epss(self) -> tuple[EpssDay, Copy | None]:
        held = self.held.get(epss.FEED)
        download = await self._fetcher(epss.FEED).fetch(self.settings.epss_url, held=held)
        if download is None:
            return await anyio.to_thread.run_sync(lambda: self._unchanged.epss), held
        day = await anyio.to_thread.run_sync(parse_epss, download.body, self.limits.size_limits.unpacked)
        self._check(epss.FEED, day.issue, acceptance.EPSS)
        return day, download.copy

    async def _nvd(self) -> tuple[NvdRead | None, FeedError | None]:
        key = self.settings.nvd_api_key
        try:
            read = await read_nvd(
                self._fetcher(nvd.FEED),
                self.settings.nvd_url,
                api_key=key.get_secret_value() if key else None,
                held=self.held.get(nvd.FEED),
                window=self.limits.nvd_window,
            )
        except FeedError as failure:
            log.warning("NVD cannot be read; its older records are kept", extra={"reason": failure.reason})
            return None, failure
        return read, None

    def _fetcher(self, feed: str) -> Fetcher:
        return Fetcher(client=self.client, feed=feed, retry_policy=self.limits.retry_policy, size_limits=self.limits.size_limits)

    @property
    def _unchanged(self) -> Edition:
        assert self.last is not None, "conditional requests are made only when there is a last list"
        return self.last

    def _check(self, feed: str, issue: Issue, thresholds: Thresholds) -> None:
        if self.accept:
            return
        used = None
        if self.last:
            used = self.last.facts.issues.kev if feed == kev.FEED else self.last.facts.issues.epss
        acceptance.check(feed, issue, used=used, thresholds=thresholds)


class ListRefused(JobFailed):
    """The list of that day cannot be made."""


async def refresh(site: CveSite, *, day: date | None = None, accept: bool = False) -> None:
    """Make today's list from the feeds as they are now, and serve it.

    `day` makes the list of another day, for replays. `accept` accepts a feed that shrank or is older than the last one,
    and replaces the list of an archived day. When KEV or EPSS cannot be read, the last list stays as it is and the job
    fails with the reason; when NVD cannot be read, the list is made with NVD's older records.
    """
    await renew(site, day=day, accept=accept, limits=FetchLimits())


async def renew(site: CveSite, *, day: date | None = None, accept: bool = False, limits: FetchLimits) -> None:
    """`refresh` with other timeouts and size limits."""
    now = site.now().astimezone(UTC).replace(microsecond=0)
    day = day or now.date()
    await site.state.reload()
    last = site.state.real_edition
    await _check_day(site, day, last, accept=accept)
    held = await held_copies(site.storage)
    reader = FeedReader(client=site.feeds, settings=site.settings, limits=limits, last=last, held=held if last else {}, accept=accept)
    try:
        read = await reader.read()
    except FeedError as error:
        site.count("refresh", outcome="failed")
        await note_failure(site.storage, Failure(feed=error.feed, reason=error.reason, at=now))
        raise
    edition = await anyio.to_thread.run_sync(lambda: _edition(day, read, last, made_at=now))
    outlook = await make_outlook(site.storage, edition, last)
    stored = await save(site.storage, edition, copies=read.copies, forecast=outlook.rows)
    if read.nvd_failure:
        await note_failure(site.storage, Failure(feed=read.nvd_failure.feed, reason=read.nvd_failure.reason, at=now))
    if stored:
        await grade_lists(site.storage, edition)
        site.state.show(stored, outlook.forecast)
    await site.state.reload()
    site.count("refresh", outcome="made")
    issues = edition.facts.issues
    log.info("list made", extra={"day": str(day), "ranked": len(edition.ranked), "kev": str(issues.kev), "epss": str(issues.epss)})


async def _check_day(site: CveSite, day: date, last: Edition | None, *, accept: bool) -> None:
    if day > site.now().date():
        raise ListRefused(f"{day} is in the future: a list is made from the feeds of its own day")
    if last and day < last.day and not accept and await load_brief(site.storage, day):
        raise ListRefused(f"the list of {day} is archived and stays as it was published; --accept replaces it")


def _edition(day: date, read: FeedContents, last: Edition | None, *, made_at: datetime) -> Edition:
    return make_edition(day=day, made_at=made_at, kev=read.kev, epss=read.epss, nvd=read.nvd, nvd_issue=read.nvd_issue, last=last)


async def grade(site: CveSite) -> None:
    """Grade every past day's rankings against what the newest list shows, as each refresh does."""
    await site.state.reload()
    if edition := site.state.real_edition:
        await grade_lists(site.storage, edition)
        await site.state.reload()
