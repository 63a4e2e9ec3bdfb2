"""Beats that hosts' hooks post: any body counts, nothing is answered, and what is stored of them pushes out no agent's own capsule."""

import json
from datetime import timedelta
from typing import Any

import httpx
import pytest
from recorder.recorders import OpenRecorder, Recorder
from sqlalchemy import select

from buildings.recorder.tables import RUNS
from campus.storage import in_snapshot, in_transaction

pytestmark = pytest.mark.anyio
SESSION = {"session_id": "5f0c", "transcript_path": "/home/me/.claude/5f0c.jsonl", "cwd": "/home/me/work", "permission_mode": "default"}
BODIES = {
    "nothing": b"",
    "no JSON": b"\x00\xff{",
    "no object": b"[1]",
    "deep": b'{"a":' * 100_000,
    "names of a beat": b'{"status": "fail", "capsule": {"mine": 1}, "seq": "x", "hook_event_name": ["Stop"]}',
    "half a character": rb'{"hook_event_name": "Stop", "cwd": "\ud800"}',
    "almost a mebibyte": b'{"hook_event_name": "PostToolUse", "tool_response": "%b"}' % (b"x" * (2**20 - 100)),
}

OTHER, AGENT, SECOND = {"session_id": "77aa"}, {"agent_id": "a1", "agent_type": "Explore"}, {"agent_id": "a2", "agent_type": "Plan"}
BASH = {"tool_name": "Bash", "tool_input": {"command": "make"}, "tool_response": {"stdout": ""}, "tool_use_id": "t1"}
DELEGATED = {"tool_name": "Agent", "tool_input": {"prompt": "look"}, "tool_use_id": "t2"}
IN_BACKGROUND = {**DELEGATED, "tool_input": {"prompt": "look", "run_in_background": True}}
SERVER = {"id": "b1", "type": "shell", "status": "running", "description": "tests", "command": "make soak"}
LIVES: dict[str, list[tuple[str, str, dict[str, Any], str]]] = {
    "Claude Code": [
        ("a session has only started", "SessionStart", {"source": "startup"}, "idle"),
        ("its user asks", "UserPromptSubmit", {"prompt_id": "p1", "prompt": "Change it."}, "up"),
        ("it works", "PostToolUse", BASH, "up"),
        ("a tool fails", "PostToolUseFailure", {**BASH, "error": "exit 2"}, "up"),
        ("it asks for a permission", "PermissionRequest", BASH, "idle"),
        ("the host says so", "Notification", {"notification_type": "permission_prompt", "message": "?"}, "idle"),
        ("a subagent in the background works", "PostToolUse", {**BASH, **AGENT}, "idle"),
        ("the user allowed it", "PostToolUse", BASH, "up"),
        ("a login succeeded", "Notification", {"notification_type": "auth_success", "message": "."}, "up"),
        ("a subagent in the background starts", "SubagentStart", AGENT, "up"),
        ("it stops", "SubagentStop", {**AGENT, "last_assistant_message": "Found."}, "up"),
        ("a subagent in the background asks", "PermissionRequest", {**BASH, **AGENT}, "up"),
        ("the main loop waits for a subagent", "PreToolUse", DELEGATED, "up"),
        ("and for a second one", "PreToolUse", DELEGATED, "up"),
        ("the first one asks for a permission", "PermissionRequest", {**BASH, **AGENT}, "idle"),
        ("it works on", "PostToolUse", {**BASH, **AGENT}, "up"),
        ("the second one ends", "PostToolUse", DELEGATED, "up"),
        ("the first one ends", "PostToolUse", DELEGATED, "up"),
        ("the context is compacted", "PreCompact", {"trigger": "auto"}, "up"),
        ("and goes on", "SessionStart", {"source": "compact"}, "up"),
        ("the turn ends, and tests run", "Stop", {"background_tasks": [SERVER]}, "up"),
        ("the host finds nobody", "Notification", {"notification_type": "idle_prompt", "message": "."}, "up"),
        ("a subagent in the background asks now", "PermissionRequest", {**BASH, **SECOND}, "idle"),
        ("and works on", "PostToolUse", {**BASH, **SECOND}, "up"),
        ("the tests end, and wake it", "PostToolUse", BASH, "up"),
        ("the turn ends", "Stop", {"background_tasks": [], "session_crons": []}, "idle"),
        ("its user compacts", "PreCompact", {"trigger": "manual"}, "idle"),
        ("what was compacted is there", "SessionStart", {"source": "compact"}, "idle"),
        ("a file changes", "FileChanged", {"file_path": "a.py"}, "idle"),
        ("an event of tomorrow", "MoonPhase", {}, "idle"),
        ("another session starts", "SessionStart", {**OTHER, "source": "startup"}, "idle"),
        ("and works", "UserPromptSubmit", {**OTHER, "prompt_id": "q1", "prompt": "Go."}, "up"),
        ("the first one ends late", "SessionEnd", {"reason": "other"}, "up"),
        ("or waits", "Notification", {"notification_type": "idle_prompt", "message": "."}, "up"),
        ("or stops", "Stop", {"background_tasks": []}, "up"),
        ("or fails", "StopFailure", {"error": "overloaded"}, "up"),
        ("the other one fails", "StopFailure", {**OTHER, "error": "overloaded"}, "failed"),
        ("it waits for its user", "Notification", {**OTHER, "notification_type": "idle_prompt", "message": "."}, "failed"),
        ("who asks again, which mends nothing", "UserPromptSubmit", {**OTHER, "prompt_id": "q2", "prompt": "Go."}, "failed"),
        ("but a turn that ends does", "Stop", {**OTHER, "background_tasks": []}, "idle"),
        ("it ends", "SessionEnd", {**OTHER, "reason": "prompt_input_exit"}, "paused"),
        ("a late notice of it", "Notification", {**OTHER, "notification_type": "idle_prompt", "message": "."}, "paused"),
        ("the first one is resumed", "SessionStart", {"source": "resume"}, "idle"),
        ("and works", "UserPromptSubmit", {"prompt_id": "p3", "prompt": "On."}, "up"),
        ("until it crashes", "(crash)", {}, "missed"),
        ("its subagent lives on", "PostToolUse", {**BASH, **AGENT}, "missed"),
        ("it is resumed again", "SessionStart", {"source": "resume"}, "idle"),
    ],
    "Codex CLI": [
        ("a session has only started", "SessionStart", {"source": "startup"}, "idle"),
        ("its user asks", "UserPromptSubmit", {"turn_id": "1", "prompt": "Change it."}, "up"),
        ("it asks for a permission", "PermissionRequest", {"turn_id": "1", **BASH}, "idle"),
        ("the user allowed it", "PostToolUse", {"turn_id": "1", **BASH}, "up"),
        ("a subagent starts", "SubagentStart", {"turn_id": "s1", **AGENT}, "up"),
        ("a second one starts", "SubagentStart", {"turn_id": "s2", **SECOND}, "up"),
        ("it asks for a permission", "PermissionRequest", {"turn_id": "s2", **BASH, **SECOND}, "up"),
        ("the main loop waits for them", "PreToolUse", {"turn_id": "1", "tool_name": "wait_agent", "tool_input": {}}, "up"),
        ("the second one asks again", "PermissionRequest", {"turn_id": "s2", **BASH, **SECOND}, "idle"),
        ("it stops", "SubagentStop", {"turn_id": "s2", **SECOND, "last_assistant_message": None}, "up"),
        ("the wait is over", "PostToolUse", {"turn_id": "1", "tool_name": "wait_agent", "tool_input": {}}, "up"),
        ("the first one stops", "SubagentStop", {"turn_id": "s1", **AGENT, "last_assistant_message": None}, "up"),
        ("the context is compacted", "PreCompact", {"turn_id": "1", "trigger": "auto"}, "up"),
        ("and goes on", "SessionStart", {"source": "compact"}, "up"),
        ("its user interrupts", "Interrupt", {"turn_id": "1"}, "idle"),
        ("and asks again", "UserPromptSubmit", {"turn_id": "2", "prompt": "No: so."}, "up"),
        ("the turn ends", "Stop", {"turn_id": "2", "last_assistant_message": "Done."}, "idle"),
        ("a fork of it starts", "SessionStart", {**OTHER, "source": "fork"}, "idle"),
        ("the first one ends", "SessionEnd", {"reason": "other"}, "idle"),
        ("the fork ends", "SessionEnd", {**OTHER, "reason": "other"}, "paused"),
    ],
    "Gemini CLI": [
        ("a session has only started", "SessionStart", {"source": "startup"}, "idle"),
        ("its user asks", "BeforeAgent", {"prompt": "Change it."}, "up"),
        ("the context is compacted", "PreCompress", {"trigger": "auto"}, "up"),
        ("it works", "AfterTool", {"tool_name": "ls", "tool_input": {}, "tool_response": {"llmContent": "a"}}, "up"),
        ("it asks for a permission", "Notification", {"notification_type": "ToolPermission", "message": "?", "details": {}}, "idle"),
        ("the user allowed it", "AfterTool", {"tool_name": "rm", "tool_input": {}, "tool_response": {"llmContent": ""}}, "up"),
        ("the turn ends", "AfterAgent", {"prompt": "Change it.", "prompt_response": "Done.", "stop_hook_active": False}, "idle"),
        ("its user clears it", "SessionEnd", {"reason": "clear"}, "paused"),
        ("and has a new one", "SessionStart", {**OTHER, "source": "clear"}, "idle"),
        ("which works", "BeforeAgent", {**OTHER, "prompt": "Again."}, "up"),
        ("and ends", "SessionEnd", {**OTHER, "reason": "exit"}, "paused"),
    ],
}


