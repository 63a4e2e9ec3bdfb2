"""Rate limits: token buckets by name, in memory. Pure: the time is an argument."""

from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime, timedelta

MINUTE = timedelta(minutes=1)
LONGEST_WAIT = timedelta(minutes=5)
"""The longest wait for a place in the queue: those before it may need no token any more."""
MAX_NAMES = 20_000
"""Buckets in memory; beyond that the least recently used one is dropped, and is full when it is next used."""


@dataclass(slots=True)
class _Bucket:
    """Tokens at a time, and when the last in the queue is to ask again."""

    tokens: float
    at: datetime
    tail: datetime


class TokenBuckets:
    """For each name `per_minute` tokens a minute, and as many at once after a minute without use."""

    def __init__(self, per_minute: int, *, names: int = MAX_NAMES) -> None:
        self._per_minute = per_minute
        self._step = MINUTE / per_minute
        self._names = names
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def __len__(self) -> int:
        """How many buckets are in memory."""
        return len(self._buckets)

    def left(self, name: str, now: datetime) -> float:
        """The tokens that are left."""
        bucket = self._buckets.get(name)
        if bucket is None:
            return self._per_minute
        _follow_clock_back(bucket, now)
        return self._refilled(bucket, now)

    def take(self, name: str, now: datetime) -> bool:
        """Take a token; returns False if there is none."""
        bucket = self._bucket(name, now)
        bucket.tokens, bucket.at = self._refilled(bucket, now), now
        if bucket.tokens < 1:
            return False
        bucket.tokens -= 1
        return True

    def next_at(self, name: str, now: datetime) -> datetime:
        """When the next token comes."""
        missing = 1 - self.left(name, now)
        return now + max(missing, 0.0) * self._step

    def queued_at(self, name: str, now: datetime) -> datetime:
        """When to ask again, at the end of the queue: one after the other, as the tokens come."""
        bucket = self._bucket(name, now)
        bucket.tail = min(max(self.next_at(name, now), bucket.tail + self._step), now + LONGEST_WAIT)
        return bucket.tail

    def _bucket(self, name: str, now: datetime) -> _Bucket:
        bucket = self._buckets.get(name)
        if bucket is None:
            bucket = self._buckets[name] = _Bucket(self._per_minute, now, now - MINUTE)
            if len(self._buckets) > self._names:
                self._buckets.popitem(last=False)
        self._buckets.move_to_end(name)
        _follow_clock_back(bucket, now)
        return bucket

    def _refilled(self, bucket: _Bucket, now: datetime) -> float:
        return min(self._per_minute, bucket.tokens + (now - bucket.at) / self._step)


def _follow_clock_back(bucket: _Bucket, now: datetime) -> None:
    """A clock that was set back adds and removes no tokens, and nobody waits for the time that it showed before."""
    back = max(bucket.at - now, timedelta(0))
    bucket.at, bucket.tail = bucket.at - back, bucket.tail - back
