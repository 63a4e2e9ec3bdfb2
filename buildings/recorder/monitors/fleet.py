"""How monitors are shown: the fleet of a key, filtered and page by page, one monitor, and what a key owns."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from sqlalchemy import ColumnElement, Connection, Row, and_, func, select
from starlette.datastructures import QueryParams

from buildings.recorder.arguments import After, Limit, NameFilter, SlugFilter, StateFilter, TagFilter
from buildings.recorder.beats.rules import past_beats, preview
from buildings.recorder.models import Entry, Fleet, FleetEntry, MonitorAnswer, Preview, RunSummary, TargetView
from buildings.recorder.monitors.badges import tag_badge_url
from buildings.recorder.monitors.credentials import Credentials, MonitorUrls, badge_url
from buildings.recorder.monitors.keys import stored_key
from buildings.recorder.monitors.muting import mute_end
from buildings.recorder.monitors.options import read_options, stored_schedule
from buildings.recorder.monitors.past import NO_SUMMARY, beat_view, beats_of, runs_of, summaries_of
from buildings.recorder.monitors.rows import authorized_monitor, has_tag, state_in_sql, tags_of
from buildings.recorder.monitors.state_machine import TROUBLES, UNWATCHED, WITHOUT_DEADLINE, reason_of, shown_state, stored_state, uptime
from buildings.recorder.problems import fixed_problem
from buildings.recorder.runtime import RecorderSite
from buildings.recorder.tables import ALERTS, CAPSULES, MONITOR_TARGETS, MONITORS, OWNERS, TARGETS
from campus import Problem, Request, Response
from campus.building import Holding, ToolCall
from campus.caller import Key
from campus.features.alerts import masked_address, target_state
from campus.keys.makers import Maker
from campus.storage import among, in_snapshot
from twins import unstorable_reason

MINUTE = timedelta(minutes=1)
HIDDEN_FROM_READERS = {"capsule", "made_by", "resume_url"}
EntryT = TypeVar("EntryT", bound=FleetEntry)


@dataclass(frozen=True)
class Related:
    targets: Mapping[str, Sequence[Row[Any]]]
    capsules: Mapping[str, Row[Any]]
    undelivered: Mapping[tuple[str, str], int]
    runs: Mapping[str, RunSummary]


class FleetSearch(BaseModel):
    """The arguments of fleet_status: which monitors of a fleet are listed, those that fit all of it, and which page of them."""

    model_config = ConfigDict(extra="forbid")

    tags: TagFilter = []
    state: StateFilter = None
    name: NameFilter = None
    slug: SlugFilter = None
    limit: Limit = 20
    after: After = None

    @classmethod
    def read(cls, query: QueryParams) -> Self:
        """The query of an address; Problem 422 for what fleet_status refuses."""
        given = {name: query.getlist(name) if name == "tags" else query[name] for name in query}
        try:
            read = cls.model_validate(given)
        except ValidationError as error:
            wrong = ", ".join(sorted({str(one["loc"][0]) for one in error.errors()}))
            raise Problem(422, "invalid_request", f"the query takes the arguments of fleet_status; this is wrong: {wrong}") from None
        if reason := unstorable_reason(given):
            raise Problem(422, "invalid_request", f"a text of the query {reason}")
        return read

    def condition(self, lineage: str, now: datetime) -> ColumnElement[bool]:
        conditions = [MONITORS.c.owner == lineage, *map(has_tag, self.tags)]
        conditions += [state_in_sql(now) == self.state] if self.state else []
        conditions += [has_in_name(self.name)] if self.name else []
        conditions += [MONITORS.c.slug == self.slug] if self.slug else []
        return and_(*conditions)


def has_in_name(text: str) -> ColumnElement[bool]:
    return func.lower(MONITORS.c.name).contains(text.lower(), autoescape=True)


def read_fleet(connection: Connection, lineage: str, query: FleetSearch, *, url: str, now: datetime) -> Fleet:
    fits = query.condition(lineage, now)
    chosen = select(MONITORS).where(fits, MONITORS.c.id > (query.after or "")).order_by(MONITORS.c.id)
    page = connection.execute(chosen.limit(query.limit + 1)).all()
    rows = page[: query.limit]
    counted = [connection.scalar(select(func.count()).select_from(MONITORS).where(one)) or 0 for one in (MONITORS.c.owner == lineage, fits)]
    related = _related(connection, rows, now=now)
    return Fleet(
        count=counted[0],
        found=counted[1],
        monitors=tuple(FleetEntry(**_members(row, related, url=url, now=now)) for row in rows),
        next=rows[-1].id if len(page) > query.limit else None,
    )


def read_monitor(
    connection: Connection, credentials: Credentials, *, runs: int = 5, beats: int = 20, url: str, now: datetime
) -> MonitorAnswer:
    """One monitor with its last runs and beats for its owner; for who knows its secret, only if it has no owner. Problem 404 otherwise."""
    row = authorized_monitor(connection, credentials)
    if row.owner != credentials.lineage and row.owner is not None:
        raise fixed_problem("monitor_not_found")
    owner = connection.execute(select(OWNERS).where(OWNERS.c.lineage == row.owner)).one_or_none()
    (entry,) = entries_of(connection, [row], url=url, now=now)
    badges = {tag: tag_badge_url(url, owner, tag) for tag in entry.tags} if owner else {}
    past = {"last_runs": runs_of(connection, row.id, runs, now=now), "last_beats": beats_of(connection, row.id, beats)}
    return MonitorAnswer(**{**dict(entry), **past, "tag_badges": badges})


def entries_of(connection: Connection, rows: Sequence[Row[Any]], *, url: str, now: datetime) -> tuple[Entry, ...]:
    """Monitors as they are shown; four statements, whatever their number."""
    related = _related(connection, rows, now=now)
    return tuple(Entry(**_members(row, related, url=url, now=now), **_times(row, now)) for row in rows)


async def completed(monitors: Sequence[EntryT], site: RecorderSite) -> tuple[EntryT, ...]:
    """Monitors with what their building's database does not know: who made them, and whether their targets' channels send."""
    makers = await site.keys.makers({monitor.made_by.id for monitor in monitors if monitor.made_by})
    return tuple(
        monitor.model_copy(
            update={
                "made_by": makers[monitor.made_by.id].shown if monitor.made_by else None,
                "targets": tuple(map(site.state.dispatcher.shown, monitor.targets)),
            }
        )
        for monitor in monitors
    )


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


def _times(row: Row[Any], now: datetime) -> dict[str, Any]:
    """The members that only one monitor is shown with: its last beats, and its next times."""
    return {
        "next_expected": stored_schedule(row).next_expected(stored_state(row), now),
        "last_beats": tuple(map(beat_view, past_beats(row.history))),
    }


def _members(row: Row[Any], related: Related, *, url: str, now: datetime) -> dict[str, Any]:
    """The members of an entry in a list."""
    stored = stored_state(row)
    state = shown_state(stored, now)
    options = read_options(row.options)
    without_deadline = stored.mode in WITHOUT_DEADLINE
    targets = tuple(_target_view(one, related.undelivered.get((row.id, one.id), 0)) for one in related.targets.get(row.id, ()))
    return {
        "monitor_id": row.id,
        "name": row.name,
        "slug": row.slug,
        "tags": tags_of(row.tags),
        "state": state,
        "waiting": stored.first_beat_at is None,
        "idle": stored.mode == "idle",
        "stuck": stored.mode == "stuck",
        "paused": stored.mode in UNWATCHED,
        "since": stored.deadline_at if state == "dead" and stored.mode == "up" else stored.since,
        "reason": None if state != "dead" else reason_of(stored),
        "acknowledged_at": row.acknowledged_at if stored.mode in TROUBLES else None,
        "muted_until": mute_end(row.muted_until, options.calendar, now),
        "last_beat_at": row.last_beat_at,
        "expected_at": None if without_deadline else stored.expected_at,
        "deadline_at": None if without_deadline else stored.deadline_at,
        "unverified": row.unverified,
        "period_minutes": row.period / MINUTE,
        "grace_minutes": row.grace / MINUTE,
        "options": options.model_dump(mode="json", exclude_defaults=True),
        "registered_at": row.registered_at,
        "made_by": Maker(row.made_by, "key", "", None).shown if row.made_by else None,  # its id; completed asks campus about the rest
        "uptime": uptime(stored, now),
        "beats": row.beats,
        "runs": related.runs.get(row.id, NO_SUMMARY),
        "capsule": _preview(related.capsules.get(row.id)),
        "fence": row.fence,
        "targets": targets,
        "undelivered": sum(target.undelivered for target in targets),
        "badge_url": badge_url(url, row.badge_id),
        "resume_url": MonitorUrls(url, row.id).capsule if row.owner else None,
    }


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


async def read_with_key(request: Request, site: RecorderSite) -> Response:
    """The fleet, or one monitor of it, for who has a read key: without capsules and without who made what."""
    given = request.path_params
    key = await stored_key(site, given["read_key"], "read")
    if key is None:
        raise fixed_problem("fleet_key_not_found")
    at: dict[str, Any] = {"url": site.url, "now": site.state.time.now()}
    answer: Fleet | MonitorAnswer
    if "monitor_id" in given:
        one = Credentials(given["monitor_id"], key.owner, None)
        (answer,) = await completed([await in_snapshot(site.storage, partial(read_monitor, credentials=one, **at))], site)
        hidden: Any = HIDDEN_FROM_READERS
    else:
        query = FleetSearch.read(request.query_params)
        fleet = await in_snapshot(site.storage, partial(read_fleet, lineage=key.owner, query=query, **at))
        answer = fleet.model_copy(update={"monitors": await completed(fleet.monitors, site)})
        hidden = {"monitors": {"__all__": HIDDEN_FROM_READERS}}
    body = answer.model_dump_json(exclude=hidden)
    return Response(body, media_type="application/json", headers={"Cache-Control": "private, no-store"})


async def monitors_of(site: RecorderSite, key: Key) -> list[Holding]:
    """The key's monitors. To keep one is to change its name to the one that it has."""
    query = FleetSearch.model_construct(limit=site.settings.most_monitors)
    page = partial(read_fleet, lineage=key.lineage, query=query, url=site.url, now=site.state.time.now())
    fleet = await in_snapshot(site.storage, page)
    return [
        Holding(
            id=monitor.monitor_id,
            kind=", ".join(["monitor", *(f"{target.kind} {target.address}" for target in monitor.targets)]),
            name=monitor.name,
            made_at=monitor.registered_at,
            made_by=monitor.made_by.id if monitor.made_by else "",
            end=ToolCall("delete_monitor", {"monitor_id": monitor.monitor_id}),
            keep=ToolCall("update_monitor", {"monitor_id": monitor.monitor_id, "name": monitor.name}),
        )
        for monitor in fleet.monitors
    ]
