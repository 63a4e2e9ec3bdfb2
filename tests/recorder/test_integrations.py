"""The plugins for agents' hosts and the wrapper campus-beat, run as hosts and schedulers run them, against a campus that is served."""

import ast
import json
import os
import re
import shutil
import signal
import socket
import sys
import tomllib
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from subprocess import PIPE
from subprocess import run as run_process
from typing import Any

import anyio
import anyio.to_thread
import pytest
from patience import patience
from recorder.recorders import Recorder
from recorder.served import Heard, run, served

from campus.testing import ORIGIN

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")]
ROOT = Path(__file__).parents[2] / "integrations"
PLUGINS = {
    "claude-code": ROOT / "claude-code" / "campus",
    "codex": ROOT / "codex" / "plugins" / "campus",
    "gemini": ROOT / "gemini" / "campus",
}
FOLDER_VARIABLE = {"claude-code": "CLAUDE_PLUGIN_ROOT", "codex": "PLUGIN_ROOT", "gemini": "extensionPath"}
EVENTS = {
    "claude-code": {
        *("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "PostToolUseFailure", "PermissionRequest", "PreCompact"),
        *("SubagentStart", "SubagentStop", "Notification", "Stop", "StopFailure", "SessionEnd"),
    },
    "codex": {
        *("SessionStart", "UserPromptSubmit", "PreToolUse", "PermissionRequest", "PostToolUse", "PreCompact"),
        *("SubagentStart", "SubagentStop", "Interrupt", "Stop", "SessionEnd"),
    },
    "gemini": {"SessionStart", "BeforeAgent", "AfterTool", "Notification", "AfterAgent", "SessionEnd"},
}
"""Events that each host has, as its documentation names them."""
PROMPTS, TOOLS = ("UserPromptSubmit", "BeforeAgent"), ("PostToolUse", "AfterTool")
SESSIONS = json.loads((Path(__file__).parent / "sessions.json").read_text())
LAST_WORDS = "Two of the three callers are changed; the third, in b.py, is next."
ENVIRON = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
BEAT = [sys.executable, "-I", "-S", str(ROOT / "campus-beat" / "campus_beat.py")]
"""Without site-packages: nothing but the standard library."""


async def happens(host: str, event: Mapping[str, Any], *, stops: bool = False, **environ: str) -> None:
    """Do what the host does when an event happens: run the commands of the plugin's hooks.

    None of them may say or block anything, unless another agent has the work: then each says the decision that stops this one.
    """
    hooks = json.loads((PLUGINS[host] / "hooks" / "hooks.json").read_text())["hooks"]
    commands = [one["command"] for group in hooks[event["hook_event_name"]] for one in group["hooks"]]
    assert commands
    for command in commands:
        ran = await run("sh", "-c", command, said=json.dumps(event).encode(), **{FOLDER_VARIABLE[host]: str(PLUGINS[host])}, **environ)
        assert (ran.returncode, ran.stderr) == (0, b"")
        assert (json.loads(ran.stdout)["continue"] if stops else ran.stdout) == (False if stops else b"")


@pytest.mark.parametrize("host", PLUGINS)
async def test_a_recorded_session_beats_dies_and_is_resumed_without_a_model(host: str, recorder: Recorder, tmp_path: Path) -> None:
    async with served(recorder) as (url, _heard):
        key = await recorder.campus.key("recorder")
        monitor = await recorder.register(key=key, period_minutes=10, grace_minutes=2)
        session, beats = {"HOME": str(tmp_path), "CAMPUS_HOOK_URL": monitor["hook_url"].replace(ORIGIN, url)}, 0
        for event in SESSIONS[host]:
            repeats = event["hook_event_name"] == "PostToolUse" and event.get("tool_use_id") == "toolu_02"
            beats += not repeats and "agent_id" not in event  # those of tool calls are sent once a minute
            await happens(host, event, **session)
            assert (await recorder.row(monitor)).beats == beats, event["hook_event_name"]
        await recorder.pass_time(minutes=65)
        assert await recorder.sweep() == 0, "a session that waits for its user is not dead"
        prompt, tool = (next(one for one in SESSIONS[host] if one["hook_event_name"] in names) for names in (PROMPTS, TOOLS))
        await happens(host, prompt, **session)
        await happens(host, tool, **session)
        beats += 2  # the tool's is sent though one was sent within the minute: it may be the end of a wait
        assert (await recorder.row(monitor)).beats == beats
        await recorder.pass_time(minutes=13)
        await recorder.sweep()
        assert await recorder.alerts(monitor) == [("dead", 1)]
        found = (await recorder.call("fetch_capsule", monitor_id=monitor["monitor_id"], key=key)).data
        told = found["last"]["capsule"]["hook"]
        assert (found["state"], told["session_id"], told["cwd"]) == ("dead", SESSIONS[host][0]["session_id"], "/home/me/work")
        assert LAST_WORDS in told.values()
        assert "make test" not in json.dumps(found), "what tools were called with was sent"
        taken = (await recorder.call("takeover", monitor_id=monitor["monitor_id"], key=key)).data
        assert LAST_WORDS in taken["last"]["capsule"]["hook"].values()
        resumed = {**SESSIONS[host][0], "source": "resume"}
        for event in (resumed, prompt, tool, tool):
            await happens(host, event, stops=True, **session)
        assert (await recorder.row(monitor)).beats == beats, "the dead session's secret still beats"
        session["CAMPUS_HOOK_URL"] = taken["hook_url"].replace(ORIGIN, url)
        await happens(host, resumed, **session)
        await happens(host, {**resumed, "hook_event_name": "SessionEnd", "reason": "prompt_input_exit"}, **session)
        row = await recorder.row(monitor)
        assert (row.beats, row.mode, row.fence) == (beats + 1, "paused", 1)


async def test_a_hook_is_silent_without_an_address_with_a_wrong_one_and_without_campus(tmp_path: Path) -> None:
    (event,) = (one for one in SESSIONS["claude-code"] if one["hook_event_name"] == "Stop")
    for url in ("", "http://127.0.0.1:9/x", "file:///etc/passwd", 'http://127.0.0.1:9/"\noutput = "/tmp/x', "-o/etc/x", "http://[::1]:9/x"):
        await happens("claude-code", event, HOME=str(tmp_path), CAMPUS_HOOK_URL=url)


@pytest.mark.parametrize("spaces", [(",", ":"), (", ", ": ")], ids=["compact", "spaced"])
async def test_of_a_tools_call_only_its_name_and_whether_it_repeats_the_last_one_is_sent(spaces: tuple[str, str], tmp_path: Path) -> None:
    (tmp_path / "curl").write_text('#!/bin/sh\ncat >> "$HOME/sent"\necho >> "$HOME/sent"\n')
    (tmp_path / "curl").chmod(0o755)
    environ = {"HOME": str(tmp_path), "PATH": f"{tmp_path}:{os.environ['PATH']}", "CAMPUS_HOOK_URL": "http://127.0.0.1:9/x"}
    sent = tmp_path / "sent"
    script = ["sh", str(PLUGINS["claude-code"] / "hooks" / "beat.sh"), "tool"]
    common = {"session_id": "s1", "cwd": 'C:\\"tool_input"', "effort": {"level": "high"}}

    async def call(event: str, tool: str, given: object, **more: object) -> dict[str, Any] | None:
        after = {"tool_response": {"stdout": "private", "tool_response": 1}, "tool_use_id": "toolu_1"}
        said = {**common, **more, "hook_event_name": event, "tool_name": tool, "tool_input": given, **after}
        sent.write_text("")
        ran = await run(*script, said=json.dumps(said, separators=spaces).encode(), **environ)
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")
        text = sent.read_text()
        assert "private" not in text
        if not text:
            return None
        body: dict[str, Any] = json.loads(text)
        assert {**common, **more, "hook_event_name": event}.items() <= body.items()
        return body

    private = {"command": "private", "session_id": "private", "tool_name": "private", "tool_response": "private"}
    first = await call("PostToolUse", "Bash", private)
    again = await call("PostToolUse", "Bash", private)
    assert first is not None
    assert again is not None
    assert (first["tool_name"], first["tool_repeats"], again["tool_repeats"]) == ("Bash", 1, 2)
    assert first["tool_digest"] == again["tool_digest"] != sha256(json.dumps(["Bash", private]).encode()).hexdigest()
    other = await call("PostToolUse", "Bash", {**private, "tool_response": "private too"})
    assert other is not None, "it moves again"
    assert (other["tool_repeats"], other["tool_digest"] != first["tool_digest"]) == (1, True)
    assert await call("PostToolUse", "Read", private) is None, "one was sent within the minute"
    assert await call("PreToolUse", "Bash", private) is None
    subagents = await call("PostToolUse", "Bash", private, agent_id="a1")
    assert subagents is not None, "they are counted on their own"
    for event in ("PreToolUse", "PostToolUse"):
        waits = await call(event, "Agent", {"prompt": "private"})
        assert waits is not None
        assert waits["tool_name"] == "Agent"
        goes_on = await call(event, "Agent", {"prompt": 'private "run_in_background":false', "run_in_background": True})
        assert goes_on is not None
        assert "tool_name" not in goes_on, "the main loop waits for none in the background"


def test_every_plugin_has_what_its_host_looks_for() -> None:
    scripts = {(folder / "hooks" / "beat.sh").read_bytes() for folder in PLUGINS.values()}
    assert len(scripts) == 1, "the copies of beat.sh differ"
    for host, folder in PLUGINS.items():
        assert set(json.loads((folder / "hooks" / "hooks.json").read_text())["hooks"]) == EVENTS[host]
        skill = (folder / "skills" / "resume-from-capsule" / "SKILL.md").read_text()
        assert re.match(r"---\nname: resume-from-capsule\ndescription: [^\n]{20,1024}\n---\n", skill)
        for tool in ("fetch_capsule", "takeover", "heartbeat", "untrusted", "hook_url"):
            assert tool in skill
    market = json.loads((ROOT / "claude-code" / ".claude-plugin" / "marketplace.json").read_text())
    assert [(ROOT / "claude-code" / one["source"]).resolve() for one in market["plugins"]] == [PLUGINS["claude-code"]]
    assert json.loads((PLUGINS["claude-code"] / ".claude-plugin" / "plugin.json").read_text())["name"] == market["plugins"][0]["name"]
    assert (PLUGINS["claude-code"] / "commands" / "campus.md").is_file()
    market = json.loads((ROOT / "codex" / ".agents" / "plugins" / "marketplace.json").read_text())
    assert [(ROOT / "codex" / one["source"]["path"]).resolve() for one in market["plugins"]] == [PLUGINS["codex"]]
    assert "{{args}}" in tomllib.loads((PLUGINS["gemini"] / "commands" / "campus.toml").read_text())["prompt"]


async def test_the_wrapper_changes_nothing_of_a_command_and_reports_its_end(recorder: Recorder) -> None:
    async with served(recorder) as (url, heard):
        monitor = await recorder.register()
        at = monitor["beat_url"].replace(ORIGIN, url)
        script = "cat; printf 'caf\\351\\000 no newline'; printf '%s' \"$MARK\" >&2; exit 3"
        ran = await run(*BEAT, "--", "sh", "-c", script, said=b"in\r\n", CAMPUS_BEAT_URL=at, MARK="to stderr")
        assert (ran.returncode, ran.stdout, ran.stderr) == (3, b"in\r\ncaf\xe9\0 no newline", b"to stderr")
        begun, ended = reported(heard)
        assert (begun["status"], ended["status"], ended["rid"]) == ("start", 3, begun["rid"])
        for part in ("in\n", "caf\ufffd\ufffd no newline", "to stderr"):  # two pipes: in whichever order they were read
            assert part in ended["output"]
        assert re.search(r"\nsh on \S+ ended with exit code 3 after \d+\.\d s$", ended["output"])
        row = await recorder.row(monitor)
        assert (row.beats, row.mode) == (2, "failed")
        hostile = r"head -c 40000 /dev/zero | tr '\0' '\033'; head -c 40000 /dev/urandom"
        ran = await run(*BEAT, "--", "sh", "-c", hostile, CAMPUS_BEAT_URL=at)
        assert (ran.returncode, len(ran.stdout), ran.stderr) == (0, 80_000, b"")
        assert reported(heard)[-1]["output"].rpartition("\n")[2].startswith("sh on ")
        row = await recorder.row(monitor)
        assert (row.beats, row.mode) == (4, "up")
        assert (await run(*BEAT, "--lines", "0", "--", "echo", "secret", CAMPUS_BEAT_URL=at)).stdout == b"secret\n"
        assert "secret" not in reported(heard)[-1]["output"]


def reported(heard: list[Heard]) -> list[dict[str, Any]]:
    return [json.loads(request.body) for request in heard]


def test_the_wrapper_is_written_for_python_3_9() -> None:
    text = (ROOT / "campus-beat" / "campus_beat.py").read_text()
    tree = ast.parse(text, feature_version=(3, 9))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert names.isdisjoint(("UTC", "StrEnum", "Self", "override", "batched"))  # of later versions
    assert "from __future__ import annotations" in text, "unions in annotations are of 3.10"


OLDEST = shutil.which("python3.9")


@pytest.mark.skipif(OLDEST is None or run_process([OLDEST, "-V"], capture_output=True).returncode != 0, reason="there is no Python 3.9")
async def test_the_wrapper_runs_on_python_3_9(recorder: Recorder) -> None:
    async with served(recorder) as (url, heard):
        monitor = await recorder.register()
        words = (OLDEST or "", *BEAT[1:], "--", "sh", "-c", "echo no; exit 3")
        assert (await run(*words, CAMPUS_BEAT_URL=monitor["beat_url"].replace(ORIGIN, url))).returncode == 3
        assert reported(heard)[-1]["output"].startswith("no\nsh on ")


async def test_the_wrapper_loses_nothing_on_a_non_blocking_pipe_whose_reader_is_slow() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    async with await anyio.open_process(
        [*BEAT, "--", "head", "-c", "500000", "/dev/zero"], stdout=writing, stderr=PIPE, env=ENVIRON
    ) as wrapped:
        os.close(writing)
        received = 0
        while part := await anyio.to_thread.run_sync(os.read, reading, 20_000):
            received += len(part)
        assert (received, await wrapped.wait()) == (500_000, 0)
    os.close(reading)


async def test_the_wrapper_passes_signals_on_and_ends_as_the_command_ends(recorder: Recorder) -> None:
    async with served(recorder) as (url, heard):
        monitor = await recorder.register()
        environ = {**ENVIRON, "CAMPUS_BEAT_URL": monitor["beat_url"].replace(ORIGIN, url)}
        for script, sent, ended in (
            ("trap 'echo bye; exit 7' TERM; echo ready; while :; do sleep 0.05; done", signal.SIGTERM, 7),
            ("echo ready; exec sleep 30", signal.SIGUSR1, -signal.SIGUSR1),
            ("echo ready; kill -KILL $$", None, -signal.SIGKILL),
        ):
            async with await anyio.open_process([*BEAT, "--", "sh", "-c", script], stdout=PIPE, env=environ) as process:
                assert process.stdout is not None
                with anyio.fail_after(patience(30)):
                    assert (await process.stdout.receive()).startswith(b"ready\n")
                    if sent is not None:
                        process.send_signal(sent)
                    assert await process.wait() == ended, script
            told = reported(heard)[-1]
            assert told["status"] == (ended if ended > 0 else 128 - ended)
            by = "with exit code 7" if ended > 0 else f"by {signal.Signals(-ended).name}"
            assert f"sh on {socket.gethostname()} ended {by} after " in told["output"]


async def test_a_command_does_not_suffer_from_a_campus_that_is_away_or_refuses(recorder: Recorder) -> None:
    async with served(recorder) as (url, _heard):
        for address, said in (
            ("", "is not set"),
            ("http://127.0.0.1:9/v1/recorder/beat/mon_1/pssst", "not reported to 127.0.0.1"),
            (f"{url}/v1/recorder/beat/mon_1/pssst", "404 no monitor of yours"),
        ):
            ran = await run(*BEAT, "--wait", "0.5", "--", "sh", "-c", "sleep 5 & echo done; exit 4", CAMPUS_BEAT_URL=address)
            assert (ran.returncode, ran.stdout) == (4, b"done\n")
            told = ran.stderr.decode().splitlines()
            assert (len(told), said in told[0], "pssst" in told[0]) == (1, True, False)
    missing = await run(*BEAT, "--", "no-such-command")
    assert (missing.returncode, b"No such file" in missing.stderr) == (127, True)
    assert (await run(*BEAT)).returncode == 2
