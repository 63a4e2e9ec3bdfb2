"""The rows of monitors: who may use one (its secret or the owning key), and pausing, resuming and deleting it."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, select, update

from buildings.recorder.alerts.raising import targets_of
from buildings.recorder.alerts.targets import release
from buildings.recorder.models import Watched
from buildings.recorder.monitors.credentials import NO_DIGEST, Credentials, digest_matches
from buildings.recorder.monitors.state_machine import (
    UNWATCHED,
    WITHOUT_DEADLINE,
    AppliedEvent,
    Event,
    MonitorState,
    Schedule,
    apply_event,
    shown_state,
)
from buildings.recorder.problems import monitor_not_found
from buildings.recorder.tables import ALERTS, CAPSULES, DELIVERIES, MONITOR_TARGETS, MONITORS, OWNERS, RETIRED_SECRETS
from campus.alerts import CONFIRM
from campus.secrets import digest_of


def authorized_monitor(connection: Connection, credentials: Credentials, *, key_only: bool = False) -> Row[Any]:
    """The row of a monitor that the caller may use. A secret must be correct; without one, or with `key_only`, the key must own it.

    Problem 404 otherwise, with the same answer for every reason.
    """
    row = connection.execute(select(MONITORS).where(MONITORS.c.id == credentials.monitor_id)).one_or_none()
    secret = credentials.secret
    lineage = credentials.lineage
    is_correct = digest_matches(row.secret_digest if row else None, NO_DIGEST if secret is None else digest_of(secret))
    if row is None or (secret is not None and not is_correct):
        raise monitor_not_found()
    if (secret is None or key_only) and (lineage is None or row.owner != lineage):
        raise monitor_not_found()
    return row


def stored_state(row: Row[Any]) -> MonitorState:
    return MonitorState(*(getattr(row, name) for name in MonitorState._fields))


def stored_schedule(row: Row[Any]) -> Schedule:
    return Schedule(row.period, row.grace)


def watched(monitor_id: str, state: MonitorState, now: datetime) -> Watched:
    return Watched(
        monitor_id=monitor_id,
        state=shown_state(state, now),
        waiting=state.first_beat_at is None,
        idle=state.mode == "idle",
        paused=state.mode in UNWATCHED,
        deadline_at=None if state.mode in WITHOUT_DEADLINE else state.deadline_at,
    )


def pause_or_resume(connection: Connection, credentials: Credentials, event: Event, *, now: datetime) -> MonitorState:
    row = authorized_monitor(connection, credentials)
    return store_change(connection, row, apply_event(stored_state(row), event, stored_schedule(row), now))


def pause_unless_dead(connection: Connection, credentials: Credentials, *, now: datetime) -> None:
    """Pause a monitor whose agent has ended as it should; one that is dead stays dead."""
    row = authorized_monitor(connection, credentials)
    if shown_state(stored_state(row), now) != "dead":
        store_change(connection, row, apply_event(stored_state(row), "pause", stored_schedule(row), now))


def delete(connection: Connection, credentials: Credentials) -> None:
    delete_all(connection, [authorized_monitor(connection, credentials)])


def delete_all(connection: Connection, rows: Sequence[Row[Any]]) -> None:
    """Delete monitors with their capsules, retired secrets, alerts, and targets that no other monitor uses."""
    targets = targets_of(connection, [row.id for row in rows])
    for row in rows:
        # the question for confirmation is about the mailbox, which other monitors may use too
        asked = (ALERTS.c.monitor_id == row.id) & (ALERTS.c.kind == CONFIRM)
        connection.execute(update(ALERTS).where(asked).values(monitor_id=None))
        for table in (CAPSULES, RETIRED_SECRETS, ALERTS, DELIVERIES, MONITOR_TARGETS):
            connection.execute(table.delete().where(table.c.monitor_id == row.id))
        connection.execute(MONITORS.delete().where(MONITORS.c.id == row.id))
        if row.owner is not None:
            connection.execute(update(OWNERS).where(OWNERS.c.lineage == row.owner).values(monitors=OWNERS.c.monitors - 1))
        release(connection, targets.get(row.id, ()))


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
    """Store a monitor's new state, and `more` columns; returns the state."""
    values = {**change.state._asdict(), "due_at": change.state.deadline_at, **more}
    connection.execute(update(MONITORS).where(MONITORS.c.id == row.id).values(**values))
    return change.state
