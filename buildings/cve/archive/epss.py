"""The history of EPSS: every change of a score as a row. Stores a day's scores, and reads those of one CVE or of one day again."""

from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cached_property
from itertools import pairwise, repeat

from sqlalchemy import ColumnElement, Connection, Select, exists, insert, literal, select

from buildings.cve.forecast.formula import EarlierScores
from buildings.cve.ranking.edition import Edition
from buildings.cve.ranking.formula import UNSCORED, unscored_rows
from buildings.cve.ranking.formula import Scores as RankingScores
from buildings.cve.tables import EPSS_CHANGES, EPSS_DAYS, RANKED
from campus.storage import Storage, among, column_pages, in_snapshot, insert_columns

WEEK = timedelta(days=7)
LONGEST_WEEK = timedelta(days=10)
"""Scores of 7 to 10 days before are compared with: some days have no list."""
CHANGE, DAY = EPSS_CHANGES.c, EPSS_DAYS.c


@dataclass(frozen=True, slots=True)
class Point:
    """The EPSS of one CVE on one day; None if it was not scored."""

    day: date
    model: str
    epss: float | None


@dataclass(frozen=True)
class DayScores:
    """The EPSS of one day: CVE numbers in ascending order, each with its score; UNSCORED where it had none."""

    day: date
    model: str
    numbers: "array[int]"
    epss: "array[float]"

    @classmethod
    def of(cls, edition: Edition) -> "DayScores":
        """The scores that an edition was made from."""
        issue = edition.facts.issues.epss
        return cls(issue.issued.date(), issue.version, edition.ranked.numbers, edition.ranked.epss)

    def by_number(self) -> dict[int, float | None]:
        scores = dict[int, float | None](zip(self.numbers, self.epss, strict=True))
        for row in unscored_rows(self.epss):
            del scores[self.numbers[row]]
        return scores

    def steps_from(self, before: dict[int, float | None]) -> dict[int, float | None]:
        """The scores that are others than before, by number; None for those that are gone. Empties `before`: a copy takes 40 MB."""
        pairs = zip(self.numbers, self.epss, strict=True)
        changed = {number: None if epss == UNSCORED else epss for number, epss in pairs if before.pop(number, UNSCORED) != epss}
        return changed | dict.fromkeys(before)


@dataclass(frozen=True)
class HistoryChange:
    """What a list changes in the history: the day whose scores it brings, and the day that it withdraws; `known` are the last list's."""

    brings: DayScores | None = None
    withdraws: date | None = None
    known: DayScores | None = None

    def store(self, connection: Connection) -> None:
        """Make the change, in the list's own transaction."""
        if self.withdraws:
            _withdraw(connection, self.withdraws)
        if self.brings:
            _store_day(connection, self.brings, self)

    @cached_property
    def steps(self) -> Mapping[int, float | None]:
        """The scores that are others than in the last list, by number."""
        return self.brings.steps_from(self.known.by_number()) if self.brings and self.known else {}


async def history_after(storage: Storage, edition: Edition, last: Edition | None) -> HistoryChange:
    """What to store of EPSS with an edition; `last` is the edition that was served before it.

    A list that is only archived brings its scores only if those of their day are not known: the served lists' count.
    """
    new = DayScores.of(edition)
    if last and edition.day < last.day and new.day in await in_snapshot(storage, _models):
        return HistoryChange()
    return HistoryChange(brings=new, known=DayScores.of(last) if last else None)


def history_corrected(edition: Edition, *, published: Edition, served: Edition) -> HistoryChange:
    """What becomes of the history where an edition replaces the one that was `published`; `served` is the last list's."""
    new, old = DayScores.of(edition), DayScores.of(published)
    if published.day != served.day and old.day == DayScores.of(served).day:
        return HistoryChange()  # the last list was made from it too: that list is to be corrected first
    if new.day == old.day:
        return HistoryChange(brings=new)
    return HistoryChange(withdraws=old.day, brings=new if published.day == served.day else None)


def _store_day(connection: Connection, new: DayScores, change: HistoryChange) -> None:
    """Store a day's scores; those of the days after it stay what they are."""
    models = _models(connection)
    known = change.known
    if known and known.day == new.day in models and not change.steps:
        return
    before = max((day for day in models if day < new.day), default=None)
    following = min((day for day in models if day > new.day), default=None)
    if following:
        replaced = _scores_on(connection, new.day if new.day in models else before)
        kept = set(connection.scalars(select(CHANGE.number).where(CHANGE.day == following)))
        later = {number: replaced.get(number) for number in new.steps_from(replaced.copy()) if number not in kept}
        insert_columns(connection, EPSS_CHANGES, later, repeat(following), later.values())
    if new.day in models:
        connection.execute(EPSS_CHANGES.delete().where(CHANGE.day == new.day))
        connection.execute(EPSS_DAYS.delete().where(DAY.day == new.day))
    if models:
        steps = change.steps if known and known.day == before else new.steps_from(_scores_on(connection, before))
        insert_columns(connection, EPSS_CHANGES, steps, repeat(new.day), steps.values())
    else:  # of the first list, which has been stored
        scored = select(RANKED.c.number, literal(new.day), RANKED.c.epss).where(RANKED.c.epss.is_not(None))
        connection.execute(insert(EPSS_CHANGES).from_select(["number", "day", "epss"], scored))
    connection.execute(EPSS_DAYS.insert(), {"day": new.day, "model": new.model})