async def post(recorder: Recorder, monitor: dict[str, Any], event: str, query: str = "", **said: Any) -> str:
    body = json.dumps({**SESSION, "hook_event_name": event, **said}).encode()
    return seen(await recorder.campus.http.post(monitor["hook_url"] + query, content=body))


def seen(answer: httpx.Response) -> str:
    assert (answer.status_code, answer.content) == (204, b"")
    assert answer.headers["cache-control"] == "no-store"
    return str(answer.headers["x-beat"])


async def capsules(recorder: Recorder, monitor: dict[str, Any], key: str) -> list[Any]:
    found = (await recorder.call("fetch_capsule", monitor_id=monitor["monitor_id"], key=key)).data
    return [one["capsule"] for one in (found["last"], *found["earlier"]) if one]


@pytest.mark.both_databases
async def test_a_session_beats_and_its_last_words_are_stored_beside_the_agents_own_capsules(recorder: Recorder) -> None:
    key = await recorder.campus.key("recorder")
    monitor = await recorder.register(key=key)
    await recorder.beat(monitor, capsule={"step": 1}, seq=1)
    for event, said in (
        ("SessionStart", {"source": "startup"}),
        ("Stop", {"last_assistant_message": "step 2 is done\0", "stop_hook_active": False}),
        ("SubagentStop", {"last_assistant_message": "of a subagent"}),
        ("Notification", {"message": "Claude is waiting"}),
        *[("Stop", {"last_assistant_message": "x" * 9_000})] * 6,
    ):
        assert await post(recorder, monitor, event, **said) == "recorded"
    last, own = await capsules(recorder, monitor, key)
    assert own == {"step": 1}
    assert (last["hook"]["session_id"], last["hook"]["cwd"], last["hook"]["hook_event_name"]) == ("5f0c", "/home/me/work", "Stop")
    assert last["hook"]["last_assistant_message"] == "x" * 4_000
    assert "permission_mode" not in last["hook"]
    assert await post(recorder, monitor, "SessionStart", session_id="5f0c2", source="startup") == "recorded"
    assert [one.get("hook", {}).get("session_id") for one in await capsules(recorder, monitor, key)] == ["5f0c2", "5f0c", None]
    assert (await recorder.row(monitor)).beats == 11, "a subagent that stops is no beat of its session"


