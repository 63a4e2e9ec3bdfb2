"""The fleet for people: /recorder lists a key's monitors and updates itself; a page per monitor has its timeline, capsules and buttons."""

import hashlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import unified_diff

import anyio
from pydantic_core import to_json
from sqlalchemy import select

from buildings.recorder.models import CapsuleAnswer, CapsuleView, Fleet, Registered, Taken
from buildings.recorder.problems import MONITORS_PER_KEY
from buildings.recorder.runtime import RecorderSite
from buildings.recorder.tables import OWNERS
from campus import Key, Problem, Request, Response, StreamingResponse, in_snapshot, pretty_json

FLEET = "/recorder"
ACTIONS: Mapping[str, str] = {
    "pause": "pause_monitor",
    "resume": "resume_monitor",
    "takeover": "takeover",
    "delete": "delete_monitor",
}
FIELDS = ("name", "period_minutes", "grace_minutes", "alert_webhook", "alert_email")
NUMBERS = ("period_minutes", "grace_minutes")
LOOK_SECONDS = 2.0
"""How often a stream looks for changes, and whether the key is still valid."""
STREAM_SECONDS = 600.0
"""A stream ends after this time; the browser opens the next one by itself."""
STREAMS_PER_KEY = 8
LONGEST_DIFFERENCE = 400
SEVERAL = 100


@dataclass(frozen=True)
class Difference:
    """What changed from one capsule to the next: lines with their kind, added, removed or same."""

    before: CapsuleView
    after: CapsuleView
    lines: Sequence[tuple[str, str]]


async def fleet(request: Request, site: RecorderSite) -> Response:
    """The monitors of the visitor's key with a form that registers one; without a key, what there is to see with one."""
    if request.method == "POST":
        return await _register(request, site)
    return await _fleet_page(request, site)


async def _fleet_page(
    request: Request, site: RecorderSite, refused: Problem | None = None, given: Mapping[str, str] | None = None
) -> Response:
    try:
        shown = await _fleet_of(request, site)
    except Problem as refusal:
        data = {"ok": True, "signed_in": False, "detail": refusal.detail}
        return site.page("no_fleet.html", request, data=data, refusal=refusal, signed_in=refusal.code != "access_required")
    return site.page(
        "fleet.html",
        request,
        data=shown,
        status=refused.status if refused else 200,
        fleet=shown,
        refused=refused,
        given=given or {},
        most=MONITORS_PER_KEY,
        has_mail=site.mail is not None,
    )


async def _register(request: Request, site: RecorderSite) -> Response:
    """Register a monitor from the form; its secret is on the page that answers, and nowhere else."""
    form = await request.form()
    given = {name: text for name in FIELDS if isinstance(text := form.get(name), str) and text.strip()}
    try:
        await site.admit(request, "fleet_status")
        answer = await site.call(request, "register_monitor", **{name: _number(name, text) for name, text in given.items()})
    except Problem as refused:
        return await _fleet_page(request, site, refused, given)
    made = Registered.model_validate(answer)
    return site.page("secret.html", request, data=made, title="Monitor registered", made=made, name=given.get("name", ""))


def _number(name: str, text: str) -> object:
    """A number as one; text that is none is passed on, so that the tool's refusal explains it."""
    try:
        return float(text) if name in NUMBERS else text
    except ValueError:
        return text


async def monitor(request: Request, site: RecorderSite) -> Response:
    """One monitor of the visitor's key."""
    return await _monitor_page(request, site)


async def act(request: Request, site: RecorderSite) -> Response:
    """A button of a monitor: pause, resume, take over, delete."""
    monitor_id, action = request.path_params["monitor_id"], request.path_params["action"]
    tool = ACTIONS.get(action)
    if tool is None:
        raise Problem(404, "not_found", f"there is no action {action!r}; the actions are: {', '.join(ACTIONS)}")
    await site.admit(request, "fleet_status")
    try:
        answer = await site.call(request, tool, monitor_id=monitor_id)
    except Problem as refused:
        return await _monitor_page(request, site, refused)
    if action == "takeover":
        made = Taken.model_validate(answer)
        return site.page("secret.html", request, data=made, title="Taken over", made=made, name=made.name)
    return Response(status_code=303, headers={"Location": FLEET if action == "delete" else f"{FLEET}/{monitor_id}"})


