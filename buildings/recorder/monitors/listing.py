"""The fleet for people, a page at a time, and each monitor's past: outages as its alerts report them, in the slots of a strip, and by day.

Of each monitor a hundred runs are kept, and alerts for a month. So a slot is good when nothing says that the monitor was down in it, or
that a run failed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, NamedTuple, get_args

from sqlalchemy import ColumnElement, Connection, Row, case, func, select, union_all

from buildings.recorder.beats.runs import OVERDUE
from buildings.recorder.models import Entry
from buildings.recorder.monitors.fleet import entries_of, has_in_name
from buildings.recorder.monitors.rows import has_tag, state_in_sql
from buildings.recorder.monitors.state_machine import StateWord
from buildings.recorder.tables import ALERTS, DELIVERIES, MONITORS, RUNS
from campus.storage import among

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
HOURS_SHOWN, DAYS_SHOWN = 24, 30
PER_PAGE = 50
LONGEST_TEXT = 100
STATES: Sequence[StateWord] = get_args(StateWord)
SORTS: Mapping[str, Sequence[ColumnElement[Any]]] = {
    "state": (),
    "name": (func.lower(MONITORS.c.name), MONITORS.c.id),
    "beat": (MONITORS.c.last_beat_at.is_(None), MONITORS.c.last_beat_at.desc(), MONITORS.c.id),
}
CHANGES_READ = 2_000  # Stored alerts that one page reads, the latest first.


class StoredChange(NamedTuple):
    at: datetime
    kind: str


class Slot(NamedTuple):
    """A part of a strip and what is known of it: good, bad, warn or none."""

    start: datetime
    tone: str


class DayUptime(NamedTuple):
    day: date
    outages: int
    failed: int
    down: timedelta
    watched: timedelta

    @property
    def up(self) -> float:
        return 100 - self.down / self.watched * 100


@dataclass(frozen=True)
class History:
    """The past of one monitor; `changes` are what its alerts reported, in any order, once for each target, `failed_at` its failed runs."""

    entry: Entry
    first_beat_at: datetime | None
    changes: Sequence[StoredChange]
    failed_at: Sequence[datetime] = ()

    def outages(self, now: datetime) -> list[tuple[datetime, datetime]]:
        """When it was down. An outage whose end no alert reported ended with the next one, or when it came to its present state."""
        entry = self.entry
        is_down = entry.state == "dead" and not entry.paused
        found: list[tuple[datetime, datetime]] = []
        began: datetime | None = None
        for change in sorted(set(self.changes)):
            if change.kind == "recovered":
                found += [] if began is None else [(began, change.at)]
                began = None
            elif began is None:
                began = change.at
        if is_down:
            found.append((min(began or entry.since, entry.since), now))
        elif began is not None:
            found.append((began, max(began, min(entry.since, now))))
        return found

    def hours(self, now: datetime) -> list[Slot]:
        outages = self.outages(now)
        starts = [now - HOUR * back for back in range(HOURS_SHOWN, 0, -1)]
        return [Slot(start, self._tone(start, start + HOUR, now, outages)) for start in starts]

    def _tone(self, start: datetime, end: datetime, now: datetime, outages: Sequence[tuple[datetime, datetime]]) -> str:
        entry = self.entry
        if any(began < end and ended > start for began, ended in outages):
            return "bad"
        if any(start < at <= end for at in self.failed_at):
            return "bad"
        if self.first_beat_at is None or self.first_beat_at >= end or (entry.paused and entry.since <= start):
            return "none"
        return "warn" if entry.state == "late" and end == now else "good"

    def days(self, now: datetime) -> list[DayUptime]:
        return [one for one in self._days(now) if one.watched > timedelta(0)]

    def _days(self, now: datetime) -> Iterator[DayUptime]:
        outages = self.outages(now)
        for back in range(DAYS_SHOWN - 1, -1, -1):
            day = (now - DAY * back).date()
            start = max(datetime.combine(day, time(), UTC), self.first_beat_at or now)
            end = min(datetime.combine(day, time(), UTC) + DAY, self.entry.since if self.entry.paused else now)
            down = sum((max(min(end, ended) - max(start, began), timedelta(0)) for began, ended in outages), timedelta(0))
            failed = sum(start <= at < end for at in self.failed_at)
            yield DayUptime(day, sum(start <= began < end for began, _ in outages), failed, down, max(end - start, timedelta(0)))


class FleetQuery(NamedTuple):
    """What a visitor asks for; an unknown state or order is none."""

    state: str = ""
    text: str = ""
    sort: str = "state"
    page: int = 1
    tag: str = ""

    @classmethod
    def read(cls, given: Mapping[str, str]) -> "FleetQuery":
        state, sort, page = given.get("state", ""), given.get("sort", ""), given.get("page", "")
        return cls(
            state if state in STATES else "",
            given.get("q", "").replace("\0", "").strip()[:LONGEST_TEXT],
            sort if sort in SORTS else "state",
            max(int(page), 1) if page.isascii() and page.isdigit() and len(page) < 7 else 1,
            given.get("tag", "").replace("\0", "").strip()[:LONGEST_TEXT],
        )


@dataclass(frozen=True)
class FleetPage:
    count: int
    states: Mapping[str, int]
    found: int
    page: int
    pages: int
    monitors: tuple[Entry, ...]
    histories: Mapping[str, History]

    @property
    def all_alive(self) -> bool:
        """Whether each of the key's monitors beats in time, or waits for its user, and one beats at least."""
        return self.states["alive"] > 0 and self.states["alive"] + self.states["idle"] == self.count


