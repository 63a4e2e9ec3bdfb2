"""The targets of a monitor: addresses of a call checked, then claimed, confirmed by the owner of a mailbox, replaced and released."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

import anyio
from sqlalchemy import Connection, Row, exists, insert, or_, select, update

from buildings.recorder.alerts.raising import TROUBLE_KINDS, links_of
from buildings.recorder.arguments import TargetArgument
from buildings.recorder.monitors.credentials import lineage_of
from buildings.recorder.monitors.state_machine import TROUBLES
from buildings.recorder.problems import fixed_problem, host_limit_reached, key_needed
from buildings.recorder.runtime import RecorderSite
from buildings.recorder.tables import ALERTS, MONITOR_TARGETS, OUTBOX, TARGETS
from campus import Caller
from campus.directory import ProductEntry
from campus.errors import TargetRefused
from campus.features.alerts import CONFIRM, UNCONFIRMED, Address, Addresses, Channel, ClaimedTarget, Registrant, sender_of, signing_secret
from campus.secrets import Entropy

UNCONFIRMED_NOTE = UNCONFIRMED.format(what="alert", tool="fleet_status")


class Wanted(NamedTuple):
    """An address that a monitor is to have as a target, with its conditions: see tables.MonitorTarget."""

    address: Address
    kinds: str | None = None
    after: timedelta | None = None

    @property
    def has_conditions(self) -> bool:
        return self.kinds is not None or self.after is not None

    def columns(self, told: int) -> dict[str, Any]:
        return {"kinds": self.kinds, "after": self.after, "told": told if self.has_conditions else None}


@dataclass(frozen=True)
class MonitorAddresses(Addresses):
    """The addresses that a call named; `more` are those of its argument `targets`, None if it was not sent."""

    more: Sequence[Wanted] | None = None

    @property
    def wanted(self) -> Sequence[Wanted]:
        return [*(Wanted(one) for one in (self.webhook, self.email) if one is not None), *(self.more or ())]


class SigningSecrets(NamedTuple):
    """What signs the alerts to `alert_webhook`, and to each of `targets`; None where nothing is signed."""

    webhook: str | None
    more: tuple[str | None, ...]


def signing_secrets(addresses: MonitorAddresses, claimed: Sequence[ClaimedTarget]) -> SigningSecrets:
    """The secrets of the targets that were claimed for addresses, in the order of `addresses.wanted`."""
    pairs = zip(addresses.wanted, claimed, strict=True)
    secrets = [signing_secret(target.secret) if one.address.channel.signs else None for one, target in pairs]
    more = tuple(secrets[len(secrets) - len(addresses.more or ()) :])
    return SigningSecrets(secrets[0] if addresses.webhook is not None else None, more)


async def addresses_in(
    webhook: str | None, email: str | None, site: RecorderSite, caller: Caller, *, targets: Sequence[TargetArgument] | None = None
) -> MonitorAddresses:
    """The addresses that were sent; an empty text is none. Problem 402 or 422, which says what to send, for those that cannot be used."""
    mailboxes = [email, *(one.address for one in targets or () if is_mailbox(one.address))]
    if any(mailboxes) and site.feature("mail") is None:  # first, so that nobody buys a key for e-mail that is never sent
        raise fixed_problem("no_mail_here")
    if (email or targets) and caller.key is None:
        raise key_needed("alert_email" if email else "targets", products_of(site))
    sender = sender_of(lineage_of(caller), caller.network)
    plain = await site.state.registrations.addresses(webhook, email, sender)
    more = None if targets is None else [await _wanted(one, place, sender, site) for place, one in enumerate(targets)]
    return MonitorAddresses(plain.webhook, plain.email, more)


def products_of(site: RecorderSite) -> Sequence[ProductEntry]:
    """The products whose keys open the recorder."""
    return [product for product in site.directory.products if product.scope in (site.name, "all")]


def is_mailbox(address: str) -> bool:
    return "@" in address and "://" not in address


async def _wanted(target: TargetArgument, place: int, sender: str, site: RecorderSite) -> Wanted:
    if target.on is not None and not TROUBLE_KINDS & set(target.on):
        raise fixed_problem("trouble_needed")
    web, mail = (None, target.address) if is_mailbox(target.address) else (target.address, None)
    found = await site.state.registrations.addresses(web, mail, sender, argument=f"targets[{place}].address")
    address = found.webhook or found.email
    assert address is not None, "one of them was sent"
    kinds = None if target.on is None else f" {' '.join(sorted(set(target.on)))} "
    return Wanted(address, kinds, None if target.after_minutes is None else timedelta(minutes=target.after_minutes))


async def check_addresses(addresses: MonitorAddresses, site: RecorderSite, caller: Caller) -> str | None:
    """Count the call and check its webhooks; returns a warning about them. Problem 429 beyond the limit, where each target counts."""
    check = partial(site.state.registrations.check, sender=sender_of(lineage_of(caller), caller.network), now=site.now())
    warnings = [await check(addresses.webhook)] if addresses.webhook is not None or not addresses.more else []
    warnings += [None] * len(addresses.more or ())

    async def look(place: int, wanted: Wanted) -> None:
        webhook = None if wanted.address.channel.confirms else wanted.address
        warnings[place - len(addresses.more or ())] = await check(webhook, argument=f"targets[{place}].address")

    async with anyio.create_task_group() as tasks:
        for place, wanted in enumerate(addresses.more or ()):
            tasks.start_soon(look, place, wanted)
    return " ".join(warning for warning in warnings if warning) or None


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
    chosen = select(TARGETS, MONITOR_TARGETS.c.place, MONITOR_TARGETS.c.told).select_from(linked)
    chosen = chosen.where(MONITOR_TARGETS.c.monitor_id == monitor_id)
    rows = connection.execute(chosen.order_by(MONITOR_TARGETS.c.place)).all()
    alike = {channel.kind for channel in channels if channel.confirms == address.channel.confirms}
    before = [row for row in rows if row.kind in alike and row.told is None]
    target = _claim_instead(connection, before, address, by, now=now, entropy=entropy)
    replaced = [row for row in before if row.id != target.id]
    conditional = next((row for row in rows if row.id == target.id and row.told is not None), None)
    if conditional is not None:
        link = MONITOR_TARGETS.c
        mine = (link.monitor_id == monitor_id) & (link.target_id == target.id)
        connection.execute(update(MONITOR_TARGETS).where(mine).values(kinds=None, after=None, told=None))
    elif target.id not in {row.id for row in before}:
        place = replaced[0].place if replaced else max((row.place for row in rows), default=-1) + 1
        connection.execute(insert(MONITOR_TARGETS).values(monitor_id=monitor_id, target_id=target.id, place=place))
    redirected = sum(_redirect(connection, monitor_id, row.id, target.id, now=now) for row in replaced)
    release(connection, [row.id for row in replaced])
    ask_recipient(connection, target, monitor_id=monitor_id, now=now)
    return Replacement(target, redirected)


def set_targets(
    connection: Connection, row: Row[Any], wanted: Sequence[Wanted], by: Registrant, *, now: datetime, entropy: Entropy
) -> tuple[Sequence[ClaimedTarget], int]:
    """Give a monitor these targets and no others; returns them, and how many alerts that waited for others go to the first of them."""
    links = links_of(connection, [row.id]).get(row.id, ())
    told = row.epoch if row.mode in TROUBLES else 0
    before = {link.target_id: told if link.told is None else link.told for link in links}
    claimed = link_targets(connection, row.id, wanted, by, before=before, now=now, entropy=entropy)
    replaced = [target_id for target_id in before if target_id not in {target.id for target in claimed}]
    redirected = sum(_redirect(connection, row.id, target_id, claimed[0].id, now=now) for target_id in replaced)
    release(connection, replaced)
    return claimed, redirected


def link_targets(
    connection: Connection,
    monitor_id: str,
    wanted: Sequence[Wanted],
    by: Registrant,
    *,
    before: Mapping[str, int] = {},
    now: datetime,
    entropy: Entropy,
) -> Sequence[ClaimedTarget]:
    """Claim targets and link them to a monitor, which some of them have `before`; asks the owners of mailboxes."""
    claimed = [claim(connection, one.address, by, now=now, entropy=entropy) for one in wanted]
    ids = [target.id for target in claimed]
    if len(set(ids)) < len(ids):
        raise fixed_problem("target_twice")
    link = MONITOR_TARGETS.c
    connection.execute(MONITOR_TARGETS.delete().where(link.monitor_id == monitor_id, link.target_id.in_([*before.keys() & set(ids)])))
    places = enumerate(zip(ids, wanted, strict=True))
    rows = [
        {"monitor_id": monitor_id, "target_id": target_id, "place": place, **one.columns(before.get(target_id, 0))}
        for place, (target_id, one) in places
    ]
    connection.execute(insert(MONITOR_TARGETS), rows)
    for target in claimed:
        ask_recipient(connection, target, monitor_id=monitor_id, now=now)
    return claimed


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
