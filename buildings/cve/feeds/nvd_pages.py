"""The order in which NVD is read: KEV's CVEs first, then all of its records page by page, then only what changed; or one file.

A Position says where the reading is. It is stored with each page's records, so that a reading goes on where it was
interrupted.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal
from urllib.parse import urlencode, urlsplit

import anyio.to_thread

from buildings.cve.feeds.download import Copy, Fetcher
from buildings.cve.feeds.errors import FeedRefused
from buildings.cve.feeds.nvd import FEED, NvdPage, parse_nvd

PAGE = 2_000  # The most records that NVD sends in one page.

WINDOW_SECONDS = 30.0
REQUESTS_PER_WINDOW, REQUESTS_WITH_KEY = 5, 50

LONGEST_SPAN = timedelta(days=119)  # NVD answers about the changes of at most 120 days.

OVERLAP = timedelta(hours=2)
"""How far a span of changes reaches back into the last one, for clocks that differ and changes that NVD shows late."""

CLOCKS_DIFFER = timedelta(minutes=1)
"""The clocks of two processes differ by less. A reading that ended so lately is not continued."""

SILENT_FOR = timedelta(days=2)
"""NVD changes hundreds of records a day, so an answer that shows no change in a longer time is not believed."""

Phase = Literal["kev", "all", "changes"]


@dataclass(frozen=True, kw_only=True)
class Position:
    """Where the reading is: the phase, the place of the next page, and how many records NVD announced for the phase.

    `since` is when the reading of all records began, or the last span of changes ended; `until` the end of the span that is
    being read, None between two of them.
    """

    phase: Phase = "kev"
    start: int = 0
    total: int | None = None
    since: datetime | None = None
    until: datetime | None = None

    def begun(self, now: datetime) -> "Position":
        if self.phase == "all" and self.since is None:
            return replace(self, since=now)
        if self.phase == "changes" and self.until is None:
            since = self.since or now
            if since > now + CLOCKS_DIFFER:  # written by a clock that was ahead: nobody knows what was read since when
                since = now - LONGEST_SPAN
            return replace(self, since=since, until=min(now, since + LONGEST_SPAN))
        return self

    def after(self, page: NvdPage) -> "Position":
        """The position after a page. Raises FeedRefused for a page that does not follow, or says that NVD is empty."""
        if page.start != self.start or (page.count == 0 and page.total > self.start):
            raise FeedRefused(
                FEED, f"the page from {self.start:,} on begins at {page.start:,} and holds {page.count:,} of {page.total:,} records"
            )
        if page.total == 0 and not self._may_be_empty:
            raise FeedRefused(FEED, "an answer without any records")
        if self.total is not None and page.total < self.total:  # records before this page are gone, and those after them moved up
            return replace(self, start=max(self.start - (self.total - page.total), 0), total=page.total)
        reached = replace(self, start=self.start + page.count, total=page.total)
        return reached if reached.start < page.total else reached._after_phase()

    @property
    def _may_be_empty(self) -> bool:
        return self.phase == "changes" and self.until is not None and self.since is not None and self.until - self.since < SILENT_FOR

    def _after_phase(self) -> "Position":
        match self.phase:
            case "kev":
                return Position(phase="all")
            case "all":
                return Position(phase="changes", since=self.since)
            case "changes":
                return Position(phase="changes", since=self.until)

    def is_current(self, now: datetime) -> bool:
        return self.phase == "changes" and self.until is None and self.since is not None and abs(now - self.since) < CLOCKS_DIFFER

    def address(self, url: str) -> str:
        query: dict[str, object] = {"resultsPerPage": PAGE, "startIndex": self.start}
        if self.since and self.until:
            query |= {"lastModStartDate": _written(self.since - OVERLAP), "lastModEndDate": _written(self.until)}
        # NVD takes hasKev only as a bare word, which no library writes.
        return f"{url}{'&' if urlsplit(url).query else '?'}{'hasKev&' if self.phase == 'kev' else ''}{urlencode(query)}"


async def fetch_page(fetcher: Fetcher, url: str, *, api_key: str | None = None, held: Copy | None = None) -> tuple[NvdPage, Copy] | None:
    """Fetch and parse a page of the API or a file; None when the file that is `held` is the newest.

    Raises FeedUnavailable or FeedRefused.
    """
    download = await fetcher.fetch(url, held=held, headers={"apiKey": api_key} if api_key else None)
    if download is None:
        return None
    return await anyio.to_thread.run_sync(parse_nvd, download.body, fetcher.size_limits.unpacked), download.copy


def pause_between_pages(window: float = WINDOW_SECONDS, *, has_key: bool) -> float:
    return window / (REQUESTS_WITH_KEY if has_key else REQUESTS_PER_WINDOW)


def smallest_request(url: str) -> str:
    return url if is_file(url) else f"{url}{'&' if urlsplit(url).query else '?'}resultsPerPage=1"


def is_file(url: str) -> bool:
    return urlsplit(url).path.endswith((".json", ".json.gz"))


def _written(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds")
