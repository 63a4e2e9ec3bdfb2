"""What belongs to one monitor and nobody else: its secret, the URLs that contain it, and six ways to send beats with them. Pure."""

import hmac
import json
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple
from uuid import UUID

from buildings.recorder.models import Registered, Resecured, Taken
from campus import Caller
from campus.secrets import Entropy, digest_of, random_base62

SECRET_LENGTH = 32
NO_DIGEST = bytes(32)  # Replaces the digest of a monitor that does not exist, so that the comparison takes the same time.
CAPSULE = {"step": 1, "done": ["fetch"], "next": "send the invoices"}
EVENTS = ("SessionStart", "UserPromptSubmit", "Stop", "Notification", "SessionEnd")
RETRIES = "curl -fsS -m 10 --retry 7 --retry-all-errors -o /dev/null"
JSON_HEADER = "-H 'Content-Type: application/json'"
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

    def hook(self, secret: str) -> str:
        return f"{self.url}/v1/recorder/hook/{self.monitor_id}/{secret}"

    def ping(self, secret: str) -> str:
        return f"{self.url}/ping/{ping_uuid(secret)}"

    def cron(self, secret: str) -> str:
        return f"{RETRIES} {self.beat(secret)}"

    @property
    def capsule(self) -> str:
        return f"{self.url}/v1/recorder/capsule/{self.monitor_id}"

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
