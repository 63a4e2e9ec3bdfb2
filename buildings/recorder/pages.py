"""The fleet for people: /recorder lists a key's monitors and updates itself; a page per monitor has its timeline, capsules and buttons."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from difflib import SequenceMatcher
from functools import partial
from itertools import pairwise, takewhile
from typing import Any, NamedTuple, cast
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

import anyio.to_thread
from pydantic_core import to_json
from sqlalchemy import ColumnElement, Connection, Row, case, func, select

from buildings.recorder.alerts.raising import delivered_to
from buildings.recorder.alerts.reach import reach_of
from buildings.recorder.alerts.texts import CONTROLS
from buildings.recorder.arguments import minutes
from buildings.recorder.models import BeatView, CapsuleAnswer, CapsuleView, Entry, Registered, Resecured, Taken, Updated
from buildings.recorder.monitors.credentials import FREE_PAGES, Credentials, lineage_of, ways_to_beat
from buildings.recorder.monitors.fleet import completed
from buildings.recorder.monitors.listing import DAY, DAYS_SHOWN, FleetPage, FleetQuery, History, read_one, read_page
from buildings.recorder.monitors.options import read_options, stored_schedule
from buildings.recorder.monitors.past import beats_of, runs_of
from buildings.recorder.monitors.rows import tags_of
from buildings.recorder.monitors.schedules import schedule_in_words
from buildings.recorder.monitors.state_machine import DOWN, stored_state
from buildings.recorder.monitors.takeover import boundary_of, shown_capsules
from buildings.recorder.problems import too_many_views
from buildings.recorder.runtime import FREE_VIEWS_PER_MINUTE, RecorderSite
from buildings.recorder.tables import DEMO, MONITORS, OWNERS
from campus import Caller, Problem, Request, Response
from campus.caller import Key
from campus.features.alerts import masked_address
from campus.layout import pretty_json
from campus.observability import counted, every, in_words
from campus.secrets import digest_of
from campus.storage import in_snapshot

FLEET = "/recorder"
ACTIONS: Mapping[str, str] = {
    "update": "update_monitor",
    "pause": "pause_monitor",
    "resume": "resume_monitor",
    "acknowledge": "acknowledge",
    "snooze": "snooze",
    "takeover": "takeover",
    "test": "send_test_alert",
    "secret": "replace_secret",
    "delete": "delete_monitor",
    "claim": "claim_monitor",
}
FIELDS = ("name", "period_minutes", "grace_minutes", "alert_webhook", "alert_email")
OPTIONS = ("description", "schedule", "timezone", "run_minutes", "remind_minutes", "tags")
"""What the forms offer under More. An empty one ends what is set."""
NUMBERS = ("minutes", "period_minutes", "grace_minutes", "run_minutes", "remind_minutes")
WITHOUT_ACCESS = (402, 403)
HIDDEN = {"Cache-Control": "private, no-store", "X-Robots-Tag": "noindex"}
"""Of the page of one monitor, the address of a free one being a secret. The Referrer-Policy of all pages tells it to no other site."""
SECONDS_UP_TO = 120  # Longer runs are shown in minutes and hours.
LONGEST_DIFFERENCE = 400
"""Lines of two capsules that are compared, from the first that differs; a comparison takes time by the square of their number."""
CONTEXT = 3
SORTED_IN_WORDS = {"state": "Worst first", "name": "By name", "beat": "By last beat"}
SHOWN_ALERTS = 20
RUNS_SHOWN, BEATS_SHOWN = 100, 200
OUTPUTS_SHOWN = 20
RUN_TONES = {"ok": "good", "fail": "bad", "overdue": "bad", "unknown": "warn"}
BEATS_IN_WORDS = {"idle": "waits for its user", "fail": "failure reported", "log": "output logged"}
ALERTS_IN_WORDS = {
    "dead": "alert that it is dead",
    "failed": "alert that it failed",
    "stuck": "alert that it is stuck",
    "reminder": "reminder",
    "recovered": "alert that it recovered",
    "test": "test alert",
    "blind": "alert about an outage of the recorder",
}


ALERT_TONES = {"dead": "bad", "failed": "bad", "stuck": "bad", "reminder": "bad", "recovered": "good"}
USUAL_BEATS = ("ok", "start", "log", 0)


@dataclass(frozen=True)
class Difference:
    """What changed from one capsule to the next: lines with their kind, added, removed or same."""

    before: CapsuleView
    after: CapsuleView
    lines: Sequence[tuple[str, str]]


class TimelineEntry(NamedTuple):
    """An entry of a monitor's timeline; `tone` is good, bad or quiet."""

    at: datetime
    tone: str
    text: str


