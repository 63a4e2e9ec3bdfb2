"""Beats that the hooks of an agent's host send, without a model: whatever they post is accepted, and the answer is always empty.

Hosts such as Claude Code, Codex CLI and Gemini CLI call hooks when a session starts, a turn ends or a person is waited for, and read
the answer as a decision: it may stop the agent. So a hook gets 204 and no body, also for a wrong secret or a full disk; the header
X-Beat says what happened, for a person who tries the address with curl. The exception is a session whose work another agent has taken
over: two would do it, so the answer is the decision that stops its agent. A `status` that means nothing records nothing: were it
counted as the event's, a misspelt failure would pass for a sign of life.

When a turn has ended or a person is asked, the agent waits, for minutes or for a night: no deadline runs until an event that means
work. An address with `idle` has a limit for that.

What a host posts is its own. A few texts are taken from it, cut to a length, and stored as a capsule, so that a replacement finds the
session. A body that is no JSON object is a beat like any other.
"""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial

from pydantic_core import from_json, to_json

from buildings.recorder.arguments import LEAST_PERIOD, LONGEST, minutes
from buildings.recorder.beats.rules import Beat, capsule_json
from buildings.recorder.monitors.credentials import Credentials
from buildings.recorder.monitors.rows import pause_unless_dead
from buildings.recorder.monitors.state_machine import Status
from buildings.recorder.problems import TAKEN_OVER, fixed_problem
from buildings.recorder.runtime import RecorderSite
from campus import Problem, Request, Response
from campus.errors import StorageUnavailable
from campus.secrets import digest_of
from campus.storage import in_transaction
from twins import has_too_many_values

log = logging.getLogger(__name__)

STATUSES: Mapping[str, Status] = {
    "SessionStart": "start",
    "Stop": "idle",
    "AfterAgent": "idle",
    "Notification": "idle",
    "PermissionRequest": "idle",
    "StopFailure": "fail",
}
"""What events report; every other one reports ok."""
WITH_CAPSULE = frozenset(("SessionStart", "Stop", "StopFailure", "AfterAgent"))
"""Events whose texts are stored. Those of other events would replace the last words of a turn."""
END = "SessionEnd"
"""A session that ended as it should is not dead: its monitor is paused until the next beat. After a failure it stays dead."""
COMPACTED = "compact"  # The source of a SessionStart in the middle of a session.
SHORT, LONG = 500, 4_000  # The most characters of a text that are stored.
TEXTS = {
    "session_id": SHORT,
    "hook_event_name": SHORT,
    "cwd": SHORT,
    "transcript_path": SHORT,
    "model": SHORT,
    "source": SHORT,
    "error": SHORT,
    "last_assistant_message": LONG,
    "prompt_response": LONG,
}
"""The members that are stored, if they are texts: of Claude Code and Codex CLI, and the last one of Gemini CLI."""
IDENTIFIER = re.compile(r"[0-9A-Za-z_]{1,128}")  # Of what monitor ids and secrets consist; anything else is not looked for.
RESULT = "X-Beat"
MINUTES = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,3})?")
STOP = to_json(
    {
        "continue": False,
        "stopReason": "Another agent has taken over the work of this session: its campus monitor has a new secret. To use this session"
        " for other work, give it the hook_url of another monitor, or none.",
    }
)
"""The decision that Claude Code, Codex CLI and Gemini CLI know: the agent stops, and its user reads why."""


@dataclass(frozen=True)
class HostEvent:
    name: str
    status: Status
    texts: Mapping[str, str]
    idle: timedelta | None = None


async def hook(request: Request, site: RecorderSite) -> Response:
    """Record a beat for what a host's hook posted. The answer is 204 and empty, except to a session that was replaced."""
    body = await request.body()
    try:
        event = event_of(body, request.query_params.get("status"), request.query_params.get("idle"))
        monitor_id = request.path_params["monitor_id"]
        secret = request.path_params["secret"]
        if not IDENTIFIER.fullmatch(monitor_id) or not IDENTIFIER.fullmatch(secret):
            raise fixed_problem("monitor_not_found")
        await _record(event, monitor_id, secret, site)
        result = "recorded"
    except Problem as refused:
        result = refused.code
    except StorageUnavailable as error:
        log.log(error.level, "beat of a hook not recorded: %s", error)
        result = "storage_unavailable"
    except Exception:  # a border: not even a bug of ours may stop somebody's agent
        log.exception("beat of a hook failed")
        result = "internal_error"
    headers = {RESULT: result, "Cache-Control": "no-store"}
    if result == TAKEN_OVER:
        return Response(STOP, headers=headers, media_type="application/json")
    return Response(status_code=204, headers=headers)


async def _record(event: HostEvent, monitor_id: str, secret: str, site: RecorderSite) -> None:
    now = site.state.time.now()
    if event.name == END:
        work = partial(pause_unless_dead, credentials=Credentials(monitor_id, None, secret), now=now)
        await in_transaction(site.storage, work)
        return
    beat = Beat(monitor_id, digest_of(secret), now, event.status, next_in=event.idle if event.status == "idle" else None)
    if event.name in WITH_CAPSULE and event.texts:
        session = to_json({"hook": {"session_id": event.texts.get("session_id", "")}})
        stored = {"hook": {"session_id": "", **event.texts}}
        beat = beat._replace(capsule=capsule_json(stored), replaces=session.removesuffix(b"}}"))
    outcome = await site.state.beat(beat)
    if outcome.alert is not None:
        site.state.dispatcher.wake()


def event_of(body: bytes, status: str | None = None, idle: str | None = None) -> HostEvent:
    """Read what a hook posted. A `status` of the address, such as fail or 1, replaces that of the event; Problem 422 for any other word.

    `idle` of the address is for how many minutes the session may wait for its user.
    """
    try:
        # a body of many small values takes 50 ms to read, and no host's event that means anything here is one
        said = None if has_too_many_values(body) else from_json(body)
    except ValueError:
        said = None
    members = said if isinstance(said, dict) else {}
    texts = {name: _stored_text(members[name], most) for name, most in TEXTS.items() if isinstance(members.get(name), str)}
    name = texts.get("hook_event_name", "")
    if idle is not None and not (MINUTES.fullmatch(idle) and LEAST_PERIOD <= float(idle) <= LONGEST):
        raise fixed_problem("invalid_status")
    limit = None if idle is None else minutes(float(idle))
    event = HostEvent(name, "ok" if texts.get("source") == COMPACTED else STATUSES.get(name, "ok"), texts, limit)
    return event if status is None else replace(event, status=_status(status))


def _stored_text(text: str, most: int) -> str:
    """The beginning of a text, without NUL, which no database stores."""
    return text[:most].replace("\0", "\ufffd")


def _status(text: str) -> Status:
    if text in ("ok", "start", "idle", "fail"):
        return text  # type: ignore[return-value]  # mypy narrows no text to a literal
    if not text.isascii() or not text.isdigit() or len(text) > 3 or int(text) > 255:
        raise fixed_problem("invalid_status")
    return int(text)
