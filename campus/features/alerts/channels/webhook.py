"""Webhooks: the alert as JSON, signed according to Standard Webhooks, with a `text` that chat services such as Mattermost show."""

import hmac
import re
from base64 import b64encode
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from hashlib import sha256
from typing import Annotated, Any
from urllib.parse import urlsplit

import httpx
from pydantic import BaseModel, Field, ValidationError
from pydantic_core import to_json

from campus.features.alerts.message import JSON, Attempt, Channel, Content, Outcome, post

GONE, RATE_LIMITED = 410, 429
REDIRECTS = range(300, 400)
SECONDS = re.compile("[0-9]{1,9}")
LONGEST_TEXT = 4_000
MENTION = re.compile(r"[@<](?=[\w!@#*])")
"""Begins what chat services make a link or a mention of, such as @here and <!channel>: names and capsules are written by others."""
ZERO_WIDTH_SPACE = "\u200b"
FENCE = "```"


class Webhook(Channel):
    """Any https:// address that accepts a POST. It recognizes every URL, so it comes last among the channels."""

    kind = "webhook"
    name = "a signed webhook"
    signs = True

    def recognizes(self, address: str) -> bool:
        return urlsplit(address).scheme in ("https", "http")

    async def send(self, attempt: Attempt, content: Content) -> Outcome:
        """Post the alert. The id is the same at each try, the timestamp is that of the try."""
        message = attempt.message
        body = body_of(content)
        timestamp = int(attempt.now.timestamp())
        headers = {
            **JSON,
            "webhook-id": message.id,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": signature(message.id, timestamp, body, message.secret),
        }
        answer = await post(attempt.client, message.address, body, headers)
        if isinstance(answer, Outcome):
            return answer
        if answer.status_code == GONE:
            return Outcome("gone", "it answered 410: gone")
        if answer.status_code in REDIRECTS:
            return Outcome("retry", "it redirects, and redirects are not followed")
        reason = f"it answered {answer.status_code // 100}xx"
        return Outcome("retry", reason, retry_after=retry_after(answer.headers.get("retry-after"), now=attempt.now))


def body_of(content: Content) -> bytes:
    """The JSON of an alert, with its `text`, unless it has one of its own or is no object."""
    body: Any = content.body.model_dump(mode="json")
    if isinstance(body, dict):
        body.setdefault("text", text_of(content))
    return to_json(body)


def text_of(content: Content) -> str:
    """The alerts in words, at most 4,000 characters, with a program's output as code; several with their headlines only."""
    texts = content.texts
    code = fenced(neutral(texts[0].output)) if len(texts) == 1 else ""
    lines = neutral("\n".join([*(text.headline for text in texts), *(texts[0].lines if len(texts) == 1 else ())]))
    return lines[: LONGEST_TEXT - len(code)] + code


def neutral(text: str) -> str:
    """The text, in which chat services find no mention and no link of their own kind."""
    return MENTION.sub(lambda found: found[0] + ZERO_WIDTH_SPACE, text)


def fenced(output: str) -> str:
    """A program's output on lines of its own as code, which it cannot end; empty for none."""
    inside = output.replace(FENCE, f"``{ZERO_WIDTH_SPACE}`")
    return f"\n{FENCE}\n{inside}\n{FENCE}" if inside else ""


def signature(message_id: str, timestamp: int, body: bytes, key: bytes) -> str:
    """The webhook-signature of a message: HMAC-SHA256 of its id, the seconds since 1970 of this try, and its body."""
    signed = b"%b.%d.%b" % (message_id.encode(), timestamp, body)
    return f"v1,{b64encode(hmac.new(key, signed, sha256).digest()).decode()}"


def signing_secret(key: bytes) -> str:
    """A target's secret in the format of Standard Webhooks."""
    return f"whsec_{b64encode(key).decode()}"


def retry_after(text: str | None, *, now: datetime) -> timedelta | None:
    """How long a Retry-After header asks to wait, in seconds or until a future date; None if it has no valid time."""
    if text is None:
        return None
    if found := SECONDS.fullmatch(text.strip()):
        return timedelta(seconds=int(found[0]))
    try:
        until = parsedate_to_datetime(text)
        wait = until.replace(tzinfo=until.tzinfo or UTC) - now
    except (ValueError, OverflowError):
        return None
    return wait if wait > timedelta(0) else None


class Pause(BaseModel):
    """What the JSON of a 429 says of the wait, in seconds: Discord at its top, Telegram among its `parameters`."""

    retry_after: Annotated[float, Field(strict=True, ge=0, lt=10**9, allow_inf_nan=False)] | None = None
    parameters: "Pause | None" = None


def pause_of(body: bytes) -> timedelta | None:
    """How long the body of a 429 asks to wait; None if it has no valid time."""
    try:
        found = Pause.model_validate_json(body)
    except ValidationError:
        return None
    seconds = (found.parameters or found).retry_after
    return None if seconds is None else timedelta(seconds=seconds)


def refused(service: str, answer: httpx.Response, *, pause: timedelta | None) -> Outcome:
    """What the refusal of a service means that says nothing else: the message is tried again, with too many after the `pause`."""
    if answer.status_code == RATE_LIMITED:
        return Outcome("retry", f"{service} asked for fewer messages", retry_after=pause)
    return Outcome("retry", f"{service} answered {answer.status_code // 100}xx")
