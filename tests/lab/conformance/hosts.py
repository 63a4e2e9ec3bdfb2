"""Checks that agents' hosts take the plugins of `integrations/`, and that a real session of Claude Code beats by its hooks alone."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from contract.served_campus import ServedCampus
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
)
NOWHERE = "http://127.0.0.1:9"
"""Where the host looks for its model: nobody answers there."""
RUN_SECONDS = 120


def run_hosts(node: Node, campus: ServedCampus, home: Path) -> list[str]:
    home.mkdir()
    faults = []
    for words in COMMANDS:
        ran = _run(node, home, *words)
        print(f"  {' '.join(words[:3]):32} exit {ran.returncode}")
        if ran.returncode != 0:
            faults.append(f"{' '.join(words)} failed: {ran.stdout}{ran.stderr}")
    return faults or _session(node, campus, home)


def _session(node: Node, campus: ServedCampus, home: Path) -> list[str]:
    with patient.Client(base_url=campus.url, headers={"Authorization": f"Bearer {campus.tokens.recorder}"}) as http:
        monitor = http.post("/v1/recorder/monitors", json={"name": "Claude Code", "alert_webhook": "http://127.0.0.1:9/hosts"}).json()
        environ = {"ANTHROPIC_BASE_URL": NOWHERE, "ANTHROPIC_API_KEY": "none", "CLAUDE_CODE_MAX_RETRIES": "0", "DISABLE_TELEMETRY": "1"}
        mcp = {"CAMPUS_URL": campus.url, "CAMPUS_KEY": campus.tokens.recorder, "CAMPUS_HOOK_URL": monitor["hook_url"]}
        listed = _run(node, home, "claude", "mcp", "list", **environ, **mcp).stdout
        _run(node, home, "claude", "-p", "Say nothing.", **environ, **mcp)
        (entry,) = (one for one in http.get("/v1/recorder/fleet").json()["monitors"] if one["monitor_id"] == monitor["monitor_id"])
        found: Any = http.get(f"/v1/recorder/capsule/{monitor['monitor_id']}").json()
    beats = [beat["status"] for beat in reversed(entry["last_beats"])]
    told = found["last"]["capsule"]["hook"] if found["found"] else {}
    print(f"  a session of Claude Code: beats {beats}, state {entry['state']}, capsule of {told.get('hook_event_name')}")
    faults = [] if listed.count("Connected") == 2 else [f"Claude Code does not reach the plugin's MCP servers: {listed}"]
    if (beats, entry["state"], told.get("hook_event_name")) != (["start", "ok", "fail"], "dead", "StopFailure"):
        faults.append(f"a session without a model beat {beats}, is {entry['state']} and stored {json.dumps(told)}")
    return faults


def _run(node: Node, home: Path, program: str, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [node.folder / "node_modules" / ".bin" / program, *words]
    environ = {"PATH": os.environ["PATH"], "HOME": str(home), **environ}
    return subprocess.run(command, cwd=home, env=environ, capture_output=True, text=True, timeout=RUN_SECONDS, check=False)
