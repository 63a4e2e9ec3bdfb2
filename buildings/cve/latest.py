"""The list that this process serves, and the results made from it, reused until the list or the day changes."""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from functools import partial
from typing import TypeVar

import anyio.to_thread

from buildings.cve.archive import load_leading
from buildings.cve.arguments import number_of
from buildings.cve.batch import Verdicts, verdicts_of
from buildings.cve.changes import ArchivedDay, ChangeCounts, Changes, changes_of, counts_of
from buildings.cve.edition import Edition
from buildings.cve.epss_history import Point
from buildings.cve.epss_store import load_points, points_of_sample
from buildings.cve.forecast_models import ForecastList, ForecastRecord, ForecastTeaser
from buildings.cve.forecast_results import forecast_teaser_of, record_of, sample_forecast
from buildings.cve.forecast_store import load_flips_of, load_forecast, load_record, newest_record_version
from buildings.cve.history import DAYS_SHOWN, CveHistory, course_of, history_of
from buildings.cve.models import Brief, FreshList, Teaser
from buildings.cve.nvd_reading import load_records
from buildings.cve.nvd_records import NvdRecords
from buildings.cve.reports import FoundIds
from buildings.cve.results import brief_of, feeds_of, fresh_of, teaser_of
from buildings.cve.sample import sample_edition
from buildings.cve.settings import CveSettings
from buildings.cve.store import Stored, all_days, load_brief, load_latest, newest_version
from buildings.cve.watch_alerts import Watching
from campus import Problem, Site, Storage

CACHED_BRIEFS = 32
CACHED_CHANGES = 8
CACHED_COURSES = 1_000
LOADS_OF_HISTORY = 3
"""A history is read again with a newer list if that was stored in between."""
VERDICTS_AT_ONCE = 50
"""Verdicts take 20 µs each; more are made in a worker thread, so that no other call waits for them."""
RETRY_SECONDS = 300
Course = tuple[float | None, ...]
KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")


@dataclass(frozen=True, kw_only=True)
class DayResults:
    """What the tools return on one day."""

    today: date
    brief: Brief
    teaser: Teaser
    fresh: FreshList


@dataclass(frozen=True, kw_only=True)
class ForecastAnswers:
    """What the forecast's tools return on one day."""

    today: date
    forecast: ForecastList
    teaser: ForecastTeaser


class Comparisons:
    """The changes between two archived briefs, kept until the list changes."""

    def __init__(self, storage: Storage, archived: Callable[[date], Awaitable[Brief | None]]) -> None:
        self._storage = storage
        self._archived = archived
        self.clear()

    def clear(self) -> None:
        """Forget them. What is being loaded or computed now is not kept."""
        self._days: list[Sequence[date]] = []
        self._counts: dict[tuple[date, int, date, int, str], ChangeCounts] = {}
        self._changes: dict[tuple[date, int, date, int], Changes] = {}

    async def window(self, from_day: date | None, to_day: date | None, *, start: date) -> tuple[Brief, Brief]:
        """The briefs of two days from `start` on: by default the newest and the one before. Problem 422 or 404 if there are none."""
        days = [day for day in await self._archived_days() if day >= start]
        after = to_day or (days[-1] if days else None)
        before = from_day or max((day for day in days if after and day < after), default=None)
        if before and after and before >= after:
            raise Problem(422, "invalid_window", f"from is {before} and to is {after}: from must be the earlier day")
        there_are = f"the archive has lists from {days[0]} to {days[-1]}" if days else "the archive has no lists yet"
        if missing := next((day for day in (before, after) if day and day not in days), None):
            raise Problem(404, "no_data_for_date", f"there is no list for the date {missing}; {there_are}")
        if before is None or after is None:
            raise Problem(404, "no_data_for_date", f"there is no list before the later day to compare with; {there_are}")
        old = await self._archived(before)
        new = await self._archived(after)
        assert old, "the day is in the archive"
        assert new, "the day is in the archive"
        return old, new

    def counts(self, before: Brief, after: Brief, *, full_list: str) -> ChangeCounts:
        """The numbers of changes between two archived briefs."""
        kept, of_both = self._counts, (before.day, before.edition, after.day, after.edition, full_list)
        if (found := kept.get(of_both)) is None:
            found = _keep(kept, of_both, counts_of(before, after, full_list=full_list))
        return found

    async def changes(self, before: Brief, after: Brief) -> Changes:
        """The changes between two archived briefs; raises Problem 404 if the ranked set of one of the days was lost."""
        kept, of_both = self._changes, (before.day, before.edition, after.day, after.edition)
        if (found := kept.get(of_both)) is None:
            old = await self._archived_day(before)
            new = await self._archived_day(after)
            found = _keep(kept, of_both, await anyio.to_thread.run_sync(changes_of, old, new))
        return found

    async def _archived_days(self) -> Sequence[date]:
        kept = self._days
        if not kept:
            kept.append(await all_days(self._storage))
        return kept[-1]

    async def _archived_day(self, brief: Brief) -> ArchivedDay:
        if (leading := await load_leading(self._storage, brief.day)) is None:
            detail = f"the archive has the list of the date {brief.day}, but not the ranked set behind it; name another day"
            raise Problem(404, "no_data_for_date", detail)
        return ArchivedDay(brief, *leading)


