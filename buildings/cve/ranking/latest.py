"""The list that this process serves, and the results made from it, reused until the list or the day changes."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import date, datetime
from functools import partial

import anyio
import anyio.to_thread

from buildings.cve.archive.editions import load_leading
from buildings.cve.archive.histories import Histories
from buildings.cve.archive.lists import StoredList, all_days, load_brief, load_latest, newest_version
from buildings.cve.arguments import Exposure, no_list_yet, number_of, spelled
from buildings.cve.forecast.models import ForecastList, ForecastRecord, ForecastTeaser
from buildings.cve.forecast.results import forecast_teaser_of, record_of, sample_forecast
from buildings.cve.forecast.store import load_forecast, load_record
from buildings.cve.kept import ShorterForms, keep
from buildings.cve.models import Brief, CveFacts, FreshList, Teaser
from buildings.cve.names.store import about_names, ecosystem_states, resolve
from buildings.cve.nvd.reading import lines_in, load_description, load_state, with_its_records
from buildings.cve.nvd.records import NvdRecords
from buildings.cve.ranking.changes import ArchivedDay, ChangeCounts, Changes, changes_of, counts_of
from buildings.cve.ranking.edition import Edition
from buildings.cve.ranking.results import as_of, brief_of, facts_of, fresh_of, teaser_of
from buildings.cve.reports.accounting import check_names, names_within, unnamed
from buildings.cve.reports.apart import read_apart
from buildings.cve.reports.batch import Asked, Verdicts, verdicts_of
from buildings.cve.reports.findings import Report
from buildings.cve.reports.free import FreeReports
from buildings.cve.reports.glance import Glance
from buildings.cve.sample import sample_description, sample_edition
from buildings.cve.settings import CveSettings
from buildings.cve.tables import GradedRecord, LatestList
from buildings.cve.watches.alerts import Watching
from campus import Problem, Site
from campus.errors import StorageUnavailable
from campus.storage import Storage, in_snapshot

CACHED_CHANGES = 8
CACHED_BRIEFS = 32
CACHED_FACTS = 256
CACHED_RECORDS = 20_000  # With those of KEV's CVEs; 600 bytes each.
SEARCHES_AT_ONCE = 2  # A search that reads all descriptions takes 0.3 s of a processor.
VERDICTS_AT_ONCE = 50  # Verdicts take 20 µs each; more are made in a worker thread, so that no other call waits for them.


class Comparisons:
    def __init__(self, storage: Storage, archived: Callable[[date], Awaitable[Brief | None]]) -> None:
        self._storage = storage
        self._archived = archived
        self.clear()

    def clear(self) -> None:
        self._days: list[Sequence[date]] = []
        self._counts: dict[tuple[date, int, date, int, str], ChangeCounts] = {}
        self._changes: dict[tuple[date, int, date, int], Changes] = {}

    async def window(self, from_day: date | None, to_day: date | None, *, start: date, newest: date) -> tuple[Brief, Brief]:
        """The briefs of two days from `start` to `newest`: by default the last two. Problem 422 or 404 if there are none."""
        days = [day for day in await self._archived_days() if start <= day <= newest]
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
        kept = self._counts
        of_both = (before.day, before.edition, after.day, after.edition, full_list)
        if (found := kept.get(of_both)) is None:
            found = keep(kept, of_both, counts_of(before, after, full_list=full_list), most=CACHED_CHANGES)
        return found

    async def changes(self, before: Brief, after: Brief) -> Changes:
        """The changes between two archived briefs; raises Problem 404 if the ranked set of one of the days was lost."""
        kept = self._changes
        of_both = (before.day, before.edition, after.day, after.edition)
        if (found := kept.get(of_both)) is None:
            old = await self._archived_day(before)
            new = await self._archived_day(after)
            found = keep(kept, of_both, await anyio.to_thread.run_sync(changes_of, old, new), most=CACHED_CHANGES)
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


@dataclass(frozen=True, kw_only=True)
class DayResults:
    today: date
    brief: Brief
    teaser: Teaser
    fresh: FreshList


@dataclass(frozen=True, kw_only=True)
class ForecastAnswers:
    today: date
    forecast: ForecastList
    teaser: ForecastTeaser


class Latest:
    """The list that one process serves, with its forecast; `reload` fetches a newer one from the database.

    `feeds` keeps the bytes of feeds for readers, `examples` the glance of the start page, until the list changes; `watching` sends the
    news of watches.
    """

    def __init__(self, storage: Storage, watching: Watching, *, free_reports: int) -> None:
        self.watching = watching
        self.searches = anyio.CapacityLimiter(SEARCHES_AT_ONCE)
        self.edition: Edition | None = None
        self.nvd = NvdRecords()
        self._storage = storage
        self._loading = anyio.Lock()  # what was loaded last is served
        self._version: str | None = None
        self._brief: Brief | None = None
        self._results: DayResults | None = None
        self._archive: dict[tuple[date, int | None], Brief] = {}
        self.comparisons = Comparisons(storage, self.archived)
        self.histories = Histories(storage, shown=self.shown)
        self.feeds: dict[str, bytes] = {}
        self._facts: dict[tuple[str, date, str, Exposure], CveFacts] = {}
        self.examples: dict[date, Glance] = {}
        self._forecast: ForecastList | None = None
        self._forecast_answers: ForecastAnswers | None = None
        self._report_readers = anyio.CapacityLimiter(1)
        self.free_reports = FreeReports(free_reports)
        self._record: ForecastRecord | None = None
        self._record_version: str | None = None
        self.shorter = ShorterForms()

    @property
    def real_edition(self) -> Edition | None:
        return None if self.edition is None or self.edition.is_sample else self.edition

    def shown(self) -> Edition:
        """The list that is served, which may be the sample; raises Problem 503 while there is none."""
        if self.edition is None:
            raise no_list_yet(
                "no list has been made yet: the first one follows as soon as the feeds have been read; try again in a few minutes"
            )
        return self.edition

    async def reload(self) -> None:
        """Serve the newest stored list and NVD's newest records; cheap when nothing changed."""
        async with self._loading:
            await self._reload()

    async def _reload(self) -> None:
        nvd = await load_state(self._storage, self.nvd)
        if nvd is not self.nvd:
            edition = self.real_edition and await with_its_records(self._storage, replace(self.real_edition, nvd=nvd))
            self.nvd = nvd
            if edition:
                self._serve(edition)
        version = await newest_version(self._storage, LatestList)
        record_version = await newest_version(self._storage, GradedRecord)
        if record_version != self._record_version:
            self._record = await load_record(self._storage)
            self._record_version = record_version
        if version == self._version:
            return
        if stored := await load_latest(self._storage):
            await self._show_stored(stored, await load_forecast(self._storage, stored.edition.day))
        else:
            self._version = version  # it cannot be read; do not try again until it changes

    async def show(self, stored: StoredList, forecast: ForecastList | None) -> None:
        async with self._loading:
            await self._show_stored(stored, forecast)

    async def _show_stored(self, stored: StoredList, forecast: ForecastList | None) -> None:
        self._show(await with_its_records(self._storage, replace(stored.edition, nvd=self.nvd)), stored.brief, forecast)
        self._version = stored.version

    async def show_sample(self) -> None:
        edition = await anyio.to_thread.run_sync(sample_edition)
        self._show(edition, brief_of(edition, today=edition.day), sample_forecast(edition))

    def results(self, now: datetime, *, full_list: Callable[[], str]) -> DayResults:
        today = now.date()
        if self._results is None or self._results.today != today:
            self._results = self._make(today, full_list())
        return self._results

    async def knowing(self, cve_ids: Sequence[str]) -> Edition:
        """The list that is served, with NVD's records of these CVEs; of those that cannot be read it says that they were not.

        A few are kept until the list or NVD changes.
        """
        edition = self.shown()
        nvd = edition.nvd
        missing = [] if nvd.holds_all else [one for one in map(number_of, cve_ids) if one not in nvd.lines]
        if not missing:
            return edition
        try:
            lines = await in_snapshot(self._storage, partial(lines_in, numbers=missing))
        except StorageUnavailable:  # all else is in memory
            return edition
        if len(lines) == 1 and len(nvd.lines) < CACHED_RECORDS:
            nvd.lines.update(lines)
        return replace(edition, nvd=nvd.with_lines(lines))

    async def read(self, report: bytes | str, *, free: bool = False) -> Report:
        """A scanner's report; a `free` one in a process of its own, however small. Raises Problem 413, 422 and 503."""
        return await read_apart(report, readers=self.free_reports.reader if free else self._report_readers, always=free)

    async def names_of(self, listed: Sequence[str], report: Report | None) -> tuple[dict[str, tuple[str, ...]], str]:
        """The CVEs that identifiers of other schemes stand for, in upper case: by the report's own word, else by OSV's records.

        With what an answer says of these records, empty if they were not asked.
        """
        within = await anyio.to_thread.run_sync(names_within, report) if report else {}
        if report:
            await anyio.to_thread.run_sync(check_names, report, within)
        unknown = await anyio.to_thread.run_sync(unnamed, report, within) if report else set()
        asked = {*unknown, *(each.upper() for each in listed)} - within.keys()
        try:
            numbers = await resolve(self._storage, asked)
            about = about_names(await ecosystem_states(self._storage)) if asked else ""
        except StorageUnavailable:  # all else is in memory
            return within, ""
        names = within | {name: tuple(map(spelled, found)) for name, found in numbers.items()}
        if report:
            await anyio.to_thread.run_sync(check_names, report, names)
        return names, about

    async def verdicts(self, asked: Asked, *, now: datetime) -> Verdicts:
        is_small = asked.size <= VERDICTS_AT_ONCE and not asked.exposed_places  # which take long to compile
        edition = await self.knowing(asked.cve_ids() if is_small else await anyio.to_thread.run_sync(asked.cve_ids))
        made = partial(verdicts_of, edition, asked, today=now.date())
        return made() if is_small else await anyio.to_thread.run_sync(made)

    async def archived(self, day: date, edition: int | None = None) -> Brief | None:
        """A past day's brief as it was published: its newest edition, or the one with that number."""
        kept = self._archive
        wanted = (day, edition)
        if (brief := kept.get(wanted)) is None and (brief := await load_brief(self._storage, day, edition=edition)):
            keep(kept, wanted, brief, most=CACHED_BRIEFS)
        return brief

    async def facts(self, cve_id: str, *, today: date, verdict: str, exposed: Exposure) -> CveFacts:
        """What public sources say of a CVE on a day, and how to get more; raises Problem 503 while there is no list."""
        kept, edition = self._facts, await self.knowing([cve_id])
        wanted = (cve_id, today, verdict, exposed)
        if (facts := kept.get(wanted)) is None:
            make = partial(facts_of, edition, cve_id, verdict=verdict, exposed=exposed, today=today)
            try:
                description = sample_description(cve_id) if edition.is_sample else await load_description(self._storage, number_of(cve_id))
            except StorageUnavailable:  # all else is in memory
                return make(description=None)
            facts = keep(kept, wanted, make(description=description), most=CACHED_FACTS)
        return facts

    def forecast(self, now: datetime, *, full_list: Callable[[], str], record: str) -> ForecastAnswers:
        today = now.date()
        if self._forecast_answers is None or self._forecast_answers.today != today:
            self.shown()
            if self._forecast is None:
                raise no_list_yet("no forecast has been made yet: the first one comes with the next list")
            forecast = as_of(today, self._forecast)
            teaser = forecast_teaser_of(forecast, full_list=full_list(), record=record)
            self._forecast_answers = ForecastAnswers(today=today, forecast=forecast, teaser=teaser)
        return self._forecast_answers

    def record(self) -> ForecastRecord:
        if self._record is None:
            edition = self.shown()
            self._record = record_of(edition, (), {})
        return self._record

    def _show(self, edition: Edition, brief: Brief, forecast: ForecastList | None) -> None:
        self._brief = brief
        self._forecast = forecast
        self._serve(edition)
        if self._record_version is None:
            self._record = None
        self._archive = {}  # what is being loaded now is not kept: it may be of an older edition
        self.comparisons.clear()
        self.histories.clear()

    def _serve(self, edition: Edition) -> None:
        """Serve an edition, and forget what was made of the one before."""
        self.edition = edition
        self._results = None
        self._forecast_answers = None
        self.feeds.clear()
        self._facts = {}
        self.examples.clear()

    def _make(self, today: date, full_list: str) -> DayResults:
        edition = self.shown()
        assert self._brief is not None, "it comes with the list"
        brief = as_of(today, self._brief)
        return DayResults(today=today, brief=brief, teaser=teaser_of(brief, full_list=full_list), fresh=fresh_of(edition, today=today))


CveSite = Site[CveSettings, Latest]


@asynccontextmanager
async def latest(site: Site[CveSettings]) -> AsyncIterator[Latest]:
    shown = Latest(site.storage, Watching(site), free_reports=site.settings.free_reports_per_day)
    await shown.reload()
    if shown.edition is None and site.settings.sample:
        await shown.show_sample()
    yield shown


async def reload(site: CveSite) -> None:
    """The job that makes this process serve the newest list, whichever process stored it."""
    await site.state.reload()
