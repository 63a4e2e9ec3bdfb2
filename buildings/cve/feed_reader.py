"""Reads KEV, EPSS and NVD for one list, one after the other, and checks each against the list before."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

import anyio.to_thread
import httpx

from buildings.cve.edition import Edition
from buildings.cve.enrichment import NvdRecord
from buildings.cve.feeds import acceptance, epss, kev, nvd
from buildings.cve.feeds.acceptance import Issue, Thresholds
from buildings.cve.feeds.download import Copy, Download, Fetcher, RetryPolicy, SizeLimits
from buildings.cve.feeds.epss import EpssDay, parse_epss
from buildings.cve.feeds.errors import FeedError, FeedUnavailable
from buildings.cve.feeds.kev import KevCatalog, parse_kev
from buildings.cve.feeds.nvd_pages import WINDOW_SECONDS, NvdRead, read_nvd
from buildings.cve.settings import CveSettings

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