def _withdraw(connection: Connection, day: date) -> None:
    """Delete a day; what it changed changes on the next day, if that has no other score."""
    following = min((one for one in _models(connection) if one > day), default=None)
    if following:
        others = select(CHANGE.number).where(CHANGE.day == following)
        moved = select(CHANGE.number, literal(following), CHANGE.epss).where(CHANGE.day == day, CHANGE.number.not_in(others))
        connection.execute(insert(EPSS_CHANGES).from_select(["number", "day", "epss"], moved))
    connection.execute(EPSS_CHANGES.delete().where(CHANGE.day == day))
    connection.execute(EPSS_DAYS.delete().where(DAY.day == day))


def _models(connection: Connection) -> dict[date, str]:
    """The models of the known days, by day."""
    return dict(connection.execute(select(DAY.day, DAY.model).order_by(DAY.day)).all())


def _last_changes(until: date, *wanted: ColumnElement[bool]) -> Select[int, float | None]:
    """Of each CVE that is wanted the last change until a day, with the columns number and epss."""
    later = EPSS_CHANGES.alias().c
    is_followed = exists().where(later.number == CHANGE.number, later.day > CHANGE.day, later.day <= until)
    return select(CHANGE.number, CHANGE.epss).where(CHANGE.day <= until, ~is_followed, *wanted)


def _scores_on(connection: Connection, day: date | None) -> dict[int, float | None]:
    """Every score of a known day; none before the first."""
    if day is None:
        return {}
    pages = column_pages(connection, _last_changes(day), CHANGE.number)
    return {number: epss for page in pages for number, epss in zip(*page, strict=True) if epss is not None}


async def load_scores(storage: Storage, day: date) -> RankingScores | None:
    """Every score of a day, with percentiles that are computed; None if the day is not known."""

    def read(connection: Connection) -> RankingScores | None:
        if day not in _models(connection):
            return None
        scores = _scores_on(connection, day)
        epss = array("d", (score or 0.0 for score in scores.values()))
        return RankingScores(array("q", scores), epss, _percentiles(epss))

    return await in_snapshot(storage, read)


def _percentiles(epss: "array[float]") -> "array[float]":
    """The share of scores that are the same or lower, with EPSS's five decimals."""
    ordered = sorted(epss)
    shares = {score: round(place / len(ordered), 5) for place, score in enumerate(ordered, 1)}
    return array("d", map(shares.__getitem__, epss))


async def earlier_scores(
    storage: Storage, *, day: date, model: str, differing: Iterable[int] = (), without: date | None = None
) -> EarlierScores | None:
    """EPSS 7 to 10 days before a day, by the same model; None where it is not known.

    `differing` are CVEs whose score of the day is another than the last that is stored; a day `without` which is withdrawn.
    """

    def read(connection: Connection) -> EarlierScores | None:
        models = _models(connection)
        compared = max((one for one in models if WEEK <= day - one <= LONGEST_WEEK and one != without), default=None)
        if compared is None or any(models[one] != model for one in models if compared <= one < day):
            return None
        numbers = {*differing, *connection.scalars(select(CHANGE.number).distinct().where(CHANGE.day > compared))}
        changes = connection.execute(_last_changes(compared, among(connection, CHANGE.number, numbers)))
        scores = {number: UNSCORED if epss is None else epss for number, epss in changes}
        return EarlierScores(day=compared, changed={**dict.fromkeys(numbers, UNSCORED), **scores})

    return await in_snapshot(storage, read)


async def load_points(storage: Storage, numbers: Collection[int], *, since: date = date.min) -> dict[int, list[Point]]:
    """The EPSS of CVEs on every known day from `since` on, the oldest first, by number."""

    def read(connection: Connection) -> dict[int, list[Point]]:
        models = {day: model for day, model in _models(connection).items() if day >= since}
        steps: dict[int, dict[date, float | None]] = {number: {} for number in numbers}
        changes = select(CHANGE.number, CHANGE.day, CHANGE.epss).where(among(connection, CHANGE.number, numbers))
        for number, day, epss in connection.execute(changes.order_by(CHANGE.number, CHANGE.day)):
            steps[number][max(day, since)] = epss
        return {number: _points(models, of_one) for number, of_one in steps.items()}

    return await in_snapshot(storage, read)


def _points(models: Mapping[date, str], steps: Mapping[date, float | None]) -> list[Point]:
    points, waiting, epss = [], list(steps), None
    for day, model in models.items():
        while waiting and waiting[0] <= day:
            epss = steps[waiting.pop(0)]
        points.append(Point(day, model, epss))
    return points


def points_of_sample(sample: Edition, numbers: Collection[int]) -> dict[int, list[Point]]:
    """The EPSS of CVEs in the shipped sample, which has one day."""
    day = DayScores.of(sample)
    scores = day.by_number()
    return {number: [Point(day.day, day.model, scores.get(number))] for number in numbers}


def changes_of(points: Sequence[Point]) -> list[Point]:
    """The first point, and every one with another EPSS or model than the one before."""
    befores: Sequence[Point | None] = [None, *points]
    return [
        one for before, one in zip(befores, points, strict=False) if before is None or (before.epss, before.model) != (one.epss, one.model)
    ]


def gaps_between(days: Sequence[date]) -> list[tuple[date, date]]:
    """The first and last day of every stretch of missing days."""
    one_day = timedelta(days=1)
    return [(before + one_day, day - one_day) for before, day in pairwise(days) if day - before > one_day]
