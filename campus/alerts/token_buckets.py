"""How often something may happen: token buckets by name, kept in memory. Pure: the time is an argument."""

from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime, timedelta

MINUTE = timedelta(minutes=1)
LONGEST_WAIT = timedelta(minutes=5)
"""The longest that one of many is made to wait before it is looked at again: those before it may need no token any more."""
NAMES = 20_000
"""Buckets that are kept; beyond it the one that was used least recently is forgotten, which makes it full."""


@dataclass(slots=True)
class _Bucket:
    """What is left as of a moment, and when the last of those who wait for more is to ask again."""

    tokens: float
    at: datetime
    tail: datetime


class TokenBuckets:
    """`per_minute` tokens a minute for each name, and as many at once after a quiet minute."""

    def __init__(self, per_minute: int, *, names: int = NAMES) -> None:
        self._per_minute = per_minute
        self._step = MINUTE / per_minute
        self._names = names
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def __len__(self) -> int:
        """How many names are remembered."""
        return len(self._buckets)

    def left(self, name: str, now: datetime) -> float:
        """How many tokens there are."""
        bucket = self._buckets.get(name)
        if bucket is None:
            return self._per_minute
        _follow_clock_back(bucket, now)
        return self._refilled(bucket, now)

    def take(self, name: str, now: datetime) -> bool:
        """Take a token; False when there is none."""
        bucket = self._bucket(name, now)
        bucket.tokens, bucket.at = self._refilled(bucket, now), now
        if bucket.tokens < 1:
            return False
        bucket.tokens -= 1
        return True

    def next_at(self, name: str, now: datetime) -> datetime:
        """When there is a token again."""
        missing = 1 - self.left(name, now)
        return now + max(missing, 0.0) * self._step

    def queued_at(self, name: str, now: datetime) -> datetime:
        """The same for each of many who wait: one after the other, as the tokens come."""
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
    """A clock that was set back neither adds tokens nor removes any, and nobody waits for the time that it showed before."""
    back = max(bucket.at - now, timedelta(0))
    bucket.at, bucket.tail = bucket.at - back, bucket.tail - back
