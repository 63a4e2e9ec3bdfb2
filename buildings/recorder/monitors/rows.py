"""The rows of monitors: who may use one (its secret or the owning key), and changing, pausing, resuming and deleting it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, case, func, literal, or_, select, update

from buildings.recorder.alerts.raising import forget_told, links_of
from buildings.recorder.alerts.targets import (
    UNCONFIRMED_NOTE,
    MonitorAddresses,
    SigningSecrets,
    release,
    replace_target,
    set_targets,
    signing_secrets,
)
from buildings.recorder.models import Resecured, Updated, Watched
from buildings.recorder.monitors.acting import is_followed_up
from buildings.recorder.monitors.credentials import NO_DIGEST, Credentials, MonitorUrls, digest_matches, digests_of, new_secret
from buildings.recorder.monitors.options import TIMES, read_options, stored_schedule
from buildings.recorder.monitors.state_machine import (
    DOWN,
    TROUBLES,
    UNWATCHED,
    WITH_DEADLINE,
    WITHOUT_DEADLINE,
    AppliedEvent,
    Event,
    MonitorState,
    Schedule,
    StateWord,
    apply_event,
    due_at,
    reschedule,
    shown_state,
    stored_state,
)
from buildings.recorder.problems import fixed_problem, owner_needed
from buildings.recorder.tables import ALERTS, BEAT_PAGES, CAPSULES, DELIVERIES, MONITOR_TARGETS, MONITORS, OWNERS, RETIRED_SECRETS, RUNS
from campus.features.alerts import CONFIRM, Channel, Registrant
from campus.secrets import Entropy, digest_of
from campus.storage import Moment

WITH_THE_NEXT_BEAT = "The new period begins with the next beat."


def authorized_monitor(connection: Connection, credentials: Credentials, *, key_only: bool = False) -> Row[Any]:
    """The row of a monitor that the caller may use. A secret must be correct; without one, or with `key_only`, the key must own it.

    Of a monitor without an owner, the token in its page's address does what the secret does, except for beats. Problem 404 otherwise,
    with the same answer for every reason.
    """
    row = connection.execute(select(MONITORS).where(MONITORS.c.id == credentials.monitor_id)).one_or_none()
    secret = credentials.secret
    lineage = credentials.lineage
    given = NO_DIGEST if secret is None else digest_of(secret)
    secret_digest, page_digest = (row.secret_digest, row.page_digest) if row else (None, None)
    is_correct = digest_matches(secret_digest, given) | digest_matches(page_digest, given)
    if row is None or (secret is not None and not is_correct):
        raise fixed_problem("monitor_not_found")
    if (secret is None or key_only) and (lineage is None or row.owner != lineage):
        raise fixed_problem("monitor_not_found")
    return row


def state_in_sql(now: datetime) -> ColumnElement[StateWord]:
    """state_machine.state_in_a_word for the rows of a statement; tests/recorder/test_pages.py compares them."""
    at, monitor = literal(now, Moment()), MONITORS.c
    watched = monitor.mode.in_(sorted(WITH_DEADLINE))
    return case(
        (monitor.mode.in_(sorted(UNWATCHED)), "paused"),
        (or_(monitor.mode.in_(sorted(DOWN)), and_(watched, monitor.deadline_at <= at)), "dead"),
        (and_(watched, monitor.expected_at <= at), "late"),
        (monitor.mode == "stuck", "stuck"),
        (monitor.first_beat_at.is_(None), "waiting"),
        (monitor.mode == "idle", "idle"),
        else_="alive",
    )


def watched(monitor_id: str, state: MonitorState, now: datetime) -> Watched:
    return Watched(
        monitor_id=monitor_id,
        state=shown_state(state, now),
        waiting=state.first_beat_at is None,
        idle=state.mode == "idle",
        stuck=state.mode == "stuck",
        paused=state.mode in UNWATCHED,
        deadline_at=None if state.mode in WITHOUT_DEADLINE else state.deadline_at,
    )


def tags_column(tags: Sequence[str]) -> str:
    """Tags as they are stored: between blanks, so that one is found as a part of the text."""
    return f" {' '.join(sorted(set(tags)))} " if tags else ""


def has_tag(tag: str) -> ColumnElement[bool]:
    """Whether a monitor has a tag. Not by LIKE, for which small and capital letters are the same on SQLite."""
    return func.replace(MONITORS.c.tags, f" {tag} ", "") != MONITORS.c.tags


def tags_of(column: str) -> tuple[str, ...]:
    return tuple(column.split())


def pause_or_resume(connection: Connection, credentials: Credentials, event: Event, *, now: datetime) -> MonitorState:
    row = authorized_monitor(connection, credentials)
    return store_change(connection, row, apply_event(stored_state(row), event, stored_schedule(row), now))


def delete(connection: Connection, credentials: Credentials) -> None:
    delete_all(connection, [authorized_monitor(connection, credentials)])


def delete_all(connection: Connection, rows: Sequence[Row[Any]]) -> None:
    links = links_of(connection, [row.id for row in rows])
    for row in rows:
        # the question for confirmation is about the mailbox, which other monitors may use too
        asked = (ALERTS.c.monitor_id == row.id) & (ALERTS.c.kind == CONFIRM)
        connection.execute(update(ALERTS).where(asked).values(monitor_id=None))
        for table in (CAPSULES, RUNS, BEAT_PAGES, RETIRED_SECRETS, ALERTS, DELIVERIES, MONITOR_TARGETS):
            connection.execute(table.delete().where(table.c.monitor_id == row.id))
        connection.execute(MONITORS.delete().where(MONITORS.c.id == row.id))
        if row.owner is not None:
            connection.execute(update(OWNERS).where(OWNERS.c.lineage == row.owner).values(monitors=OWNERS.c.monitors - 1))
        release(connection, [link.target_id for link in links.get(row.id, ())])


def apply_key_event(connection: Connection, lineage: str, event: Event, *, now: datetime) -> int:
    """Apply `key_ended` or `key_renewed` to all monitors of a key; returns how many changed."""
    changed = 0
    for row in connection.execute(select(MONITORS).where(MONITORS.c.owner == lineage)).all():
        before = stored_state(row)
        change = apply_event(before, event, stored_schedule(row), now)
        if change.state is not before:
            store_change(connection, row, change)
            changed += 1
    return changed


def store_change(connection: Connection, row: Row[Any], change: AppliedEvent, **more: object) -> MonitorState:
    if change.alert is None and row.mode in TROUBLES and change.state.mode not in TROUBLES:
        forget_told(connection, row.id)
        more["held"] = None
    followed_up, held = bool(more.get("followed_up", row.followed_up)), more.get("held", row.held)
    due = due_at(change.state, followed_up=followed_up, is_held=held is not None)
    values = {**change.state._asdict(), "due_at": due, **more}
    if change.state.epoch != row.epoch:
        values |= {"acknowledged_at": None, "reminded_at": None}
    connection.execute(update(MONITORS).where(MONITORS.c.id == row.id).values(**values))
    return change.state


@dataclass(frozen=True)
class NewTargets:
    """The addresses that replace a monitor's; they are checked, and `warning` is about the webhook."""

    addresses: MonitorAddresses
    by: Registrant
    channels: Sequence[Channel]
    warning: str | None


