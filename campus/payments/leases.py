"""Leases: the payments that this process has in work are its own for a few seconds at a time, renewed for as long as it lives."""

import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from itertools import count

import anyio
from sqlalchemy import update
from sqlmodel import col

from campus.errors import StorageError
from campus.payments.tables import PaymentRow
from campus.storage import Storage

LEASE = timedelta(seconds=10)
RENEWALS = 3
"""How often a lease is renewed before it would end."""
log = logging.getLogger(__name__)


class Leases:
    """What is in work here. `process` names this process to others; `length` is how long the others wait for one that is silent.

    A lease keeps others from doing the same work meanwhile. That nothing is charged twice does not depend on it. Each has a holder of its
    own, so that a call that lost its lease to another, of this process even, cannot change or renew the other's.
    """

    def __init__(
        self,
        storage: Storage,
        *,
        process: str,
        now: Callable[[], datetime],
        length: timedelta = LEASE,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        self._process = process
        self._storage = storage
        self._now = now
        self._length = length
        self._sleep = sleep
        self._numbers = count(1)
        self._in_work: dict[str, str] = {}

    def new_holder(self) -> str:
        """Who holds a lease that is taken now."""
        return f"{self._process}#{next(self._numbers)}"

    def end(self) -> datetime:
        """When a lease that is taken now ends."""
        return self._now() + self._length

    def hold(self, row: PaymentRow) -> None:
        """Renew the lease of a payment until it is let go."""
        self._in_work[row.id] = row.holder

    def let_go(self, row: PaymentRow) -> None:
        """The payment is in work no more."""
        if self._in_work.get(row.id) == row.holder:
            del self._in_work[row.id]

    async def renew(self) -> None:
        """Renew all, once."""
        if not self._in_work:
            return
        holders = sorted(self._in_work.values())
        mine = col(PaymentRow.id).in_(sorted(self._in_work)) & col(PaymentRow.holder).in_(holders)
        async with self._storage.write() as session:
            await (await session.connection()).execute(update(PaymentRow).where(mine).values(lease_until=self.end()))

    async def keep(self) -> None:
        """Renew all, several times in the length of a lease, until cancelled."""
        while True:
            await self._sleep(self._length.total_seconds() / RENEWALS)
            try:
                await self.renew()
            except StorageError as error:
                log.warning("payments' leases not renewed: %s", error)
