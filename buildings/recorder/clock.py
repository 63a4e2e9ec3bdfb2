"""The recorder's time: the machine's clock, or the monotonic clock for a while after the machine's clock jumped.

If the clock is set forward, every monitor would become dead; if it is set back, no death would be noticed for as long. So two
clocks of the machine are compared: the wall clock, which can be set, and the monotonic one. When they differ by more than
MAX_DRIFT, the wall clock has jumped, and the recorder uses elapsed time. A jump that lasts for ADOPT_AFTER is adopted:
sweep.adopt_jump moves every stored deadline along with the clock, in one transaction. A jump that is undone earlier changes nothing.

If other processes on the same database continue to write ticks in the old time, this machine's clock is wrong, and this process
uses elapsed time until its clock is right again. Clocks must agree when a process starts.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, Table, bindparam, case, literal, select, update

from buildings.recorder.monitors.options import stored_schedule
from buildings.recorder.tables import ALERTS, CAPSULES, DELIVERIES, MONITORS, OUTAGES, REPLIES, RUNS, TARGETS, TICKS
from campus.observability import utc_text
from campus.storage import Moment, Span

MAX_DRIFT = timedelta(seconds=5)
"""The largest difference of the two clocks that is no jump. NTP corrects gradually, and by far less."""
ADOPT_AFTER = timedelta(seconds=8)
"""How long a jump must last until it is adopted: long enough for a tick of another process, shorter than an outage."""
PER_PART = 1_000
REPORTED_FOR = timedelta(hours=1)  # For this long after a jump /readyz reports it, and nothing is deleted because of its age.

Columns = tuple[tuple[Table, tuple[str, ...]], ...]
COUNTED: Columns = (
    (MONITORS, ("expected_at", "deadline_at", "due_at", "run_since", "muted_until", "reminded_at")),
    (RUNS, ("limit_at",)),
    (TARGETS, ("next_try_at", "hold_until", "leased_until", "failing_since", "burst_since")),
    (OUTAGES, ("began_at", "ended_at", "lost_by", "told_at")),
)
"""Times from or to which a duration is measured: their distance from now does not change."""
EXPIRING: Columns = ((ALERTS, ("at", "since", "until")), (DELIVERIES, ("at", "delivered_at")), (CAPSULES, ("at",)), (REPLIES, ("at",)))
"""Times that move when the clock is set forward, so that nothing is deleted for an age that it does not have: alerts, the capsules that
they show, and stored answers."""
RECORDED: Columns = (
    (MONITORS, ("since", "alive_at", "first_beat_at", "last_beat_at", "registered_at", "acknowledged_at", "held_since")),
    (RUNS, ("started_at", "ended_at")),
    (TARGETS, ("verified_at", "tried_at", "answered_at", "disabled_at")),
    *EXPIRING,
)
"""Times at which something happened: they stay, except future ones, which a clock that was ahead has written."""


class ClockReading(NamedTuple):
    """The time of one sweep; `jump` is a jump of the wall clock that is not adopted yet, and `jumped_at` when it happened."""

    now: datetime
    jump: timedelta | None = None
    jumped_at: datetime | None = None

    @property
    def may_adopt(self) -> bool:
        return self.jumped_at is not None and self.now - self.jumped_at >= ADOPT_AFTER


class RecorderClock:
    """The time of one process. `wall` reads a clock that can be set, `elapsed` counts seconds and never jumps."""

    def __init__(self, wall: Callable[[], datetime], elapsed: Callable[[], float]) -> None:
        self._wall = wall
        self._elapsed = elapsed
        self._zero = wall() - timedelta(seconds=elapsed())
        self._jump: timedelta | None = None
        self._jumped_at: datetime | None = None
        self._last_jump: tuple[timedelta, datetime] | None = None

    def now(self) -> datetime:
        wall = self._wall()
        steady = self._zero + timedelta(seconds=self._elapsed())
        return wall if -MAX_DRIFT < wall - steady < MAX_DRIFT else steady

    def read(self) -> ClockReading:
        """The time, and a jump that is not adopted yet. A difference below MAX_DRIFT is followed."""
        wall = self._wall()
        steady = self._zero + timedelta(seconds=self._elapsed())
        jump = wall - steady
        if -MAX_DRIFT < jump < MAX_DRIFT:
            self._zero += jump
            self._jump = self._jumped_at = None
            return ClockReading(wall)
        if self._jump is None or self._jumped_at is None or not -MAX_DRIFT < jump - self._jump < MAX_DRIFT:
            self._jump = jump
            self._jumped_at = steady
        self._last_jump = jump, steady
        return ClockReading(steady, self._jump, self._jumped_at)

    def follow_others(self, ahead: timedelta) -> None:
        """Use the time of other processes, which is ahead of this machine's clock."""
        self._zero += ahead

    def adopt(self, jump: timedelta) -> None:
        self._zero += jump
        self._jump = self._jumped_at = None
        if self._last_jump is not None:
            self._last_jump = self._last_jump[0], self._last_jump[1] + jump

    @property
    def is_settled(self) -> bool:
        self.read()
        return self._last_jump is None or self.now() - self._last_jump[1] >= REPORTED_FOR

    def findings(self) -> list[str]:
        """For an hour after a jump, a sentence that says by how much the clock jumped and when."""
        if self.is_settled or self._last_jump is None:
            return []
        jump, at = self._last_jump
        direction = "forward" if jump > timedelta(0) else "back"
        pending = "; deadlines are checked by elapsed time until the jump lasts or the clock is corrected" if self._jump is not None else ""
        return [
            f"the clock jumped {direction} by {abs(jump)} at {utc_text(at)}{pending}; make sure that this machine's time is synchronized"
        ]


