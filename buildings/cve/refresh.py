"""The jobs: read KEV, EPSS and NVD, make the day's list and forecast, or keep the last and say why; grade past lists; pause watches."""

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from functools import partial

import anyio.to_thread
import httpx

from buildings.cve.archive.epss import history_after, history_corrected
from buildings.cve.archive.lists import failures, held_copies, load_brief, note_failure, save
from buildings.cve.corrections import FeedT, ListRefused, load_correction
from buildings.cve.feeds import epss, kev
from buildings.cve.feeds.acceptance import check_epss, check_kev, check_time
from buildings.cve.feeds.download import Copy, Fetcher, FetchLimits
from buildings.cve.feeds.epss import EpssDay, check_scores, parse_epss
from buildings.cve.feeds.errors import FeedError
from buildings.cve.feeds.issue import Issue
from buildings.cve.feeds.kev import KevCatalog, parse_kev
from buildings.cve.feeds.vocabulary import note_words
from buildings.cve.forecast.store import grade_lists, make_outlook
from buildings.cve.nvd.reading import for_a_list, read_on, with_its_records
from buildings.cve.nvd.records import NvdRecords
from buildings.cve.ranking.edition import Edition, is_ahead, make_edition
from buildings.cve.ranking.latest import CveSite
from buildings.cve.settings import CveSettings
from buildings.cve.watches.news import ListMatching, follow_owners, list_matching, makers_of, owners_of, stop_watches
from campus.storage import in_transaction

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class FeedContents:
    """KEV and EPSS as read; `failures` say, by feed, why the newest issue could not be used, so that the one of the last list is.

    `copies` are of the feeds that were read.
    """

    kev: KevCatalog
    epss: EpssDay
    failures: Mapping[str, FeedError]
    copies: Mapping[str, Copy | None]


@dataclass(frozen=True, kw_only=True)
class FeedReader:
    """Reads KEV and EPSS for the list after `last`; `held` are the copies that it was made from.

    `accept` skips the thresholds of acceptance.py.
    """

    client: httpx.AsyncClient
    settings: CveSettings
    limits: FetchLimits
    last: Edition | None
    held: Mapping[str, Copy]
    accept: bool
    now: datetime

    async def read_kev(self) -> tuple[KevCatalog, Copy | None]:
        """The newest catalog that can be used, from CISA, else from the mirror. Raises FeedError with the reasons of both."""
        try:
            return await self._kev_from(self.settings.kev_url)
        except FeedError as first:
            if self.settings.kev_mirror_url is None:
                raise
            log.warning("KEV cannot be used; trying its mirror", extra={"reason": first.reason})
            try:
                return await self._kev_from(self.settings.kev_mirror_url)
            except FeedError as second:
                text = f"{first.reason}; its mirror: {second.reason}"
                raise FeedError(kev.FEED, text, public=first.public) from None

    async def _kev_from(self, url: str) -> tuple[KevCatalog, Copy | None]:
        held = self.held.get(kev.FEED)
        download = await self._fetcher(kev.FEED).fetch(url, held=held)
        if download is None:
            return self.unchanged.kev, held
        catalog = await anyio.to_thread.run_sync(parse_kev, download.body, self.limits.size_limits.unpacked)
        check_time(kev.FEED, catalog.issue, now=self.now)
        if not self.accept:
            check_kev(catalog, self.last.kev if self.last else None)
        catalog = catalog.completed(self.last.facts.kev if self.last else {})
        _log_unreadable(kev.FEED, catalog.issue)
        return catalog, download.copy

    async def read_epss(self) -> tuple[EpssDay, Copy | None]:
        held = self.held.get(epss.FEED)
        download = await self._fetcher(epss.FEED).fetch(self.settings.epss_url, held=held)
        if download is None:
            return await anyio.to_thread.run_sync(lambda: self.unchanged.epss), held
        day = await anyio.to_thread.run_sync(parse_epss, download.body, self.limits.size_limits.unpacked)
        check_time(epss.FEED, day.issue, now=self.now)
        day = await anyio.to_thread.run_sync(self._believed, day)
        _log_unreadable(epss.FEED, day.issue)
        return day, download.copy

    def _believed(self, day: EpssDay) -> EpssDay:
        check_scores(day)
        used = self.last.epss if self.last else None
        if not self.accept:
            check_epss(day, used)
        return day.completed(used) if used else day

    def _fetcher(self, feed: str) -> Fetcher:
        return Fetcher(client=self.client, feed=feed, retry_policy=self.limits.retry_policy, size_limits=self.limits.size_limits)

    @property
    def unchanged(self) -> Edition:
        assert self.last is not None, "it is asked for only when there is a last list"
        return self.last


def _log_unreadable(feed: str, issue: Issue) -> None:
    if issue.unreadable:
        log.warning("parts of a feed cannot be read and are left out", extra={"feed": feed, "parts": issue.unreadable})


