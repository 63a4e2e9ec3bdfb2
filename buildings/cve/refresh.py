"""The daily job: read the feeds, make the day's list and store it; on failure keep the last list and say why."""

import logging
from datetime import UTC, date, datetime

import anyio.to_thread

from buildings.cve.edition import Edition, make_edition
from buildings.cve.feed_reader import FeedContents, FeedReader, FetchLimits
from buildings.cve.feeds.errors import FeedError
from buildings.cve.latest import CveSite
from buildings.cve.store import Failure, held_copies, load_brief, note_failure, save
from campus import JobFailed

log = logging.getLogger(__name__)


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
    stored = await save(site.storage, edition, copies=read.copies)
    if read.nvd_failure:
        await note_failure(site.storage, Failure(feed=read.nvd_failure.feed, reason=read.nvd_failure.reason, at=now))
    if stored:
        site.state.show(stored)
    else:
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
