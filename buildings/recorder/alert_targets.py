"""The targets of a monitor's alerts: claimed within the limits of who has no key, confirmed, and deleted with their last monitor."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection, and_, select, update

from buildings.recorder.problems import host_limit_reached, target_in_use
from buildings.recorder.tables import MONITOR_TARGETS, OUTBOX, OWNERS
from campus import Entropy, Problem, TargetRefused, alerts
from campus.alerts import Address, ClaimedTarget, Registrant, delete_target, may_be_asked

CONFIRMATIONS_PER_DAY = 20
"""Confirmation e-mails for one key in a day. Without this limit anyone could make the service send unwanted mail."""


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