async def refresh(site: CveSite, *, day: date | None = None, accept: bool = False, correct: date | None = None) -> None:
    """Make today's list from the feeds as they are now, and serve it.

    `day` makes the list of a past day, from feeds that were issued by then. `accept` accepts a feed that looks false or is older
    than the last one, and makes a corrected edition of an archived day beside the earlier ones. When KEV or EPSS cannot be used,
    the list is made from the one held, which it says, and the job fails with the reason, to be tried again. When neither can, the
    last list stays as it is. The list does not wait for NVD.

    `correct` withdraws what false feeds caused on one of the last 30 days: it makes that day's list and forecast again, from what
    the feeds' addresses serve if that was issued by then, else from the day's own feeds where they can be believed, else from those
    of the list before; and grades again. Earlier editions of the list stay in the archive.
    """
    await renew(site, day=day, accept=accept, correct=correct, limits=FetchLimits())


async def renew(site: CveSite, *, day: date | None = None, accept: bool = False, correct: date | None = None, limits: FetchLimits) -> None:
    now = site.now().astimezone(UTC).replace(microsecond=0)
    await site.state.reload()
    last = site.state.real_edition
    if correct:
        return await _correct(site, correct, last, accept=accept, limits=limits, now=now)
    day = day or now.date()
    if last and is_ahead(last.day, today=now.date()):
        log.warning("the last list is of a day in the future; a clock was wrong", extra={"day": str(last.day)})
        last = replace(last, day=now.date())
    await _check_day(site, day, last, today=now.date(), accept=accept)
    held = await held_copies(site.storage) if last else {}
    reader = FeedReader(client=site.feeds, settings=site.settings, limits=limits, last=last, held=held, accept=accept, now=now)
    try:
        read = await _read(site, reader)
    except FeedError:
        site.count("refresh", outcome="failed")
        raise
    if day < now.date():
        _check_issues(day, read)
    await site.state.reload()
    if not (read.failures and _is_made(last, day, read)):
        nvd = await for_a_list(site.storage, site.state.nvd, as_of=day if day < now.date() else None)
        edition = await anyio.to_thread.run_sync(lambda: _edition(day, read, last, nvd, made_at=now))
        edition = await with_its_records(site.storage, edition)
        await _publish(site, edition, last, copies=read.copies)
        await _report(site, edition)
    for failure in read.failures.values():
        raise failure
    return None


async def _correct(site: CveSite, day: date, served: Edition | None, *, accept: bool, limits: FetchLimits, now: datetime) -> None:
    storage = site.storage
    correction = await load_correction(storage, day, served, today=now.date())
    assert served is not None, "a correction has been loaded"
    before = correction.before
    reader = FeedReader(client=site.feeds, settings=site.settings, limits=limits, last=before, held={}, accept=accept, now=now)
    kev_copy, epss_copy = None, None
    kev_used, epss_used = correction.own_kev(), await anyio.to_thread.run_sync(correction.own_epss)
    with _reported():
        catalog, copy = await reader.read_kev()
        if _day(catalog.issue) <= day:
            kev_used, kev_copy = (catalog, None), copy
    with _reported():
        scores, copy = await reader.read_epss()
        if _day(scores.issue) <= day:
            epss_used, epss_copy = (scores, None), copy
    nvd = await for_a_list(storage, site.state.nvd, as_of=day if day < now.date() else None)
    edition = await anyio.to_thread.run_sync(lambda: correction.edition(kev_used, epss_used, nvd=nvd, made_at=now))
    edition = await with_its_records(storage, edition)
    history = history_corrected(edition, published=correction.published, served=served)
    outlook = await make_outlook(storage, edition, before, history=history, corrects=True)
    stored = await save(
        storage,
        edition,
        copies={kev.FEED: kev_copy, epss.FEED: epss_copy},
        if_served=outlook.rows,
        if_archived=outlook.rows,
        history=history,
        tell=await _matching(site, edition, served),
        withdraw=lambda session: correction.withdraw(session, edition),
    )
    await grade_lists(storage, stored.edition if stored else served)
    await _report(site, edition)


@contextmanager
def _reported() -> Iterator[None]:
    try:
        yield
    except FeedError as error:
        log.warning("a feed cannot be used for the correction", extra={"feed": error.feed, "reason": error.reason})


async def _publish(site: CveSite, edition: Edition, last: Edition | None, *, copies: Mapping[str, Copy | None]) -> None:
    """Store a list with its forecast, scores and news, all or nothing; serve it, unless it is of an earlier day than `last`."""
    history = await history_after(site.storage, edition, last)
    outlook = await make_outlook(site.storage, edition, last, history=history)
    stored = await save(
        site.storage, edition, copies=copies, if_served=outlook.rows, history=history, tell=await _matching(site, edition, last)
    )
    if stored:
        await grade_lists(site.storage, edition)
        await site.state.show(stored, outlook.forecast)


