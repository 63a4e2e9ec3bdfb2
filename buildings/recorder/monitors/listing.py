"""The fleet for people, a page at a time: the worst first or as asked, filtered by state and text, with the outages that are stored."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Row, and_, case, func, literal, or_, select, union_all

from buildings.recorder.models import Entry
from buildings.recorder.monitors.fleet import entries_of
from buildings.recorder.monitors.history import History, StoredChange
from buildings.recorder.monitors.state_machine import DOWN, UNWATCHED
from buildings.recorder.tables import ALERTS, DELIVERIES, MONITORS
from campus.storage import Moment, among

PER_PAGE = 50
LONGEST_TEXT = 100
STATES = ("dead", "late", "waiting", "idle", "paused", "alive")
"""The states of state_machine.state_in_a_word, in the order of the page."""
SORTS: Mapping[str, Sequence[ColumnElement[Any]]] = {
    "state": (),
    "name": (func.lower(MONITORS.c.name), MONITORS.c.id),
    "beat": (MONITORS.c.last_beat_at.is_(None), MONITORS.c.last_beat_at.desc(), MONITORS.c.id),
}
CHANGES_READ = 2_000
"""Stored alerts that one page reads, the latest first."""


class FleetQuery(NamedTuple):
    """What a visitor asks for; an unknown state or order is none."""

    state: str = ""
    text: str = ""
    sort: str = "state"
    page: int = 1

    @classmethod
    def read(cls, given: Mapping[str, str]) -> "FleetQuery":
        state, sort, page = given.get("state", ""), given.get("sort", ""), given.get("page", "")
        return cls(
            state if state in STATES else "",
            given.get("q", "").replace("\0", "").strip()[:LONGEST_TEXT],
            sort if sort in SORTS else "state",
            max(int(page), 1) if page.isascii() and page.isdigit() and len(page) < 7 else 1,
        )


@dataclass(frozen=True)
class FleetPage:
    """One page: how many monitors the key owns in all, how many fit the text by state, and those of this page with their past."""

    count: int
    states: Mapping[str, int]
    found: int
    page: int
    pages: int
    monitors: tuple[Entry, ...]
    histories: Mapping[str, History]


def state_in_sql(now: datetime) -> ColumnElement[str]:
    """state_machine.state_in_a_word for the rows of a statement; tests/recorder/test_pages.py compares them."""
    at, monitor = literal(now, Moment()), MONITORS.c
    return case(
        (monitor.mode.in_(sorted(UNWATCHED)), "paused"),
        (or_(monitor.mode.in_(sorted(DOWN)), and_(monitor.mode == "up", monitor.deadline_at <= at)), "dead"),
        (and_(monitor.mode == "up", monitor.expected_at <= at), "late"),
        (monitor.first_beat_at.is_(None), "waiting"),
        (monitor.mode == "idle", "idle"),
        else_="alive",
    )


def read_page(connection: Connection, lineage: str, query: FleetQuery, *, url: str, now: datetime) -> FleetPage:
    """A page of a key's monitors, in a number of statements that does not grow with them. A page beyond the last is the last."""
    mine = MONITORS.c.owner == lineage
    word = state_in_sql(now)
    matching = mine & func.lower(MONITORS.c.name).contains(query.text.lower(), autoescape=True) if query.text else mine
    counted = connection.execute(select(word, func.count()).where(matching).group_by(word)).all()
    states: dict[str, int] = {str(state): int(number) for state, number in counted}
    found = states.get(query.state, 0) if query.state else sum(states.values())
    pages = max(-(-found // PER_PAGE), 1)
    page = min(query.page, pages)
    worst_first = (case({state: rank for rank, state in enumerate(STATES)}, value=word), func.lower(MONITORS.c.name), MONITORS.c.id)
    chosen = select(MONITORS).where(matching, *([word == query.state] if query.state else []))
    rows = connection.execute(chosen.order_by(*(SORTS[query.sort] or worst_first)).limit(PER_PAGE).offset((page - 1) * PER_PAGE)).all()
    count = connection.scalar(select(func.count()).select_from(MONITORS).where(mine)) if query.text else sum(states.values())
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
    connection: Connection, lineage: str, monitor_id: str, *, url: str, now: datetime, since: datetime
) -> tuple[Entry, History] | None:
    """One monitor of a key with its past; None for any other."""
    rows = connection.execute(select(MONITORS).where(MONITORS.c.owner == lineage, MONITORS.c.id == monitor_id)).all()
    monitors = entries_of(connection, rows, url=url, now=now)
    return (monitors[0], _histories(connection, rows, monitors, since=since)[monitor_id]) if rows else None


def _histories(connection: Connection, rows: Sequence[Row[Any]], monitors: Sequence[Entry], *, since: datetime) -> dict[str, History]:
    """The past of monitors, from what their alerts reported since then, delivered or not."""
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
    return {row.id: History(entry, row.first_beat_at, found[row.id]) for row, entry in zip(rows, monitors, strict=True)}