async def test_any_body_is_a_beat(recorder: Recorder) -> None:
    for name, body in BODIES.items():
        monitor = await recorder.register(key="recorder")
        assert seen(await recorder.campus.http.post(monitor["hook_url"], content=body)) == "recorded", name
        row = await recorder.row(monitor)
        assert (row.beats, row.mode, row.capsules) == (1, "up", 0), name


@pytest.mark.parametrize("host", LIVES)
async def test_each_event_of_a_host_leaves_the_monitor_in_its_state(host: str, recorder: Recorder) -> None:
    monitor = await recorder.register(key="recorder", period_minutes=10, grace_minutes=2)
    for place, (what, event, said, mode) in enumerate(LIVES[host]):
        before = await recorder.row(monitor)
        if event == "(crash)":
            await recorder.pass_time(minutes=13)
            await recorder.sweep()
        else:
            await recorder.pass_time(seconds=5)
            assert await post(recorder, monitor, event, **said) == "recorded"
        row = await recorder.row(monitor)
        assert row.mode == mode, (place, what)
        if mode == "up" and "agent_id" in said and before.mode == "up" and before.session == row.session:
            waited_for = any(word in before.session for word in (b'"calls":1', b'"calls":2', b'"background":true'))
            assert (row.deadline_at > before.deadline_at) == waited_for, (place, what)
    assert len(row.session or b"") < 300


