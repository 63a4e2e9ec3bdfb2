"""Fair shares of what is short: what each holder, such as a network address, may have of it, and whose turn is next.

`Counts` bound what is held. In `Places` those that wait make room for others. A `FairQueue` grants turns in rounds. `TokenBuckets` bound
what is done in a minute. Each is of one process.

A holder that is the /64 of an IPv6 address also takes from the shares of its /48 and its /32, which are a few times as large: who has
one of those could else come from 65,536 networks, or from four billion.
"""

from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from heapq import nsmallest
from ipaddress import IPv6Network
from itertools import chain, islice
from math import ceil, inf
from typing import Any, Generic, TypeVar

import anyio

__all__ = ["TokenBuckets"]

HOLDERS_TRIED = 16  # How many holders are searched for a member that waits, the one with the most members first.
ENDED_SHARE = 64
"""When room is needed, this share of the waiting members without a holder is ended: one of 64, the longest waiting first."""
MINUTE = 60.0
LONGEST_WAIT = timedelta(minutes=5)
"""The longest wait before one asks for a token again; those ahead in the queue may have left by then."""
ROUNDING = 1e-4  # The part of a token that the rounding of a time may take away.
MAX_NAMES = 20_000  # Buckets in memory. The least recently used one beyond that is dropped; at its next use it starts full.

NARROWEST = "/64"  # How the name of a holder ends that is such a network, as addresses.network_of names it.
SENDER = "net:"  # What stands before the network in the name of a sender of alerts.
WIDER_HELD = {48: 2, 32: 3}
"""Of what is held, how many times the share of one holder its /48 and its /32 may have: none of them all that there is."""
WIDER_DONE = {48: 4, 32: 16}  # Of what is done in a minute: a provider's customers may share a /32.

Holder = TypeVar("Holder")
Member = TypeVar("Member")
Name = TypeVar("Name")
Value = TypeVar("Value")


@lru_cache(maxsize=4_096)
def wider_than(name: str) -> Mapping[int, str]:
    """The names of the wider networks of a /64, by the lengths of their prefixes; what stands before the network stays."""
    network = IPv6Network(name.removeprefix(SENDER))
    before = SENDER if name.startswith(SENDER) else ""
    return {bits: f"{before}{network.supernet(new_prefix=bits)}" for bits in WIDER_HELD}


def shares_of(holder: Any) -> Sequence[tuple[Any, int]]:
    """Whose shares a holder takes from, itself first, and how many times as large each is as that of one."""
    if not isinstance(holder, str) or not holder.endswith(NARROWEST):
        return ((holder, 1),)
    return ((holder, 1), *((name, WIDER_HELD[bits]) for bits, name in wider_than(holder).items()))


class LatestEntries(OrderedDict[Name, Value]):
    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, name: Name, value: Value) -> None:
        super().__setitem__(name, value)
        self.move_to_end(name)
        if len(self) > self._most:
            self.popitem(last=False)


@dataclass(slots=True)
class Counts(Generic[Holder]):
    """How much each holder has, and all together. There is room up to `limit` in all and `per_holder` of one."""

    limit: float = inf
    per_holder: float = inf
    total: int = field(default=0, init=False)
    _by_holder: dict[Holder, int] = field(default_factory=dict, init=False)

    def __getitem__(self, holder: Holder) -> int:
        return self._by_holder.get(holder, 0)

    def __iter__(self) -> Iterator[Holder]:
        return iter(self._by_holder)

    def has_room(self, holder: Holder, size: int = 1) -> bool:
        return self.total + size <= self.limit and self.has_share(holder, size)

    def has_share(self, holder: Holder, size: int = 1) -> bool:
        return all(self[each] + size <= self.per_holder * times for each, times in shares_of(holder))

    def add(self, holder: Holder, size: int = 1) -> None:
        self.total += size
        for each, _ in shares_of(holder):
            self._by_holder[each] = self[each] + size

    def remove(self, holder: Holder, size: int = 1) -> None:
        self.total -= size
        for each, _ in shares_of(holder):
            self._by_holder[each] -= size
            if not self._by_holder[each]:
                del self._by_holder[each]

    @contextmanager
    def added(self, holder: Holder) -> Iterator[None]:
        self.add(holder)
        try:
            yield
        finally:
            self.remove(holder)


