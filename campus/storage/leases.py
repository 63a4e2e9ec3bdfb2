"""Leases: how long shared work belongs to one process.

Time is an argument. A process that takes work stores `lease.end(now)` in the same transaction, and the others leave
the work alone while that lease `is_held`. A process that stops renewing, because it died or hangs, loses the work when the lease ends.
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

import anyio

from campus.errors import StorageError

RENEWALS = 3
"""How often a lease is renewed before it would end."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Lease:
    """How long work belongs to the process that took it, or renewed its lease, last."""

    length: timedelta

    @property
    def renewal(self) -> timedelta:
        """How long after it was taken or renewed a lease is renewed again."""
        return self.length / RENEWALS

    def end(self, now: datetime) -> datetime:
        """When a lease ends that is taken or renewed now."""
        return now + self.length

    async def keep(
        self, renew: Callable[[], Awaitable[None]], whose: str, *, sleep: Callable[[float], Awaitable[None]] = anyio.sleep
    ) -> None:
        """Renew all leases that this process holds several times per length, until cancelled; `whose` they are is for the log."""
        while True:
            await sleep(self.renewal.total_seconds())
            try:
                await renew()
            except StorageError as error:
                log.warning("%s' leases not renewed: %s", whose, error)


def is_held(lease_end: datetime | None, now: datetime) -> bool:
    """Whether a process holds the lease, which ends at `lease_end`."""
    return lease_end is not None and now < lease_end