async def fleet(request: Request, site: RecorderSite) -> Response:
    if request.method == "POST":
        return await _register(request, site)
    return await _fleet_page(request, site)


async def _fleet_page(
    request: Request, site: RecorderSite, refused: Problem | None = None, given: Mapping[str, str] | None = None
) -> Response:
    query = FleetQuery.read(request.query_params)
    try:
        caller = await site.admit(request, "fleet_status")
        shown = await _read_fleet(caller, site, query)
    except Problem as refusal:
        if refusal.status not in WITHOUT_ACCESS:
            raise
        return site.page(
            "no_fleet.html",
            request,
            data={"ok": True, "signed_in": False, "detail": refusal.detail},
            **_answered(refused, given),
            refusal=refusal,
            has_mail=site.feature("mail") is not None,
        )
    asked = {"q": query.text, "state": query.state, "sort": query.sort, "tag": query.tag}
    return site.page(
        "fleet.html",
        request,
        data={"ok": True, "count": shown.count, "page": shown.page, "pages": shown.pages, "monitors": shown.monitors},
        **_answered(refused, given),
        fleet=shown,
        query=query,
        address=lambda **changed: f"{FLEET}?{urlencode({name: text for name, text in {**asked, **changed}.items() if text})}",
        sorts=SORTED_IN_WORDS,
        seen=fingerprint_of(shown).hex(),
        now=site.state.time.now(),
        reach_of=reach_of,
        most=site.settings.monitors_for(caller.key.product if caller.key else ""),
        has_mail=site.feature("mail") is not None,
    )


def _answered(refused: Problem | None, given: Mapping[str, str] | None, *, headers: Mapping[str, str] = {}) -> Mapping[str, Any]:
    """What a page that answers a form shows of the refusal, and of what was typed; neither if no form was sent."""
    status = refused.status if refused else 200
    return {"status": status, "headers": {**headers, **(refused.headers if refused else {})}, "refused": refused, "given": given or {}}


async def _register(request: Request, site: RecorderSite) -> Response:
    """Register a monitor from the form; its secret is on the page that answers, and nowhere else.

    The form for visitors without a key says `free`: one whose session has ended is not given a monitor without an owner.
    """
    given = await _given(request, (*FIELDS, *OPTIONS, "free"))
    try:
        if not given.get("free"):
            await site.admit(request, "fleet_status")
        answer = await site.call(
            request, "register_monitor", **_arguments({name: given[name] for name in (*FIELDS, *OPTIONS) if name in given})
        )
    except Problem as refused:
        return await _fleet_page(request, site, refused, given)
    return await _secret_page(request, site, Registered.model_validate(answer), "Monitor registered", given.get("name", ""))


async def _secret_page(request: Request, site: RecorderSite, made: Registered | Resecured | Taken, title: str, name: str) -> Response:
    page_url = made.page_url if isinstance(made, Registered) else None
    if page_url:
        one = await _read_one(site, _with_token(page_url.rpartition("/")[2]))
    else:
        one = await _one_of(request, site, made.monitor_id)
    at = page_url.removeprefix(site.url) if page_url else f"{FLEET}/{made.monitor_id}"
    if one is None:
        raise _unknown()  # it was deleted meanwhile
    building = site.directory.building(site.name)
    ways = ways_to_beat(made, mcp=building.mcp if building else site.url)
    shown = {**_shown(one, at, site), "known": one[0].beats}
    return site.page("secret.html", request, data=made, title=title, made=made, name=name, ways=ways, page_url=page_url, **shown)


