"""Which messages are sent next: fair shares of the concurrent deliveries, and the pace to each host. Pure; one `Turns` per process.

Proven, new and suspect targets each have their own share of all deliveries, so that targets that hang delay only others of their
kind. Within a share the sender with the fewest running deliveries comes first. Senders and hosts have limits. But a sender without
a running delivery to a host may begin one there, however many other senders have.

Without a key anyone may name any host. So messages to a host are limited per minute, in total and per sender. A host that has
never accepted a message of a sender gets a few first tries, and then one message at a time, by the retry policy.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from heapq import heapify, heappop, heappush

from campus.features.alerts.message import Health, Lane
from campus.features.alerts.retries import RETRIES
from campus.shares import MAX_NAMES, Counts, LatestEntries, TokenBuckets

PARTS: dict[Health, tuple[int, int]] = {"proven": (1, 4), "new": (5, 8), "suspect": (1, 8)}
"""Shares of all deliveries. Proven targets are quick and need few; new ones may hang, and need most."""
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
MOST_CHOSEN = 64
"""Deliveries to targets of one health that are chosen at one time. Those that run at once may be many more; but loading the alerts of
hundreds takes a tenth of a second, in which no call is answered."""


@dataclass(frozen=True)
class AlertLimits:
    """Limits of messages a minute, `per_target` and `per_host`, there of one sender without a key; and of deliveries that run at once.

    Those are `at_once` in all, `sender` of one sender, and `host` to one host, `unproven` of them to targets that are not proven.
    Shared hosts serve everyone: only senders are limited there.
    """

    per_target: int = 6
    per_host: int = 60
    at_once: int = 512
    sender: int = 16
    host: int = 64
    unproven: int = 8
    shared_hosts: frozenset[str] = frozenset()

    def share_of(self, health: Health) -> int:
        """How many deliveries to targets of one health may run at once."""
        part, whole = PARTS[health]
        return max(self.at_once * part // whole, 1)


class UnderWay:
    def __init__(self, limits: AlertLimits) -> None:
        self.limits = limits
        self.by_health: Counts[str] = Counts()
        self.by_sender: Counts[str] = Counts(per_holder=limits.sender)
        self.by_host: Counts[str] = Counts(per_holder=limits.host)
        self.unproven: Counts[str] = Counts(per_holder=limits.unproven)
        self.by_pair: Counts[str] = Counts()

    def begin(self, lane: Lane) -> None:
        for counts, name in self._counted(lane):
            counts.add(name)

    def end(self, lane: Lane) -> None:
        for counts, name in self._counted(lane):
            counts.remove(name)

    def free(self, health: Health) -> int:
        return min(self.limits.at_once - self.by_health.total, self.limits.share_of(health) - self.by_health[health])

    def full_senders(self) -> list[str]:
        return [sender for sender in self.by_sender if not self.by_sender.has_room(sender)]

    def full_pairs(self, health: Health) -> list[str]:
        """Pairs of sender and host (see Lane.pair) that may begin no more deliveries to targets of this health."""
        return [pair for pair in self.by_pair if not self._has_room(pair, pair.partition(" ")[2], health)]

    def choose(self, waiting: Sequence[Lane], health: Health, *, may_begin: Callable[[Lane], bool], most: int = MOST_CHOSEN) -> list[Lane]:
        """Which of the waiting lanes, the longest waiting first, begin now, `most` of them at most; they are counted as begun."""
        queues: dict[str, deque[tuple[int, Lane]]] = defaultdict(deque)
        for place, lane in enumerate(waiting):
            queues[lane.sender].append((place, lane))
        turns = [(self.by_sender[sender], queue[0][0], sender) for sender, queue in queues.items()]
        heapify(turns)
        chosen: list[Lane] = []
        while turns and self.free(health) > 0 and len(chosen) < most:
            _, _, sender = heappop(turns)
            if not self.by_sender.has_room(sender):
                continue
            queue = queues[sender]
            _, lane = queue.popleft()
            if self._has_room(lane.pair, lane.host, health) and may_begin(lane):
                self.begin(lane)
                chosen.append(lane)
            if queue:
                heappush(turns, (self.by_sender[sender], queue[0][0], sender))
        return chosen

    def _has_room(self, pair: str, host: str, health: Health) -> bool:
        if host in self.limits.shared_hosts or not self.by_pair[pair]:
            return True
        return self.by_host.has_room(host) and (health == "proven" or self.unproven.has_room(host))

    def _counted(self, lane: Lane) -> list[tuple[Counts[str], str]]:
        counted = [(self.by_health, lane.health), (self.by_sender, lane.sender), (self.by_host, lane.host), (self.by_pair, lane.pair)]
        return counted if lane.health == "proven" else [*counted, (self.unproven, lane.host)]


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
        self._unanswered: LatestEntries[str, Unanswered] = LatestEntries(MAX_NAMES)
        self._doubted: LatestEntries[str, datetime] = LatestEntries(MAX_DOUBTED)

    def begin(self, lane: Lane, now: datetime) -> datetime | None:
        """Count a message that is sent now and return None; if it must wait, return when to ask again."""
        if lane.keyed:
            return None
        pair = lane.pair
        if (held := self._held_until(lane, now)) is not None:
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
            self._doubted[lane.sender] = now
            self._note_failure(lane, now)
        return False

    def doubted(self, now: datetime) -> list[str]:
        """Senders with a new target that failed within DOUBT_LASTS."""
        while self._doubted and not now - DOUBT_LASTS < next(iter(self._doubted.values())) <= now:
            self._doubted.popitem(last=False)
        return list(self._doubted)

    def _held_until(self, lane: Lane, now: datetime) -> datetime | None:
        state = self._unanswered.get(lane.pair)
        if lane.answered or state is None or state.failures < FIRST_TRIES:
            return None
        longest = now + _wait(state)  # so that no wait gets longer when the clock is set back
        return min(state.until, longest) if now < state.until else None

    def _note_failure(self, lane: Lane, now: datetime) -> None:
        state = self._unanswered[lane.pair] = self._unanswered.get(lane.pair) or Unanswered(0, now)
        if lane.attempts == 0 or state.failures >= FIRST_TRIES:
            state.failures += 1
        state.until = now + _wait(state)


def _wait(state: Unanswered) -> timedelta:
    return RETRIES.wait(state.failures - FIRST_TRIES + 1)


@dataclass(frozen=True)
class Turns:
    """Decides which lanes begin, and counts those that are running."""

    under_way: UnderWay
    pace: Pace

    def choose(self, waiting: Sequence[Lane], health: Health, now: datetime, *, most: int) -> tuple[list[Lane], dict[str, datetime]]:
        """Which of the waiting lanes begin now, counted as begun; and by target id, when those that must wait are next due."""
        later: dict[str, datetime] = {}

        def may_begin(lane: Lane) -> bool:
            if (at := self.pace.begin(lane, now)) is not None:
                later[lane.target_id] = at
            return at is None

        return self.under_way.choose(waiting, health, may_begin=may_begin, most=most), later

    def is_short(self, health: Health) -> bool:
        """Whether less than half of a share is free, so that other targets may have to wait."""
        return self.under_way.free(health) < self.under_way.limits.share_of(health) / 2

    def give_back(self, lanes: Iterable[Lane]) -> None:
        """Stop counting lanes that were chosen but got no message."""
        for lane in lanes:
            self.under_way.end(lane)
