"""A jump of the clock that lasts: every deadline and every retry is moved along with it, in one transaction."""

from datetime import datetime, timedelta

from sqlalchemy import Connection, Table, case, literal, update

from buildings.recorder.tables import ALERTS, CAPSULES, MONITORS, REPLIES, TARGETS, Moment, Span

Moments = tuple[tuple[Table, tuple[str, ...]], ...]
COUNTED: Moments = (
    (MONITORS, ("expected_at", "deadline_at", "run_since")),
    (TARGETS, ("next_try_at", "hold_until", "leased_until", "failing_since", "burst_since")),
)
"""Times that something is counted to or from: they keep their distance from now."""
TOLD: Moments = (
    (MONITORS, ("since", "alive_at", "last_beat_at", "registered_at")),
    (TARGETS, ("verified_at", "asked_at", "tried_at", "answered_at", "disabled_at")),
    (ALERTS, ("at", "since", "until")),
    (CAPSULES, ("at",)),
    (REPLIES, ("at",)),
)
"""Times at which something happened: they stay, but for those that a clock ahead of the time has put into the future."""


def move_along(connection: Connection, step: timedelta, *, now: datetime) -> None:
    """Move what is stored by a step of the clock, which shows `now` after it."""
    by, until = literal(step, Span()), literal(now, Moment())
    for table, names in COUNTED:
        connection.execute(update(table).values({name: table.c[name] + by for name in names}))
    if step < timedelta(0):
        for table, names in TOLD:
            pulled = {name: case((table.c[name] > until, table.c[name] + by), else_=table.c[name]) for name in names}
            connection.execute(update(table).values(pulled))
