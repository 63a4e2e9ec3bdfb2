"""The targets of a monitor in the database: claimed for an address, confirmed by the owner of a mailbox, and released."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection, select

from buildings.recorder.problems import host_limit_reached, target_in_use
from buildings.recorder.tables import MONITOR_TARGETS, OUTBOX, OWNERS
from campus import Entropy, TargetRefused
from campus.alerts import Address, ClaimedTarget, Registrant, ask_to_confirm, claim_target, count_confirmation, delete_target, may_be_asked

UNCONFIRMED = "An e-mail was sent to alert_email: no alert is sent there until its recipient confirms through the link."


def claim(connection: Connection, address: Address, by: Registrant, *, now: datetime, entropy: Entropy) -> ClaimedTarget:
    """The target at an address. Without an owner it has one monitor: Problem 409 `target_in_use` or `monitor_limit_reached`."""
    try:
        return claim_target(connection, address, by, outbox=OUTBOX, now=now, entropy=entropy)
    except TargetRefused as refused:
        in_use = refused.rule == "in_use"
        raise (target_in_use() if in_use else host_limit_reached(address.host, most=by.per_host)) from None


def ask_recipient(connection: Connection, target_id: str, owner: str, *, monitor_id: str, now: datetime) -> None:
    """Send the e-mail that asks for confirmation, at most once a day to one address. Problem 429 beyond the key's limit for today."""
    if not may_be_asked(connection, OUTBOX, target_id, now=now):
        return
    count_confirmation(connection, OWNERS, owner, now=now)
    ask_to_confirm(connection, OUTBOX, target_id, now=now, monitor_id=monitor_id, epoch=0, since=now, reason="registration")


def release(connection: Connection, target_ids: Sequence[str]) -> None:
    """Delete the targets that no monitor uses any more."""
    for target_id in target_ids:
        users = select(MONITOR_TARGETS.c.monitor_id).where(MONITOR_TARGETS.c.target_id == target_id).limit(1)
        if connection.execute(users).first() is None:
            delete_target(connection, OUTBOX, target_id)
