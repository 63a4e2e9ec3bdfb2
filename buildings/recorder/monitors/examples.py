"""How an agent or a job sends beats with a capsule, in six ways: text to copy, with the monitor's own addresses. Pure."""

import json
from collections.abc import Sequence
from typing import NamedTuple

from buildings.recorder.models import Registered, Resecured, Taken

CAPSULE = {"step": 1, "done": ["fetch"], "next": "send the invoices"}
EVENTS = ("SessionStart", "UserPromptSubmit", "Stop", "Notification", "SessionEnd")
RETRIES = "curl -fsS -m 10 --retry 7 --retry-all-errors -o /dev/null"
JSON_HEADER = "-H 'Content-Type: application/json'"


class Way(NamedTuple):
    name: str
    where: str
    text: str


def ways_to_beat(made: Registered | Resecured | Taken, *, mcp: str) -> Sequence[Way]:
    """The six ways; `mcp` is the address of the MCP endpoint."""
    capsule = json.dumps(CAPSULE)
    beat = made.beat_url
    post = f"curl -sS -m 4 {JSON_HEADER} --data-binary @- {made.hook_url}"
    commands = dict.fromkeys(EVENTS, post) | {"PostToolUse": f"curl -sS -m 4 -o /dev/null -X POST {made.hook_url}"}
    hooks = {event: [{"hooks": [{"type": "command", "timeout": 5, "command": command}]}] for event, command in commands.items()}
    arguments = json.dumps({"monitor_id": made.monitor_id, "secret": made.secret, "seq": 1, "capsule": CAPSULE}, indent=2)
    return (
        Way("curl", "In a shell", f"{RETRIES} {beat} \\\n  {JSON_HEADER} -d '{json.dumps({'capsule': CAPSULE})}'"),
        Way("cron", "In the crontab, on one line", f"17 3 * * *  /path/to/job; {RETRIES} {beat} {JSON_HEADER} -d {CRON_BODY}"),
        Way(
            "Claude Code",
            "In .claude/settings.local.json, which is not committed; the capsule is the session",
            json.dumps({"hooks": hooks}, indent=2),
        ),
        Way("Python", "Python, standard library", PYTHON.format(beat=json.dumps(beat), capsule=capsule)),
        Way("TypeScript", "TypeScript, no package", TYPESCRIPT.format(beat=json.dumps(beat), capsule=capsule)),
        Way("MCP", f"Connect your agent to {mcp} and give it this", f"Call heartbeat at least once per period, with:\n{arguments}"),
    )


CRON_BODY = '"{\\"status\\": $?, \\"capsule\\": {\\"job\\": \\"nightly\\"}}"'
"""The job's exit code, which the shell fills in, and a capsule."""
PYTHON = """\
import json
import urllib.request


def beat(capsule):
    body = json.dumps({{"capsule": capsule}}).encode()
    request = urllib.request.Request({beat}, body, {{"Content-Type": "application/json"}})
    urllib.request.urlopen(request, timeout=10).close()


beat({capsule})"""
TYPESCRIPT = """\
async function beat(capsule: unknown): Promise<void> {{
  await fetch({beat}, {{
    method: "POST",
    headers: {{ "Content-Type": "application/json" }},
    body: JSON.stringify({{ capsule }}),
  }});
}}

await beat({capsule});"""
