"""Whether the machine's clock can be trusted with deleting what is old: it is compared with elapsed time, which nobody can set."""

from collections.abc import Callable
from datetime import datetime, timedelta

JUMP = timedelta(minutes=1)
"""What the two may come apart by: NTP corrects smaller differences by slowing a clock down, or in one step of seconds."""
REST_SECONDS = 3600.0
"""How long nothing is deleted after a jump: long enough for an operator or a time server to take it back."""


class ClockSteps:
    """Remembers when the clock was last set to another time, since the process started; `elapsed` counts seconds from any beginning."""

    def __init__(self, now: Callable[[], datetime], elapsed: Callable[[], float]) -> None:
        self._now = now
        self._elapsed = elapsed
        self._zero = self._seen_zero()
        self._jumped_at: float | None = None

    def is_settled(self) -> bool:
        """Whether the clock has kept pace with elapsed time for the last hour, as far as the process has seen it."""
        if abs((zero := self._seen_zero()) - self._zero) > JUMP:
            self._zero, self._jumped_at = zero, self._elapsed()
        return self._jumped_at is None or self._elapsed() - self._jumped_at >= REST_SECONDS

    def _seen_zero(self) -> datetime:
        return self._now() - timedelta(seconds=self._elapsed())
