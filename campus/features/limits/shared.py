"""Limits of all processes together: each tells PostgreSQL what its callers spent, and learns what is left of it.

A call looks at the memory of its process only. A caller that has spent a twentieth of a limit is told of in the next exchange, which is
one statement for all of them. From then on it has here what all processes have left it; what they answered beyond the limit before
they knew of each other is a debt, for which it waits. While the database is away, each process counts for itself.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import anyio
from sqlalchemy import Connection, text

from campus.errors import StorageUnavailable
from campus.shares import MAX_NAMES, MINUTE, LatestEntries, TokenBuckets
from campus.storage import Storage

EXCHANGE_SECONDS = 0.25
RETRY_SECONDS = 2.0
TOLD_SHARE = 20
"""A caller is told of once it has spent one in 20 of its limit in a minute: what 20 processes do not tell is within the limit."""
ROWS = 500  # Callers in one statement; more wait for the next one.
# `missing` are the seconds until all is left again, as of `at`; it never lies in the future, where a database's clock was set back
TELL = """
INSERT INTO limits_spent AS known (name, missing, at)
SELECT name, spent, statement_timestamp() - make_interval(secs => ago)
FROM unnest($1::text[], $2::float8[], $3::float8[]) AS told (name, spent, ago) ORDER BY name
ON CONFLICT (name) DO UPDATE SET
missing = greatest(known.missing - greatest(extract(epoch FROM excluded.at - known.at), 0), 0) + excluded.missing,
at = least(greatest(known.at, excluded.at), statement_timestamp())
RETURNING name, greatest(missing - extract(epoch FROM statement_timestamp() - at), 0)
"""
FORGET = text("DELETE FROM limits_spent WHERE at + make_interval(secs => missing) < statement_timestamp()")
log = logging.getLogger(__name__)


class Spent(NamedTuple):
    """What a caller has spent of a limit, in seconds of the limit's minute, since so many seconds ago."""

    name: str
    seconds: float
    ago: float


Tell = Callable[[Sequence[Spent]], Awaitable[Mapping[str, float]]]
"""Tells what was spent; returns by name the seconds until all is left again."""


class Untold:
    """The calls of a caller since a second of the process's clock of which no other process knows."""

    __slots__ = ("calls", "since")

    def __init__(self, since: float) -> None:
        self.calls = 0
        self.since = since


class SharedBuckets(TokenBuckets):
    def __init__(self, limit: str, per_minute: int) -> None:
        super().__init__(per_minute)
        self._prefix = f"{limit} "
        self._seconds = MINUTE / per_minute
        self._told_from = max(per_minute // TOLD_SHARE, 1)
        self._untold: LatestEntries[str, Untold] = LatestEntries(MAX_NAMES)
        self._due: LatestEntries[str, Untold] = LatestEntries(MAX_NAMES)

    def spend(self, name: str, at: float) -> float:
        left = super().spend(name, at)
        if left >= 0:
            untold = self._untold.get(name)
            if untold is None or at - untold.since >= MINUTE:
                untold = self._untold[name] = Untold(at)
            untold.calls += 1
            if untold.calls == self._told_from:
                self._due[name] = untold
        return left

    async def exchange(self, tell: Tell, at: float) -> None:
        due = [(name, untold, untold.calls) for name, untold in islice(self._due.items(), ROWS)]
        if not due:
            return
        missing = await tell([Spent(self._prefix + name, calls * self._seconds, at - untold.since) for name, untold, calls in due])
        for name, untold, calls in due:
            untold.calls -= calls
            untold.since = at
            self._due.pop(name, None)
            if untold.calls >= self._told_from:
                self._due[name] = untold
            self.replace(name, at, self.per_minute - missing[self._prefix + name] / self._seconds - untold.calls)


class SharedLimits:
    def __init__(self, storage: Storage, *, elapsed: Callable[[], float]) -> None:
        self._storage = storage
        self._elapsed = elapsed
        self._limits: list[SharedBuckets] = []

    def buckets(self, limit: str, per_minute: int) -> TokenBuckets:
        self._limits.append(SharedBuckets(limit, per_minute))
        return self._limits[-1]

    async def run(self) -> None:
        async with self._storage.batch(_tell_all, by_row=_tell_all) as tell:
            while True:
                await anyio.sleep(EXCHANGE_SECONDS)
                try:
                    for limit in self._limits:
                        await limit.exchange(tell, self._elapsed())
                except StorageUnavailable as error:
                    log.log(error.level, "each process counts for itself what callers spend of [limits]: %s", error)
                    await anyio.sleep(RETRY_SECONDS)

    async def forget(self) -> None:
        async with self._storage.write() as session:
            await (await session.connection()).execute(FORGET)


def _tell_all(connection: Connection, groups: Sequence[Sequence[Spent]]) -> Sequence[Mapping[str, float]]:
    return [_tell(connection, spent) for spent in groups]


def _tell(connection: Connection, spent: Sequence[Spent]) -> Mapping[str, float]:
    columns = tuple(map(list, zip(*spent, strict=True)))
    return {name: float(missing) for name, missing in connection.exec_driver_sql(TELL, columns)}