def _keep(kept: dict[KeyT, ValueT], key: KeyT, value: ValueT) -> ValueT:
    """Keep the value, instead of the oldest one if there are many."""
    if len(kept) >= CACHED_CHANGES:
        del kept[next(iter(kept))]
    kept[key] = value
    return value


class Histories:
    """The EPSS of CVEs over the stored days and the list that `shown` returns; `reload` fetches a newer one."""

    def __init__(self, storage: Storage, shown: Callable[[], tuple[Edition, str | None]], reload: Callable[[], Awaitable[None]]) -> None:
        self._storage = storage
        self._shown = shown
        self._reload = reload
        self._courses: dict[str, Course] = {}

    def clear(self) -> None:
        """Forget what was loaded. What is being loaded now is not kept."""
        self._courses = {}

    async def of(self, cve_id: str, *, first: date | None, last: date | None) -> CveHistory:
        """The history of one CVE; raises Problem 404 or 422 if there is none, 503 while there is no list."""
        number = number_of(cve_id)
        points = (await self._points([number], since=date.min))[number]
        edition, _ = self._shown()
        return history_of(edition, cve_id, points, await load_flips_of(self._storage, cve_id), first=first, last=last)

    async def courses(self, cve_ids: Iterable[str]) -> Mapping[str, Course]:
        """The EPSS of CVEs over the last 30 days, day by day; kept until the list changes."""
        kept = self._courses
        wanted = set(cve_ids)
        found = {cve_id: kept[cve_id] for cve_id in wanted & kept.keys()}
        if missing := {cve_id: number_of(cve_id) for cve_id in wanted - kept.keys()}:
            since = self._shown()[0].facts.issues.epss.issued.date() - timedelta(days=DAYS_SHOWN - 1)
            points = await self._points(missing.values(), since=since)
            loaded = {cve_id: course_of(points[number]) for cve_id, number in missing.items()}
            if len(kept) > CACHED_COURSES:
                kept.clear()
            kept.update(loaded)
            found |= loaded
        return found

    async def _points(self, numbers: Collection[int], *, since: date) -> dict[int, list[Point]]:
        for _ in range(LOADS_OF_HISTORY):
            edition, version = self._shown()
            if edition.is_sample:
                return points_of_sample(edition, numbers)
            found = await load_points(self._storage, numbers, edition, version=version, since=since)
            if found is not None:
                return found
            await self._reload()
        raise _not_yet("a newer list is being stored; try again in a moment")


