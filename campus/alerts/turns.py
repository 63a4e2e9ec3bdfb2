"""Whose turn it is: shares of what is under way, and how often a host is sent to for callers without a key. Pure; one per process.

Anyone may name any host, so what is sent there without a key is limited: per sender and host, per host, and, while the host
has taken nothing from this sender, to a few first tries; from then on one of them at a time asks it, on the retry schedule.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from campus.alerts.fair_shares import Health, Lane, UnderWay
from campus.alerts.retry_policy import RETRIES
from campus.alerts.token_buckets import NAMES, TokenBuckets

FIRST_TRIES = 5
"""Messages that a host may leave untaken before it is asked by one at a time."""
SENDERS_WORTH = 5
"""A host takes in a minute as much as so many senders may send it."""
ALWAYS = 6
"""So many a minute of each sender go out, however much others send to the host."""
DOUBTED_FOR = timedelta(minutes=10)
"""As long as a sender's first messages to other targets come after those of senders whose first messages were taken."""
DOUBTED = 1_000
"""Senders remembered for it."""


@dataclass(slots=True)
class Unanswered:
    """A host that has taken nothing from a sender: how many first tries failed, and before when it is left alone."""

    failures: int
    until: datetime


class Pace:
    """`per_minute` messages of one sender to one host; `shared_hosts` serve everyone, and have no limit as a whole."""

    def __init__(self, per_minute: int, *, shared_hosts: frozenset[str] = frozenset()) -> None:
        self._per_minute = per_minute
        self._shared_hosts = shared_hosts
        self._pairs = TokenBuckets(per_minute)
        self._hosts = TokenBuckets(per_minute * SENDERS_WORTH)
        self._unanswered: OrderedDict[str, Unanswered] = OrderedDict()
        self._doubted: OrderedDict[str, datetime] = OrderedDict()

    def begin(self, lane: Lane, now: datetime) -> datetime | None:
        """Count a message that is sent now; when it must wait, nothing is counted, and this is the moment to ask again."""
        if lane.keyed:
            return None
        pair = lane.pair
        if (held := self._held_until(lane, pair, now)) is not None:
            return held
        if (left := self._pairs.left(pair, now)) < 1:
            return self._pairs.queued_at(pair, now)
        used = self._per_minute - left
        if lane.host not in self._shared_hosts and not self._hosts.take(lane.host, now) and used >= ALWAYS:
            return self._hosts.queued_at(lane.host, now)
        self._pairs.take(pair, now)
        if not lane.answered and (state := self._unanswered.get(pair)) and state.failures >= FIRST_TRIES:
            state.until = now + _wait(state)  # the others wait for what becomes of this one
        return None

    def note(self, lane: Lane, now: datetime, *, taken: bool) -> bool:
        """Whether a message was taken. True when with this one the host is open again to its sender, whose others need not wait."""
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
        """Senders with a target that took nothing yet and failed within the last minutes."""
        while self._doubted and not now - DOUBTED_FOR < next(iter(self._doubted.values())) <= now:
            self._doubted.popitem(last=False)
        return list(self._doubted)

    def _doubt(self, sender: str, now: datetime) -> None:
        self._doubted[sender] = now
        self._doubted.move_to_end(sender)
        if len(self._doubted) > DOUBTED:
            self._doubted.popitem(last=False)

    def _held_until(self, lane: Lane, pair: str, now: datetime) -> datetime | None:
        state = self._unanswered.get(pair)
        if lane.answered or state is None or state.failures < FIRST_TRIES:
            return None
        longest = now + _wait(state)  # after a clock that went back
        return min(state.until, longest) if now < state.until else None

    def _note_failure(self, lane: Lane, pair: str, now: datetime) -> None:
        state = self._unanswered.setdefault(pair, Unanswered(0, now))
        if lane.attempts == 0 or state.failures >= FIRST_TRIES:
            state.failures += 1
        state.until = now + _wait(state)
        self._unanswered.move_to_end(pair)
        if len(self._unanswered) > NAMES:
            self._unanswered.popitem(last=False)


def _wait(state: Unanswered) -> timedelta:
    return RETRIES.wait(state.failures - FIRST_TRIES + 1)


class Turns:
    """Says which lanes begin, and is told when they end."""

    def __init__(self, under_way: UnderWay, pace: Pace) -> None:
        self.under_way = under_way
        self._pace = pace

    def choose(self, waiting: Sequence[Lane], health: Health, now: datetime) -> tuple[list[Lane], dict[str, datetime]]:
        """Of lanes of one kind those that begin now, counted as begun; and by id when the others are to be looked at that must wait."""
        later: dict[str, datetime] = {}

        def may_begin(lane: Lane) -> bool:
            if (at := self._pace.begin(lane, now)) is not None:
                later[lane.target_id] = at
            return at is None

        return self.under_way.choose(waiting, health, may_begin=may_begin), later

    def doubted(self, now: datetime) -> list[str]:
        """Senders whose new targets come after those of others."""
        return self._pace.doubted(now)

    def is_short(self, health: Health) -> bool:
        """Whether less than half of a kind's room is left, so that others may have to wait."""
        return self.under_way.free(health) < self.under_way.shares.of(health) / 2

    def give_back(self, lanes: Iterable[Lane]) -> None:
        """Nothing was sent to these after all."""
        for lane in lanes:
            self.under_way.end(lane)

    def note(self, lane: Lane, now: datetime, *, taken: bool) -> bool:
        """Whether a message was taken; True when its host is open again to its sender, whose other lanes need not wait."""
        return self._pace.note(lane, now, taken=taken)

    def end(self, lane: Lane) -> None:
        """A delivery is over."""
        self.under_way.end(lane)
