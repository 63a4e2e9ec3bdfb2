"""Checks that agents' hosts take the plugins of `integrations/`, and that real sessions of them beat by their hooks alone."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from contract.served_campus import ServedCampus
from lab.conformance.models import DONE, serve_model
from lab.conformance.node import Node

from tests import patient

PLUGINS = Path(__file__).parents[3] / "integrations"
CLAUDE_CODE, CODEX, GEMINI = PLUGINS / "claude-code", PLUGINS / "codex", PLUGINS / "gemini" / "campus"
COMMANDS = (
    ("claude", "plugin", "validate", str(CLAUDE_CODE)),
    ("claude", "plugin", "validate", str(CLAUDE_CODE / "campus")),
    ("claude", "plugin", "marketplace", "add", str(CLAUDE_CODE)),
    ("claude", "plugin", "install", "campus@campus"),
    ("codex", "plugin", "marketplace", "add", str(CODEX)),
    ("codex", "plugin", "add", "campus@campus"),
    ("gemini", "extensions", "validate", str(GEMINI)),
    ("gemini", "extensions", "install", str(GEMINI), "--consent", "--skip-settings"),
)
NOWHERE = "http://127.0.0.1:9"
"""Where the host looks for its model: nobody answers there."""
RUN_SECONDS = 120
ENVIRON = {
    **dict.fromkeys(("ANTHROPIC_API_KEY", "GEMINI_API_KEY"), "none"),
    **{"CLAUDE_CODE_MAX_RETRIES": "0", "DISABLE_TELEMETRY": "1", "GEMINI_CLI_TRUST_WORKSPACE": "true"},
}
GEMINI_SETTINGS = {"security": {"auth": {"selectedType": "gemini-api-key"}}}


def run_hosts(node: Node, campus: ServedCampus, home: Path) -> list[str]:
    home.mkdir()
    (home / ".gemini").mkdir()
    (home / ".gemini" / "settings.json").write_text(json.dumps(GEMINI_SETTINGS))
    faults = []
    for words in COMMANDS:
        ran = _run(node, home, *words)
        print(f"  {' '.join(words[:3]):32} exit {ran.returncode}")
        if ran.returncode != 0:
            faults.append(f"{' '.join(words)} failed: {ran.stdout}{ran.stderr}")
    if faults:
        return faults
    mcp = {"CAMPUS_URL": campus.url, "CAMPUS_KEY": campus.tokens.recorder}
    listed = _run(node, home, "claude", "mcp", "list", **ENVIRON, **mcp).stdout
    faults = [] if listed.count("Connected") == 2 else [f"Claude Code does not reach the plugin's MCP servers: {listed}"]
    with serve_model() as model:
        for words, last_words in _sessions(model).items():
            faults += _session(node, campus, home, words, last_words)
    return faults


def _sessions(model: str) -> dict[tuple[str, ...], str | None]:
    """The commands of a session of each host, and its last words: with a model that calls a tool, and without one."""
    provider = f'model_providers.here={{name="here",base_url="{model}/v1",wire_api="responses"}}'
    codex = ("--skip-git-repo-check", "--dangerously-bypass-hook-trust", "--dangerously-bypass-approvals-and-sandbox")
    return {
        ("env", f"ANTHROPIC_BASE_URL={NOWHERE}", "claude", "-p", "Say nothing."): None,
        ("env", f"ANTHROPIC_BASE_URL={model}", "claude", "-p", "Say hello.", "--allowedTools", "Bash"): DONE,
        ("codex", "exec", *codex, "-c", 'model_provider="here"', "-c", provider, "Say hello."): DONE,
        ("env", f"GOOGLE_GEMINI_BASE_URL={model}", "gemini", "-m", "gemini-2.5-flash", "--yolo", "-p", "Say hello."): DONE,
    }


def _session(node: Node, campus: ServedCampus, home: Path, words: tuple[str, ...], last_words: str | None) -> list[str]:
    """Run a session: its turn is a run, its tool call a beat, and its end a pause. Without a model it has failed, and stays dead."""
    host = next(word for word in words if word in ("claude", "codex", "gemini"))
    with patient.Client(base_url=campus.url, headers={"Authorization": f"Bearer {campus.tokens.recorder}"}) as http:
        monitor = http.post("/v1/recorder/monitors", json={"name": host, "alert_webhook": "http://127.0.0.1:9/hosts"}).json()
        urls = {"CAMPUS_URL": campus.url, "CAMPUS_KEY": campus.tokens.recorder, "CAMPUS_HOOK_URL": monitor["hook_url"]}
        ran = _run(node, home, *words, **ENVIRON, **urls)
        (entry,) = (one for one in http.get("/v1/recorder/fleet").json()["monitors"] if one["monitor_id"] == monitor["monitor_id"])
        found: Any = http.get(f"/v1/recorder/capsule/{monitor['monitor_id']}").json()
    beats = [beat["status"] for beat in reversed(entry["last_beats"])]
    told = found["last"]["capsule"]["hook"] if found["found"] else {}
    print(f"  a session of {host}: beats {beats}, state {entry['state']}, capsule of {told.get('hook_event_name')}")
    said = told.get("last_assistant_message", told.get("prompt_response"))
    expected = (["idle", "start", "fail"], "dead", False) if last_words is None else (["idle", "start", "ok", "idle"], "alive", True)
    if (beats, entry["state"], entry["paused"]) != expected or (last_words is not None and said != last_words):
        return [f"a session of {host} beat {beats}, is {entry['state']} and stored {json.dumps(told)}: {ran.stdout}{ran.stderr}"]
    return []


def _run(node: Node, home: Path, program: str, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    programs = node.folder / "node_modules" / ".bin"
    command = [program if program == "env" else programs / program, *words]
    environ = {"PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(home), **environ}
    return subprocess.run(
        command, cwd=home, env=environ, capture_output=True, text=True, timeout=RUN_SECONDS, check=False, stdin=subprocess.DEVNULL
    )