async def test_a_subagents_work_is_shown_as_a_run_and_hides_no_main_loop_that_hangs(recorder: Recorder) -> None:
    monitor = await recorder.register(key=await recorder.campus.key("recorder"), period_minutes=10, grace_minutes=2)
    for event, said in (("SessionStart", {"source": "startup"}), ("UserPromptSubmit", {"prompt": "Go."}), ("SubagentStart", AGENT)):
        await post(recorder, monitor, event, **said)
    for _ in range(11):
        await recorder.pass_time(minutes=1)
        await post(recorder, monitor, "PostToolUse", **BASH, **AGENT)
    await post(recorder, monitor, "SubagentStop", **AGENT)
    assert await recorder.sweep() == 0
    await recorder.pass_time(minutes=1)
    assert await recorder.sweep() == 1, "the main loop hung for twelve minutes"
    chosen = select(RUNS.c.result, RUNS.c.session, RUNS.c.agent).order_by(RUNS.c.number)
    runs = await in_snapshot(recorder.campus.site.storage, lambda connection: connection.execute(chosen).all())
    assert [tuple(run) for run in runs] == [(None, "5f0c", None), ("ok", "5f0c", "a1")]


async def test_a_long_turn_lasts_while_its_tools_do_and_is_a_run_with_a_result(recorder: Recorder) -> None:
    monitor = await recorder.register(key="recorder", period_minutes=10, grace_minutes=2)
    await post(recorder, monitor, "UserPromptSubmit", prompt="Go.")
    for _ in range(12):
        await recorder.pass_time(minutes=11)
        assert await recorder.sweep() == 0
        await post(recorder, monitor, "PostToolUse", **BASH)
    await post(recorder, monitor, "Stop")
    await post(recorder, monitor, "UserPromptSubmit", prompt="And then?")
    await post(recorder, monitor, "StopFailure", error="overloaded")
    chosen = select(RUNS.c.result, RUNS.c.ended_at - RUNS.c.started_at).order_by(RUNS.c.number)
    runs = await in_snapshot(recorder.campus.site.storage, lambda connection: connection.execute(chosen).all())
    assert [run[0] for run in runs] == ["ok", "fail"]
    limited = await recorder.register(key="recorder", period_minutes=600, run_minutes=30)
    await post(recorder, limited, "UserPromptSubmit", prompt="Go.")
    await recorder.pass_time(minutes=20)
    await post(recorder, limited, "PostToolUse", **BASH)
    await recorder.pass_time(minutes=10)
    assert await recorder.sweep() == 1, "the turn took longer than run_minutes"


