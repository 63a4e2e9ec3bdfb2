"""Beats that the hooks of an agent's host send, without a model: whatever they post is accepted, and the answer is always empty.

Hosts such as Claude Code, Codex CLI and Gemini CLI call hooks when a session starts, a turn ends or a person is waited for, and read
the answer as a decision: it may stop the agent. So a hook gets 204 and no body, also for a wrong secret or a full disk; the header
X-Beat says what happened, for a person who tries the address with curl. The exception is a session whose work another agent has taken
over: two would do it, so the answer is the decision that stops its agent. A `status` that means nothing records nothing: were it
counted as the event's, a misspelt failure would pass for a sign of life.

What an event does to its monitor is in sessions.py: it depends on which session has the monitor, and whether its main loop or a subagent
reports it. While an agent waits, for minutes or for a night, no deadline runs until an event that means work. An address with `idle` has a
limit for that.

What a host posts is its own. A few texts are taken from it, cut to a length, and stored as a capsule, so that a replacement finds the
session. A body that is no JSON object, or names no event, is a beat like any other.
"""

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from typing import Any

from pydantic_core import from_json, to_json

from buildings.recorder.arguments import LEAST_PERIOD, LONGEST, minutes
from buildings.recorder.beats.beat import Beat
from buildings.recorder.beats.dialects import status_of
from buildings.recorder.beats.rules import capsule_json
from buildings.recorder.beats.sessions import HostEvent, Meaning
from buildings.recorder.monitors.state_machine import Status
from buildings.recorder.problems import TAKEN_OVER, fixed_problem
from buildings.recorder.runtime import RecorderSite
from campus import Problem, Request, Response
from campus.errors import StorageUnavailable
from campus.secrets import digest_of
from twins import has_too_many_values

log = logging.getLogger(__name__)

MEANINGS: Mapping[str, Meaning] = {
    "SessionStart": "opens",
    "UserPromptSubmit": "prompt",
    "BeforeAgent": "prompt",
    **dict.fromkeys(("PreToolUse", "PostToolUse", "PostToolUseFailure", "PostToolBatch", "PermissionDenied", "ElicitationResult"), "works"),
    **dict.fromkeys(("BeforeTool", "AfterTool", "BeforeModel", "AfterModel", "BeforeToolSelection"), "works"),
    **dict.fromkeys(("PreCompact", "PostCompact", "PreCompress"), "compacts"),
    **dict.fromkeys(("PermissionRequest", "Elicitation"), "asks"),
    "Interrupt": "waits",
    "SubagentStart": "agent_starts",
    "SubagentStop": "agent_stops",
    "Stop": "turn",
    "AfterAgent": "turn",
    "StopFailure": "fails",
    "SessionEnd": "ends",
}
"""What the events mean that the hosts' documentation names. Any other one is shown and changes nothing."""
NOTES: Mapping[str | None, Meaning] = {
    **dict.fromkeys(("permission_prompt", "elicitation_dialog", "agent_needs_input", "ToolPermission"), "asks"),
    **dict.fromkeys(("idle_prompt", None), "waits"),
}
"""What a Notification means by its type; older hosts name none. Others, such as auth_success, ask for nothing."""
SUBAGENT_TOOLS = frozenset(("Agent", "Task", "wait_agent"))
"""Tools of Claude Code and Codex CLI in which the main loop waits for a subagent. Gemini CLI tells nothing of its subagents."""
WITH_CAPSULE = frozenset(("SessionStart", "Stop", "StopFailure", "AfterAgent"))
"""Events whose texts are stored. Those of other events would replace the last words of a turn."""
COMPACTED = "compact"  # The source of a SessionStart in the middle of a session.
CALLED = frozenset(("PostToolUse", "PostToolUseFailure", "AfterTool"))
"""Events of which each is one call of a tool."""
RUNS: frozenset[Meaning] = frozenset(("prompt", "turn", "fails"))  # A turn is a run of its session,
SUBAGENT_RUNS: frozenset[Meaning] = frozenset(("agent_starts", "agent_stops"))  # and what a subagent does is one of its own.
IDENTIFIER_CHARACTERS = 64
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
        "stopReason": "Another agent has taken over the work of this session: its monitor has a new secret. To use this session"
        " for other work, give it the hook_url of another monitor, or none.",
    }
)
"""The decision that Claude Code, Codex CLI and Gemini CLI know: the agent stops, and its user reads why."""