async def _monitor_page(request: Request, site: RecorderSite, refused: Problem | None = None) -> Response:
    monitor_id = request.path_params["monitor_id"]
    entry = next((one for one in (await _fleet_of(request, site)).monitors if one.monitor_id == monitor_id), None)
    if entry is None:
        raise Problem(404, "monitor_not_found", "no monitor of your key has this id; see /recorder")
    capsules = await _capsules_of(request, site, monitor_id)
    return site.page(
        "monitor.html",
        request,
        data={"monitor": entry, "capsules": capsules},
        status=refused.status if refused else 200,
        monitor=entry,
        capsules=[(one, pretty_json(one.capsule)) for one in capsules],
        differences=differences(capsules),
        refused=refused,
    )


async def _fleet_of(request: Request, site: RecorderSite) -> Fleet:
    """The whole fleet of the visitor. Raises the refusal of fleet_status."""
    await site.admit(request, "fleet_status")
    return Fleet.model_validate(await site.call(request, "fleet_status", limit=SEVERAL))


async def _capsules_of(request: Request, site: RecorderSite, monitor_id: str) -> list[CapsuleView]:
    """The stored capsules, the latest first."""
    answer = CapsuleAnswer.model_validate(await site.call(request, "fetch_capsule", monitor_id=monitor_id))
    return [*([answer.last] if answer.last else []), *answer.earlier]


def differences(capsules: Sequence[CapsuleView]) -> list[Difference]:
    """From each capsule to the one after it, the latest first."""
    pairs = zip(capsules[1:], capsules[:-1], strict=True)
    return [Difference(before, after, changed_lines(pretty_json(before.capsule), pretty_json(after.capsule))) for before, after in pairs]


def changed_lines(before: str, after: str) -> list[tuple[str, str]]:
    """The lines that changed, with three lines around them; each with added, removed or same."""
    lines = list(unified_diff(before.splitlines(), after.splitlines(), lineterm=""))[2:]
    kinds = {"+": "added", "-": "removed"}
    return [(kinds.get(line[:1], "same"), line) for line in lines[:LONGEST_DIFFERENCE]]


async def events(request: Request, site: RecorderSite) -> Response:
    """Server-sent events: `changed` when the fleet changes in any way that its page shows, `ended` when the key no longer opens it."""
    caller = await site.admit(request, "fleet_status")
    lineage = caller.key.lineage if caller.key else caller.address
    if site.state.streams[lineage] >= STREAMS_PER_KEY:
        raise Problem(
            429, "too_many_streams", f"a key has at most {STREAMS_PER_KEY} streams of events; close one", headers={"Retry-After": "30"}
        )
    headers = {"Cache-Control": "private, no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(_changes(request, site, lineage), media_type="text/event-stream", headers=headers)


async def _changes(request: Request, site: RecorderSite, lineage: str) -> AsyncIterator[bytes]:
    site.state.streams[lineage] += 1
    try:
        yield b"retry: 2000\n\n"
        known = b""
        with anyio.move_on_after(STREAM_SECONDS):
            while not site.stopping.is_set():
                try:
                    seen = await _fingerprint(request, site)
                except Problem as refused:
                    yield b"event: ended\ndata: \n\n" if refused.status in (402, 403) else b": not available at the moment\n\n"
                    if refused.status in (402, 403):
                        return
                else:
                    yield b": \n\n" if seen == known else b"event: changed\ndata: \n\n" if known else b"event: ready\ndata: \n\n"
                    known = seen
                with anyio.move_on_after(LOOK_SECONDS):
                    await site.stopping.wait()
    finally:
        site.state.streams[lineage] -= 1
        if not site.state.streams[lineage]:
            del site.state.streams[lineage]


async def _fingerprint(request: Request, site: RecorderSite) -> bytes:
    """A digest of all that the page of the fleet shows; the uptime, which changes all the time, is left out."""
    shown = await _fleet_of(request, site)
    parts = [one.model_copy(update={"uptime": None}) for one in shown.monitors]
    return hashlib.sha256(to_json(parts)).digest()


async def monitors_used(site: RecorderSite, key: Key) -> str:
    """How many monitors a key has, for the page of the key."""
    chosen = select(OWNERS.c.monitors).where(OWNERS.c.lineage == key.lineage)
    count = await in_snapshot(site.storage, lambda connection: connection.scalar(chosen))
    return f"{count or 0} of {MONITORS_PER_KEY} monitors"