@pytest.mark.parametrize("by", ["tool", "progress"])
async def test_an_agent_that_repeats_itself_is_stuck_until_it_moves_and_others_may_take_it(by: str, recorder: Recorder) -> None:
    key = await recorder.campus.key("recorder")
    monitor = await recorder.register(key=key, stuck_after=3, stuck_takeover=by == "tool")

    async def work(*steps: int) -> None:
        for step in steps:
            if by == "tool":
                await post(recorder, monitor, "PostToolUse", **{**BASH, "tool_input": {"command": f"step {step}"}})
            else:
                await recorder.beat(monitor, progress=step)

    await work(1, 1, 2, 2, 3, 3)
    assert (await recorder.row(monitor)).mode == "up"
    await work(3, 3)
    assert (await recorder.beat(monitor)).data["stuck"], "a beat that tells no progress is none"
    (shown,) = (await recorder.call("fleet_status", key=key)).data["monitors"]
    assert (shown["state"], shown["stuck"]) == ("alive", True)
    await work(4)
    assert await recorder.alerts(monitor) == [("stuck", 1), ("recovered", 1)]
    await work(4, 4)
    found = (await recorder.call("fetch_capsule", monitor_id=monitor["monitor_id"], key=key)).data
    taken = await recorder.call("takeover", monitor_id=monitor["monitor_id"], key=key)
    if by == "progress":
        assert (taken.status, found["resume"]["calls"][0]["tool"]) == (409, "fetch_capsule")
        return
    assert (taken.status, found["resume"]["calls"][0]["tool"]) == (200, "takeover")
    row = await recorder.row(monitor)
    assert (row.mode, row.unchanged, row.session, row.fence) == ("up", 0, None, 1)
    assert (await recorder.alerts(monitor))[2:] == [("stuck", 2), ("recovered", 2)]


async def test_no_argument_of_a_tool_is_stored(recorder: Recorder) -> None:
    monitor = await recorder.register(key="recorder", stuck_after=2)
    await post(recorder, monitor, "PostToolUse", **{**BASH, "tool_input": {"command": "cat secret-of-mine"}})
    assert b"secret-of-mine" not in repr(await recorder.row(monitor)).encode()


async def test_a_status_of_the_address_replaces_that_of_the_event(recorder: Recorder) -> None:
    monitor = await recorder.register(key="recorder", period_minutes=10, grace_minutes=2)
    for event, query, mode in (
        ("Stop", "?status=3", "failed"),
        ("Stop", "?status=0", "up"),
        ("Stop", "?idle=480", "up"),
        ("SessionEnd", "?status=1", "paused"),
    ):
        assert await post(recorder, monitor, event, query) == "recorded"
        row = await recorder.row(monitor)
        assert row.mode == mode, (event, query)
        assert query != "?idle=480" or row.deadline_at - row.alive_at == timedelta(minutes=482)
    await recorder.pass_time(days=2)
    assert await recorder.sweep() == 0


async def test_a_status_that_means_nothing_records_nothing(recorder: Recorder) -> None:
    monitor = await recorder.register(key="recorder", period_minutes=10, grace_minutes=2)
    before = await recorder.row(monitor)
    for status in ("faild", "fail!", "", "%20", "1.0", "\u0661", "%00", "x" * 4_000):
        for event in ("Stop", "SessionStart", "SessionEnd", "StopFailure"):
            said = await post(recorder, monitor, event, f"?status={status}", last_assistant_message="x")
            assert said == "invalid_status", (status, event)
        assert await recorder.row(monitor) == before, status
    await recorder.pass_time(minutes=12)
    assert await recorder.sweep() == 1, "the deadline raises the alert"


async def test_a_hook_learns_of_no_refusal(recorder: Recorder) -> None:
    monitor = await recorder.register(key="recorder")
    right = monitor["hook_url"]
    for url in (
        f"{right[:-1]}{'y' if right[-1] == 'x' else 'x'}",
        right + "x" * 200,
        right.replace("/mon_", "/mon_x"),
        right.replace("/mon_", "/%00%ff"),
        right + "%0a",
    ):
        assert seen(await recorder.campus.http.post(url, content=b'{"hook_event_name": "SessionEnd"}')) == "monitor_not_found", url
    assert (await recorder.row(monitor)).mode == "up"
    for _ in range(120):
        await recorder.beat(monitor)
    assert await post(recorder, monitor, "Stop") == "too_many_beats"
    assert (await recorder.row(monitor)).beats == 120


async def test_a_database_that_fails_stops_no_host(open_recorder: OpenRecorder, caplog: pytest.LogCaptureFixture) -> None:
    async with open_recorder() as recorder:
        monitor = await recorder.register(key="recorder")
        lose = "ALTER TABLE monitor RENAME TO lost"
        await in_transaction(recorder.campus.site.storage, lambda connection: connection.exec_driver_sql(lose))
        assert await post(recorder, monitor, "Stop") == "storage_unavailable"
    assert "beat of a hook not recorded" in caplog.text
    assert monitor["secret"] not in caplog.text
