"""Discord: a message with an embed per event, within Discord's limits and at its pace."""

from datetime import timedelta
from typing import Annotated, Any

import httpx
from pydantic import BaseModel, Field, ValidationError
from pydantic_core import to_json

from buildings.recorder.delivery.event import Digest, Event, body_of
from buildings.recorder.delivery.ladder import DELIVERED, Outcome
from buildings.recorder.delivery.parcel import Parcel
from buildings.recorder.delivery.wording import details, headline
from campus import GuardedClient, TargetRefused

MOST_EMBEDS = 10
LONGEST_TITLE, LONGEST_CONTENT, LONGEST_DESCRIPTION = 256, 2_000, 500
"""Ten descriptions of this length stay below the 6,000 characters that all embeds may have."""
COLOURS = {"monitor.dead": 0xD92D20, "monitor.failed": 0xD92D20, "monitor.recovered": 0x12B76A}
GREY = 0x667085
RATE_LIMITED = 429
NOT_ANY_MORE = (401, 403, 404)


def message_of(body: Event | Digest) -> dict[str, Any]:
    """What Discord is sent; nobody is mentioned, whatever a monitor is called."""
    events = body.events if isinstance(body, Digest) else (body,)
    shown = events[:MOST_EMBEDS]
    content = "" if len(events) == 1 else f"{len(events)} events" + (f", the first {MOST_EMBEDS}:" if len(events) > MOST_EMBEDS else ":")
    return {"content": content[:LONGEST_CONTENT], "embeds": [_embed(event) for event in shown], "allowed_mentions": {"parse": []}}


def _embed(event: Event) -> dict[str, Any]:
    return {
        "title": headline(event)[:LONGEST_TITLE],
        "description": "\n".join(details(event))[:LONGEST_DESCRIPTION],
        "color": COLOURS.get(event.type, GREY),
        "timestamp": event.timestamp.isoformat(),
    }


async def send_discord(parcel: Parcel, web: GuardedClient, *, url: str) -> Outcome:
    """Post the message and wait for Discord's word that it stands."""
    address = httpx.URL(parcel.address).copy_merge_params({"wait": "true"})
    try:
        answer = await web.post(
            address, content=to_json(message_of(body_of(parcel, url=url))), headers={"content-type": "application/json"}
        )
    except TargetRefused as refused:
        return Outcome("retry", f"its address may not be used: {refused}")
    except httpx.TransportError as error:
        return Outcome("retry", f"it cannot be reached ({type(error).__name__})")
    if answer.is_success:
        return DELIVERED
    if answer.status_code in NOT_ANY_MORE:
        return Outcome("gone", f"Discord answered {answer.status_code}: the webhook is not there any more")
    if answer.status_code == RATE_LIMITED:
        return Outcome("retry", "Discord asked to be sent less", retry_after=pause_of(answer.content))
    return Outcome("retry", f"Discord answered {answer.status_code // 100}xx")


class RateLimited(BaseModel):
    """What Discord says when it is sent too much."""

    retry_after: Annotated[float, Field(strict=True, ge=0, lt=10**9, allow_inf_nan=False, description="In seconds, with a fraction.")]


def pause_of(body: bytes) -> timedelta | None:
    """How long the body of a 429 asks to wait; None when it says nothing that can be used."""
    try:
        return timedelta(seconds=RateLimited.model_validate_json(body).retry_after)
    except ValidationError:
        return None
