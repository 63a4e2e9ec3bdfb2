"""What is kept of a monitor's past: its last hundred runs and two hundred beats, and what the fleet says of its runs."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any

from sqlalchemy import Connection, and_, case, func, select, update

from buildings.recorder.beats.rules import BEATS_IN_HISTORY, PAGES_KEPT, PastBeat, page_slot, past_beats
from buildings.recorder.beats.runs import LOG, OVERDUE, UNKNOWN
from buildings.recorder.models import BeatView, LastRun, RunResult, RunSummary, RunView
from buildings.recorder.monitors.state_machine import WITH_DEADLINE
from buildings.recorder.tables import BEAT_PAGES, MONITORS, RUNS
from campus.storage import among

NO_SUMMARY = RunSummary(count=0, last=None, success=None)
WITH_LIMIT = select(RUNS, MONITORS.c.mode, MONITORS.c.deadline_at).join(MONITORS, MONITORS.c.id == RUNS.c.monitor_id)


def runs_of(connection: Connection, monitor_id: str, limit: int, *, now: datetime) -> tuple[RunView, ...]:
    """The last runs of a monitor, the latest first, each with the end of its output."""
    mine = WITH_LIMIT.where(RUNS.c.monitor_id == monitor_id).order_by(RUNS.c.number.desc())
    return tuple(_run_view(row, now) for row in connection.execute(mine.limit(limit)))


def beats_of(connection: Connection, monitor_id: str, limit: int) -> tuple[BeatView, ...]:
    """The last beats of a monitor, the latest first: those in its row, then those of the pages that begin before them."""
    row = connection.execute(select(MONITORS.c.history, MONITORS.c.beats).where(MONITORS.c.id == monitor_id)).one_or_none()
    if row is None:
        return ()
    mine = select(BEAT_PAGES.c.slot, BEAT_PAGES.c.entries).where(BEAT_PAGES.c.monitor_id == monitor_id)
    pages = dict(connection.execute(mine).all()) if limit > BEATS_IN_HISTORY else {}
    beats = list(past_beats(row.history))
    before = row.beats - len(beats)
    last = row.beats // BEATS_IN_HISTORY * BEATS_IN_HISTORY
    for end in range(last, max(last - PAGES_KEPT * BEATS_IN_HISTORY, 0), -BEATS_IN_HISTORY):
        entries = pages.get(page_slot(end), b"")
        beats += islice(past_beats(entries), max(end - before, 0), None)
    return tuple(map(beat_view, beats[:limit]))


def beat_view(beat: PastBeat) -> BeatView:
    return BeatView(at=beat.at, status=beat.status, run_seconds=None if beat.run is None else beat.run.total_seconds())


def summaries_of(connection: Connection, ids: Sequence[str], *, now: datetime) -> Mapping[str, RunSummary]:
    """What the fleet says of the runs of some monitors: the last one, and the share of successes among those that are kept."""
    run = RUNS.c
    succeeded, counted = (func.sum(case((run.result.in_(words), 1), else_=0)) for words in (["ok"], ["ok", "fail", OVERDUE]))
    mine = select(run.monitor_id, func.max(run.number).label("last"), succeeded.label("succeeded"), counted.label("counted"))
    totals = mine.where(among(connection, run.monitor_id, ids), run.result.is_distinct_from(LOG)).group_by(run.monitor_id).subquery()
    shown = [column for column in WITH_LIMIT.selected_columns if column.name != "output"]
    chosen = WITH_LIMIT.with_only_columns(*shown, totals.c.succeeded, totals.c.counted, MONITORS.c.runs)
    latest = chosen.join(totals, and_(totals.c.monitor_id == run.monitor_id, totals.c.last == run.number))
    return {
        row.monitor_id: RunSummary(count=row.runs, last=_in_short(row, now), success=row.succeeded / row.counted if row.counted else None)
        for row in connection.execute(latest)
    }


def end_open_runs(connection: Connection, monitor_id: str, *, now: datetime) -> None:
    """End the runs of an agent that was replaced: nobody will say how they ended."""
    is_open = (RUNS.c.monitor_id == monitor_id) & RUNS.c.ended_at.is_(None)
    result = func.coalesce(RUNS.c.result, case((RUNS.c.limit_at <= now, OVERDUE), else_=UNKNOWN))
    connection.execute(update(RUNS).where(is_open).values(ended_at=now, result=result))


def _run_view(row: Any, now: datetime) -> RunView:
    output = None if row.output is None else row.output.decode(errors="replace")
    return RunView(**dict(_in_short(row, now)), rid=row.rid, session=row.session, agent=row.agent, output=output)


def _in_short(row: Any, now: datetime) -> LastRun:
    result: RunResult = row.result if row.result is not None else OVERDUE if _is_overdue(row, now) else "running"
    taken = None if row.started_at is None or row.ended_at is None or row.result in (UNKNOWN, OVERDUE) else row.ended_at - row.started_at
    return LastRun(
        number=row.number + 1,
        started_at=row.started_at,
        ended_at=row.ended_at,
        result=result,
        exit_code=row.exit_code,
        run_seconds=None if taken is None else max(taken.total_seconds(), 0.0),
    )


def _is_overdue(row: Any, now: datetime) -> bool:
    """Whether an open run has passed its limit, which an outage of the recorder moves with the deadline."""
    if row.limit_at is None:
        return False
    limit = max(row.limit_at, row.deadline_at) if row.mode in WITH_DEADLINE else row.limit_at
    return bool(now >= limit)
