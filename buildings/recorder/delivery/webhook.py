"""Webhooks: a JSON event, signed as Standard Webhooks asks."""

import hmac
import re
from base64 import b64encode
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from hashlib import sha256

import httpx

from buildings.recorder.delivery.event import body_of
from buildings.recorder.delivery.ladder import DELIVERED, Outcome
from buildings.recorder.delivery.parcel import Parcel
from campus import GuardedClient, TargetRefused

GONE = 410
REDIRECTS = range(300, 400)
SECONDS = re.compile("[0-9]{1,9}")


def signature(message_id: str, timestamp: int, body: bytes, key: bytes) -> str:
    """The webhook-signature of a message: HMAC-SHA256 of its id, the seconds since 1970 of this try, and its body."""
    signed = b"%b.%d.%b" % (message_id.encode(), timestamp, body)
    return f"v1,{b64encode(hmac.new(key, signed, sha256).digest()).decode()}"


async def send_webhook(parcel: Parcel, web: GuardedClient, *, url: str, now: datetime) -> Outcome:
    """Post the event; the id stays, the timestamp is that of the try."""
    body = body_of(parcel, url=url).model_dump_json().encode()
    timestamp = int(now.timestamp())
    headers = {
        "content-type": "application/json",
        "webhook-id": parcel.message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": signature(parcel.message_id, timestamp, body, parcel.secret),
    }
    return await posted(web, parcel.address, body, headers, now=now)


async def posted(web: GuardedClient, url: str, body: bytes, headers: dict[str, str], *, now: datetime) -> Outcome:
    """One POST, and what its answer means."""
    try:
        answer = await web.post(url, content=body, headers=headers)
    except TargetRefused as refused:
        return Outcome("retry", f"its address may not be used: {refused}")
    except httpx.TransportError as error:
        return Outcome("retry", f"it cannot be reached ({type(error).__name__})")
    if answer.is_success:
        return DELIVERED
    if answer.status_code == GONE:
        return Outcome("gone", "it answered 410: gone")
    if answer.status_code in REDIRECTS:
        return Outcome("retry", "it redirects, and redirects are not followed")
    reason = f"it answered {answer.status_code // 100}xx"
    return Outcome("retry", reason, retry_after=retry_after(answer.headers.get("retry-after"), now=now))


def retry_after(text: str | None, *, now: datetime) -> timedelta | None:
    """What a Retry-After header asks for, in whole seconds or as a date to come; None when it says nothing that can be used."""
    if text is None:
        return None
    if SECONDS.fullmatch(text.strip()):
        return timedelta(seconds=int(text))
    try:
        until = parsedate_to_datetime(text)
        wait = until.replace(tzinfo=until.tzinfo or UTC) - now
    except (ValueError, OverflowError):
        return None
    return wait if wait > timedelta(0) else None
