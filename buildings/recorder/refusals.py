"""What callers are refused with: the codes and sentences, each in one place."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from math import ceil

from buildings.recorder.capsule import Unstored
from buildings.recorder.results import Beaten
from campus import Problem, ProductEntry, TargetRefused

MONITORS_PER_KEY = 20


def monitor_not_found() -> Problem:
    """The same for an id that is unknown, a secret that is wrong, and a monitor of another key."""
    return Problem(
        404,
        "monitor_not_found",
        "no monitor of yours has this monitor_id: send the monitor_id and secret that register_monitor returned, or call with the key"
        " that owns the monitor",
    )


def taken_over() -> Problem:
    """For the agent that another has replaced."""
    return Problem(
        409,
        "taken_over",
        "another agent has taken over this monitor and its work, and this secret is no longer valid: stop your work",
    )


def stale_seq(seq: int, last_seq: int) -> Problem:
    """For a capsule that is older than the last one."""
    return Problem(
        409,
        "stale_seq",
        f"seq {seq} is lower than the stored seq {last_seq}: nothing was recorded; another copy of this agent is ahead of you",
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
        f"this monitor sent more than {limit} beats in this minute; send the next one in {wait} s",
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
        "another monitor already uses this alert_webhook, and without a key each webhook can have one monitor: delete that monitor with its"
        " secret, send another webhook (a different query or fragment is not enough), or send a recorder key for 20 monitors",
    )


def monitor_limit_reached() -> Problem:
    """For the 21st monitor of a key."""
    return Problem(
        409,
        "monitor_limit_reached",
        f"this key owns {MONITORS_PER_KEY} monitors, the maximum: delete one with delete_monitor (fleet_status lists them)",
    )


def host_limit_reached(host: str, *, most: int) -> Problem:
    """For one more monitor without a key at one host."""
    return Problem(
        409,
        "monitor_limit_reached",
        f"your address has {most} monitors without a key that alert {host}, and that is all it may: delete one with its secret,"
        " or send a recorder key for 20 monitors",
    )


def too_many_registrations(wait: timedelta, *, limit: int) -> Problem:
    """For more registrations than one key, or one address without a key, may ask for in a minute."""
    seconds = max(ceil(wait.total_seconds()), 1)
    return Problem(
        429,
        "too_many_registrations",
        f"{limit} registrations a minute are taken from one key, or without a key from one address; register again in {seconds} s",
        headers={
            "Retry-After": str(seconds),
            "RateLimit-Policy": f'"registrations";q={limit};w=60',
            "RateLimit": f'"registrations";r=0;t={seconds}',
        },
    )


def not_dead(state: str) -> Problem:
    """For a takeover of what lives."""
    return Problem(
        409,
        "not_dead",
        f"this monitor is {state}, and only a dead one can be taken over: its agent is alive, or another replacement has just taken over",
    )


def neither_target() -> Problem:
    """For a registration that says nowhere to alert."""
    return Problem(
        422,
        "invalid_request",
        "alert_webhook or alert_email is required: send an https:// URL or a Discord webhook as alert_webhook, or alert_email with a"
        " recorder key",
    )


def key_needed_for_email(products: Sequence[ProductEntry]) -> Problem:
    """For alerts by e-mail without a key."""
    keys = "; ".join(f"{one.name} (${one.price}, {one.term})" for one in products) or "none is sold at the moment"
    return Problem(
        402,
        "access_required",
        "alert_email needs a recorder key, sent in the header 'Authorization: Bearer KEY' (over MCP, your user adds it to this server's"
        f" configuration); without a key, send alert_webhook instead. Keys that unlock it: {keys}",
        headers={"WWW-Authenticate": 'Bearer realm="campus"'},
        unlock=[{"product": one.name, **one.model_dump(exclude={"name"})} for one in products],
    )


def no_mail_here() -> Problem:
    """For alerts by e-mail where none can be sent."""
    return Problem(422, "no_mail_here", "alert_email cannot be used: this service sends no e-mail; send alert_webhook instead")
