"""Withdraws what false feeds caused on a past day: what its list is made again from, and what of the public record is replaced."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from typing import TypeVar

import anyio.to_thread
from sqlmodel import col, delete, update
from sqlmodel.ext.asyncio.session import AsyncSession

from buildings.cve.archive.editions import load_leading
from buildings.cve.archive.epss import load_scores
from buildings.cve.archive.lists import all_days, load_brief
from buildings.cve.feeds.acceptance import check_epss, check_kev
from buildings.cve.feeds.epss import FEED as EPSS
from buildings.cve.feeds.epss import EpssDay
from buildings.cve.feeds.errors import FeedError
from buildings.cve.feeds.issue import Issue
from buildings.cve.feeds.kev import FEED as KEV
from buildings.cve.feeds.kev import KevCatalog, KevEntry
from buildings.cve.forecast.formula import WINDOW_DAYS
from buildings.cve.forecast.store import CORRECTABLE_DAYS, flips
from buildings.cve.models import Feed
from buildings.cve.nvd.records import NvdRecords
from buildings.cve.ranking.edition import Edition, make_edition
from buildings.cve.tables import ArchivedForecast, RankingOrder, RansomwareFlip
from campus.errors import JobFailed
from campus.storage import Storage

FeedT = TypeVar("FeedT", KevCatalog, EpssDay)


class ListRefused(JobFailed):
    """The list of that day cannot be made."""


@dataclass(frozen=True, kw_only=True)
class Correction:
    """A day whose list is made again: the list that was published, the one before it, and the day of the next list with its KEV."""

    published: Edition
    before: Edition
    next_day: date | None
    next_kev: Mapping[str, KevEntry]

    def own_kev(self) -> tuple[KevCatalog, str | None]:
        return _usable(self.published.kev, self.before.kev, check_kev, held_because=self.published.facts.issues.kev_held_because)

    def own_epss(self) -> tuple[EpssDay, str | None]:
        return _usable(self.published.epss, self.before.epss, check_epss, held_because=self.published.facts.issues.epss_held_because)

    def edition(
        self, kev: tuple[KevCatalog, str | None], epss: tuple[EpssDay, str | None], *, nvd: NvdRecords, made_at: datetime
    ) -> Edition:
        """The corrected list, from feeds that each come with why they are held. Raises ListRefused if it would be made from the same."""
        was = self.published
        now, before = epss[0].scores, was.ranked.scores()
        if kev[0].entries == was.facts.kev and (now.numbers, now.epss) == (before.numbers, before.epss):
            raise ListRefused(
                f"the list of {was.day} stays as it is: its KEV and EPSS look right. To replace them, name files of that day as kev_url and"
                " epss_url in [buildings.cve]"
            )
        notice = (
            f"Corrected on {made_at:%Y-%m-%d}: this list is made from KEV {kev[0].issue} and EPSS {epss[0].issue}. It was made from KEV"
            f" {was.facts.issues.kev} and EPSS {was.facts.issues.epss}, which were withdrawn; earlier editions are in the archive."
        )
        held = {feed: reason for feed, reason in ((KEV, kev[1]), (EPSS, epss[1])) if reason}
        return make_edition(
            day=was.day, made_at=made_at, kev=kev[0], epss=epss[0], nvd=nvd, last=self.before, held_because=held, correction=notice
        )

    async def withdraw(self, session: AsyncSession, edition: Edition) -> None:
        """Delete what the published list caused, store what its next list says in comparison with the corrected one, open the grades."""
        day = self.published.day
        await session.exec(delete(RansomwareFlip).where(col(RansomwareFlip.day).in_([day, self.next_day or day])))
        if self.next_day:
            session.add_all(flips(self.next_kev, edition.facts.kev, day=self.next_day))
        for table in (ArchivedForecast, RankingOrder):
            await session.exec(delete(table).where(col(table.day) == day))
        first = day - timedelta(days=WINDOW_DAYS)
        await session.exec(update(RankingOrder).where(col(RankingOrder.day) >= first).values(is_final=False))


def _usable(own: FeedT, before: FeedT, check: Callable[[FeedT, FeedT], None], *, held_because: str | None) -> tuple[FeedT, str | None]:
    """The day's own feed where it can be believed, else the one before, each with why it is held."""
    try:
        check(own, before)
    except FeedError as error:
        return before, error.public
    return own, held_because


async def load_correction(storage: Storage, day: date, served: Edition | None, *, today: date) -> Correction:
    """What a correction of a day needs. Raises ListRefused if the day cannot be corrected."""
    if served is None or not today - timedelta(days=CORRECTABLE_DAYS) <= day <= served.day:
        raise ListRefused(f"only the lists of the last {CORRECTABLE_DAYS} days can be corrected: grades of earlier ones are final")
    days = await all_days(storage)
    earlier = max((one for one in days if one < day), default=None)
    if day not in days or earlier is None:
        raise ListRefused(f"there is no list of {day} with one before it; run the job cve.refresh with --day or --accept")
    next_day = min((one for one in days if one > day), default=None)
    return Correction(
        published=await _archived(storage, day, served),
        before=await _archived(storage, earlier, served),
        next_day=next_day,
        next_kev=(await _archived_kev(storage, next_day, served)) if next_day else {},
    )


async def _archived(storage: Storage, day: date, served: Edition) -> Edition:
    if day == served.day:
        return served
    brief = await load_brief(storage, day)
    epss = await load_scores(storage, brief.feeds.epss.date) if brief and brief.feeds.epss.date else None
    if brief is None or epss is None:
        raise ListRefused(f"the EPSS of the list of {day} is not stored, so that nothing can be compared with it")
    entries = await _archived_kev(storage, day, served)
    kev_issue, epss_issue = _issue(brief.feeds.kev), _issue(brief.feeds.epss)
    held = {feed: one.held_because for feed, one in ((KEV, brief.feeds.kev), (EPSS, brief.feeds.epss)) if one.held_because}
    edition = await anyio.to_thread.run_sync(
        lambda: make_edition(
            day=day,
            made_at=brief.generated_at,
            kev=KevCatalog(kev_issue.version, kev_issue.issued, entries, kev_issue.unreadable),
            epss=EpssDay(epss_issue.version, epss_issue.issued, epss, epss_issue.unreadable),
            nvd=NvdRecords(),
            held_because=held,
        )
    )
    removed = {cve_id: one for cve_id, one in served.facts.removed.items() if one.noticed_on <= day}
    return replace(edition, facts=replace(edition.facts, removed=removed))


async def _archived_kev(storage: Storage, day: date, served: Edition) -> Mapping[str, KevEntry]:
    if day == served.day:
        return served.facts.kev
    if (leading := await load_leading(storage, day)) is None:
        raise ListRefused(f"the KEV of the list of {day} is not stored, so that nothing can be compared with it")
    return leading[1]


def _issue(feed: Feed) -> Issue:
    assert feed.version is not None, "a list names its feeds"
    assert feed.date is not None, "a list names its feeds"
    return Issue(
        version=feed.version, issued=datetime.combine(feed.date, time(), tzinfo=UTC), entries=feed.entries or 0, unreadable=feed.unreadable
    )
