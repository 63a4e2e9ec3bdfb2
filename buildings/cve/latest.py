"""The list on show in this process, and the answers made of it: the same objects until the list or the day changes."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import date, datetime

import anyio.to_thread

from buildings.cve.answers import brief_of, feeds_of, fresh_of, teaser_of, verdict_of
from buildings.cve.edition import Edition
from buildings.cve.models import Brief, FreshList, Miss, Teaser, Verdict
from buildings.cve.sample import sample_edition
from buildings.cve.settings import CveSettings
from buildings.cve.store import Stored, load_brief, load_latest, newest_version
from campus import Problem, Site, Storage

KEPT_BRIEFS = 32
RETRY_SECONDS = 300


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What the tools answer on one day."""

    today: date
    brief: Brief
    teaser: Teaser
    fresh: FreshList


class Latest:
    """What one process shows; `reload` looks whether there is something newer."""

    def __init__(self, storage: Storage) -> None:
        self.edition: Edition | None = None
        self._storage = storage
        self._version: str | None = None
        self._brief: Brief | None = None
        self._answers: Answers | None = None
        self._archive: dict[date, Brief] = {}

    @property
    def real_edition(self) -> Edition | None:
        """The list on show, unless it is the sample."""
        return None if self.edition is None or self.edition.is_sample else self.edition

    async def reload(self) -> None:
        """Show the newest list that is stored; cheap when it is shown already."""
        version = await newest_version(self._storage)
        if version == self._version:
            return
        if stored := await load_latest(self._storage):
            self.show(stored)
        else:
            self._version = version  # it cannot be read, and is not to be tried again and again

    def show(self, stored: Stored) -> None:
        """Show a list that is stored."""
        self._show(stored.edition, stored.brief)
        self._version = stored.version

    async def show_sample(self) -> None:
        """Show the shipped sample until there is a list."""
        edition = await anyio.to_thread.run_sync(sample_edition)
        self._show(edition, brief_of(edition, today=edition.day))

    def answers(self, now: datetime, *, full_list: Callable[[], str]) -> Answers:
        """The answers of the day; Problem 503 while there is no list."""
        today = now.date()
        if self._answers is None or self._answers.today != today:
            self._answers = self._made(today, full_list())
        return self._answers

    def verdict(self, cve_id: str, *, now: datetime) -> Verdict | Miss:
        """One CVE in the list on show; Problem 503 while there is none."""
        edition, _ = self._shown()
        return verdict_of(edition, cve_id, today=now.date())

    async def archived(self, day: date) -> Brief | None:
        """A past day's brief as it was published."""
        if day not in self._archive and (brief := await load_brief(self._storage, day)):
            if len(self._archive) >= KEPT_BRIEFS:
                del self._archive[next(iter(self._archive))]
            self._archive[day] = brief
        return self._archive.get(day)

    def _show(self, edition: Edition, brief: Brief) -> None:
        self.edition, self._brief, self._answers = edition, brief, None
        self._archive.clear()

    def _shown(self) -> tuple[Edition, Brief]:
        if self.edition is None or self._brief is None:
            detail = "no list has been made yet: the first one follows as soon as the feeds have been read; try again in a few minutes"
            raise Problem(503, "no_list_yet", detail, headers={"Retry-After": str(RETRY_SECONDS)})
        return self.edition, self._brief

    def _made(self, today: date, full_list: str) -> Answers:
        edition, published = self._shown()
        issues = edition.facts.issues
        brief = published.model_copy(update={"stale": issues.is_stale(today), "feeds": feeds_of(issues, today=today)})
        return Answers(today=today, brief=brief, teaser=teaser_of(brief, full_list=full_list), fresh=fresh_of(edition, today=today))


Here = Site[CveSettings, Latest]


@asynccontextmanager
async def latest(site: Site[CveSettings]) -> AsyncIterator[Latest]:
    """What this process shows, from its start on."""
    shown = Latest(site.storage)
    await shown.reload()
    if shown.edition is None and site.settings.sample:
        await shown.show_sample()
    yield shown


async def reload(site: Here) -> None:
    """Show the newest list in this process, whichever process made it."""
    await site.state.reload()
