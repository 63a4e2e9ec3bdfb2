"""Stores how EPSS changed from day to day, and reads the scores of one CVE or of one day again."""

from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta

import anyio.to_thread
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from buildings.cve.archive.epss_history import (
    Point,
    Scores,
    StoredDay,
    block_of,
    difference,
    found_in,
    joined,
    packed,
    path_back,
    points_of,
    scored,
    scores_of,
    undone,
    unpacked,
)
from buildings.cve.feeds.issue import Issue
from buildings.cve.forecast.formula import EarlierScores
from buildings.cve.ranking.edition import Edition
from buildings.cve.ranking.formula import Scores as RankingScores
from buildings.cve.tables import EpssBlock, EpssDay, LatestList, Tables
from campus.storage import Storage

WEEK = timedelta(days=7)
LONGEST_WEEK = timedelta(days=10)
"""Scores of 7 to 10 days before are compared with: some days have no list."""


@dataclass(frozen=True)
class HistoryRows:
    """What a list adds to the history of EPSS: days, each with its blocks; and the days that it withdraws."""

    days: Mapping[StoredDay, Sequence[bytes]] = field(default_factory=dict)
    withdrawn: frozenset[date] = frozenset()

    def rows(self) -> list[Tables]:
        """The rows to store in the list's own transaction."""
        found: list[Tables] = []
        for one, blocks in self.days.items():
            found.append(EpssDay(day=one.day, model=one.model, next_day=one.next_day))
            found += [EpssBlock(day=one.day, block=place, scores=block) for place, block in enumerate(blocks)]
        return found


async def history_after(storage: Storage, edition: Edition, last: Edition | None) -> HistoryRows:
    """What to store of EPSS with an edition; `last` is the edition that was served before.

    Of a list that is served it is the scores of `last`, as what differs from the new ones; of a list of an earlier day, which
    is only archived, its own scores, unless their day is stored.
    """
    if last is None:
        return HistoryRows()
    new = edition.facts.issues.epss
    old = last.facts.issues.epss
    async with storage.read() as session:
        stored = await _stored_days(session)
    if edition.day < last.day:
        return await _inserted(storage, stored, edition, last)
    days = await _corrected(storage, stored, edition, last) if _day(new) == _day(old) or _day(new) in stored else {}
    if _day(new) != _day(old):
        following = _Following.of(edition) if _day(old) < _day(new) else None
        newest = StoredDay(_day(old), old.version, None)
        days |= await anyio.to_thread.run_sync(_stored, scores_of(last.ranked), newest, following)
    return HistoryRows(days)


async def history_corrected(storage: Storage, edition: Edition, *, published: Edition, served: Edition) -> HistoryRows:
    """What becomes of the history where an edition replaces the one that was `published`; `served` is the last list's."""
    new = _day(edition.facts.issues.epss)
    old = _day(published.facts.issues.epss)
    before = scores_of(published.ranked)
    now = _Following.of(edition)
    async with storage.read() as session:
        stored = await _stored_days(session)
    if new == old and not (await anyio.to_thread.run_sync(difference, before, now.scores)).numbers:
        return HistoryRows()
    if published.day == served.day:
        return HistoryRows(await _relinked(storage, stored, old, before, now), frozenset({new} & stored.keys()))
    if old not in stored:  # the last list was made from it too: that list is to be corrected first
        return HistoryRows()
    later = stored[old].next_day
    following = _Following(later, stored[old].model, await _scores_on(storage, stored, later, served)) if later else None
    if new != old:
        return HistoryRows(await _relinked(storage, stored, old, before, following), frozenset({old}))
    days = await _relinked(storage, stored, old, before, now)
    return HistoryRows(days | await anyio.to_thread.run_sync(_stored, now.scores, StoredDay(old, now.model, None), following))


async def _corrected(
    storage: Storage, stored: Mapping[date, StoredDay], edition: Edition, last: Edition
) -> dict[StoredDay, Sequence[bytes]]:
    """What is stored as different from a day that was known before, stored anew if the day has other scores now."""
    issue = edition.facts.issues.epss
    now = scores_of(edition.ranked)
    before = await _scores_on(storage, stored, _day(issue), last)
    if not (await anyio.to_thread.run_sync(difference, before, now)).numbers:
        return {}
    others = {day: one for day, one in stored.items() if day != _day(last.facts.issues.epss)}
    return await _relinked(storage, others, _day(issue), before, _Following.of(edition))


