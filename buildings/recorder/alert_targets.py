"""The targets of a monitor's alerts: checked by campus.outbound, which refuses private networks, then claimed and confirmed."""

from collections.abc import Sequence
from datetime import datetime

import httpx
from sqlalchemy import Connection, and_, select, update

from buildings.recorder.problems import host_limit_reached, target_in_use, target_refused
from buildings.recorder.tables import MONITOR_TARGETS, OUTBOX, OWNERS
from campus import Entropy, GuardedClient, Problem, TargetRefused, alerts
from campus.alerts import Address, Channel, ClaimedTarget, Registrant, address_of, delete_target, may_be_asked

UNREACHABLE = (
    "The host of alert_webhook cannot be found or reached at the moment. Check its name: alerts are lost unless it can be reached."
)
CONFIRMATIONS_PER_DAY = 20
"""Confirmation e-mails for one key in a day. Without this limit anyone could make the service send unwanted mail."""


def webhook_address(url: str, web: GuardedClient, channels: Sequence[Channel]) -> Address:
    """The address of a webhook, for the first channel that recognizes it. Problem 422 for a URL that breaks a rule."""
    try:
        web.check_url(url)
    except TargetRefused as refused:
        raise target_refused(refused) from None
    found = address_of(url, [one for one in channels if not one.confirms])
    assert found is not None, "the webhook channel accepts every URL"
    return found


def email_address(text: str, channels: Sequence[Channel]) -> Address:
    """An e-mail address. Problem 422 for a text that is not one."""
    found = address_of(text, [one for one in channels if one.confirms])
    if found is None:
        raise Problem(422, "invalid_request", "alert_email is not an e-mail address; write it as name@host.example")
    return found


async def check_webhook(address: Address, web: GuardedClient, channels: Sequence[Channel]) -> str | None:
    """Refuse a webhook to which alerts may not be sent, such as one in a private network, before any connection is made.

    Problem 422 with the broken rule. Returns a warning if the host cannot be found or reached at the moment.
    """
    try:
        await next(one for one in channels if one.kind == address.kind).check(address.text, web)
    except TargetRefused as refused:
        raise target_refused(refused) from None
    except httpx.TransportError:
        return UNREACHABLE
    return None


def claim_target(connection: Connection, address: Address, by: Registrant, *, now: datetime, entropy: Entropy) -> ClaimedTarget:
    """The target at an address. Without an owner it has one monitor: Problem 409 `target_in_use` or `monitor_limit_reached`."""
    try:
        return alerts.claim_target(connection, address, by, outbox=OUTBOX, now=now, entropy=entropy)
    except TargetRefused as refused:
        in_use = refused.rule == "in_use"
        raise (target_in_use() if in_use else host_limit_reached(address.host, most=by.per_host)) from None


def ask_to_confirm(connection: Connection, target_id: str, owner: str, *, monitor_id: str, now: datetime) -> None:
    """Send the e-mail that asks for confirmation, at most once a day to one address. Problem 429 beyond the key's limit for today."""
    if not may_be_asked(connection, OUTBOX, target_id, now=now):
        return
    day = now.date().toordinal()
    of_today = and_(OWNERS.c.asked_on == day, OWNERS.c.asked >= CONFIRMATIONS_PER_DAY)
    counted = update(OWNERS).where(OWNERS.c.lineage == owner, ~of_today)
    for values, where in (
        ({"asked_on": day, "asked": 1}, OWNERS.c.asked_on != day),
        ({"asked": OWNERS.c.asked + 1}, OWNERS.c.asked_on == day),
    ):
        if connection.execute(counted.where(where).values(**values).returning(OWNERS.c.lineage)).all():
            break
    else:
        raise Problem(
            429,
            "too_many_confirmations",
            f"this key has had confirmation e-mails sent to {CONFIRMATIONS_PER_DAY} addresses today, the maximum; register more tomorrow",
        )
    alerts.ask_to_confirm(connection, OUTBOX, target_id, now=now, monitor_id=monitor_id, epoch=0, since=now, reason="registration")


def release_targets(connection: Connection, target_ids: Sequence[str]) -> None:
    """Delete the targets that no monitor uses any more."""
    for target_id in target_ids:
        users = select(MONITOR_TARGETS.c.monitor_id).where(MONITOR_TARGETS.c.target_id == target_id).limit(1)
        if connection.execute(users).first() is None:
            delete_target(connection, OUTBOX, target_id)
