"""How often something may be sent: the waits between the retries of a message, and token buckets. Pure: time and chance are arguments."""

from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime, timedelta

from campus.alerts.message import Outcome
from campus.storage import Backoff

WAITS = tuple(timedelta(seconds=seconds) for seconds in (5, 30, 2 * 60, 10 * 60, 30 * 60, 2 * 3600, 6 * 3600, 12 * 3600, 24 * 3600))
RETRIES = Backoff(WAITS, spread=0.2)
LONGEST_FAILING = timedelta(days=5)
"""A target that fails for so long is disabled."""
LONGEST_HOLD = timedelta(hours=24)
"""The longest pause that a target may ask for."""
MINUTE = timedelta(minutes=1)
LONGEST_WAIT = timedelta(minutes=5)
"""The longest wait before a sender asks again; those ahead in the queue may have left by then."""
MAX_NAMES = 20_000
"""Buckets in memory. Beyond that the least recently used bucket is dropped; at its next use it starts full."""


@dataclass(frozen=True)
class NextStep:
    """What happens to the target: when it is tried again, until when it asked for a pause, or why it is disabled."""

    try_at: datetime | None
    hold_until: datetime | None = None
    disabled_because: str | None = None


def step_after(outcome: Outcome, *, attempts: int, failing_since: datetime | None, now: datetime, chance: float) -> NextStep:
    """The next step after a failed try; `attempts` counts this one too; `chance` in 0..1 spreads the wait."""
    if outcome.result == "gone":
        return NextStep(None, disabled_because=outcome.reason)
    if failing_since is not None and now - failing_since >= LONGEST_FAILING:
        return NextStep(None, disabled_because=f"it failed for {LONGEST_FAILING.days} days: {outcome.reason}")
    wait = RETRIES.wait(attempts, chance=chance)
    if outcome.retry_after is None:
        return NextStep(now + wait)
    # a target may ask for a longer wait, not for a shorter one, which would repeat the same message at once
    hold = now + max(min(outcome.retry_after, LONGEST_HOLD), wait)
    return NextStep(hold, hold_until=hold)


@dataclass(slots=True)
class _Bucket:
    """The tokens that were left at the time `at`; `tail` is when the last one in the queue may ask again."""

    tokens: float
    at: datetime
    tail: datetime


class TokenBuckets:
    """Gives each name `per_minute` tokens a minute; after a minute without use all of them at once."""

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
        bucket.tokens = self._refilled(bucket, now)
        bucket.at = now
        if bucket.tokens < 1:
            return False
        bucket.tokens -= 1
        return True

    def next_at(self, name: str, now: datetime) -> datetime:
        """When the next token comes."""
        missing = 1 - self.left(name, now)
        return now + max(missing, 0.0) * self._step

    def queued_at(self, name: str, now: datetime) -> datetime:
        """When to ask again: the place at the end of the queue, which moves by one for each new token."""
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
    """Keep the tokens when the clock was set back, so that nobody waits until it shows the old time again."""
    back = max(bucket.at - now, timedelta(0))
    bucket.at -= back
    bucket.tail -= back
