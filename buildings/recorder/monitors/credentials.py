"""What belongs to one monitor and nobody else: its secret, the URLs that contain it, and the ways to send beats with them. Pure."""

import hmac
import json
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, NamedTuple
from uuid import UUID

from buildings.recorder.models import Registered, Resecured, Taken
from campus import Caller
from campus.secrets import Entropy, digest_of, random_base62

SECRET_LENGTH = 32
FREE_PAGES = "/recorder/free"
NO_DIGEST = bytes(32)  # Replaces the digest of a monitor that does not exist, so that the comparison takes the same time.
CAPSULE = {"step": 1, "done": ["fetch"], "next": "send the invoices"}
EVENTS = ("SessionStart", "UserPromptSubmit", "Stop", "Notification", "SessionEnd")
RETRIES = "curl -fsS -m 10 --retry 7 --retry-all-errors -o /dev/null"
JSON_HEADER = "-H 'Content-Type: application/json'"
WITH_OUTPUT = "tail -c 8192"
PYTHON = """\
import json
import urllib.request


def beat(**said):
    request = urllib.request.Request({beat}, json.dumps(said).encode(), {{"Content-Type": "application/json"}})
    urllib.request.urlopen(request, timeout=10).close()


beat(status="start")
try:
    ...  # the work
except BaseException as error:
    beat(status="fail", output=repr(error))
    raise
beat(status="ok", capsule={capsule})"""
TYPESCRIPT = """\
async function beat(said: object): Promise<void> {{
  await fetch({beat}, {{
    method: "POST",
    headers: {{ "Content-Type": "application/json" }},
    body: JSON.stringify(said),
  }});
}}

await beat({{ status: "start" }});
try {{
  // the work
}} catch (error) {{
  await beat({{ status: "fail", output: String(error) }});
  throw error;
}}
await beat({{ status: "ok", capsule: {capsule} }});"""
SYSTEMD = """\
[Service]
ExecStartPre=-/usr/bin/curl -fsS -m 10 --retry 3 -o /dev/null {beat}/start
ExecStopPost=-/usr/bin/{retries} {beat}?status=${{SERVICE_RESULT}}"""
POWERSHELL = """\
try {{ $out = & C:\\path\\to\\job.exe 2>&1 | Out-String; $c = [int]$LASTEXITCODE }} catch {{ $out = "$_"; $c = 1 }}
Invoke-RestMethod -Method Post -TimeoutSec 30 -Body $out "{beat}/$c" | Out-Null"""
GITHUB = """\
- if: always()
  env:
    CAMPUS_BEAT_URL: ${{{{ secrets.CAMPUS_BEAT_URL }}}}
  run: {retries} "$CAMPUS_BEAT_URL?status=${{{{ job.status }}}}\""""


def new_secret(entropy: Entropy) -> str:
    """A new secret: 190 random bits, as letters and digits because it is part of URLs and crontabs."""
    return random_base62(SECRET_LENGTH, entropy)


def ping_uuid(secret: str) -> str:
    """The UUID that authorizes beats at /ping as `secret` does at the other addresses: it follows from the secret, not the other way."""
    return str(UUID(bytes=sha256(f"ping\n{secret}".encode()).digest()[:16], version=4))


def page_token(secret: str) -> str:
    """The last part of the address of the page of a monitor without an owner: it follows from the secret, not the other way."""
    return sha256(f"page\n{secret}".encode()).hexdigest()[:32]


def digests_of(secret: str, *, owned: bool) -> dict[str, bytes | None]:
    """The columns of a monitor by which its secret, and what follows from it, are recognized."""
    return {
        "secret_digest": digest_of(secret),
        "ping_digest": digest_of(ping_uuid(secret)),
        "page_digest": None if owned else digest_of(page_token(secret)),
    }


def digest_matches(digest: bytes | None, given: bytes) -> bool:
    """Whether two digests are equal, in constant time; False for None, the digest of a monitor that does not exist."""
    same = hmac.compare_digest(NO_DIGEST if digest is None else digest, given)
    return same and digest is not None


@dataclass(frozen=True)
class Credentials:
    monitor_id: str
    lineage: str | None
    secret: str | None


def lineage_of(caller: Caller) -> str | None:
    return caller.key.lineage if caller.key else None