@dataclass(frozen=True)
class Posted:
    """What a hook posted: its event, None where the body names none; the texts to store; and how long its session may wait."""

    event: HostEvent | None
    status: Status
    texts: Mapping[str, str]
    idle: timedelta | None = None


async def hook(request: Request, site: RecorderSite) -> Response:
    """Record a beat for what a host's hook posted. The answer is 204 and empty, except to a session that was replaced."""
    body = await request.body()
    try:
        posted = read_posted(body, request.query_params.get("status"), request.query_params.get("idle"))
        monitor_id = request.path_params["monitor_id"]
        secret = request.path_params["secret"]
        if not IDENTIFIER.fullmatch(monitor_id) or not IDENTIFIER.fullmatch(secret):
            raise fixed_problem("monitor_not_found")
        await _record(posted, monitor_id, secret, site)
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


async def _record(posted: Posted, monitor_id: str, secret: str, site: RecorderSite) -> None:
    beat = Beat(monitor_id, digest_of(secret), site.state.time.now(), posted.status, next_in=posted.idle, host=posted.event)
    if (event := posted.event) is not None:
        rid = event.agent if event.meaning in SUBAGENT_RUNS else event.session if event.meaning in RUNS else None
        beat = beat._replace(rid=rid, session=event.session, agent=event.agent)
    if posted.texts:
        session = to_json({"hook": {"session_id": posted.texts.get("session_id", "")}})
        stored = {"hook": {"session_id": "", **posted.texts}}
        beat = beat._replace(capsule=capsule_json(stored), replaces=session.removesuffix(b"}}"))
    await site.state.beat(beat)


def read_posted(body: bytes, status: str | None = None, idle: str | None = None) -> Posted:
    """Read what a hook posted. A `status` of the address, such as fail or 1, replaces that of the event; Problem 422 for any other word.

    `idle` of the address is for how many minutes the session may wait for its user, or for its work in the background.
    """
    try:
        # a body of many small values takes 50 ms to read, and no host's event that means anything here is one
        said = None if has_too_many_values(body) else from_json(body)
    except ValueError:
        said = None
    members = said if isinstance(said, dict) else {}
    if idle is not None and not (MINUTES.fullmatch(idle) and LEAST_PERIOD <= float(idle) <= LONGEST):
        raise fixed_problem("invalid_status")
    limit = None if idle is None else minutes(float(idle))
    sent = None if status is None else status_of(status)
    if status is not None and sent is None:
        raise fixed_problem("invalid_status")
    name = _text(members, "hook_event_name")
    if name is None:
        return Posted(None, "ok" if sent is None else sent, {}, limit if sent == "idle" else None)
    texts = {text: _stored_text(members[text], most) for text, most in TEXTS.items() if isinstance(members.get(text), str)}
    return Posted(_event_of(name, members, sent), "ok", texts if name in WITH_CAPSULE else {}, limit)


def _event_of(name: str, members: Mapping[str, Any], status: Status | None) -> HostEvent:
    meaning = MEANINGS.get(name, "shown")
    if name == "Notification":
        meaning = NOTES.get(_text(members, "notification_type"), "shown")
    elif name == "SessionStart" and members.get("source") == COMPACTED:
        meaning = "compacts"
    is_main = (agent := _text(members, "agent_id")) is None
    tool, arguments = _text(members, "tool_name"), members.get("tool_input")
    waits_for_subagent = tool in SUBAGENT_TOOLS and not (isinstance(arguments, dict) and arguments.get("run_in_background") is True)
    digest = _text(members, "tool_digest")
    if digest is None and tool is not None and "tool_input" in members:
        digest = sha256(json.dumps([tool, arguments], sort_keys=True).encode()).hexdigest()
    repeats = members.get("tool_repeats")
    return HostEvent(
        meaning,
        _text(members, "session_id"),
        agent,
        calls=(1 if name == "PreToolUse" else -1) if meaning == "works" and waits_for_subagent else 0,
        background=bool(members.get("background_tasks")),
        digest=digest if name in CALLED and is_main else None,
        repeats=repeats if name in CALLED and is_main and type(repeats) is int and repeats >= 0 else None,
        status=status,
    )


def _text(members: Mapping[str, Any], name: str) -> str | None:
    text = members.get(name)
    return _stored_text(text, IDENTIFIER_CHARACTERS) if isinstance(text, str) and text else None


def _stored_text(text: str, most: int) -> str:
    """The beginning of a text, without NUL, which no database stores."""
    return text[:most].replace("\0", "\ufffd")
