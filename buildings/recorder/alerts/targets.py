"""The targets of a monitor: addresses of a call checked, then claimed, confirmed by the owner of a mailbox, replaced and released."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, exists, insert, or_, select

from buildings.recorder.monitors.credentials import lineage_of
from buildings.recorder.problems import fixed_problem, host_limit_reached, key_needed
from buildings.recorder.runtime import RecorderSite
from buildings.recorder.tables import ALERTS, MONITOR_TARGETS, OUTBOX, TARGETS
from campus import Caller
from campus.directory import ProductEntry
from campus.errors import TargetRefused
from campus.features.alerts import CONFIRM, UNCONFIRMED, Address, Addresses, Channel, ClaimedTarget, Registrant, sender_of
from campus.secrets import Entropy

UNCONFIRMED_NOTE = UNCONFIRMED.format(what="alert", tool="fleet_status")


async def addresses_in(webhook: str | None, email: str | None, site: RecorderSite, caller: Caller) -> Addresses:
    """The addresses that were sent; an empty text is none. Problem 402 or 422, which says what to send, for those that cannot be used."""
    if email and site.feature("mail") is None:  # first, so that nobody buys a key for e-mail that is never sent
        raise fixed_problem("no_mail_here")
    if email and caller.key is None:
        raise key_needed("alert_email", "send alert_webhook instead", products_of(site))
    return await site.state.registrations.addresses(webhook, email, sender_of(lineage_of(caller), caller.network))


def products_of(site: RecorderSite) -> Sequence[ProductEntry]:
    """The products whose keys open the recorder."""
    return [product for product in site.directory.products if product.scope in (site.name, "all")]


async def check_addresses(addresses: Addresses, site: RecorderSite, caller: Caller) -> str | None:
    """Count the call and check its webhook; returns a warning about the webhook. Problem 429 beyond the limit."""
    return await site.state.registrations.check(addresses.webhook, sender_of(lineage_of(caller), caller.network), site.now())


def registrant(owner: str | None, site: RecorderSite, caller: Caller) -> Registrant:
    settings = site.settings
    return Registrant(owner, sender_of(owner, caller.network), settings.monitors_per_host, settings.everyones_hosts)


@dataclass(frozen=True)
class Replacement:
    """The target that a monitor has now, and how many alerts waited for the former one and are sent to it."""

    target: ClaimedTarget
    redirected: int


def replace_target(
    connection: Connection,
    monitor_id: str,
    address: Address,
    by: Registrant,
    *,
    channels: Sequence[Channel],
    now: datetime,
    entropy: Entropy,
) -> Replacement:
    """Give a monitor the target at an address instead of its others of this sort, which confirm or do not; adds it where there was none.

    The alerts that wait for a replaced target go to the new one. A replaced target that no monitor uses is deleted.
    """
    linked = MONITOR_TARGETS.join(TARGETS, TARGETS.c.id == MONITOR_TARGETS.c.target_id)
    chosen = select(TARGETS, MONITOR_TARGETS.c.place).select_from(linked).where(MONITOR_TARGETS.c.monitor_id == monitor_id)
    rows = connection.execute(chosen.order_by(MONITOR_TARGETS.c.place)).all()
    alike = {channel.kind for channel in channels if channel.confirms == address.channel.confirms}
    before = [row for row in rows if row.kind in alike]
    target = _claim_instead(connection, before, address, by, now=now, entropy=entropy)
    replaced = [row for row in before if row.id != target.id]
    if target.id not in {row.id for row in before}:
        place = replaced[0].place if replaced else max((row.place for row in rows), default=-1) + 1
        connection.execute(insert(MONITOR_TARGETS).values(monitor_id=monitor_id, target_id=target.id, place=place))
    redirected = sum(_redirect(connection, monitor_id, row.id, target.id, now=now) for row in replaced)
    release(connection, [row.id for row in replaced])
    ask_recipient(connection, target, monitor_id=monitor_id, now=now)
    return Replacement(target, redirected)


def _claim_instead(
    connection: Connection, before: Sequence[Row[Any]], address: Address, by: Registrant, *, now: datetime, entropy: Entropy
) -> ClaimedTarget:
    """The target at an address, as `claim` returns it. Without an owner the monitor's former targets are not in its way."""
    if by.owner is not None:
        return claim(connection, address, by, now=now, entropy=entropy)
    same = next((row for row in before if row.address == address.text), None)
    if same is None:
        OUTBOX.make_room(connection, [row.id for row in before])
        return claim(connection, address, by, now=now, entropy=entropy)
    if same.disabled_at is not None:
        OUTBOX.enable(connection, same, verified_at=same.verified_at, now=now)
    return ClaimedTarget(same.id, same.secret, confirmed=same.verified_at is not None)