def read_page(connection: Connection, lineage: str, query: FleetQuery, *, url: str, now: datetime) -> FleetPage:
    mine = MONITORS.c.owner == lineage
    word = state_in_sql(now)
    matching = mine & has_in_name(query.text) if query.text else mine
    matching = matching & has_tag(query.tag) if query.tag else matching
    counted = connection.execute(select(word, func.count()).where(matching).group_by(word)).all()
    states: dict[str, int] = {str(state): int(number) for state, number in counted}
    found = states.get(query.state, 0) if query.state else sum(states.values())
    pages = max(-(-found // PER_PAGE), 1)
    page = min(query.page, pages)
    worst_first = (case({state: rank for rank, state in enumerate(STATES)}, value=word), func.lower(MONITORS.c.name), MONITORS.c.id)
    chosen = select(MONITORS).where(matching, *([word == query.state] if query.state else []))
    rows = connection.execute(chosen.order_by(*(SORTS[query.sort] or worst_first)).limit(PER_PAGE).offset((page - 1) * PER_PAGE)).all()
    count = connection.scalar(select(func.count()).select_from(MONITORS).where(mine)) if query.text or query.tag else sum(states.values())
    return FleetPage(
        count=count or 0,
        states={state: states.get(state, 0) for state in STATES},
        found=found,
        page=page,
        pages=pages,
        monitors=(monitors := entries_of(connection, rows, url=url, now=now)),
        histories=_histories(connection, rows, monitors, since=now - timedelta(days=1)),
    )


def read_one(
    connection: Connection, chosen: ColumnElement[bool], *, url: str, now: datetime, since: datetime
) -> tuple[Entry, History] | None:
    rows = connection.execute(select(MONITORS).where(chosen)).all()
    monitors = entries_of(connection, rows, url=url, now=now)
    return (monitors[0], _histories(connection, rows, monitors, since=since)[rows[0].id]) if rows else None


def _histories(connection: Connection, rows: Sequence[Row[Any]], monitors: Sequence[Entry], *, since: datetime) -> dict[str, History]:
    changes = [
        select(one.c.monitor_id, one.c.at, one.c.kind).where(
            among(connection, one.c.monitor_id, [row.id for row in rows]),
            one.c.at >= since,
            one.c.kind.in_(("dead", "failed", "recovered")),
        )
        for one in (DELIVERIES, ALERTS)
    ]
    both = union_all(*changes).subquery()
    found: dict[str, list[StoredChange]] = {row.id: [] for row in rows}
    for monitor_id, at, kind in connection.execute(select(both).order_by(both.c.at.desc()).limit(CHANGES_READ)):
        found[monitor_id].append(StoredChange(at, kind))
    run = RUNS.c
    mine = among(connection, run.monitor_id, [row.id for row in rows])
    failed: dict[str, list[datetime]] = {row.id: [] for row in rows}
    bad = run.result.in_(("fail", OVERDUE)) & (func.coalesce(run.ended_at, run.limit_at) >= since)
    for monitor_id, at in connection.execute(select(run.monitor_id, func.coalesce(run.ended_at, run.limit_at)).where(mine, bad)):
        failed[monitor_id].append(at)
    return {row.id: History(entry, row.first_beat_at, found[row.id], failed[row.id]) for row, entry in zip(rows, monitors, strict=True)}
