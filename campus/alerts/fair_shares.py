"""Fair shares of the concurrent deliveries. Pure: counts deliveries that begin and end, and decides which begin next.

A target is proven if it accepted its last message promptly, new if it was never sent one, and suspect if its last delivery failed
or was slow. Proven, new and suspect targets each have their own share of all deliveries, so that targets that hang delay only others
of their kind. Within a share the sender with the fewest running deliveries comes first. Senders and hosts have limits. But a
sender without a running delivery to a host may begin one there, however many other senders have.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Literal, NamedTuple

Health = Literal["proven", "new", "suspect"]
HEALTHS: tuple[Health, ...] = ("proven", "new", "suspect")
PARTS: dict[Health, tuple[int, int]] = {"proven": (1, 4), "new": (5, 8), "suspect": (1, 8)}
"""Shares of all deliveries. Proven targets are quick and need few; new ones may hang, and need most."""


class Lane(NamedTuple):
    """What decides when a target gets its next message.

    `sender` registered the target: a key's lineage or a network. `keyed` is True with a key, `answered` if the target accepted
    at least one message; `attempts` counts the tries of its current message.
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
        """Sender and host, under which limits count."""
        return f"{self.sender} {self.host}"


@dataclass(frozen=True)
class Shares:
    """How many deliveries may run at once: in all, of one sender, and to one host.

    `unproven` limits deliveries to targets of one host that are not proven. Shared hosts serve everyone: only senders are limited.
    """

    at_once: int = 512
    sender: int = 16
    host: int = 64
    unproven: int = 8
    shared_hosts: frozenset[str] = frozenset()

    def of(self, health: Health) -> int:
        """The share of targets of one health."""
        part, whole = PARTS[health]
        return max(self.at_once * part // whole, 1)


@dataclass
class UnderWay:
    """The deliveries that run now."""

    shares: Shares
    total: int = 0
    by_health: Counter[Health] = field(default_factory=Counter)
    by_sender: Counter[str] = field(default_factory=Counter)
    by_host: Counter[str] = field(default_factory=Counter)
    unproven: Counter[str] = field(default_factory=Counter)
    by_pair: Counter[str] = field(default_factory=Counter)

    def begin(self, lane: Lane) -> None:
        """Count a delivery that begins."""
        self._count(lane, 1)

    def end(self, lane: Lane) -> None:
        """Count a delivery that has ended."""
        self._count(lane, -1)

    def free(self, health: Health) -> int:
        """How many deliveries to targets of this health may begin."""
        return min(self.shares.at_once - self.total, self.shares.of(health) - self.by_health[health])

    def full_senders(self) -> list[str]:
        """Senders at their limit."""
        return [sender for sender, count in self.by_sender.items() if count >= self.shares.sender]

    def full_pairs(self, health: Health) -> list[str]:
        """Pairs of sender and host (see Lane.pair) that may begin no more deliveries to targets of this health."""
        return [pair for pair in self.by_pair if not self._has_room(pair, pair.partition(" ")[2], health)]

    def choose(self, waiting: Sequence[Lane], health: Health, *, may_begin: Callable[[Lane], bool]) -> list[Lane]:
        """Which of the waiting lanes, the longest waiting first, begin now; they are counted as begun."""
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
