"""A key ring on real storage, with a clock that the test sets."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta

import pytest
from sqlmodel.ext.asyncio.session import AsyncSession

from campus.keys.keyring import KeyRing
from campus.keys.product import Product
from campus.keys.term import Term
from campus.storage import Storage

PRODUCTS = {
    name: Product(name, scope, price, Term.parse(term))
    for name, scope, price, term in (
        ("cve", "cve", "19.00", "30 days"),
        ("recorder", "recorder", "19.00", "30 days"),
        ("campus-pass", "all", "29.00", "30 days"),
        ("campus-pass-year", "all", "149.00", "12 months"),
    )
}


class Clock:
    """The time of day and the monotonic time, moved by hand together."""

    def __init__(self) -> None:
        self.time = datetime(2026, 8, 21, 12, 0, 0, 123_456, tzinfo=UTC)
        self.seconds = 1000.0

    def now(self) -> datetime:
        return self.time

    def monotonic(self) -> float:
        return self.seconds

    def move(self, by: timedelta) -> None:
        self.time += by
        self.seconds += by.total_seconds()

    def set(self, time: datetime) -> None:
        self.move(time - self.time)


class CountedStorage:
    """The same storage, counting how often it is read, and refusing to write while `full`."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.reads = 0
        self.full: Exception | None = None

    def read(self) -> AbstractAsyncContextManager[AsyncSession]:
        self.reads += 1
        return self._storage.read()

    def write(self) -> AbstractAsyncContextManager[AsyncSession]:
        if self.full is not None:
            raise self.full
        return self._storage.write()
