"""The problems that the recorder returns: the meaning of each code, served at /errors/<code>, and the text of each problem."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from buildings.recorder.models import Beaten
from campus import Problem
from campus.directory import ProductEntry

TOO_MANY_BEATS = "too_many_beats"
TAKEN_OVER = "taken_over"

PROBLEMS: Mapping[str, str] = {
    "monitor_not_found": "No monitor has this id, or it is not yours; both get the same answer. Check monitor_id and secret, or the key.",
    TAKEN_OVER: "Another agent has taken over this monitor, and its old secret is invalid. Stop your work.",
    "stale_seq": "A capsule with a higher seq was stored before; this capsule was not stored.",
    "seq_reused": "A different capsule with this seq was stored before. Give each capsule a seq above the last one.",
    "not_dead": "Only a monitor whose state is dead can be taken over.",
    "target_twice": "Two alert targets of one monitor have the same address.",
    "trouble_needed": "A target with only recoveries or reminders would never be told of anything: `on` names dead, failed or stuck, too.",
    "nothing_wrong": "Only a monitor that is dead, failed or stuck can be acknowledged, and a link only while that trouble lasts.",
    "test_alert_waits": "The monitor's test alert before is not delivered yet. fleet_status says why.",
    "no_target_ready": "Each alert target of the monitor is disabled or not confirmed. fleet_status says why.",
    "too_many_test_alerts": "The monitor sent too many test alerts in a minute. Try again after the time in Retry-After.",
    "too_many_views": "One visitor opened the pages of monitors without a key too often. Try again after the time in Retry-After.",
    "target_in_use": "Without a key, each alert target can have one monitor, and this target has one already.",
    "claimed": "Another key owns the monitor: a monitor is moved to a key once.",
    "owner_needed": "Where the alerts of a key's monitor go, and its slug, are changed only with that key; only a key's monitor can have an"
    " e-mail or a slug.",
    "monitor_limit_reached": "The key, or without a key the address at this host, has the maximum number of monitors. Delete one first.",
    "no_mail_here": "This service sends no e-mail. Send alert_webhook instead.",
    "invalid_status": "A hook's address has a `status` that is no known word and no exit code, or an `idle`"
    " other than a number of minutes. Nothing was recorded.",
    TOO_MANY_BEATS: "The monitor sent too many beats in this minute. Send the next one after the time in Retry-After.",
    "badge_not_found": "No badge has this address. register_monitor and fleet_status return it as badge_url, get_monitor those of tags.",
    "slug_in_use": "Another monitor of the key has this slug. Send another one, or change that monitor.",
    "fleet_key_not_found": "No ping or read key has this hint or address, or it has ended. list_fleet_keys lists those of a key.",
    "address_in_use": "A monitor of somebody else has the ping address of this check; it cannot be imported.",
    "fleet_key_limit_reached": "The key has the maximum number of ping and read keys. End one with end_fleet_key.",
    "client_makes_no_keys": "A connected client cannot make ping and read keys, which would last beside it. Call with the key itself.",
    "checks_unreadable": "What was sent is not the answer of Healthchecks' GET /api/v3/checks/. Nothing was imported.",
    "capsule_too_large": "A capsule is at most 32,768 bytes of compact JSON. The heartbeat was recorded; stored capsules are unchanged.",
    "capsule_not_storable": "The capsule cannot be stored; `detail` says why. The heartbeat was recorded; stored capsules are unchanged.",
}


FIXED: Mapping[str, tuple[int, str]] = {
    "monitor_not_found": (
        404,
        "no monitor of yours has this monitor_id: send the monitor_id and secret that register_monitor returned, or call with the key"
        " that owns the monitor",
    ),
    TAKEN_OVER: (409, "another agent has taken over this monitor and its work, and this secret is no longer valid: stop your work"),
    "invalid_status": (
        422,
        "`status` must be ok, start, idle, fail, log or an exit code, and `idle` a number of minutes: nothing was recorded."
        " Correct it, or leave it out",
    ),
    "target_in_use": (
        409,
        "another monitor already alerts the same alert_webhook, and without a key each webhook can have one monitor: delete that monitor"
        " with its secret, send another webhook (a different query or fragment is not enough), or send a recorder key for more monitors",
    ),
    "claimed": (409, "another key owns this monitor, and a monitor is moved to a key once: register a new one with your key"),
    "test_alert_waits": (
        409,
        "the test alert before is not delivered yet: nothing was sent. fleet_status says of each target why alerts do not reach it",
    ),
    "no_target_ready": (
        409,
        "no alert target of this monitor takes alerts: each is disabled or not confirmed, and nothing was sent. fleet_status says why",
    ),
    "badge_not_found": (404, "no badge has this address; register_monitor, fleet_status and get_monitor return it"),
    "slug_in_use": (409, "another monitor of your key has this slug: nothing was changed; send another slug, or change that monitor"),
    "address_in_use": (409, "a monitor that is not your key's has this ping address"),
    "fleet_key_not_found": (404, "no ping or read key of yours has this hint, or it has ended: list_fleet_keys lists them"),
    "client_makes_no_keys": (
        403,
        "a connected client cannot make a key that lasts beside it: call with the key itself, in the header 'Authorization: Bearer KEY'",
    ),
    "target_twice": (422, "two alert targets have the same address: name it once, with all of its kinds; nothing was changed"),
    "trouble_needed": (
        422,
        "`on` of a target must name dead, failed or stuck, too: recoveries and reminders go only to targets that were told of the trouble",
    ),
    "nothing_wrong": (409, "nothing is wrong with this monitor: there is nothing to acknowledge, and nobody is reminded of it"),
    "no_mail_here": (422, "alert_email cannot be used: this service sends no e-mail; send alert_webhook instead"),
}
"""Status and words of those whose words never change. `monitor_not_found` is for an unknown id, a wrong secret and the monitor of another
key: the same answer, so that nobody learns which ids exist."""


NO_TARGET = (
    "alert_webhook, alert_email or targets is required: send an https:// URL or a Discord webhook as alert_webhook, or alert_email or"
    " targets with a recorder key"
)
NOTHING_TO_CHANGE = (
    "nothing to change: send at least one of name, period_minutes, grace_minutes, alert_webhook, alert_email, targets, slug, tags and"
    " the options of register_monitor, such as schedule; what you leave out stays, as does a target with an empty text"
)
MINUTES_OR_UNTIL = "send either minutes or until: how long, or until when, alerts are held; nothing was changed"
SNOOZE_TOO_LONG = "until: alerts are held for a year at most; nothing was changed"
"""The words of those with the code invalid_request."""


def fixed_problem(code: str) -> Problem:
    status, detail = FIXED[code]
    return Problem(status, code, detail)


def stale_seq(seq: int, last_seq: int) -> Problem:
    return Problem(
        409,
        "stale_seq",
        f"seq {seq} is lower than the stored seq {last_seq}: nothing was recorded; a newer copy of this agent is running",
        last_seq=last_seq,
    )


def seq_reused(seq: int) -> Problem:
    return Problem(
        409,
        "seq_reused",
        f"a different capsule with seq {seq} is already stored: nothing was stored or counted. Increase seq with each capsule; if you"
        " did, another copy of this agent is running",
        last_seq=seq,
    )


def capsule_not_stored(reason: str, beaten: Beaten, *, is_too_large: bool) -> Problem:
    """For a capsule that cannot be stored. Its beat is recorded, and the problem has the members of the beat's result."""
    detail = f"heartbeat recorded; capsule not stored: {reason}. The last stored capsule is unchanged."
    recorded = {"heartbeat_recorded": True, **beaten.model_dump(mode="json", exclude={"ok", "note"})}
    if is_too_large:
        advice = "Send only what the next agent needs to continue, and store the rest where it can fetch it."
        return Problem(413, "capsule_too_large", f"{detail} {advice}", **recorded)
    return Problem(422, "capsule_not_storable", detail, **recorded)


