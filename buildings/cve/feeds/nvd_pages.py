"""Reads all of NVD: page after page of its API at the rate that NVD allows, or one file."""

from dataclasses import dataclass, replace
from urllib.parse import urlsplit

import anyio
import anyio.to_thread

from buildings.cve.enrichment import NvdRecord
from buildings.cve.feeds.acceptance import FeedRefused, Issue
from buildings.cve.feeds.download import Copy, Fetcher
from buildings.cve.feeds.nvd import FEED, NvdPage, parse_nvd

PAGE = 2_000
"""The most records that NVD sends in one page."""

MAX_PAGES = 25
WINDOW_SECONDS = 30.0
REQUESTS_PER_WINDOW, REQUESTS_WITH_KEY = 5, 50


@dataclass(frozen=True, kw_only=True)
class NvdRead:
    """NVD's records: of the CVEs in KEV from its API, or everything in a file."""

    records: tuple[NvdRecord, ...]
    issue: Issue
    copy: Copy | None = None


async def read_nvd(
    fetcher: Fetcher, url: str, *, api_key: str | None = None, held: Copy | None = None, window: float = WINDOW_SECONDS
) -> NvdRead | None:
    """Read NVD's API, or a file where the address ends in .json or .json.gz; None when the file that is `held` is the newest.

    `window` is the time in which the API takes 5 requests, 50 with a key. Raises FeedUnavailable or FeedRefused.
    """
    if _is_file(url):
        return await _read_file(fetcher, url, held)
    pause = pause_between_pages(window, has_key=api_key is not None)
    headers = {"apiKey": api_key} if api_key else None
    records: list[NvdRecord] = []
    start = 0
    for _ in range(MAX_PAGES):
        download = await fetcher.fetch(_page_address(url, start), headers=headers)
        assert download is not None, "pages are asked for without a condition"
        page = await _parsed(fetcher, download.body)
        if page.start != start or not (page.count or page.total == 0):
            raise FeedRefused(
                FEED, f"the page from {start:,} on begins at {page.start:,} and holds {page.count:,} of {page.total:,} records"
            )
        records += page.records
        start += page.count
        if start >= page.total:
            return NvdRead(records=tuple(records), issue=replace(page.issue, entries=len(records)))
        await anyio.sleep(pause)
    raise FeedRefused(FEED, f"{MAX_PAGES} pages did not hold all of its records")


def pause_between_pages(window: float = WINDOW_SECONDS, *, has_key: bool) -> float:
    """Seconds between requests that stay within NVD's rate limit."""
    return window / (REQUESTS_WITH_KEY if has_key else REQUESTS_PER_WINDOW)


def smallest_request(url: str) -> str:
    """The cheapest request that shows whether NVD can be reached."""
    return url if _is_file(url) else f"{url}{'&' if urlsplit(url).query else '?'}resultsPerPage=1"


def _is_file(url: str) -> bool:
    return urlsplit(url).path.endswith((".json", ".json.gz"))


async def _read_file(fetcher: Fetcher, url: str, held: Copy | None) -> NvdRead | None:
    download = await fetcher.fetch(url, held=held)
    if download is None:
        return None
    page = await _parsed(fetcher, download.body)
    return NvdRead(records=page.records, issue=page.issue, copy=download.copy)


async def _parsed(fetcher: Fetcher, sent: bytes) -> NvdPage:
    return await anyio.to_thread.run_sync(parse_nvd, sent, fetcher.size_limits.unpacked)


def _page_address(url: str, start: int) -> str:
    # NVD takes hasKev only as a bare word, which no library writes.
    return f"{url}{'&' if urlsplit(url).query else '?'}hasKev&resultsPerPage={PAGE}&startIndex={start}"
