"""Leases: how long shared work belongs to one process.

A process that takes work stores `lease.end(now)` in the same transaction, and the others leave
the work alone while that lease `is_held`. A process that stops renewing, because it died or hangs, loses the work when the lease ends.
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

import anyio

from campus.errors import StorageError

log = logging.getLogger(__name__)

RENEWALS = 3  # How often a lease is renewed before it would end.


@dataclass(frozen=True, slots=True)
class Lease:
    """How long work belongs to the process that took it, or renewed its lease, last."""

    length: timedelta

    @property
    def renewal(self) -> timedelta:
        return self.length / RENEWALS

    def end(self, now: datetime) -> datetime:
        return now + self.length

    async def keep(self, renew: Callable[[], Awaitable[None]], *, of: str, sleep: Callable[[float], Awaitable[None]] = anyio.sleep) -> None:
        """Renew leases several times per length, until cancelled; `of` names them in the log when they cannot be renewed."""
        while True:
            await sleep(self.renewal.total_seconds())
            try:
                await renew()
            except StorageError as error:
                log.warning("leases of %s not renewed: %s", of, error)


def is_held(lease_end: datetime | None, now: datetime) -> bool:
    return lease_end is not None and now < lease_end
