"""Whether the machine's clock was set to another time: then it does not show what is old. Pure."""

from collections.abc import Callable
from datetime import datetime, timedelta

JUMP = timedelta(minutes=1)
"""A clock that differs by more from elapsed time was set to another time. NTP corrects less than that gradually or in steps of seconds."""
REST_SECONDS = 3600.0
"""For how long nothing is deleted after a jump: long enough for an operator or a time server to undo it."""


class ClockSteps:
    """Tells whether the machine's clock was set to another time; if it was, the clock does not show which answers are old.

    `elapsed` counts seconds from any starting point, and nobody can set it.
    """

    def __init__(self, now: Callable[[], datetime], elapsed: Callable[[], float]) -> None:
        self._now = now
        self._elapsed = elapsed
        self._started = self._start_by_the_clock()
        self._jumped_at: float | None = None

    def is_settled(self) -> bool:
        """Whether the clock kept pace with elapsed time for the last hour, as far as this process has seen."""
        if abs((started := self._start_by_the_clock()) - self._started) > JUMP:
            self._started = started
            self._jumped_at = self._elapsed()
        return self._jumped_at is None or self._elapsed() - self._jumped_at >= REST_SECONDS

    def _start_by_the_clock(self) -> datetime:
        return self._now() - timedelta(seconds=self._elapsed())