async def _read(site: CveSite, reader: FeedReader) -> FeedContents:
    """Read KEV, NVD and EPSS. Raises FeedError if neither KEV nor EPSS can be used, or if one cannot and there is no earlier list."""
    failures: dict[str, FeedError] = {}
    copies: dict[str, Copy | None] = {}

    async def newest(feed: str, read: Callable[[], Awaitable[tuple[FeedT, Copy | None]]], *, held: Callable[[], FeedT]) -> FeedT:
        try:
            found, copies[feed] = await read()
        except FeedError as error:
            await note_failure(site.storage, error, at=reader.now)
            if failures or reader.last is None:
                raise
            failures[feed] = error
            return await anyio.to_thread.run_sync(held)
        await note_words(site.storage, feed, found.words, today=reader.now.date())
        log.info("feed read", extra={"feed": feed})
        return found

    catalog = await newest(kev.FEED, reader.read_kev, held=lambda: reader.unchanged.kev)
    # Before EPSS: a page of NVD and the scores are both large, and need not be in memory together.
    await _read_nvd(site, reader)
    day = await newest(epss.FEED, reader.read_epss, held=lambda: reader.unchanged.epss)
    return FeedContents(kev=catalog, epss=day, failures=failures, copies=copies)


async def _read_nvd(site: CveSite, reader: FeedReader) -> None:
    try:
        await read_on(site, limits=reader.limits, before_list=True)
    except FeedError as failure:
        log.warning("NVD cannot be read; its older records are kept", extra={"reason": failure.reason})
        await note_failure(site.storage, failure, at=reader.now)


async def _report(site: CveSite, edition: Edition) -> None:
    await site.state.reload()
    site.count("refresh", outcome="made")
    issues = edition.facts.issues
    about = {"day": str(edition.day), "ranked": len(edition.ranked), "kev": str(issues.kev), "epss": str(issues.epss)}
    log.info("list made", extra=about)


async def nvd(site: CveSite) -> None:
    """Read NVD's records: all of them once, which takes about an hour without a key of NVD's, then what changed.

    Where NVD could not be read before today's list was made, the list is published again.
    """
    await read_nvd(site, limits=FetchLimits())


async def read_nvd(site: CveSite, *, limits: FetchLimits) -> None:
    failed = any(failure.feed == "NVD" for failure in await failures(site.storage))
    try:
        await read_on(site, limits=limits)
    except FeedError as error:
        await note_failure(site.storage, error, at=site.now())
        raise
    await site.state.reload()
    edition = site.state.real_edition
    if failed and edition and edition.day == site.now().date():
        tell = await _matching(site, edition, edition)
        await save(site.storage, replace(edition, made_at=site.now().replace(microsecond=0)), copies={}, tell=tell)
        await _report(site, edition)


async def pause_watches(site: CveSite) -> bool:
    """Pause the watches of keys that have ended, resume those of renewed keys, and stop those whose maker has ended.

    Returns whether there were any.
    """
    changed = stopped = 0
    async for makers in makers_of(site.storage):
        ended = [one.id for one in (await site.keys.makers(makers)).values() if one.ends_at is None]
        stopped += await in_transaction(site.storage, partial(stop_watches, makers=ended, now=site.now())) if ended else 0
    async for owners in owners_of(site.storage):
        changed += await follow_owners(site.storage, await site.keys.ends_of(owners), owners, now=site.now())
    if changed or stopped:
        log.info("watches followed their keys", extra={"keys": changed, "stopped": stopped})
    return changed + stopped > 0


async def _matching(site: CveSite, edition: Edition, last: Edition | None) -> ListMatching:
    await pause_watches(site)
    return await list_matching(site.storage, edition, last, now=site.now())


async def grade(site: CveSite) -> None:
    await site.state.reload()
    if edition := site.state.real_edition:
        await grade_lists(site.storage, edition)
        await site.state.reload()


async def _check_day(site: CveSite, day: date, last: Edition | None, *, today: date, accept: bool) -> None:
    if day > today:
        raise ListRefused(f"{day} is in the future: a list is made from the feeds of its own day")
    if last and day < last.day and not accept and await load_brief(site.storage, day):
        raise ListRefused(f"the list of {day} is archived and stays as it was published; --accept adds a corrected edition beside it")


def _check_issues(day: date, read: FeedContents) -> None:
    for feed, issue in ((kev.FEED, read.kev.issue), (epss.FEED, read.epss.issue)):
        if _day(issue) > day:
            raise ListRefused(
                f"{feed} {issue} was issued after {day}: a past day's list is made only from feeds of that day;"
                " name files of it as kev_url and epss_url in [buildings.cve]"
            )


def _day(issue: Issue) -> date:
    return issue.issued.astimezone(UTC).date()


def _is_made(last: Edition | None, day: date, read: FeedContents) -> bool:
    return last is not None and (last.day, last.facts.issues.kev, last.facts.issues.epss) == (day, read.kev.issue, read.epss.issue)


def _edition(day: date, read: FeedContents, last: Edition | None, nvd: NvdRecords, *, made_at: datetime) -> Edition:
    held = {feed: failure.public for feed, failure in read.failures.items()}
    correction = last.facts.issues.correction if last and last.day == day else None
    return make_edition(
        day=day, made_at=made_at, kev=read.kev, epss=read.epss, nvd=nvd, last=last, held_because=held, correction=correction
    )
