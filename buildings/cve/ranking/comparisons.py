"""The changes between two archived briefs, and their numbers, kept until the list changes."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import date

import anyio.to_thread

from buildings.cve.archive.editions import load_leading
from buildings.cve.archive.lists import all_days
from buildings.cve.kept import keep
from buildings.cve.models import Brief
from buildings.cve.ranking.changes import ArchivedDay, ChangeCounts, Changes, changes_of, counts_of
from campus import Problem
from campus.storage import Storage

CACHED_CHANGES = 8


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
