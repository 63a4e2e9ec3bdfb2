"""When a message may be sent: the waits between retries, the rate limits, and which targets come next. Pure; one `Turns` per process.

Without a key anyone may name any host. So messages to a host are limited per minute, in total and per sender. A host that has
never accepted a message of a sender gets a few first tries, and then one message at a time, by the retry policy.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from campus.alerts.fair_shares import Health, Lane, UnderWay
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
FIRST_TRIES = 5
"""How many first messages of a sender may fail at a host before it gets only one message at a time."""
SENDERS_PER_HOST = 5
"""A host gets at most as many messages a minute as this many senders may send."""
GUARANTEED = 6
"""Messages a minute that each sender may send to a host, however many others send there."""
DOUBT_LASTS = timedelta(minutes=10)
"""For this long after a first message failed, the new targets of its sender come after those of other senders."""
MAX_DOUBTED = 1_000
"""Doubted senders in memory."""


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
    bucket.at, bucket.tail = bucket.at - back, bucket.tail - back


@dataclass(slots=True)
class Unanswered:
    """A host that never accepted a message of a sender: how many first tries failed, and when the next is allowed."""

    failures: int
    until: datetime


class Pace:
    """Limits one sender to `per_minute` messages to one host. Shared hosts serve everyone: only senders are limited."""

    def __init__(self, per_minute: int, *, shared_hosts: frozenset[str] = frozenset()) -> None:
        self._per_minute = per_minute
        self._shared_hosts = shared_hosts
        self._pairs = TokenBuckets(per_minute)
        self._hosts = TokenBuckets(per_minute * SENDERS_PER_HOST)
        self._unanswered: OrderedDict[str, Unanswered] = OrderedDict()
        self._doubted: OrderedDict[str, datetime] = OrderedDict()

    def begin(self, lane: Lane, now: datetime) -> datetime | None:
        """Count a message that is sent now and return None; if it must wait, return when to ask again."""
        if lane.keyed:
            return None
        pair = lane.pair
        if (held := self._held_until(lane, pair, now)) is not None:
            return held
        if (left := self._pairs.left(pair, now)) < 1:
            return self._pairs.queued_at(pair, now)
        used = self._per_minute - left
        if lane.host not in self._shared_hosts and not self._hosts.take(lane.host, now) and used >= GUARANTEED:
            return self._hosts.queued_at(lane.host, now)
        self._pairs.take(pair, now)
        if not lane.answered and (state := self._unanswered.get(pair)) and state.failures >= FIRST_TRIES:
            state.until = now + _wait(state)  # its other messages wait for the outcome of this one
        return None

    def note(self, lane: Lane, now: datetime, *, taken: bool) -> bool:
        """Note the outcome of a message; returns True if the sender's other messages to this host need not wait any longer."""
        if lane.keyed:
            return False
        if taken:
            state = self._unanswered.pop(lane.pair, None)
            return state is not None and state.failures >= FIRST_TRIES
        if not lane.answered:
            self._doubt(lane.sender, now)
            self._note_failure(lane, lane.pair, now)
        return False

    def doubted(self, now: datetime) -> list[str]:
        """Senders with a new target that failed within DOUBT_LASTS."""
        while self._doubted and not now - DOUBT_LASTS < next(iter(self._doubted.values())) <= now:
            self._doubted.popitem(last=False)
        return list(self._doubted)

    def _doubt(self, sender: str, now: datetime) -> None:
        self._doubted[sender] = now
        self._doubted.move_to_end(sender)
        if len(self._doubted) > MAX_DOUBTED:
            self._doubted.popitem(last=False)

    def _held_until(self, lane: Lane, pair: str, now: datetime) -> datetime | None:
        state = self._unanswered.get(pair)
        if lane.answered or state is None or state.failures < FIRST_TRIES:
            return None
        longest = now + _wait(state)  # so that no wait gets longer when the clock is set back
        return min(state.until, longest) if now < state.until else None

    def _note_failure(self, lane: Lane, pair: str, now: datetime) -> None:
        state = self._unanswered.setdefault(pair, Unanswered(0, now))
        if lane.attempts == 0 or state.failures >= FIRST_TRIES:
            state.failures += 1
        state.until = now + _wait(state)
        self._unanswered.move_to_end(pair)
        if len(self._unanswered) > MAX_NAMES:
            self._unanswered.popitem(last=False)


def _wait(state: Unanswered) -> timedelta:
    return RETRIES.wait(state.failures - FIRST_TRIES + 1)


class Turns:
    """Decides which lanes begin, and counts those that are running."""

    def __init__(self, under_way: UnderWay, pace: Pace) -> None:
        self.under_way = under_way
        self._pace = pace

    def choose(self, waiting: Sequence[Lane], health: Health, now: datetime) -> tuple[list[Lane], dict[str, datetime]]:
        """Which of the waiting lanes begin now, counted as begun; and by target id, when those that must wait are next due."""
        later: dict[str, datetime] = {}

        def may_begin(lane: Lane) -> bool:
            if (at := self._pace.begin(lane, now)) is not None:
                later[lane.target_id] = at
            return at is None

        return self.under_way.choose(waiting, health, may_begin=may_begin), later

    def doubted(self, now: datetime) -> list[str]:
        """Senders whose new targets come after those of other senders."""
        return self._pace.doubted(now)

    def is_short(self, health: Health) -> bool:
        """Whether less than half of a share is free, so that other targets may have to wait."""
        return self.under_way.free(health) < self.under_way.shares.of(health) / 2

    def give_back(self, lanes: Iterable[Lane]) -> None:
        """Stop counting lanes that were chosen but got no message."""
        for lane in lanes:
            self.under_way.end(lane)

    def note(self, lane: Lane, now: datetime, *, taken: bool) -> bool:
        """Note the outcome of a message; returns True if the sender's other messages to its host need not wait any longer."""
        return self._pace.note(lane, now, taken=taken)

    def end(self, lane: Lane) -> None:
        """Count a delivery that has ended."""
        self.under_way.end(lane)
