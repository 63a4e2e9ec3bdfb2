"""Who may register now: so many a minute of one sender, and of these few at once while their hosts are looked up."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime

import anyio

from buildings.recorder.problems import too_many_registrations
from campus.alerts import TokenBuckets

CHECKED_AT_ONCE = 4
"""Registrations of one sender whose targets are checked at once: one who names hosts that do not answer delays no other sender."""


class Admission:
    """Counts the registrations of this process by sender."""

    def __init__(self, per_minute: int, *, checked_at_once: int = CHECKED_AT_ONCE) -> None:
        self._per_minute = per_minute
        self._buckets = TokenBuckets(per_minute)
        self._checked_at_once = checked_at_once
        self._limiters: dict[str, anyio.CapacityLimiter] = {}
        self._users: Counter[str] = Counter()

    def admit(self, sender: str, now: datetime) -> None:
        """Count a registration; Problem 429 for one too many."""
        if not self._buckets.take(sender, now):
            raise too_many_registrations(self._buckets.next_at(sender, now) - now, limit=self._per_minute)

    @asynccontextmanager
    async def checking(self, sender: str) -> AsyncIterator[None]:
        """Wait for those of the same sender, then look at the target."""
        limiter = self._limiters.setdefault(sender, anyio.CapacityLimiter(self._checked_at_once))
        self._users[sender] += 1
        try:
            async with limiter:
                yield
        finally:
            self._users[sender] -= 1
            if not self._users[sender]:
                del self._users[sender], self._limiters[sender]
