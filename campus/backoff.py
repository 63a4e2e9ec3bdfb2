"""Backoff: how long to wait after each failure in a row, before what failed is tried again."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from math import inf

import anyio


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait after each failure in a row: one of `waits` after the other, then always the last, ± a fraction `spread`."""

    waits: Sequence[timedelta]
    spread: float = 0.0

    @classmethod
    def doubling(cls, first: float, *, longest: float) -> "Backoff":
        """Each wait is twice as long as the one before, from `first` up to `longest` seconds."""
        seconds = [first]
        while seconds[-1] < longest:
            seconds.append(min(2 * seconds[-1], longest))
        return cls([timedelta(seconds=wait) for wait in seconds])

    def wait(self, failures: int, *, chance: float = 0.5) -> timedelta:
        place = min(max(failures, 1), len(self.waits)) - 1
        return self.waits[place] * (1 - self.spread + 2 * self.spread * chance)

    async def sleep(self, failures: int) -> None:
        await anyio.sleep(self.wait(failures).total_seconds())

    @property
    def longest(self) -> timedelta:
        return max(self.waits) * (1 + self.spread)


RECONNECTS = Backoff.doubling(1.0, longest=30.0)  # The waits between attempts to reach another MCP server that does not answer.


class Tries:
    """The tries of a loop that asks again: the first at once, and each other one after the wait of `backoff`, for `seconds` in all."""

    def __init__(self, backoff: Backoff, *, seconds: float = inf) -> None:
        self._backoff = backoff
        self._ends_at = anyio.current_time() + seconds
        self._count = 0

    def __aiter__(self) -> "Tries":
        return self

    async def __anext__(self) -> int:
        if self._count:
            if anyio.current_time() >= self._ends_at:
                raise StopAsyncIteration
            await self._backoff.sleep(self._count)
        self._count += 1
        return self._count