class Places(Generic[Member]):
    """Members, such as open connections: at most `limit`, and at most `per_holder` of one holder.

    At a limit the member that has waited longest is ended: of the same holder, or of the one with the most. A member without a holder
    counts for `limit` only, and is ended only when no other waits.
    """

    def __init__(self, *, limit: int, per_holder: int, since: Callable[[Member], float], end: Callable[[Member], None]) -> None:
        """`since` tells when a member began to wait, infinite if it does not wait; `end` ends one, which is counted no more."""
        self._limit = limit
        self._per_holder = per_holder
        self._since = since
        self._end = end
        self._holders: dict[Member, str | None] = {}
        self._members: dict[str | None, dict[Member, None]] = {}
        self._by_size: dict[int, dict[str, None]] = {}

    def __len__(self) -> int:
        return len(self._holders)

    def take(self, member: Member, holder: str | None) -> bool:
        """Make room for a member and count it; False if none waits that could make room."""
        for each, times in shares_of(holder) if holder is not None else ():
            if len(self._members.get(each, ())) >= self._per_holder * times and not self._end_longest(each):
                return False
        if len(self) >= self._limit and not (self._end_of_the_largest() or self._end_without_holder()):
            return False
        self._holders[member] = holder
        for each, _ in shares_of(holder):
            self._members.setdefault(each, {})[member] = None
        size = len(self._members[holder])
        self._resized(holder, size - 1, size)
        return True

    def release(self, member: Member) -> None:
        """Stop counting a member; one that is not counted changes nothing."""
        if member not in self._holders:
            return
        holder = self._holders.pop(member)
        size = len(self._members[holder])
        self._resized(holder, size, size - 1)
        for each, _ in shares_of(holder):
            members = self._members[each]
            del members[member]
            if not members:
                del self._members[each]

    def _end_longest(self, holder: str) -> bool:
        """End the member of a holder that has waited longest; False when none waits."""
        longest = min(self._members[holder], key=self._since)
        if self._since(longest) == inf:
            return False
        self._end_now(longest)
        return True

    def _end_of_the_largest(self) -> bool:
        holders = chain.from_iterable(self._by_size[size] for size in sorted(self._by_size, reverse=True))
        return any(map(self._end_longest, islice(holders, HOLDERS_TRIED)))

    def _end_without_holder(self) -> bool:
        """End the longest waiting members without a holder: several, because all of them have to be compared."""
        waiting = [member for member in self._members.get(None, ()) if self._since(member) < inf]
        for member in nsmallest(len(waiting) // ENDED_SHARE + 1, waiting, key=self._since):
            self._end_now(member)
        return bool(waiting)

    def _end_now(self, member: Member) -> None:
        self.release(member)
        self._end(member)

    def _resized(self, holder: str | None, before: int, after: int) -> None:
        """Keep the holders by their number of members. There are few different numbers, however many members there are."""
        if holder is None:
            return
        if before:
            del self._by_size[before][holder]
            if not self._by_size[before]:
                del self._by_size[before]
        if after:
            self._by_size.setdefault(after, {})[holder] = None


class FairQueue:
    """Turns that last: at most `limit` at once, `per_holder` of one holder, and `per_part` of a part of one, such as one of its wallets.

    They are granted in rounds: each waiting holder gets one per round, and the parts of a holder take turns.
    """

    def __init__(self, *, limit: float = inf, per_holder: float = inf, per_part: float = inf) -> None:
        self._of_holder: Counts[str] = Counts(limit, per_holder)
        self._of_part: Counts[tuple[str, str]] = Counts(per_holder=per_part)
        self._waiting: OrderedDict[str, OrderedDict[str, list[anyio.Event]]] = OrderedDict()  # in the order of the next turns

    def __len__(self) -> int:
        return self._of_holder.total + len(self._waiting)

    @asynccontextmanager
    async def turn(self, holder: str, part: str = "", *, seconds: float = inf) -> AsyncIterator[bool]:
        """Wait for a turn, `seconds` at most. The `with` block is told whether it came, and the turn ends with the block."""
        granted = anyio.Event()
        self._waiting.setdefault(holder, OrderedDict()).setdefault(part, []).append(granted)
        self._grant()
        try:
            with anyio.move_on_after(seconds):
                await granted.wait()
            yield granted.is_set()
        finally:
            if granted.is_set():
                self._of_holder.remove(holder)
                self._of_part.remove((holder, part))
                self._grant()
            else:
                self._leave(holder, part, granted)

    def _grant(self) -> None:
        while (first := self._next()) is not None:
            holder, part, granted = first
            self._waiting.move_to_end(holder)
            self._waiting[holder].move_to_end(part)
            self._leave(holder, part, granted)
            self._of_holder.add(holder)
            self._of_part.add((holder, part))
            granted.set()

    def _next(self) -> tuple[str, str, anyio.Event] | None:
        for holder, parts in self._waiting.items():
            if self._of_holder.has_room(holder):
                for part, line in parts.items():
                    if self._of_part.has_room((holder, part)):
                        return holder, part, line[0]
        return None

    def _leave(self, holder: str, part: str, granted: anyio.Event) -> None:
        parts = self._waiting[holder]
        parts[part].remove(granted)
        if not parts[part]:
            del parts[part]
        if not parts:
            del self._waiting[holder]


@dataclass(slots=True)
class _Bucket:
    """The tokens that were left at the second `at`; `tail` is when the last one in the queue may ask again."""

    tokens: float
    at: float
    tail: float
    times: int = 1  # How many times the tokens of one name it has.


class TokenBuckets:
    """Gives each name `per_minute` tokens a minute; after a minute without use all of them at once."""

    def __init__(self, per_minute: float, *, names: int = MAX_NAMES) -> None:
        self.per_minute = per_minute
        """May be set anew at any time."""
        self._buckets: LatestEntries[str, _Bucket] = LatestEntries(names)

    def __len__(self) -> int:
        return len(self._buckets)

    def left(self, name: str, now: datetime) -> float:
        """The tokens that are left."""
        at = now.timestamp()
        return min(self.per_minute if (bucket := self._buckets.get(each)) is None else self._refilled(bucket, at) for each in _named(name))

    def take(self, name: str, now: datetime) -> bool:
        """Take a token; returns False if there is none."""
        return self.spend(name, now.timestamp()) >= 0

    def spend(self, name: str, at: float) -> float:
        """Take a token at this second of any clock. Returns the tokens that are left; if there was none, what is missing, below zero."""
        wider: Sequence[_Bucket] = ()
        least = inf
        if name.endswith(NARROWEST):
            wider = [self._used(wide, at, WIDER_DONE[bits]) for bits, wide in wider_than(name).items()]
            least = min(self._refilled(bucket, at) for bucket in wider) - 1
            if least < -ROUNDING:
                return least
        bucket = self._used(name, at)
        tokens = self._refilled(bucket, at)
        bucket.at = at
        left = tokens - 1
        if -ROUNDING < left < 0:
            left = 0.0
        bucket.tokens = tokens if left < 0 else left
        for wide in wider if left >= 0 else ():
            wide.tokens, wide.at = max(self._refilled(wide, at) - 1, 0.0), at
        return min(left, max(least, 0.0))

    def replace(self, name: str, at: float, tokens: float) -> None:
        """Set the tokens that were left at this second; below zero is a debt."""
        bucket = self._used(name, at)
        bucket.tokens, bucket.at = tokens, at

    def next_at(self, name: str, now: datetime) -> datetime:
        """When the next token comes."""
        missing = 1 - self.left(name, now)
        return now + timedelta(seconds=max(missing, 0.0) * MINUTE / self.per_minute)

    def seconds_left(self, name: str, now: datetime) -> int:
        """Whole seconds until the next token comes, at least one: for Retry-After."""
        return max(ceil((self.next_at(name, now) - now).total_seconds()), 1)

    def queued_at(self, name: str, now: datetime) -> datetime:
        """When to ask again: the place at the end of the queue, which moves by one for each new token."""
        at = now.timestamp()
        bucket = self._used(name, at)
        wait = max((self.next_at(name, now) - now).total_seconds(), bucket.tail - at + MINUTE / self.per_minute)
        wait = min(wait, LONGEST_WAIT.total_seconds())
        bucket.tail = at + wait
        return now + timedelta(seconds=wait)

    def _used(self, name: str, at: float, times: int = 1) -> _Bucket:
        bucket = self._buckets.get(name)
        if bucket is None:
            bucket = self._buckets[name] = _Bucket(self.per_minute * times, at, at - MINUTE, times)
        else:
            self._buckets.move_to_end(name)
        return bucket

    def _refilled(self, bucket: _Bucket, at: float) -> float:
        if at < bucket.at:  # the clock was set back: the tokens are kept, so that nobody waits until it shows the old time again
            bucket.tail -= bucket.at - at
            bucket.at = at
        return min(self.per_minute * bucket.times, bucket.tokens + (at - bucket.at) * self.per_minute * bucket.times / MINUTE)


def _named(name: str) -> Sequence[str]:
    return (name, *wider_than(name).values()) if name.endswith(NARROWEST) else (name,)