def _shown(one: tuple[Entry, History], at: str, site: RecorderSite) -> Mapping[str, Any]:
    """What every page of one monitor shows; `stream` is where it hears of changes."""
    entry, is_free = one[0], at.startswith(f"{FREE_PAGES}/")
    stream = f"{at}/events?" if is_free else f"{FLEET}/events?monitor={entry.monitor_id}&"
    shown = {"monitor": entry, "at": at, "is_free": is_free, "reach": reach_of(entry), "now": site.state.time.now()}
    return {**shown, "stream": f"{stream}seen={fingerprint_of(one).hex()}"}


async def heard(request: Request, site: RecorderSite) -> Response:
    """Whether a monitor was heard: the part of the page of a new monitor that updates itself, and where one looks without scripts."""
    one, at = await _opened(request, site)
    known = request.query_params.get("beats", "")
    known_beats = int(known) if known.isascii() and known.isdigit() and len(known) < 19 else 0
    return site.page("heard.html", request, data={"monitor": one[0]}, headers=HIDDEN, known=known_beats, **_shown(one, at, site))


async def _given(request: Request, fields: Sequence[str], empty: Sequence[str] = ()) -> Mapping[str, str]:
    """What was typed into a form, and of the fields that may be `empty` that nothing was."""
    form = await request.form()
    return {name: text.strip() for name in fields if isinstance(text := form.get(name), str) and (text.strip() or name in empty)}


def _arguments(given: Mapping[str, str]) -> Mapping[str, object]:
    return {name: text.split() if name == "tags" else _number(name, text) for name, text in given.items()}


def _number(name: str, text: str) -> object:
    """A number as one, nothing as 0; text that is none is passed on, so that the tool's refusal explains it."""
    try:
        return float(text or 0) if name in NUMBERS else text
    except ValueError:
        return text


async def act(request: Request, site: RecorderSite) -> Response:
    action = request.path_params["action"]
    tool = ACTIONS.get(action)
    if tool is None:
        raise Problem(404, "not_found", f"there is no action {action!r}; the actions are: {', '.join(ACTIONS)}")
    (entry, _), at = await _opened(request, site)
    monitor_id, token = entry.monitor_id, request.path_params.get("token")
    given = await _given(request, (*FIELDS, *OPTIONS), OPTIONS) if action == "update" else {}
    given = await _given(request, ("minutes",)) if action == "snooze" else given
    try:
        by_page = {"secret": token} if token else {}
        answer = await site.call(request, tool, monitor_id=monitor_id, **by_page, **_arguments(given))
    except Problem as refused:
        return await monitor(request, site, refused, given)
    if action == "takeover":
        taken = Taken.model_validate(answer)
        return await _secret_page(request, site, taken, "Taken over", taken.name)
    if action == "secret":
        made = Resecured.model_validate(answer)
        return await _secret_page(request, site, made, "New secret", made.name)
    at = f"{FLEET}/{monitor_id}" if action == "claim" else at
    if action in ("update", "claim") and (answer["webhook_secret"] or answer["notes"]):
        return site.page("changed.html", request, data=answer, changed=Updated.model_validate(answer), at=at)
    if action == "test":
        return Response(status_code=303, headers={"Location": f"{at}?sent=test"})
    return Response(status_code=303, headers={"Location": FLEET if action == "delete" else at})


async def monitor(request: Request, site: RecorderSite, refused: Problem | None = None, given: Mapping[str, str] | None = None) -> Response:
    """One monitor, of the visitor's key or by its own address; `refused` is why a form that was `given` changed nothing."""
    one, at = await _opened(request, site)
    entry, history = one
    is_free = "token" in request.path_params
    capsules = await _capsules_of(request, site, entry.monitor_id)
    texts, changes = await anyio.to_thread.run_sync(_compared, capsules)
    now = site.state.time.now()
    past = await in_snapshot(site.storage, partial(_past_of, entry=entry, now=now))
    return site.page(
        "monitor.html",
        request,
        data={"monitor": entry.model_copy(update={"capsule": None})} if is_free else {"monitor": entry, "capsules": capsules},
        **_answered(refused, given, headers=HIDDEN),
        **_shown(one, at, site),
        has_key=is_free and (await site.caller(request)).key is not None,
        **past,
        grace=counted(entry.grace_minutes, "minute"),
        hours=history.hours(now),
        days=(days := history.days(now)),
        tones=["bad" if one.down or one.failed else "good" for one in days],
        recent=(beats := tuple(reversed(entry.last_beats))),
        gaps=[(after.at - before.at) / minutes(1) for before, after in pairwise(beats)],
        capsules=list(zip(capsules, texts, strict=True)),
        differences=changes,
        is_sent=request.query_params.get("sent") == "test",
        has_mail=site.feature("mail") is not None and not is_free,
    )


