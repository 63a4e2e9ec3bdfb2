"""Leases: the payments that this process has in work are its own for a few seconds at a time, renewed for as long as it lives."""

import logging
from collections.abc import Callable
from datetime import datetime, timedelta

import anyio
from sqlalchemy import update
from sqlmodel import col

from campus.errors import StorageError
from campus.payments.tables import PaymentRow
from campus.storage import Storage

LEASE = timedelta(seconds=10)
RENEW_SECONDS = 3.0
log = logging.getLogger(__name__)


class Leases:
    """What is in work here. `holder` names this process to others; `length` is how long the others wait for one that is silent.

    A lease keeps others from doing the same work meanwhile. That nothing is charged twice does not depend on it.
    """

    def __init__(self, storage: Storage, *, holder: str, now: Callable[[], datetime], length: timedelta = LEASE) -> None:
        self.holder = holder
        self._storage = storage
        self._now = now
        self._length = length
        self._in_work: set[str] = set()

    def end(self) -> datetime:
        """When a lease that is taken now ends."""
        return self._now() + self._length

    def hold(self, payment_id: str) -> None:
        """Renew the lease of a payment until it is let go."""
        self._in_work.add(payment_id)

    def let_go(self, payment_id: str) -> None:
        """The payment is in work no more."""
        self._in_work.discard(payment_id)

    async def renew(self) -> None:
        """Renew all, once."""
        if not self._in_work:
            return
        mine = col(PaymentRow.id).in_(sorted(self._in_work)) & (col(PaymentRow.holder) == self.holder)
        async with self._storage.write() as session:
            await (await session.connection()).execute(update(PaymentRow).where(mine).values(lease_until=self.end()))

    async def keep(self) -> None:
        """Renew all, every few seconds, until cancelled."""
        while True:
            await anyio.sleep(RENEW_SECONDS)
            try:
                await self.renew()
            except StorageError as error:
                log.warning("payments' leases not renewed: %s", error)
