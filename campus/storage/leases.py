"""Work that several processes share: how long it belongs to one of them, and when failed work is tried again.

Pure: time and chance are arguments. Whoever takes work writes `lease.end(now)` beside it in the transaction that takes it, and others
leave the work alone while that lease `is_held`. A process that stops renewing, because it died or hangs, loses the work at the end
of the lease.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

RENEWALS = 3
"""How often a lease is renewed before it would end."""


@dataclass(frozen=True, slots=True)
class Lease:
    """For how long work is left to the process that took or renewed it last."""

    length: timedelta

    @property
    def renewal(self) -> timedelta:
        """How long after it was taken or renewed a lease is renewed again."""
        return self.length / RENEWALS

    def end(self, now: datetime) -> datetime:
        """When a lease ends that is taken or renewed now."""
        return now + self.length


def is_held(lease_end: datetime | None, now: datetime) -> bool:
    """Whether another process works on it, and has not lost its lease."""
    return lease_end is not None and now < lease_end


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait after each failure in a row: `waits` in turn, of which the last goes on; spread by ± `spread` of it."""

    waits: Sequence[timedelta]
    spread: float = 0.0

    def wait(self, failures: int, *, chance: float = 0.5) -> timedelta:
        """The wait after so many failures in a row; `chance` is a random number in 0..1."""
        place = min(max(failures, 1), len(self.waits)) - 1
        return self.waits[place] * (1 - self.spread + 2 * self.spread * chance)

    @property
    def longest(self) -> timedelta:
        """The longest wait there can be."""
        return max(self.waits) * (1 + self.spread)
