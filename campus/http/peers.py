"""Who is connected, by address: each address has a share, and where there is no room the longest idle connection leaves first."""

from collections.abc import Container
from heapq import nsmallest
from math import inf
from operator import attrgetter
from typing import Protocol

from campus.addresses import site_of

SITES_TRIED = 16
"""How many addresses are searched for an idle connection, the one with the most connections first."""

PART = 64
"""One of so many idle connections of proxies is closed at a time."""


class Peer(Protocol):
    """A connection."""

    client: tuple[str, int] | None

    @property
    def idle_since(self) -> float:
        """When it began to wait for a request; infinite while one is answered."""
        ...

    def dismiss(self) -> None:
        """Close it."""
        ...


class Peers:
    """The connections of one listener: at most `limit`, and at most `share` from one address (the /64 of an IPv6 address).

    A connection from an address in `exempt`, a trusted proxy's, counts for the whole only, and is dismissed only when no
    other is idle: there are many callers behind it, and it may be about to send the request of one.
    """

    def __init__(self, *, limit: int, share: int, exempt: Container[str] = ()) -> None:
        self._limit = limit
        self._share = share
        self._exempt = exempt
        self._site_of: dict[Peer, str | None] = {}
        self._proxied: set[Peer] = set()
        self._by_site: dict[str, set[Peer]] = {}
        self._by_size: dict[int, dict[str, None]] = {}
        self._largest = 0

    def __len__(self) -> int:
        return len(self._site_of)

    def enter(self, newcomer: Peer) -> bool:
        """Make room for a connection and count it; False when every connection that could leave is busy."""
        address = newcomer.client[0] if newcomer.client else ""
        site = None if address in self._exempt else site_of(address)
        if site is not None and len(self._by_site.get(site, ())) >= self._share and not self._dismiss_one(site):
            return False
        if len(self._site_of) >= self._limit and not self._make_room():
            return False
        self._site_of[newcomer] = site
        if site is None:
            self._proxied.add(newcomer)
            return True
        peers = self._by_site.setdefault(site, set())
        peers.add(newcomer)
        self._resized(site, len(peers) - 1, len(peers))
        return True

    def leave(self, peer: Peer) -> None:
        """Count a connection no more; one that is not counted changes nothing."""
        site = self._site_of.pop(peer, None)
        if site is None:
            self._proxied.discard(peer)
            return
        peers = self._by_site[site]
        peers.discard(peer)
        self._resized(site, len(peers) + 1, len(peers))
        if not peers:
            del self._by_site[site]

    def _make_room(self) -> bool:
        return self._dismiss_stranger() or self._dismiss_proxied()

    def _dismiss_stranger(self) -> bool:
        tried = 0
        for size in range(self._largest, 0, -1):
            for site in self._by_size.get(size, ()):
                if self._dismiss_one(site):
                    return True
                tried += 1
                if tried == SITES_TRIED:
                    return False
        return False

    def _dismiss_proxied(self) -> bool:
        """Close the longest idle connections of proxies: several, since all of them have to be looked at."""
        idle = [peer for peer in self._proxied if peer.idle_since < inf]
        for peer in nsmallest(len(idle) // PART + 1, idle, key=attrgetter("idle_since")):
            self.leave(peer)
            peer.dismiss()
        return bool(idle)

    def _dismiss_one(self, site: str) -> bool:
        """Close the longest idle connection of an address; False when all are busy."""
        peer = min(self._by_site[site], key=attrgetter("idle_since"))
        if peer.idle_since == inf:
            return False
        self.leave(peer)
        peer.dismiss()
        return True

    def _resized(self, site: str, before: int, after: int) -> None:
        """Keep the addresses sorted by their number of connections, in constant time: a number changes by one."""
        if before:
            del self._by_size[before][site]
        if after:
            self._by_size.setdefault(after, {})[site] = None
        if after > self._largest or not self._by_size[self._largest]:
            self._largest = after if after > before else self._largest - 1
