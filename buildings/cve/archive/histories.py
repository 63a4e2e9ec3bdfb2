"""The EPSS of CVEs over the stored days and the list that is served; what was read lately is kept until the list changes."""

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import date, timedelta

from buildings.cve.archive.epss import Point, load_points, points_of_sample
from buildings.cve.archive.history import DAYS_SHOWN, CveHistory, course_of, history_of
from buildings.cve.arguments import number_of
from buildings.cve.forecast.store import load_flips_of
from buildings.cve.kept import keep
from buildings.cve.ranking.edition import Edition
from campus.storage import Storage

CACHED_COURSES, CACHED_HISTORIES = 1_000, 64
Course = tuple[float | None, ...]


class Histories:
    """The EPSS of CVEs over the stored days; `shown` returns the list that is served."""

    def __init__(self, storage: Storage, *, shown: Callable[[], Edition]) -> None:
        self._storage = storage
        self._shown = shown
        self.clear()

    def clear(self) -> None:
        """Forget what was loaded. What is being loaded now is not kept."""
        self._courses: dict[str, Course] = {}
        self._histories: dict[tuple[str, date | None, date | None, int], CveHistory] = {}

    async def of(self, cve_id: str, *, first: date | None, last: date | None, limit: int) -> CveHistory:
        """The history of one CVE, its newest `limit` points; raises Problem 404 or 422 if there is none, 503 while there is no list."""
        kept, wanted, number = self._histories, (cve_id, first, last, limit), number_of(cve_id)
        if (history := kept.get(wanted)) is None:
            points = (await self._points([number], since=date.min))[number]
            edition, flips = self._shown(), await load_flips_of(self._storage, cve_id)
            made = history_of(edition, cve_id, points, flips, first=first, last=last, limit=limit)
            history = keep(kept, wanted, made, most=CACHED_HISTORIES)
        return history

    async def courses(self, cve_ids: Iterable[str]) -> Mapping[str, Course]:
        """The EPSS of CVEs over the last 30 days, day by day; kept until the list changes."""
        kept = self._courses
        wanted = set(cve_ids)
        found = {cve_id: kept[cve_id] for cve_id in wanted & kept.keys()}
        if missing := {cve_id: number_of(cve_id) for cve_id in wanted - kept.keys()}:
            since = self._shown().facts.issues.epss.issued.date() - timedelta(days=DAYS_SHOWN - 1)
            points = await self._points(missing.values(), since=since)
            loaded = {cve_id: course_of(points[number]) for cve_id, number in missing.items()}
            if len(kept) > CACHED_COURSES:
                kept.clear()
            kept.update(loaded)
            found |= loaded
        return found

    async def _points(self, numbers: Collection[int], *, since: date) -> dict[int, list[Point]]:
        edition = self._shown()
        return points_of_sample(edition, numbers) if edition.is_sample else await load_points(self._storage, numbers, since=since)
