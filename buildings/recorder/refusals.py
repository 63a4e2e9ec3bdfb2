"""What callers are refused with: the codes and sentences, each in one place."""

from collections.abc import Sequence
from datetime import datetime

from buildings.recorder.answers import Beaten
from buildings.recorder.capsule import Unstored
from campus import Problem, ProductEntry, TargetRefused

MONITORS_PER_KEY = 20


def monitor_not_found() -> Problem:
    """The same for an id that is unknown, a secret that is wrong, and a monitor of another key."""
    return Problem(
        404,
        "monitor_not_found",
        "there is no such monitor, or it is not yours: give the monitor_id and the secret that register_monitor returned,"
        " or the key that owns it",
    )


def taken_over() -> Problem:
    """For the agent that another has replaced."""
    return Problem(
        409,
        "taken_over",
        "another agent has taken over this monitor and its work, and this secret is retired: stop what you are doing, it is being done",
    )


def stale_seq(seq: int, last_seq: int) -> Problem:
    """For a capsule that is older than the last one."""
    return Problem(
        409,
        "stale_seq",
        f"a capsule with seq {last_seq} is stored, and {seq} is older: nothing was stored or counted; another copy of this agent is ahead",
        last_seq=last_seq,
    )


def seq_reused(seq: int) -> Problem:
    """For a capsule under the seq of another one."""
    return Problem(
        409,
        "seq_reused",
        f"a capsule with seq {seq} is stored, and its content is another: nothing was stored or counted. Give each capsule a seq of its"
        " own, above the last; if you did, another copy of this agent is at work",
        last_seq=seq,
    )


def capsule_not_stored(unstored: Unstored, beaten: Beaten) -> Problem:
    """For a capsule that cannot be stored; its beat is, and the problem says what the answer would have said of it."""
    detail = f"heartbeat recorded; capsule not stored: {unstored.reason}. The last stored capsule is kept."
    recorded = {"heartbeat_recorded": True, **beaten.model_dump(mode="json", exclude={"ok", "note"})}
    if unstored.is_too_large:
        advice = "Send what the next agent needs to go on, and leave the rest where it can be fetched."
        return Problem(413, "capsule_too_large", f"{detail} {advice}", **recorded)
    return Problem(422, "capsule_not_storable", detail, **recorded)


def too_many_beats(now: datetime, *, limit: int) -> Problem:
    """For more beats than a monitor takes in a minute."""
    wait = 60 - now.second
    return Problem(
        429,
        "too_many_beats",
        f"a monitor takes {limit} beats a minute; beat again in {wait} s",
        headers={
            "Retry-After": str(wait),
            "RateLimit-Policy": f'"monitor";q={limit};w=60',
            "RateLimit": f'"monitor";r=0;t={wait}',
        },
    )


def target_refused(refused: TargetRefused) -> Problem:
    """For a webhook that alerts may not be sent to, with the rule that it breaks."""
    return Problem(422, "target_refused", f"alert_webhook cannot be used: {refused}", rule=refused.rule)


def target_in_use() -> Problem:
    """For a second monitor without a key at one address."""
    return Problem(
        409,
        "target_in_use",
        "another monitor without a key already alerts this webhook, and each may have one: delete that one with its secret, give another"
        " webhook (its query and fragment do not make it another), or send a recorder key for 20 monitors",
    )


def monitor_limit_reached() -> Problem:
    """For the 21st monitor of a key."""
    return Problem(
        409,
        "monitor_limit_reached",
        f"this key owns {MONITORS_PER_KEY} monitors, and that is all it may: delete one with delete_monitor (fleet_status lists them)",
    )


def not_dead(state: str) -> Problem:
    """For a takeover of what lives."""
    return Problem(
        409,
        "not_dead",
        f"this monitor is {state}: its agent lives, or another replacement has just taken over; only a dead monitor can be taken over",
    )


def neither_target() -> Problem:
    """For a registration that says nowhere to alert."""
    return Problem(
        422,
        "invalid_request",
        "send alert_webhook, an https:// or Discord webhook URL, or alert_email with a recorder key: alerts must go somewhere",
    )


def key_needed_for_email(products: Sequence[ProductEntry]) -> Problem:
    """For alerts by e-mail without a key."""
    keys = "; ".join(f"{one.name} (${one.price}, {one.term})" for one in products) or "none is sold at the moment"
    return Problem(
        402,
        "access_required",
        "alert_email needs a recorder key, sent as 'Authorization: Bearer KEY'; without one send alert_webhook instead."
        f" Keys that open it: {keys}",
        headers={"WWW-Authenticate": 'Bearer realm="campus"'},
        unlock=[{"product": one.name, **one.model_dump(exclude={"name"})} for one in products],
    )


def no_mail_here() -> Problem:
    """For alerts by e-mail where none can be sent."""
    return Problem(422, "no_mail_here", "this service sends no e-mail; send alert_webhook instead of alert_email")