def too_many_beats(now: datetime, *, limit: int) -> Problem:
    wait = 60 - now.second
    return Problem(
        429,
        TOO_MANY_BEATS,
        f"this monitor sent more than {limit} beats in this minute; send the next one in {wait} s",
        headers={"Retry-After": str(wait), "RateLimit-Policy": f'"monitor";q={limit};w=60', "RateLimit": f'"monitor";r=0;t={wait}'},
    )


def monitor_limit_reached(most: int) -> Problem:
    return Problem(
        409,
        "monitor_limit_reached",
        f"this key owns {most} monitors, the maximum: delete one with delete_monitor (fleet_status lists them)",
    )


def fleet_key_limit_reached(most: int) -> Problem:
    return Problem(409, "fleet_key_limit_reached", f"your key has {most} ping and read keys, the maximum; end one with end_fleet_key")


def checks_unreadable(why: str) -> Problem:
    detail = f"this is not the answer of Healthchecks' GET /api/v3/checks/: {why}. Nothing was imported"
    return Problem(422, "checks_unreadable", detail)


def host_limit_reached(host: str, *, most: int) -> Problem:
    return Problem(
        409,
        "monitor_limit_reached",
        f"your address has {most} monitors without a key that alert {host}, the maximum: delete one with its secret,"
        " or send a recorder key for more monitors",
    )


def too_many_views(seconds: int, *, limit: int) -> Problem:
    detail = f"pages of monitors without a key are shown to one visitor {limit} times a minute; try again in {seconds} s"
    return Problem(429, "too_many_views", detail, headers={"Retry-After": str(seconds)})


def too_many_test_alerts(seconds: int, *, limit: int) -> Problem:
    detail = f"a monitor sends at most {limit} test alerts a minute; try again in {seconds} s"
    return Problem(429, "too_many_test_alerts", detail, headers={"Retry-After": str(seconds)})


def not_dead(state: str) -> Problem:
    why = "its agent is alive, or another replacement has just taken over"
    if state in ("idle", "paused"):
        why = "its agent waits for its user" if state == "idle" else "nobody watches its agent"
        why += "; if the agent is gone, call resume_monitor, and takeover when it is dead"
    return Problem(409, "not_dead", f"this monitor is {state}, and only a dead one can be taken over: {why}")


def invalid_request(detail: str) -> Problem:
    return Problem(422, "invalid_request", detail)


def owner_needed(*, is_owned: bool) -> Problem:
    if is_owned:
        detail = (
            "a key owns this monitor: alert_webhook, alert_email, targets and slug need that key, sent in 'Authorization: Bearer KEY';"
            " with the monitor's secret alone you can change name, period_minutes and grace_minutes"
        )
    else:
        detail = (
            "no key owns this monitor, and alert_email, targets and slug need a key that does: register a monitor with your key, or send"
            " alert_webhook"
        )
    return Problem(403, "owner_needed", f"{detail}. Nothing was changed")


def key_needed(argument: str, products: Sequence[ProductEntry]) -> Problem:
    keys = "; ".join(map(str, products)) or "none is sold at the moment"
    return Problem(
        402,
        "access_required",
        f"{argument} needs a recorder key, sent in the header 'Authorization: Bearer KEY' (over MCP, your user adds it to this server's"
        f" configuration); without a key, leave it out and send alert_webhook. Keys that unlock it: {keys}",
        headers={"WWW-Authenticate": 'Bearer realm="campus"'},
        unlock=[product.to_unlock() for product in products],
    )
