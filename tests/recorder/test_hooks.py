"""Beats that hosts' hooks post: any body counts, nothing is answered, and what is stored of them pushes out no agent's own capsule."""

import json
from typing import Any

import httpx
import pytest
from recorder.recorders import Recorder

from campus.storage import in_transaction

pytestmark = [pytest.mark.anyio, pytest.mark.both_databases]
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


async def test_a_session_beats_and_its_last_words_are_stored_beside_the_agents_own_capsules(on_each_database: Recorder) -> None:
    recorder = on_each_database
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
    assert (await recorder.row(monitor)).beats == 12


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
async def test_any_body_is_a_beat(recorder: Recorder, body: bytes) -> None:
    monitor = await recorder.register(key="recorder")
    assert seen(await recorder.campus.http.post(monitor["hook_url"], content=body)) == "recorded"
    row = await recorder.row(monitor)
    assert (row.beats, row.mode, row.capsules) == (1, "up", 0)


async def test_events_report_what_they_mean_and_a_session_that_ends_is_paused(recorder: Recorder) -> None:
    monitor = await recorder.register(key="recorder")
    for event, query, mode, said in (
        ("SessionStart", "", "up", {"source": "startup"}),
        ("StopFailure", "", "failed", {"error": "rate_limit"}),
        ("SessionEnd", "", "failed", {"reason": "other"}),
        ("Stop", "", "failed", {}),
        ("UserPromptSubmit", "", "up", {}),
        ("Stop", "", "idle", {}),
        ("Stop", "?status=3", "failed", {}),
        ("Stop", "?status=0", "up", {}),
        ("SessionEnd", "", "paused", {"reason": "prompt_input_exit"}),
    ):
        assert await post(recorder, monitor, event, query, **said) == "recorded"
        assert (await recorder.row(monitor)).mode == mode, (event, query)
    await recorder.pass_time(days=2)
    assert await recorder.sweep() == 0
    assert await post(recorder, monitor, "SessionStart", source="compact") == "recorded"
    row = await recorder.row(monitor)
    assert (row.mode, row.run_since) == ("up", None)


async def test_a_status_that_means_nothing_records_nothing(recorder: Recorder) -> None:
    monitor = await recorder.register(key="recorder", period_minutes=10, grace_minutes=2)
    before = await recorder.row(monitor)
    for status in ("failed", "FAIL", "", "%20", "fail%20", "256", "0001", "-1", "1.0", "\u0661", "%00", "x" * 4_000):
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


async def test_a_database_that_fails_stops_no_host(recorder: Recorder, caplog: pytest.LogCaptureFixture) -> None:
    monitor = await recorder.register(key="recorder")
    await in_transaction(recorder.campus.site.storage, lambda connection: connection.exec_driver_sql("ALTER TABLE monitor RENAME TO lost"))
    assert await post(recorder, monitor, "Stop") == "storage_unavailable"
    assert "beat of a hook not recorded" in caplog.text
    assert monitor["secret"] not in caplog.text
