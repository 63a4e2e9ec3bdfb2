"""The recorder's time: the machine's clock, and elapsed time instead while that clock has just been set to another time.

A clock that is set forward would make every monitor dead, and one that is set back would hide deaths for as long. So both
clocks of the machine are compared, the one that can be set and the one that only runs. When they come apart by more than
JUMP, time goes on by the second. A jump that lasts is adopted after HOLD (see sweep): every deadline is moved along with the
clock, in one transaction. One that is taken back before has changed nothing.

Several processes on one database: where others go on writing ticks in the old time, it is this machine's clock that is wrong;
this process then goes on by elapsed time until its clock is right again. Clocks must agree when a process starts.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import NamedTuple

JUMP = timedelta(seconds=5)
"""The most that the clocks may come apart between two looks: a correction by NTP without a step is far below."""
HOLD = timedelta(seconds=8)
"""How long a jump must last, unchanged, until it is adopted: other processes write a tick meanwhile, and it is no outage yet."""
TOLD_FOR = timedelta(hours=1)
"""How long a jump is told of in /readyz, and nothing that is old is deleted."""


class ClockReading(NamedTuple):
    """The time at one look of the sweep; `step` is a jump of the clock that is held back, and `step_since` since when."""

    now: datetime
    step: timedelta | None = None
    step_since: datetime | None = None

    @property
    def may_adopt(self) -> bool:
        """Whether the jump has lasted long enough."""
        return self.step_since is not None and self.now - self.step_since >= HOLD


class RecorderClock:
    """Tells the recorder's time; one per process. `wall` is the clock that can be set, `elapsed` runs in seconds."""

    def __init__(self, wall: Callable[[], datetime], elapsed: Callable[[], float]) -> None:
        self._wall = wall
        self._elapsed = elapsed
        self._zero = wall() - timedelta(seconds=elapsed())
        self._step: timedelta | None = None
        self._step_since: datetime | None = None
        self._last: tuple[timedelta, datetime] | None = None

    def now(self) -> datetime:
        """The time, aware, in UTC."""
        wall, steady = self._wall(), self._zero + timedelta(seconds=self._elapsed())
        return wall if -JUMP < wall - steady < JUMP else steady

    def look(self) -> ClockReading:
        """The time, and the jump that is held back, if there is one; small differences are taken over."""
        wall, steady = self._wall(), self._zero + timedelta(seconds=self._elapsed())
        step = wall - steady
        if -JUMP < step < JUMP:
            self._zero += step
            self._step = self._step_since = None
            return ClockReading(wall)
        if self._step is None or self._step_since is None or not -JUMP < step - self._step < JUMP:
            self._step, self._step_since = step, steady
        self._last = step, steady
        return ClockReading(steady, self._step, self._step_since)

    def follow_others(self, ahead: timedelta) -> None:
        """Go by the time of other processes, which is so far ahead of this machine's clock."""
        self._zero += ahead

    def adopt(self, step: timedelta) -> None:
        """Go by the clock from now on: what is stored was moved by the jump."""
        self._zero += step
        self._step = self._step_since = None
        if self._last is not None:
            self._last = self._last[0], self._last[1] + step

    @property
    def is_settled(self) -> bool:
        """Whether the clock has not jumped within the last hour."""
        self.look()
        return self._last is None or self.now() - self._last[1] >= TOLD_FOR

    def findings(self) -> list[str]:
        """That the clock jumped, by how much and when, for an hour."""
        if self.is_settled or self._last is None:
            return []
        step, at = self._last
        way = "forward" if step > timedelta(0) else "back"
        held = "; monitors are watched by elapsed time until it lasts or is set right" if self._step is not None else ""
        return [f"the clock jumped {way} by {abs(step)} at {at:%Y-%m-%dT%H:%M:%SZ}{held}; see that this machine's time is synchronized"]
