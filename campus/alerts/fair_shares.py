"""Fair shares of the deliveries that are under way at once. Pure: it counts what begins and ends, and says what may begin next.

A target whose last message was taken promptly is proven; one that was never sent anything is new; one that failed, or took
long, is suspect. Each of these has a share of its own, so that receivers that hang keep nobody waiting but one another.
Within a share whoever has the fewest deliveries under way comes first, and no sender and no host has more than its limit;
but a sender that has nothing under way to a host may begin one there, however many others have.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Literal, NamedTuple

Health = Literal["proven", "new", "suspect"]
HEALTHS: tuple[Health, ...] = ("proven", "new", "suspect")
PARTS: dict[Health, tuple[int, int]] = {"proven": (1, 4), "new": (5, 8), "suspect": (1, 8)}
"""Of all that may be under way. Proven targets need least, for they are quick; new ones most: whether they hang is not known yet."""


class Lane(NamedTuple):
    """A target, as far as its turn depends on it.

    `sender` is on whose behalf it is sent to, a key's lineage or a network; `answered`: it took a message at least once.
    """

    target_id: str
    health: Health
    sender: str
    host: str
    keyed: bool
    answered: bool
    attempts: int

    @property
    def pair(self) -> str:
        """The sender with the host."""
        return f"{self.sender} {self.host}"


@dataclass(frozen=True)
class Shares:
    """How many deliveries may be under way at once: in all, of one sender, and to one host.

    `unproven` are to one host those that are not proven. Shared hosts serve everyone, and only their senders are limited.
    """

    at_once: int = 512
    sender: int = 16
    host: int = 64
    unproven: int = 8
    shared_hosts: frozenset[str] = frozenset()

    def of(self, health: Health) -> int:
        """The share of one kind."""
        part, whole = PARTS[health]
        return max(self.at_once * part // whole, 1)


@dataclass
class UnderWay:
    """What is under way."""

    shares: Shares
    total: int = 0
    by_health: Counter[Health] = field(default_factory=Counter)
    by_sender: Counter[str] = field(default_factory=Counter)
    by_host: Counter[str] = field(default_factory=Counter)
    unproven: Counter[str] = field(default_factory=Counter)
    by_pair: Counter[str] = field(default_factory=Counter)

    def begin(self, lane: Lane) -> None:
        """Count one more."""
        self._count(lane, 1)

    def end(self, lane: Lane) -> None:
        """Count one less."""
        self._count(lane, -1)

    def free(self, health: Health) -> int:
        """How many of a kind may begin."""
        return min(self.shares.at_once - self.total, self.shares.of(health) - self.by_health[health])

    def full_senders(self) -> list[str]:
        """Those who have as many under way as they may."""
        return [sender for sender, count in self.by_sender.items() if count >= self.shares.sender]

    def full_pairs(self, health: Health) -> list[str]:
        """Senders with hosts to which they may begin no more of a kind: see Lane.pair."""
        return [pair for pair in self.by_pair if not self._has_room(pair, pair.partition(" ")[2], health)]

    def choose(self, waiting: Sequence[Lane], health: Health, *, may_begin: Callable[[Lane], bool]) -> list[Lane]:
        """Of lanes of one kind, in the order in which they wait, those whose turn it is, counted as begun."""
        queues: dict[str, deque[tuple[int, Lane]]] = defaultdict(deque)
        for place, lane in enumerate(waiting):
            queues[lane.sender].append((place, lane))
        turns = [(self.by_sender[sender], queue[0][0], sender) for sender, queue in queues.items()]
        heapify(turns)
        chosen: list[Lane] = []
        while turns and self.free(health) > 0:
            under_way, _, sender = heappop(turns)
            if under_way >= self.shares.sender:
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
        if host in self.shares.shared_hosts or not self.by_pair[pair]:
            return True
        if health != "proven" and self.unproven[host] >= self.shares.unproven:
            return False
        return self.by_host[host] < self.shares.host

    def _count(self, lane: Lane, step: int) -> None:
        self.total += step
        self.by_health[lane.health] += step
        counted = [(self.by_sender, lane.sender), (self.by_host, lane.host), (self.by_pair, lane.pair)]
        if lane.health != "proven":
            counted.append((self.unproven, lane.host))
        for counter, name in counted:
            counter[name] += step
            if not counter[name]:
                del counter[name]