def adopt_targets(connection: Connection, monitor_id: str, by: Registrant, *, channels: Sequence[Channel], now: datetime) -> list[bytes]:
    """Give the targets of a monitor without an owner to one, with what waits for them.

    Returns the secrets that sign alerts from now on, of those that the owner had at the same addresses.
    """
    link = MONITOR_TARGETS.c
    chosen = select(TARGETS, link.place, link.kinds, link.after).join(MONITOR_TARGETS, link.target_id == TARGETS.c.id)
    signing = {channel.kind for channel in channels if channel.signs}
    secrets = []
    for row in connection.execute(chosen.where(link.monitor_id == monitor_id)).all():
        own = OUTBOX.adopt(connection, row, by, now=now)
        if own.id != row.id:
            values = {"monitor_id": monitor_id, "target_id": own.id, "place": row.place, "kinds": row.kinds, "after": row.after}
            connection.execute(insert(MONITOR_TARGETS).values(**values))
            _redirect(connection, monitor_id, row.id, own.id, now=now)
            release(connection, [row.id])
            secrets += [own.secret] if own.kind in signing else []
    return secrets


def _redirect(connection: Connection, monitor_id: str, target_id: str, to: str, *, now: datetime) -> int:
    """Unlink a target; what waits for it from this monitor goes `to` the other one. Returns how many alerts do.

    So do alerts about the recorder itself, if no other monitor is left to have them there.
    """
    link = MONITOR_TARGETS.c
    connection.execute(MONITOR_TARGETS.delete().where(link.monitor_id == monitor_id, link.target_id == target_id))
    there = ALERTS.alias()
    is_there = exists().where(there.c.target_id == to, *(there.c[name] == ALERTS.c[name] for name in ("monitor_id", "epoch", "kind")))
    unused = ~exists().where(link.target_id == target_id)
    mine = or_(ALERTS.c.monitor_id == monitor_id, ALERTS.c.monitor_id.is_(None) & unused)
    waiting = ALERTS.c.target_id == target_id
    redirected = OUTBOX.redirect(connection, waiting & mine & ~is_there, to, now=now)
    # not the question for confirmation, which other monitors with this mailbox need
    connection.execute(ALERTS.delete().where(waiting, ALERTS.c.monitor_id == monitor_id, ALERTS.c.kind != CONFIRM))
    return redirected


def claim(connection: Connection, address: Address, by: Registrant, *, now: datetime, entropy: Entropy) -> ClaimedTarget:
    """The target at an address. Without an owner it has one monitor: Problem 409 `target_in_use` or `monitor_limit_reached`."""
    try:
        return OUTBOX.claim(connection, address, by, now=now, entropy=entropy)
    except TargetRefused as refused:
        in_use = refused.rule == "in_use"
        raise (fixed_problem("target_in_use") if in_use else host_limit_reached(address.host, most=by.per_host)) from None


def ask_recipient(connection: Connection, target: ClaimedTarget, *, monitor_id: str, now: datetime) -> None:
    OUTBOX.ask_to_confirm(connection, target, now=now, monitor_id=monitor_id, epoch=0, since=now, reason="registration")


def release(connection: Connection, target_ids: Sequence[str]) -> None:
    for target_id in target_ids:
        users = select(MONITOR_TARGETS.c.monitor_id).where(MONITOR_TARGETS.c.target_id == target_id).limit(1)
        if connection.execute(users).first() is None:
            OUTBOX.delete_target(connection, target_id)