def _past_of(connection: Connection, entry: Entry, now: datetime) -> Mapping[str, Any]:
    """What the page of a monitor shows of its schedule, its runs, its beats and its alerts."""
    row = connection.execute(select(MONITORS).where(MONITORS.c.id == entry.monitor_id)).one_or_none()
    if row is None:
        raise _unknown()
    options, schedule = read_options(row.options), stored_schedule(row)
    runs = runs_of(connection, row.id, RUNS_SHOWN, now=now)
    delivered = delivered_to(connection, monitor_id=row.id, limit=SHOWN_ALERTS)
    outputs = [run.output.encode() for run in runs[:OUTPUTS_SHOWN] if run.output]
    set_now = {**options.model_dump(include={*OPTIONS}), "tags": " ".join(tags_of(row.tags))}
    return {
        "options": options,
        "description": CONTROLS.sub("", options.description or ""),
        "took": took,
        "typed": {name: f"{value:.10g}" if name in NUMBERS and value else value or "" for name, value in set_now.items()},
        "every": schedule_in_words(options.schedule, options.timezone) or every(row.period, "minute"),
        "upcoming": [at.astimezone(ZoneInfo(options.timezone)) for at in schedule.next_expected(stored_state(row), now) or ()],
        "failures": row.failures,
        "runs": runs,
        "tones_of_runs": [RUN_TONES.get(run.result, "none") for run in runs],
        "boundary": boundary_of(outputs) if outputs else None,
        "outputs_shown": OUTPUTS_SHOWN,
        "beats": beats_of(connection, row.id, BEATS_SHOWN),
        "moments": timeline(entry, delivered),
    }


async def _opened(request: Request, site: RecorderSite) -> tuple[tuple[Entry, History], str]:
    """The monitor of a page and the page's path: one of the visitor's key, or the one with the token in the path. Problem 404 for none."""
    if (token := request.path_params.get("token")) is None:
        monitor_id = request.path_params["monitor_id"]
        one, at = await _one_of(request, site, monitor_id), f"{FLEET}/{monitor_id}"
    else:
        network = (await site.caller(request)).network
        views, now = site.state.free_views, site.now()
        if not views.take(network, now):
            raise too_many_views(views.seconds_left(network, now), limit=FREE_VIEWS_PER_MINUTE)
        one, at = await _read_one(site, _with_token(token)), f"{FREE_PAGES}/{token}"
    if one is None:
        raise _unknown()
    return one, at


def _unknown() -> Problem:
    return Problem(404, "monitor_not_found", "no monitor of your key has this id, and none without a key this page; see /recorder")


def _with_token(token: str) -> ColumnElement[bool]:
    return MONITORS.c.page_digest == digest_of(token)


def timeline(entry: Entry, delivered: Sequence[Row[Any]]) -> list[TimelineEntry]:
    """What is unusual in the last beats of a monitor, and its delivered alerts, the latest first; its registration if all are kept."""
    moments = [TimelineEntry(beat.at, *_beat_in_words(beat)) for beat in entry.last_beats if beat.status not in USUAL_BEATS]
    for one in delivered:
        seconds = (one.delivered_at - one.at).total_seconds()
        to = f"{one.channel} {masked_address(one.address)}"
        what = ALERTS_IN_WORDS.get(one.kind, one.kind)
        words = f"{what}: delivered to {to} after {took(max(seconds, 0))} ({one.message_id})"
        moments.append(TimelineEntry(one.delivered_at, ALERT_TONES.get(one.kind, "quiet"), words))
    if entry.beats <= len(entry.last_beats):
        moments.append(TimelineEntry(entry.registered_at, "quiet", "registered"))
    return sorted(moments, key=lambda one: one.at, reverse=True)