@dataclass(frozen=True)
class MonitorUrls:
    url: str
    monitor_id: str

    def beat(self, secret: str) -> str:
        return f"{self.url}/v1/recorder/beat/{self.monitor_id}/{secret}"

    def with_secret(self, secret: str) -> dict[str, Any]:
        """The secret and all that contains it, as answers show them; `cron` reports the exit code of the command before it."""
        return {
            "secret": secret,
            "beat_url": self.beat(secret),
            "hook_url": f"{self.url}/v1/recorder/hook/{self.monitor_id}/{secret}",
            "ping_url": f"{self.url}/ping/{ping_uuid(secret)}",
            "cron": f'c=$?; {RETRIES} "{self.beat(secret)}/$c"; (exit $c)',
        }

    def free_page(self, secret: str) -> str:
        """The page of a monitor without an owner."""
        return f"{self.url}{FREE_PAGES}/{page_token(secret)}"

    @property
    def capsule(self) -> str:
        return f"{self.url}/v1/recorder/capsule/{self.monitor_id}"

    @property
    def page(self) -> str:
        return f"{self.url}/recorder/{self.monitor_id}"

    @property
    def takeover(self) -> str:
        return f"{self.url}/v1/recorder/monitors/{self.monitor_id}/takeover"

    @property
    def resume(self) -> str:
        return f"{self.url}/v1/recorder/monitors/{self.monitor_id}/resume"


def acknowledge_token(secret_digest: bytes, epoch: int) -> str:
    """The last part of the address where one trouble of a monitor is acknowledged. It is derived, so nothing is stored."""
    return hmac.new(secret_digest, f"acknowledge\n{epoch}".encode(), sha256).hexdigest()[:32]


def acknowledge_url(url: str, monitor_id: str, *, epoch: int, secret_digest: bytes) -> str:
    """The page with a button that ends the reminders of one trouble, for whoever has an alert about it. It contains no secret."""
    return f"{url}/v1/recorder/acknowledge/{monitor_id}/{epoch}/{acknowledge_token(secret_digest, epoch)}"


def badge_url(url: str, badge_id: str) -> str:
    return f"{url}/v1/recorder/badge/{badge_id}.svg"


class Way(NamedTuple):
    name: str
    where: str
    text: str


def ways_to_beat(made: Registered | Resecured | Taken, *, mcp: str) -> Sequence[Way]:
    """Each way with the start, the exit code and the end of the output as it can; `mcp` is the address of the MCP endpoint."""
    capsule = json.dumps(CAPSULE)
    beat = made.beat_url
    post = f"curl -sS -m 4 {JSON_HEADER} --data-binary @- {made.hook_url}"
    commands = dict.fromkeys(EVENTS, post) | {"PostToolUse": f"curl -sS -m 4 -o /dev/null -X POST {made.hook_url}"}
    hooks = {event: [{"hooks": [{"type": "command", "timeout": 5, "command": command}]}] for event, command in commands.items()}
    arguments = json.dumps({"monitor_id": made.monitor_id, "secret": made.secret, "seq": 1, "capsule": CAPSULE}, indent=2)
    return (
        Way(
            "curl",
            "In a script",
            f'{RETRIES} {beat}/start\n/path/to/job > job.log 2>&1; c=$?\n{WITH_OUTPUT} job.log | {RETRIES} --data-binary @- "{beat}/$c"',
        ),
        Way(
            "cron",
            "In the crontab, on one line",
            f'17 3 * * *  out=$(/path/to/job 2>&1); c=$?; echo "$out" | {WITH_OUTPUT} | {RETRIES} --data-binary @- "{beat}/$c"',
        ),
        Way("systemd", "/etc/systemd/system/NAME.service.d/campus.conf", SYSTEMD.format(retries=RETRIES, beat=beat)),
        Way(
            "Claude Code",
            "In .claude/settings.local.json, which is not committed; the capsule is the session",
            json.dumps({"hooks": hooks}, indent=2),
        ),
        Way("Python", "Python, standard library", PYTHON.format(beat=json.dumps(beat), capsule=capsule)),
        Way("TypeScript", "TypeScript, no package", TYPESCRIPT.format(beat=json.dumps(beat), capsule=capsule)),
        Way("PowerShell", "In a script of PowerShell", POWERSHELL.format(beat=beat)),
        Way("GitHub", "The last step of a job; the address is the secret CAMPUS_BEAT_URL", GITHUB.format(retries=RETRIES)),
        Way("MCP", f"Connect your agent to {mcp} and give it this", f"Call heartbeat at least once per period, with:\n{arguments}"),
    )
