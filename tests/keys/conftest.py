"""A key ring on real storage, and a second one as another process has it; the clock is the test's."""

from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime

import pytest

from campus.keys.keyring import KeyRing
from campus.keys.sales import Product, Term
from campus.storage import Storage
from campus.storage.databases import Databases
from campus.storage.tables import CoreTables
from campus.testing import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock(datetime(2026, 8, 21, 12, 0, 0, 123_456, tzinfo=UTC))


@pytest.fixture
def products() -> Mapping[str, Product]:
    sold = (
        ("cve", "cve", "19.00", "30 days"),
        ("recorder", "recorder", "19.00", "30 days"),
        ("campus-pass", "all", "29.00", "30 days"),
        ("campus-pass-year", "all", "149.00", "12 months"),
    )
    return {name: Product(name, scope, price, Term.parse(term)) for name, scope, price, term in sold}


@pytest.fixture
async def storage(storage_url: str) -> AsyncIterator[Storage]:
    async with Databases.open(storage_url) as databases:
        yield await databases.storage_of("campus", CoreTables)


@pytest.fixture
async def other_storage(storage: Storage, storage_url: str) -> AsyncIterator[Storage]:
    async with Databases.open(storage_url) as databases:
        yield await databases.storage_of("campus", CoreTables)


@pytest.fixture
def ring(storage: Storage, products: Mapping[str, Product], clock: Clock) -> KeyRing:
    return KeyRing(storage, products, now=clock, monotonic=lambda: clock().timestamp())


@pytest.fixture
def other_ring(other_storage: Storage, products: Mapping[str, Product], clock: Clock) -> KeyRing:
    return KeyRing(other_storage, products, now=clock, monotonic=lambda: clock().timestamp())