def _beat_in_words(beat: BeatView) -> tuple[str, str]:
    tone = "quiet" if beat.status == "idle" else "bad"
    words = BEATS_IN_WORDS.get(str(beat.status), f"exit code {beat.status}" if isinstance(beat.status, int) else beat.status)
    return tone, words if beat.run_seconds is None else f"{words} after {took(beat.run_seconds)}"


def took(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < SECONDS_UP_TO else in_words(timedelta(seconds=seconds))


async def _read_fleet(caller: Caller, site: RecorderSite, query: FleetQuery) -> FleetPage:
    lineage = cast(str, lineage_of(caller))
    page = await in_snapshot(site.storage, partial(read_page, lineage=lineage, query=query, url=site.url, now=site.state.time.now()))
    return replace(page, monitors=await completed(page.monitors, site))


async def _one_of(request: Request, site: RecorderSite, monitor_id: str) -> tuple[Entry, History] | None:
    return await _read_one(site, _of_caller(await site.admit(request, "fleet_status"), monitor_id))


def _of_caller(caller: Caller, monitor_id: str) -> ColumnElement[bool]:
    return (MONITORS.c.owner == lineage_of(caller)) & (MONITORS.c.id == monitor_id)


async def _read_one(site: RecorderSite, chosen: ColumnElement[bool]) -> tuple[Entry, History] | None:
    now = site.state.time.now()
    one = await in_snapshot(site.storage, partial(read_one, chosen=chosen, url=site.url, now=now, since=now - DAY * DAYS_SHOWN))
    if one is None:
        return None
    entry, history = one
    return (await completed([entry], site))[0], history


async def _capsules_of(request: Request, site: RecorderSite, monitor_id: str) -> list[CapsuleView]:
    if token := request.path_params.get("token"):
        return [*await in_snapshot(site.storage, partial(shown_capsules, credentials=Credentials(monitor_id, None, token)))]
    answer = CapsuleAnswer.model_validate(await site.call(request, "fetch_capsule", monitor_id=monitor_id))
    return [*([answer.last] if answer.last else []), *answer.earlier]


def _compared(capsules: Sequence[CapsuleView]) -> tuple[list[str], list[Difference]]:
    texts = [pretty_json(capsule.capsule) for capsule in capsules]
    pairs = zip(capsules[1:], capsules[:-1], texts[1:], texts[:-1], strict=True)
    return texts, [Difference(before, after, changed_lines(old, new)) for before, after, old, new in pairs]


def changed_lines(before: str, after: str) -> list[tuple[str, str]]:
    """The lines that changed, with three lines around them; each with added, removed or same. Of long texts only the first changes."""
    old = before.splitlines()
    new = after.splitlines()
    head = _equal(old, new)
    tail = _equal(old[head:][::-1], new[head:][::-1])
    start = max(head - CONTEXT, 0)
    parts = [lines[start : len(lines) - max(tail - CONTEXT, 0)] for lines in (old, new)]
    lines = list(_hunks(*parts, start=start))
    if max(len(lines), *(len(part) for part in parts)) > LONGEST_DIFFERENCE:
        return [*lines[:LONGEST_DIFFERENCE], ("same", "… and perhaps more, which is not compared")]
    return lines


def _equal(old: Sequence[str], new: Sequence[str]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False)))


def _hunks(old: Sequence[str], new: Sequence[str], *, start: int) -> Iterator[tuple[str, str]]:
    matcher = SequenceMatcher(None, old[:LONGEST_DIFFERENCE], new[:LONGEST_DIFFERENCE])
    unknown = {"delete": len(new) > LONGEST_DIFFERENCE, "insert": len(old) > LONGEST_DIFFERENCE}
    if (operations := matcher.get_opcodes()) and unknown.get(operations[-1][0]):
        operations.pop()  # the other text may have these lines too, beyond what is compared
    for group in matcher.get_grouped_opcodes(CONTEXT):
        (_, first, _, first_new, _), (_, _, last, _, last_new) = group[0], group[-1]
        yield "same", f"@@ -{start + first + 1},{last - first} +{start + first_new + 1},{last_new - first_new} @@"
        for kind, begin, end, begin_new, end_new in group:
            if kind == "equal":
                yield from (("same", f" {line}") for line in old[begin:end])
                continue
            yield from (("removed", f"-{line}") for line in old[begin:end])
            yield from (("added", f"+{line}") for line in new[begin_new:end_new])