class Latest:
    """The list that one process serves, with its forecast; `reload` fetches a newer one from the database.

    `feeds` keeps the bytes of feeds for readers until the list changes; `watching` sends the news of watches.
    """

    def __init__(self, storage: Storage, watching: Watching) -> None:
        self.watching = watching
        self.edition: Edition | None = None
        self.nvd = NvdRecords()
        self._storage = storage
        self._version: str | None = None
        self._brief: Brief | None = None
        self._results: DayResults | None = None
        self._archive: dict[tuple[date, int | None], Brief] = {}
        self.comparisons = Comparisons(storage, self.archived)
        self.histories = Histories(storage, lambda: (self.shown(), self._version), self.reload)
        self.feeds: dict[str, bytes] = {}
        self._forecast: ForecastList | None = None
        self._forecast_answers: ForecastAnswers | None = None
        self._record: ForecastRecord | None = None
        self._record_version: str | None = None

    @property
    def real_edition(self) -> Edition | None:
        """The list that is served, unless it is the sample."""
        return None if self.edition is None or self.edition.is_sample else self.edition

    def shown(self) -> Edition:
        """The list that is served, which may be the sample; raises Problem 503 while there is none."""
        edition, _ = self._shown()
        return edition

    async def reload(self) -> None:
        """Serve the newest stored list and NVD's newest records; cheap when nothing changed."""
        nvd = await load_records(self._storage, self.nvd)
        if nvd is not self.nvd:
            self.nvd = nvd
            if self.real_edition:
                self.edition = replace(self.real_edition, nvd=nvd)
                self._results = None
                self._forecast_answers = None
                self.feeds.clear()
        version = await newest_version(self._storage)
        record_version = await newest_record_version(self._storage)
        if record_version != self._record_version:
            self._record = await load_record(self._storage)
            self._record_version = record_version
        if version == self._version:
            return
        if stored := await load_latest(self._storage):
            self.show(stored, await load_forecast(self._storage, stored.edition.day))
        else:
            self._version = version  # it cannot be read; do not try again until it changes

    def show(self, stored: Stored, forecast: ForecastList | None) -> None:
        """Serve a stored list and its forecast, with NVD's records as they were last loaded."""
        self._show(replace(stored.edition, nvd=self.nvd), stored.brief, forecast)
        self._version = stored.version

    async def show_sample(self) -> None:
        """Serve the shipped sample until there is a list."""
        edition = await anyio.to_thread.run_sync(sample_edition)
        self._show(edition, brief_of(edition, today=edition.day), sample_forecast(edition))

    def results(self, now: datetime, *, full_list: Callable[[], str]) -> DayResults:
        """The results of the day; raises Problem 503 while there is no list."""
        today = now.date()
        if self._results is None or self._results.today != today:
            self._results = self._make(today, full_list())
        return self._results

    async def verdicts(self, found: FoundIds, *, now: datetime) -> Verdicts:
        """The verdicts on many CVEs; raises Problem 503 while there is no list."""
        edition, _ = self._shown()
        made = partial(verdicts_of, edition, found, today=now.date())
        return made() if len(found.ids) <= VERDICTS_AT_ONCE else await anyio.to_thread.run_sync(made)

    async def archived(self, day: date, edition: int | None = None) -> Brief | None:
        """A past day's brief as it was published: its newest edition, or the one with that number."""
        kept, wanted = self._archive, (day, edition)
        if (brief := kept.get(wanted)) is None and (brief := await load_brief(self._storage, day, edition=edition)):
            if len(kept) >= CACHED_BRIEFS:
                del kept[next(iter(kept))]
            kept[wanted] = brief
        return brief

    def forecast(self, now: datetime, *, full_list: Callable[[], str], record: str) -> ForecastAnswers:
        """The day's forecast; raises Problem 503 while there is none."""
        today = now.date()
        if self._forecast_answers is None or self._forecast_answers.today != today:
            edition, _ = self._shown()
            if self._forecast is None:
                raise _not_yet("no forecast has been made yet: the first one comes with the next list")
            current = {"stale": edition.facts.issues.is_stale(today), "feeds": feeds_of(edition, today=today)}
            forecast = self._forecast.model_copy(update=current)
            teaser = forecast_teaser_of(forecast, full_list=full_list(), record=record)
            self._forecast_answers = ForecastAnswers(today=today, forecast=forecast, teaser=teaser)
        return self._forecast_answers

    def record(self) -> ForecastRecord:
        """The public record of all grades; raises Problem 503 while there is no list."""
        if self._record is None:
            edition, _ = self._shown()
            self._record = record_of(edition, ())
        return self._record

    def _show(self, edition: Edition, brief: Brief, forecast: ForecastList | None) -> None:
        self.edition = edition
        self._brief = brief
        self._results = None
        self._forecast = forecast
        self._forecast_answers = None
        if self._record_version is None:
            self._record = None
        self._archive = {}  # what is being loaded now is not kept: it may be of an older edition
        self.comparisons.clear()
        self.feeds.clear()
        self.histories.clear()

    def _shown(self) -> tuple[Edition, Brief]:
        if self.edition is None or self._brief is None:
            raise _not_yet(
                "no list has been made yet: the first one follows as soon as the feeds have been read; try again in a few minutes"
            )
        return self.edition, self._brief

    def _make(self, today: date, full_list: str) -> DayResults:
        edition, published = self._shown()
        brief = published.model_copy(update={"stale": edition.facts.issues.is_stale(today), "feeds": feeds_of(edition, today=today)})
        return DayResults(today=today, brief=brief, teaser=teaser_of(brief, full_list=full_list), fresh=fresh_of(edition, today=today))


def _not_yet(detail: str) -> Problem:
    return Problem(503, "no_list_yet", detail, headers={"Retry-After": str(RETRY_SECONDS)})


CveSite = Site[CveSettings, Latest]


@asynccontextmanager
async def latest(site: Site[CveSettings]) -> AsyncIterator[Latest]:
    """The building's state: the newest stored list, or the sample."""
    shown = Latest(site.storage, Watching(site))
    await shown.reload()
    if shown.edition is None and site.settings.sample:
        await shown.show_sample()
    yield shown


async def reload(site: CveSite) -> None:
    """The job that makes this process serve the newest list, whichever process stored it."""
    await site.state.reload()
