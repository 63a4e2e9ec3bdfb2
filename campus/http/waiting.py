"""Calls that wait for their callers, to send the rest of a body or to read what was written: how many may, and how many of one address.

A call that waits is one of those that may run at once. Without these limits somebody behind a proxy, whose connections are not
limited, could take all of them by beginning bodies, or by reading nothing.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import anyio

from campus.addresses import network_of

PER_ADDRESS = 64


class WaitingCalls:
    """The calls that wait for one thing: at most `limit`, and at most `per_address` of one address (the /64 of an IPv6 address).

    One more takes the place of the one that has waited longest: of its own address, or of the address with the most.
    """

    def __init__(self, *, limit: int, per_address: int = PER_ADDRESS) -> None:
        self._limit = limit
        self._per_address = per_address
        self._by_network: dict[str, dict[anyio.CancelScope, float]] = {}
        self._waiting = 0

    @contextmanager
    def joined(self, address: str, wait: anyio.CancelScope) -> Iterator[None]:
        """Count a wait. Its scope is cancelled when another needs the place, and the scope's deadline tells how long it has waited."""
        network = network_of(address)
        own = self._by_network.setdefault(network, {})
        if len(own) >= self._per_address:
            self._end_longest(network)
        elif self._waiting >= self._limit:
            self._end_longest(max(self._by_network, key=lambda one: len(self._by_network[one])))
        self._by_network.setdefault(network, own)[wait] = wait.deadline
        self._waiting += 1
        try:
            yield
        finally:
            self._remove(network, wait)

    def _end_longest(self, network: str) -> None:
        waits = self._by_network[network]
        longest = min(waits, key=waits.__getitem__)
        self._remove(network, longest)
        longest.cancel()

    def _remove(self, network: str, wait: anyio.CancelScope) -> None:
        waits = self._by_network.get(network, {})
        if waits.pop(wait, None) is not None:
            self._waiting -= 1
        if not waits:
            self._by_network.pop(network, None)