async def events(request: Request, site: RecorderSite) -> Response:
    """Server-sent events: `changed` when the page of the fleet, or that of `monitor` in the query, would look different.

    `ended` when the key no longer opens it.
    """
    if token := request.path_params.get("token"):
        one, _ = await _opened(request, site)
        visitor = (await site.caller(request)).network
        return site.state.free_streams.response(
            request, visitor, partial(_fingerprint, site, _with_token(token)), page=one[0].monitor_id, check=_anyone, stopping=site.stopping
        )
    caller = await site.admit(request, "fleet_status")
    visitor = lineage_of(caller) or caller.address
    query = FleetQuery.read(request.query_params)
    monitor_id = request.query_params.get("monitor", "").replace("\0", "\ufffd")

    async def fingerprint() -> bytes:
        if monitor_id:
            return await _fingerprint(site, _of_caller(caller, monitor_id))
        return fingerprint_of(await _read_fleet(caller, site, query))

    check = partial(site.admit, request, "fleet_status")
    page = (visitor, monitor_id or query)
    return site.state.streams.response(request, visitor, fingerprint, page=page, check=check, stopping=site.stopping)


async def _fingerprint(site: RecorderSite, chosen: ColumnElement[bool]) -> bytes:
    return fingerprint_of(await _read_one(site, chosen))


async def _anyone() -> None:
    """Who knows the address may see the page; once it has ended, its fingerprint changes, and the browser finds nothing there."""


def fingerprint_of(shown: FleetPage | tuple[Entry, History] | None) -> bytes:
    """A digest of all that a page shows of its monitors; the uptime, which changes all the time, is left out."""
    monitors = shown.monitors if isinstance(shown, FleetPage) else () if shown is None else shown[:1]
    counted = (shown.states, shown.count, shown.page) if isinstance(shown, FleetPage) else ()
    parts = [monitor.model_copy(update={"uptime": None}) for monitor in monitors]
    return hashlib.sha256(to_json([parts, counted])).digest()


async def monitors_used(site: RecorderSite, key: Key) -> str:
    chosen = select(OWNERS.c.monitors).where(OWNERS.c.lineage == key.lineage)
    count = await in_snapshot(site.storage, lambda connection: connection.scalar(chosen))
    return f"{count or 0:,} of {site.settings.monitors_for(key.product):,} monitors"


async def monitor_gauges(site: RecorderSite) -> Mapping[tuple[str, str], Mapping[str, float]]:
    def counted(connection: Connection) -> dict[str, float]:
        rows = connection.execute(select(MONITORS.c.mode, func.count()).group_by(MONITORS.c.mode))
        return {str(mode): float(number) for mode, number in rows}

    return {("monitors", "mode"): await in_snapshot(site.storage, counted)}


async def monitor_facts(site: RecorderSite) -> Mapping[str, str]:
    """How many monitors there are, how many belong to keys, are dead, and wait for their first beat, for the operator."""

    def counted(connection: Connection) -> tuple[int, ...]:
        owned = MONITORS.c.owner.is_not(None)
        down = MONITORS.c.mode.in_(sorted(DOWN))
        waiting = MONITORS.c.first_beat_at.is_(None)
        counted_if = [func.count(case((condition, 1))) for condition in (owned, down, waiting)]
        return tuple(connection.execute(select(func.count(), *counted_if).select_from(MONITORS).where(MONITORS.c.id != DEMO)).one())

    number, of_keys, dead, unbeaten = await in_snapshot(site.storage, counted)
    return {"monitors": f"{number:,}, {of_keys:,} of them owned by keys, {dead:,} dead, {unbeaten:,} without a beat so far"}
