"""What is noted in memory and stored every few seconds, without a write per call. A crash loses what was noted since the last flush."""

import logging
from collections.abc import Awaitable, Callable
from itertools import islice
from math import inf
from typing import Generic, TypeVar

import anyio

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")

log = logging.getLogger(__name__)


class Buffer(Generic[KeyT, ValueT]):
    """The entries of `waiting`, a dict or a Counter, until `flush` has `store` write them, `at_once` in a transaction.

    What could not be stored waits for the next flush; entries that were noted meanwhile replace those of the same key, or in a Counter
    are added to them. An entry may be stored twice where a flush was cancelled after its commit.
    """

    def __init__(
        self,
        waiting: dict[KeyT, ValueT],
        store: Callable[[dict[KeyT, ValueT]], Awaitable[None]],
        *,
        at_once: int,
        most: float = inf,
        what: str = "",
    ) -> None:
        """Beyond `most` entries that `put` would add are lost: the log says how many, and `what` they are."""
        self.waiting = waiting
        self.storing = anyio.Lock()
        """Who holds it finds each entry either stored or among those that wait."""
        self.lost = 0
        self._store = store
        self._at_once = at_once
        self._most = most
        self._what = what
        self._begun: dict[KeyT, ValueT] = {}

    def put(self, key: KeyT, value: ValueT) -> None:
        if len(self.waiting) + len(self._begun) < self._most:
            self.waiting[key] = value
        else:
            self.lost += 1

    async def flush(self) -> None:
        """Store what was noted; to be called every few seconds and at the end."""
        async with self.storing:
            if self.lost:
                log.error("%s are lost: they could not be stored in time", self._what, extra={"entries": self.lost})
                self.lost = 0
            begun, self.waiting = self.waiting, type(self.waiting)()
            self._begun = begun
            try:
                while begun:
                    some = dict(islice(begun.items(), self._at_once))
                    await self._store(some)
                    for key in some:
                        del begun[key]
            finally:  # after an error or a cancellation: what was not stored
                begun.update(self.waiting)
                self.waiting, self._begun = begun, {}