@dataclass(frozen=True, kw_only=True)
class MonitorUpdate:
    """What changes of a monitor, and who changes it; None for what stays. `options` has those that were sent."""

    maker: str | None
    name: str | None
    period: timedelta | None
    grace: timedelta | None
    targets: NewTargets | None
    options: Mapping[str, object] = field(default_factory=dict)
    slug: str | None = None
    tags: Sequence[str] | None = None


def owner_for_targets(connection: Connection, credentials: Credentials, addresses: MonitorAddresses) -> str | None:
    """The owner of a monitor, if the caller may change its targets. Problem 404 or 403 otherwise.

    A key's monitor needs that key: alerts show its capsules, and a target shares its signing secret with the key's other monitors,
    neither of which the monitor's secret opens.
    """
    row = authorized_monitor(connection, credentials)
    owner: str | None = row.owner
    if owner is None and (addresses.email is not None or addresses.more is not None):
        raise owner_needed(is_owned=False)
    if owner is not None and owner != credentials.lineage:
        raise owner_needed(is_owned=True)
    return owner


def update_stored(connection: Connection, credentials: Credentials, update: MonitorUpdate, *, now: datetime, entropy: Entropy) -> Updated:
    """Change a monitor; returns it as it is then. Its owner is its maker from then on, not who has only its secret."""
    row = authorized_monitor(connection, credentials)
    if update.slug is not None and update.slug != row.slug:
        _check_slug(connection, row, update.slug, credentials.lineage)
    before = stored_schedule(row)
    options = read_options(row.options).changed(update.options)
    if TIMES & update.options.keys():
        options.check_times(now)
    period, grace = row.period if update.period is None else update.period, row.grace if update.grace is None else update.grace
    schedule = options.schedule_of(period, grace)
    state = reschedule(stored_state(row), before, schedule, now, unverified=row.unverified)
    name = row.name if update.name is None else update.name
    maker = update.maker if row.owner == credentials.lineage else row.made_by
    more: dict[str, object] = {"slug": update.slug} if update.slug is not None else {}
    more |= {"tags": tags_column(update.tags)} if update.tags is not None else {}
    more |= {"period": period, "grace": grace, "options": options.stored, "plain": options.is_plain}
    secrets = SigningSecrets(None, ())
    notes: tuple[str, ...] = ()
    if update.targets is not None:
        owner_for_targets(connection, credentials, update.targets.addresses)
        secrets, notes = _change_targets(connection, row, update.targets, now=now, entropy=entropy)
    has_conditions = any(link.told is not None for link in links_of(connection, [row.id]).get(row.id, ()))
    more |= {"followed_up": is_followed_up(options, has_conditions=has_conditions)}
    store_change(connection, row, AppliedEvent(state), name=name, made_by=maker, **more)
    begins_later = schedule.period != before.period and state.expected_at == row.expected_at
    return updated(row.id, name, schedule, state, secrets, (*notes, *([WITH_THE_NEXT_BEAT] if begins_later else [])), now=now)


