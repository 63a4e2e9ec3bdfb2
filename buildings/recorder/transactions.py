"""Plain work on a connection, in one transaction: the same functions serve calls, batches and tests."""

from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection

from campus import Storage

R = TypeVar("R")


async def in_transaction(storage: Storage, work: Callable[[Connection], R]) -> R:
    """What the work gives, once it is on disk; rolled back when it raises. Nobody else writes meanwhile."""
    async with storage.write() as session:
        return await (await session.connection()).run_sync(work)


async def in_snapshot(storage: Storage, work: Callable[[Connection], R]) -> R:
    """What the work reads."""
    async with storage.read() as session:
        return await (await session.connection()).run_sync(work)
