"""The daily job: read the feeds, make the day's list, store it; or leave the last one up and say why."""

import logging
from dataclasses import dataclass, field
from datetime import UTC, date

import anyio.to_thread

from buildings.cve.enrichment import NvdRecord
from buildings.cve.feeds.acceptance import Issue
from buildings.cve.feeds.download import Caps, Copy, Patience
from buildings.cve.feeds.epss import EpssDay
from buildings.cve.feeds.errors import FeedError
from buildings.cve.feeds.kev import KevCatalog
from buildings.cve.feeds.nvd_pages import WINDOW_SECONDS
from buildings.cve.latest import Here
from buildings.cve.store import Failure, held_copies, note_failures, save

log = logging.getLogger(__name__)


class ListRefused(Exception):  # named for what happened
    """A list of that day is not to be made."""


@dataclass(frozen=True, kw_only=True)
class Terms:
    """How the feeds are read: waiting time and caps; `nvd_window` is the time in which NVD takes 5 requests."""

    patience: Patience = Patience()
    caps: Caps = Caps()
    nvd_window: float = WINDOW_SECONDS


@dataclass(frozen=True, kw_only=True)
class Readings:
    """What the feeds gave; `copies` by feed, None where the server named none."""

    kev: KevCatalog
    epss: EpssDay
    nvd: tuple[NvdRecord, ...]
    nvd_issue: Issue | None
    copies: dict[str, Copy | None] = field(default_factory=dict)
    failures: tuple[FeedError, ...] = ()


async def refresh(site: Here, *, day: date | None = None, accept: bool = False) -> None:
    """Make the list of today from the feeds as they are now.

    `day` makes another day's, for replays; `accept` takes a feed that shrank or is older than the last one, and makes
    the list of a day anew that was archived before. When KEV or EPSS cannot be had or is refused, the last list stays
    as it is and the job fails with the reason; without NVD the list is made of what NVD told before.
    """
    await renew(site, day=day, accept=accept, terms=Terms())


async def renew(site: Here, *, day: date | None = None, accept: bool = False, terms: Terms) -> None:
    """The same, with other waiting times and caps."""
    now = site.now().astimezone(UTC).replace(microsecond=0)
    day = day or now.date()
    await site.state.reload()
    last = site.state.edition if site.state.edition and not site.state.edition.is_sample else None
    await _check_day(site, day, last, accept=accept)
    reader = FeedReader(site.feeds, site.settings, terms, last, await held_copies(site.storage) if last else {}, accept=accept)
    try:
        readings = await reader.read()
    except FeedError as error:
        site.count("refresh", outcome="failed")
        await note_failures(site.storage, [Failure(feed=error.feed, reason=str(error), at=now)])
        raise
    edition = await anyio.to_thread.run_sync(_edition, day, now, readings, last)
    await save(site.storage, edition, copies=readings.copies)
    await note_failures(site.storage, [Failure(feed=error.feed, reason=str(error), at=now) for error in readings.failures])
    await site.state.reload()
    site.count("refresh", outcome="made")
    log.info("list made", extra={"day": str(day), "ranked": len(edition.ranked), "kev": str(edition.kev.issue)})