async def _relinked(
    storage: Storage, stored: Mapping[date, StoredDay], day: date, before: Scores, following: "_Following | None"
) -> dict[StoredDay, Sequence[bytes]]:
    """The days that are stored as different from `before`, the scores of `day`, stored anew as different from the following."""
    days: dict[StoredDay, Sequence[bytes]] = {}
    for one in stored.values():
        if one.next_day == day and not (following and following.day == one.day):
            earlier = await anyio.to_thread.run_sync(undone, before, await _changes_on(storage, one.day))
            days |= await anyio.to_thread.run_sync(_stored, earlier, one, following)
    return days


async def _inserted(storage: Storage, stored: Mapping[date, StoredDay], edition: Edition, last: Edition) -> HistoryRows:
    """The scores of a list that is only archived, as what differs from the next day that is known."""
    new = edition.facts.issues.epss
    newest = last.facts.issues.epss
    if _day(new) in stored or _day(new) == _day(newest):
        return HistoryRows()
    one = StoredDay(_day(new), new.version, None)
    models = {day: known.model for day, known in stored.items()} | {_day(newest): newest.version}
    following = min((day for day in models if day > one.day), default=None)
    if following is None or models[following] != one.model:
        return HistoryRows(await anyio.to_thread.run_sync(_stored, scores_of(edition.ranked), one, None))
    after = await _scores_on(storage, stored, following, last)
    changes = await anyio.to_thread.run_sync(difference, scores_of(edition.ranked), after)
    return HistoryRows({StoredDay(one.day, one.model, following): await anyio.to_thread.run_sync(packed, changes)})


@dataclass(frozen=True)
class _Following:
    """The scores of a day, from which those of the day before it are stored as different."""

    day: date
    model: str
    scores: Scores

    @classmethod
    def of(cls, edition: Edition) -> "_Following":
        """The scores of an edition."""
        return cls(_day(edition.facts.issues.epss), edition.facts.issues.epss.version, scores_of(edition.ranked))


def _stored(scores: Scores, one: StoredDay, following: _Following | None) -> dict[StoredDay, Sequence[bytes]]:
    """A day's scores as what differs from the following ones, or whole if there are none of the same model."""
    if following is None or following.model != one.model:
        return {StoredDay(one.day, one.model, None): packed(scored(scores))}
    return {StoredDay(one.day, one.model, following.day): packed(difference(scores, following.scores))}


def _day(issue: Issue) -> date:
    return issue.issued.date()


async def _stored_days(session: AsyncSession, *, since: date = date.min) -> dict[date, StoredDay]:
    chosen = select(col(EpssDay.day), col(EpssDay.model), col(EpssDay.next_day)).where(col(EpssDay.day) >= since)
    return {day: StoredDay(day, model, next_day) for day, model, next_day in await session.exec(chosen)}


async def _changes_on(storage: Storage, day: date) -> Scores:
    """All that is stored of a day."""
    async with storage.read() as session:
        rows = list(await session.exec(select(EpssBlock.block, EpssBlock.scores).where(col(EpssBlock.day) == day)))
    return await anyio.to_thread.run_sync(lambda: joined(unpacked(block, place) for place, block in rows))


async def _scores_on(storage: Storage, stored: Mapping[date, StoredDay], day: date, latest: Edition) -> Scores:
    """Every score of a known day."""
    newest = _day(latest.facts.issues.epss)
    followed: list[date] = []
    while day != newest and (following := stored[day].next_day) is not None:
        followed.append(day)
        day = following
    scores = scores_of(latest.ranked) if day == newest else await _changes_on(storage, day)
    changed: dict[int, float] = {}
    for one in reversed(followed):
        changes = await _changes_on(storage, one)
        changed.update(zip(changes.numbers, changes.epss, strict=True))
    return await anyio.to_thread.run_sync(undone, scores, Scores(array("q", changed.keys()), array("d", changed.values())))


async def scores_on(storage: Storage, day: date, latest: Edition) -> Scores | None:
    """Every score of a day, `latest` being the list that is served; None if the day is not known."""
    async with storage.read() as session:
        stored = await _stored_days(session)
    is_known = day in stored or day == _day(latest.facts.issues.epss)
    return await _scores_on(storage, stored, day, latest) if is_known else None


