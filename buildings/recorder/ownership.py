"""Whose a monitor is: found for who has its secret or owns it, and for nobody else."""

from typing import Any

from sqlalchemy import Connection, Row, select

from buildings.recorder.refusals import monitor_not_found
from buildings.recorder.secrets import NOBODY, digest_of, is_right
from buildings.recorder.state_machine import MonitorState, Schedule
from buildings.recorder.tables import MONITORS
from campus import Caller


def lineage_of(caller: Caller) -> str | None:
    """What a caller's monitors are stored under."""
    return caller.key.lineage if caller.key else None


def authorized_monitor(
    connection: Connection, monitor_id: str, *, lineage: str | None, secret: str | None, key_only: bool = False
) -> Row[Any]:
    """The monitor's row. Who gives a secret must give the right one; without one, or with `key_only`, the owning key is needed.

    Problem 404 otherwise, the same for every reason.
    """
    row = connection.execute(select(MONITORS).where(MONITORS.c.id == monitor_id)).one_or_none()
    given = NOBODY if secret is None else digest_of(secret)
    right = is_right(row.secret_digest if row else None, given)
    if row is None or (secret is not None and not right) or ((secret is None or key_only) and (lineage is None or row.owner != lineage)):
        raise monitor_not_found()
    return row


def stored_state(row: Row[Any]) -> MonitorState:
    """How the monitor of a row stands."""
    return MonitorState(*(getattr(row, name) for name in MonitorState._fields))


def stored_schedule(row: Row[Any]) -> Schedule:
    """What was agreed for the monitor of a row."""
    return Schedule(row.period, row.grace)


def targets_of(row: Row[Any]) -> tuple[str, ...]:
    """Where the alerts of the monitor of a row go."""
    return tuple(target for target in (row.webhook, row.email) if target)
