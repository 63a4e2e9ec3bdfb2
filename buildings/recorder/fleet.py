"""The fleet: the monitors of a key with their current state, page by page."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from sqlalchemy import Connection, Row, func, select

from buildings.recorder.beat import past_beats
from buildings.recorder.capsule import preview
from buildings.recorder.monitors import stored_state
from buildings.recorder.results import BeatView, Entry, Fleet, Preview, TargetView
from buildings.recorder.state_machine import UNWATCHED, shown_state, uptime
from buildings.recorder.tables import ALERTS, CAPSULES, MONITOR_TARGETS, MONITORS, TARGETS
from buildings.recorder.urls import MonitorUrls, badge_url
from campus import among
from campus.alerts import masked_address

MINUTE = timedelta(minutes=1)


@dataclass(frozen=True)
class Related:
    """The rows of other tables for one page of monitors: targets, last capsules, undelivered alerts by monitor and target."""

    targets: Mapping[str, Sequence[Row[Any]]]
    capsules: Mapping[str, Row[Any]]
    undelivered: Mapping[tuple[str, str], int]


def read_fleet(connection: Connection, lineage: str, *, after: str, limit: int, url: str, now: datetime) -> Fleet:
    """One page of a key's monitors."""
    mine = MONITORS.c.owner == lineage
    page = connection.execute(select(MONITORS).where(mine, MONITORS.c.id > after).order_by(MONITORS.c.id).limit(limit + 1)).all()
    rows, more = page[:limit], len(page) > limit
    related = _related(connection, rows)
    return Fleet(
        count=connection.scalar(select(func.count()).select_from(MONITORS).where(mine)) or 0,
        monitors=tuple(_entry(row, related, url=url, now=now) for row in rows),
        next=rows[-1].id if more else None,
    )


def _related(connection: Connection, rows: Sequence[Row[Any]]) -> Related:
    ids = [row.id for row in rows]
    link, targets = MONITOR_TARGETS.c, defaultdict(list)
    joined = MONITOR_TARGETS.join(TARGETS, TARGETS.c.id == link.target_id)
    used = select(link.monitor_id, TARGETS).select_from(joined).where(among(connection, link.monitor_id, ids)).order_by(link.place)
    for one in connection.execute(used):
        targets[one.monitor_id].append(one)
    capsules = connection.execute(select(CAPSULES).where(among(connection, CAPSULES.c.monitor_id, ids)).order_by(CAPSULES.c.number))
    waiting = connection.execute(select(ALERTS.c.monitor_id, ALERTS.c.target_id).where(among(connection, ALERTS.c.monitor_id, ids)))
    return Related(
        targets=targets,
        capsules={one.monitor_id: one for one in capsules},  # the last one of each remains
        undelivered=Counter((one.monitor_id, one.target_id) for one in waiting),
    )


def _entry(row: Row[Any], related: Related, *, url: str, now: datetime) -> Entry:
    stored = stored_state(row)
    state = shown_state(stored, now)
    targets = tuple(_target_view(one, related.undelivered.get((row.id, one.id), 0)) for one in related.targets.get(row.id, ()))
    return Entry(
        monitor_id=row.id,
        name=row.name,
        state=state,
        paused=stored.mode in UNWATCHED,
        since=stored.deadline_at if state == "dead" and stored.mode == "up" else stored.since,
        reason=None if state != "dead" else "fail" if stored.mode == "failed" else "timeout",
        last_beat_at=row.last_beat_at,
        expected_at=stored.expected_at,
        deadline_at=stored.deadline_at,
        unverified=row.unverified,
        period_minutes=row.period / MINUTE,
        grace_minutes=row.grace / MINUTE,
        registered_at=row.registered_at,
        uptime=uptime(stored, registered_at=row.registered_at, now=now),
        beats=row.beats,
        last_beats=tuple(
            BeatView(at=one.at, status=one.status, run_seconds=None if one.run is None else one.run.total_seconds())
            for one in past_beats(row.history)
        ),
        capsule=_preview(related.capsules.get(row.id)),
        fence=row.fence,
        targets=targets,
        undelivered=sum(one.undelivered for one in targets),
        badge_url=badge_url(url, row.badge_id),
        resume_url=MonitorUrls(url, row.id).capsule,
    )


def _preview(row: Row[Any] | None) -> Preview | None:
    return Preview(seq=row.seq, stored_at=row.at, size=len(row.body), text=preview(row.body)) if row else None


def _target_view(row: Row[Any], undelivered: int) -> TargetView:
    state: Literal["ready", "unconfirmed", "failing", "disabled"] = "ready"
    reason = None
    if row.disabled_at is not None:
        state, reason = "disabled", f"{row.disabled_because}; register a monitor with this target again to use it again"
    elif row.verified_at is None:
        state, reason = "unconfirmed", "the link in the e-mail that was sent there was not confirmed"
    elif row.failing_since is not None:
        state, reason = "failing", f"{row.last_error}, since {row.failing_since:%Y-%m-%dT%H:%M:%SZ}; it is tried again for 5 days"
    return TargetView(kind=row.kind, address=masked_address(row.address), state=state, reason=reason, undelivered=undelivered)
