"""How monitors are shown: the fleet of a key, page by page, what a key owns, and the badge, an image of a monitor's name and state."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from html import escape
from typing import Any

from sqlalchemy import Connection, Row, func, select

from buildings.recorder.beats.rules import past_beats, preview
from buildings.recorder.models import Entry, Fleet, Preview, RunSummary, TargetView
from buildings.recorder.monitors.credentials import MonitorUrls, badge_url
from buildings.recorder.monitors.muting import mute_end
from buildings.recorder.monitors.options import read_options
from buildings.recorder.monitors.past import NO_SUMMARY, beat_view, summaries_of
from buildings.recorder.monitors.rows import stored_schedule, stored_state
from buildings.recorder.monitors.state_machine import (
    TROUBLES,
    UNWATCHED,
    WITHOUT_DEADLINE,
    reason_of,
    shown_state,
    state_in_a_word,
    uptime,
)
from buildings.recorder.problems import MONITORS_PER_KEY
from buildings.recorder.runtime import RecorderSite
from buildings.recorder.tables import ALERTS, CAPSULES, MONITOR_TARGETS, MONITORS, TARGETS
from campus import Problem, Request, Response
from campus.building import Holding, ToolCall
from campus.caller import Key
from campus.features.alerts import masked_address, target_state
from campus.keys.makers import Maker
from campus.storage import among, in_snapshot

MINUTE = timedelta(minutes=1)
COLOURS = {"alive": "#067647", "late": "#b54708", "dead": "#b42318", "waiting": "#475467", "idle": "#067647", "paused": "#475467"}
CHARACTER_WIDTH = 6.6
BADGE = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img" aria-label="{name}: {word}">'
    "<title>{name}: {word}</title>"
    '<rect width="{width}" height="20" rx="3" fill="#344054"/><rect x="{left}" width="{right}" height="20" rx="3" fill="{colour}"/>'
    '<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11"><text x="6" y="14">{name}</text>'
    '<text x="{text}" y="14">{word}</text></g></svg>'
)
LONGEST_NAME = 40


@dataclass(frozen=True)
class Related:
    targets: Mapping[str, Sequence[Row[Any]]]
    capsules: Mapping[str, Row[Any]]
    undelivered: Mapping[tuple[str, str], int]
    runs: Mapping[str, RunSummary]


def read_fleet(connection: Connection, lineage: str, *, after: str, limit: int, url: str, now: datetime) -> Fleet:
    mine = MONITORS.c.owner == lineage
    page = connection.execute(select(MONITORS).where(mine, MONITORS.c.id > after).order_by(MONITORS.c.id).limit(limit + 1)).all()
    rows = page[:limit]
    more = len(page) > limit
    return Fleet(
        count=connection.scalar(select(func.count()).select_from(MONITORS).where(mine)) or 0,
        monitors=entries_of(connection, rows, url=url, now=now),
        next=rows[-1].id if more else None,
    )


def entries_of(connection: Connection, rows: Sequence[Row[Any]], *, url: str, now: datetime) -> tuple[Entry, ...]:
    """Monitors as they are shown; four statements, whatever their number."""
    related = _related(connection, rows, now=now)
    return tuple(_entry(row, related, url=url, now=now) for row in rows)


async def with_makers(monitors: Sequence[Entry], site: RecorderSite) -> tuple[Entry, ...]:
    makers = await site.keys.makers({monitor.made_by.id for monitor in monitors})
    return tuple(monitor.model_copy(update={"made_by": makers[monitor.made_by.id].shown}) for monitor in monitors)


def _related(connection: Connection, rows: Sequence[Row[Any]], *, now: datetime) -> Related:
    ids = [row.id for row in rows]
    link = MONITOR_TARGETS.c
    targets = defaultdict(list)
    joined = MONITOR_TARGETS.join(TARGETS, TARGETS.c.id == link.target_id)
    columns = (link.monitor_id, link.kinds, link.after, TARGETS)
    used = select(*columns).select_from(joined).where(among(connection, link.monitor_id, ids)).order_by(link.place)
    for one in connection.execute(used):
        targets[one.monitor_id].append(one)
    capsules = connection.execute(select(CAPSULES).where(among(connection, CAPSULES.c.monitor_id, ids)).order_by(CAPSULES.c.number))
    pair = (ALERTS.c.monitor_id, ALERTS.c.target_id)
    waiting = connection.execute(select(*pair, func.count()).where(among(connection, pair[0], ids)).group_by(*pair))
    return Related(
        targets=targets,
        capsules={capsule.monitor_id: capsule for capsule in capsules},  # keeps the last capsule of each
        undelivered={(monitor_id, target_id): count for monitor_id, target_id, count in waiting},
        runs=summaries_of(connection, ids, now=now),
    )


def _entry(row: Row[Any], related: Related, *, url: str, now: datetime) -> Entry:
    stored = stored_state(row)
    state = shown_state(stored, now)
    without_deadline = stored.mode in WITHOUT_DEADLINE
    targets = tuple(_target_view(one, related.undelivered.get((row.id, one.id), 0)) for one in related.targets.get(row.id, ()))
    return Entry(
        monitor_id=row.id,
        name=row.name,
        state=state,
        waiting=stored.first_beat_at is None,
        idle=stored.mode == "idle",
        stuck=stored.mode == "stuck",
        paused=stored.mode in UNWATCHED,
        since=stored.deadline_at if state == "dead" and stored.mode == "up" else stored.since,
        reason=None if state != "dead" else reason_of(stored),
        acknowledged_at=row.acknowledged_at if stored.mode in TROUBLES else None,
        muted_until=mute_end(row.muted_until, read_options(row.options).calendar, now),
        last_beat_at=row.last_beat_at,
        expected_at=None if without_deadline else stored.expected_at,
        deadline_at=None if without_deadline else stored.deadline_at,
        next_expected=stored_schedule(row).next_expected(stored, now),
        unverified=row.unverified,
        period_minutes=row.period / MINUTE,
        grace_minutes=row.grace / MINUTE,
        registered_at=row.registered_at,
        made_by=Maker(row.made_by or "", "key", "", None).shown,  # its id; with_makers asks campus about the rest
        uptime=uptime(stored, now),
        beats=row.beats,
        runs=related.runs.get(row.id, NO_SUMMARY),
        last_beats=tuple(map(beat_view, past_beats(row.history))),
        capsule=_preview(related.capsules.get(row.id)),
        fence=row.fence,
        targets=targets,
        undelivered=sum(target.undelivered for target in targets),
        badge_url=badge_url(url, row.badge_id),
        resume_url=MonitorUrls(url, row.id).capsule,
    )


def _preview(row: Row[Any] | None) -> Preview | None:
    return Preview(seq=row.seq, stored_at=row.at, size=len(row.body), text=preview(row.body)) if row else None


def _target_view(row: Row[Any], undelivered: int) -> TargetView:
    again = "call send_test_alert" if row.verified_at is not None else "call update_monitor with this address"
    state, reason = target_state(row, to_enable=again)
    return TargetView(
        kind=row.kind,
        address=masked_address(row.address),
        state=state,
        reason=reason,
        undelivered=undelivered,
        on=None if row.kinds is None else tuple(row.kinds.split()),
        after_minutes=None if row.after is None else row.after / MINUTE,
    )


async def badge(request: Request, site: RecorderSite) -> Response:
    row = await in_snapshot(site.storage, partial(_by_badge, badge_id=request.path_params["badge_id"]))
    if row is None:
        raise Problem(404, "badge_not_found", "no badge has this address; register_monitor and fleet_status return it as badge_url")
    word = state_in_a_word(stored_state(row), site.state.time.now())
    return Response(badge_svg(row.name, word), media_type="image/svg+xml", headers={"Cache-Control": "public, max-age=30"})


def badge_svg(name: str, word: str) -> str:
    """The badge as SVG. The name comes from a caller, so it is escaped."""
    short = name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"
    left = round(12 + CHARACTER_WIDTH * len(short))
    right = round(12 + CHARACTER_WIDTH * len(word))
    return BADGE.format(name=escape(short), word=word, width=left + right, left=left, right=right, text=left + 6, colour=COLOURS[word])


def _by_badge(connection: Connection, *, badge_id: str) -> Row[Any] | None:
    return connection.execute(select(MONITORS).where(MONITORS.c.badge_id == badge_id)).one_or_none()


async def monitors_of(site: RecorderSite, key: Key) -> list[Holding]:
    """The key's monitors. To keep one is to change its name to the one that it has."""
    page = partial(read_fleet, lineage=key.lineage, after="", limit=MONITORS_PER_KEY, url=site.url, now=site.state.time.now())
    fleet = await in_snapshot(site.storage, page)
    return [
        Holding(
            id=monitor.monitor_id,
            kind=", ".join(["monitor", *(f"{target.kind} {target.address}" for target in monitor.targets)]),
            name=monitor.name,
            made_at=monitor.registered_at,
            made_by=monitor.made_by.id,
            end=ToolCall("delete_monitor", {"monitor_id": monitor.monitor_id}),
            keep=ToolCall("update_monitor", {"monitor_id": monitor.monitor_id, "name": monitor.name}),
        )
        for monitor in fleet.monitors
    ]