async def load_scores(storage: Storage, day: date, *, latest: Edition) -> RankingScores | None:
    """Every score of a known day, with percentiles that are computed; None if the day is not known."""
    async with storage.read() as session:
        stored = await _stored_days(session)
    if day not in stored and day != _day(latest.facts.issues.epss):
        return None
    scores = scored(await _scores_on(storage, stored, day, latest))
    return await anyio.to_thread.run_sync(lambda: RankingScores(scores.numbers, scores.epss, _percentiles(scores.epss)))


def _percentiles(epss: "array[float]") -> "array[float]":
    """The share of scores that are the same or lower, with EPSS's five decimals."""
    ordered = sorted(epss)
    shares = {score: round(place / len(ordered), 5) for place, score in enumerate(ordered, 1)}
    return array("d", map(shares.__getitem__, epss))


async def earlier_scores(storage: Storage, issue: Issue, *, added: HistoryRows) -> EarlierScores | None:
    """EPSS 7 to 10 days before an issue, by the same model; `added` is what will be stored with the issue's list."""
    newest = _day(issue)
    async with storage.read() as session:
        stored = await _stored_days(session, since=newest - LONGEST_WEEK)
    stored |= {day.day: day for day in added.days}
    in_window = [day for day in stored if WEEK <= newest - day <= LONGEST_WEEK and stored[day].model == issue.version]
    for day in sorted(in_window, reverse=True):
        if path := path_back(stored.values(), newest=newest, to=day):
            return await _overlaid(storage, day, path, added)
    return None


async def _overlaid(storage: Storage, day: date, path: Sequence[date], added: HistoryRows) -> EarlierScores:
    made = {one.day: blocks for one, blocks in added.days.items()}
    changed: dict[int, float] = {}
    for one in path:
        if one in made:
            changes = joined(unpacked(block, place) for place, block in enumerate(made[one]))
        else:
            changes = await _changes_on(storage, one)
        changed.update(zip(changes.numbers, changes.epss, strict=True))
    return EarlierScores(day=day, changed=changed)


async def load_points(
    storage: Storage, numbers: Collection[int], latest: Edition, *, version: str | None, since: date = date.min
) -> dict[int, list[Point]] | None:
    """The EPSS of CVEs on every known day from `since` on, the oldest first, by number.

    `latest` is the list that is served and `version` its version; None if another list has been stored since.
    """
    blocks = {block_of(number) for number in numbers}
    async with storage.read() as session:
        if (await session.exec(select(LatestList.version))).first() != version:
            return None
        stored = await _stored_days(session, since=since)
        # asked for day by day, so that the database follows the primary key: a range of days would read all blocks
        days = select(col(EpssDay.day)).where(col(EpssDay.day) >= since)
        wanted = col(EpssBlock.day).in_(days), col(EpssBlock.block).in_(sorted(blocks))
        rows = list(await session.exec(select(col(EpssBlock.day), col(EpssBlock.block), col(EpssBlock.scores)).where(*wanted)))
    return await anyio.to_thread.run_sync(_points, stored, rows, numbers, latest)


def _points(
    stored: Mapping[date, StoredDay], rows: Iterable[tuple[date, int, bytes]], numbers: Collection[int], latest: Edition
) -> dict[int, list[Point]]:
    by_block: dict[int, list[int]] = {}
    for number in numbers:
        by_block.setdefault(block_of(number), []).append(number)
    values: dict[int, dict[date, float]] = {number: {} for number in numbers}
    for day, place, block in rows:
        for number, epss in found_in(block, place, by_block.get(place, ())).items():
            values[number][day] = epss
    issue = latest.facts.issues.epss
    ranked = scores_of(latest.ranked)
    found = {}
    for number in numbers:
        now = ranked.get(number)
        newest = Point(_day(issue), issue.version, None if now is None or now < 0 else now)
        found[number] = points_of(stored.values(), values[number], newest)
    return found


def points_of_sample(sample: Edition, numbers: Collection[int]) -> dict[int, list[Point]]:
    """The EPSS of CVEs in the shipped sample, which has one day."""
    return _points({}, (), numbers, sample)
