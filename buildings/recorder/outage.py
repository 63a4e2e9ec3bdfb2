"""The recorder's own outage: how deadlines move when beats could not be taken. Pure.

A gap between two ticks of the sweep is an outage: the process was down or stood still, the database took no writes, or the
clock jumped. Whatever was sent meanwhile is lost, unless its sender tried again.
"""

from datetime import datetime, timedelta
from typing import NamedTuple

TICK = timedelta(seconds=5)
"""How often the time is written down."""
LONGEST_GAP = 3 * TICK
"""Between two ticks of a recorder that watches, however busy: a restart that takes longer is an outage."""
SHORT = timedelta(seconds=120)
"""As long as the printed command goes on trying."""
LEAST_GRACE = timedelta(seconds=30)


class Outage(NamedTuple):
    """From the last tick before it to the first after it."""

    start: datetime
    end: datetime

    @property
    def is_short(self) -> bool:
        """Whether clients that retry got through after all."""
        return self.end - self.start <= SHORT


def outage_between(last_tick: datetime | None, now: datetime) -> Outage | None:
    """The outage between two ticks, if there was one."""
    if last_tick is None or now - last_tick <= LONGEST_GAP:
        return None
    return Outage(last_tick, now)


def moved_deadline(
    outage: Outage, *, expected_at: datetime, deadline_at: datetime, period: timedelta, grace: timedelta
) -> tuple[datetime, bool]:
    """The deadline after an outage, and whether it is unverified: the beat it waits for may have been lost.

    After a short one there is time for the retries. After a longer one a beat that could have been sent meanwhile is
    given up, and the next one waited for.
    """
    if outage.is_short:
        return max(deadline_at, outage.end + max(grace, LEAST_GRACE)), False
    if expected_at - grace > outage.end:
        return deadline_at, False
    return max(deadline_at, outage.end + period + grace), True