def step_back(connection: Connection, last: datetime, *, now: datetime) -> bool:
    """Move every stored time back to `now` from the last tick, which is in the future; False if there is a later tick."""
    if connection.scalar(select(TICKS.c.at).with_for_update()) != last:
        return False
    move_times(connection, now - last, now=now)
    connection.execute(update(TICKS).values(at=now))
    return True


def move_times(connection: Connection, jump: timedelta, *, now: datetime) -> None:
    by = literal(jump, Span())
    until = literal(now, Moment())
    forward = jump > timedelta(0)
    for table, names in (*COUNTED, *EXPIRING) if forward else COUNTED:
        shifted = update(table).values({name: table.c[name] + by for name in names})
        connection.execute(shifted.where(MONITORS.c.plain) if table is MONITORS else shifted)
    if not forward:
        for table, names in RECORDED:
            moved = {name: case((table.c[name] > until, table.c[name] + by), else_=table.c[name]) for name in names}
            connection.execute(update(table).values(moved))
    _move_each(connection, jump, now=now)


def _move_each(connection: Connection, jump: timedelta, *, now: datetime) -> None:
    """Move the times of monitors that may have a calendar. Those that a schedule names stay: the clock was wrong, and not they."""
    monitor, after = MONITORS.c, ""
    names = COUNTED[0][1]
    changed = update(MONITORS).where(monitor.id == bindparam("key")).values({name: bindparam(f"new_{name}") for name in names})
    while rows := connection.execute(select(MONITORS).where(~monitor.plain, monitor.id > after).order_by(monitor.id).limit(PER_PART)).all():
        connection.execute(changed, [{"key": row.id} | _moved(row, names, jump, now) for row in rows])
        after = rows[-1].id


def _moved(row: Row[Any], names: Sequence[str], jump: timedelta, now: datetime) -> dict[str, datetime | None]:
    before: dict[str, datetime | None] = {name: getattr(row, name) for name in names}
    moved = {name: None if value is None else value + jump for name, value in before.items()}
    schedule = stored_schedule(row)
    if schedule.names_times and row.run_since is None:
        moved |= {name: before[name] for name in ("expected_at", "deadline_at", "due_at")}
        if (expected := schedule.expected_after(now)) < row.expected_at:  # a beat came while the clock was ahead
            deadline = schedule.deadline_after(expected)
            moved |= {"expected_at": expected, "deadline_at": deadline, "due_at": row.due_at and min(row.due_at, deadline)}
    return {f"new_{name}": value for name, value in moved.items()}
