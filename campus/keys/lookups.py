"""Values looked up by digest: callers that wait share the next statement, and what it found is kept for five seconds."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Generic, TypeVar

import anyio

from campus.shares import LatestEntries

V = TypeVar("V")

CACHE_SECONDS = 5.0
CACHE_SIZE = 10_000
READINGS = 2
"""Statements that look digests up at once; one that is asked for meanwhile waits for the next, which looks up all that wait."""


class Reading(Generic[V]):
    """Digests that one statement looks up, and what it found; None while it has not, or if the call that ran it was cancelled."""

    def __init__(self) -> None:
        self.digests: set[bytes] = set()
        self.is_led = False
        self.done = anyio.Event()
        self.found: Mapping[bytes, V] | None = None
        self.error: Exception | None = None


class Lookups(Generic[V]):
    """Finds values by digest with `read`, which returns one for each digest that it is given.

    A value is kept for 5 seconds from the question, so that a change by another process shows within that time; at most `size`
    values are kept, and the least recently used is dropped first.
    """

    def __init__(
        self,
        read: Callable[[Collection[bytes]], Awaitable[Mapping[bytes, V]]],
        *,
        monotonic: Callable[[], float],
        size: int = CACHE_SIZE,
    ) -> None:
        self._read = read
        self._monotonic = monotonic
        self._known: LatestEntries[bytes, tuple[float, V]] = LatestEntries(size)
        self._next_reading: Reading[V] = Reading()
        self._readings = anyio.Semaphore(READINGS)

    def known(self, digest: bytes) -> V | None:
        """The value if it was read within the last 5 seconds."""
        entry = self._known.get(digest)
        if entry is None or entry[0] <= self._monotonic():
            return None
        self._known.move_to_end(digest)
        return entry[1]

    def forget(self, digest: bytes) -> None:
        self._known.pop(digest, None)

    def clear(self) -> None:
        self._known.clear()

    async def find(self, digest: bytes) -> V:
        while True:
            reading = self._next_reading
            reading.digests.add(digest)
            if reading.is_led:
                await reading.done.wait()
            else:
                reading.is_led = True
                await self._lead(reading)
            if reading.error is not None:
                raise reading.error.with_traceback(None)
            if reading.found is not None:
                return reading.found[digest]

    async def _lead(self, reading: Reading[V]) -> None:
        """Wait for a turn, while others join the reading, then look up all of its digests."""
        try:
            async with self._readings:
                self._next_reading = Reading()
                read_at = self._monotonic()
                reading.found = await self._read(reading.digests)
                for digest, value in reading.found.items():
                    self._known[digest] = read_at + CACHE_SECONDS, value
        except Exception as error:
            reading.error = error
        finally:
            if self._next_reading is reading:
                self._next_reading = Reading()
            reading.done.set()