def updated(
    monitor_id: str, name: str, schedule: Schedule, state: MonitorState, secrets: SigningSecrets, notes: Sequence[str], *, now: datetime
) -> Updated:
    return Updated(
        **dict(watched(monitor_id, state, now)),
        name=name,
        period_minutes=schedule.period / timedelta(minutes=1),
        grace_minutes=schedule.grace / timedelta(minutes=1),
        next_expected=schedule.next_expected(state, now),
        webhook_secret=secrets.webhook,
        target_secrets=secrets.more,
        notes=tuple(notes),
    )


def _check_slug(connection: Connection, row: Row[Any], slug: str, lineage: str | None) -> None:
    if row.owner is None or row.owner != lineage:
        raise owner_needed(is_owned=row.owner is not None)
    if connection.scalar(select(MONITORS.c.id).where(MONITORS.c.owner == row.owner, MONITORS.c.slug == slug)) is not None:
        raise fixed_problem("slug_in_use")


def _change_targets(
    connection: Connection, row: Row[Any], targets: NewTargets, *, now: datetime, entropy: Entropy
) -> tuple[SigningSecrets, tuple[str, ...]]:
    addresses, by = targets.addresses, targets.by
    if addresses.more is not None:
        claimed, redirected = set_targets(connection, row, addresses.wanted, by, now=now, entropy=entropy)
    else:
        replace = partial(replace_target, connection, row.id, by=by, channels=targets.channels, now=now, entropy=entropy)
        replaced = [replace(one.address) for one in addresses.wanted]
        claimed, redirected = [one.target for one in replaced], sum(one.redirected for one in replaced)
    notes = {
        targets.warning: targets.warning is not None,
        UNCONFIRMED_NOTE: not all(target.confirmed for target in claimed),
        f"Undelivered alerts that go to the new target: {redirected}.": redirected > 0,
    }
    return signing_secrets(addresses, claimed), tuple(note for note, holds in notes.items() if note and holds)


def secret_replaced(connection: Connection, credentials: Credentials, *, maker: str | None, url: str, entropy: Entropy) -> Resecured:
    """Give a key's monitor a new secret; beats with the old one are refused as with any wrong one. Its state and schedule stay."""
    row = authorized_monitor(connection, credentials, key_only=True)
    secret = new_secret(entropy)
    connection.execute(MONITORS.update().where(MONITORS.c.id == row.id).values(**digests_of(secret, owned=True), made_by=maker))
    return Resecured(monitor_id=row.id, name=row.name, **MonitorUrls(url, row.id).with_secret(secret))
