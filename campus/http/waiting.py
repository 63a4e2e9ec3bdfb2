"""Calls that wait for their callers, to send the rest of a body or to read what was written: how many may, and how many of one address.

A call that waits is one of those that may run at once. Without these limits somebody behind a proxy, whose connections are not
limited, could take all of them by beginning bodies, or by reading nothing.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from operator import attrgetter, methodcaller

import anyio

from campus.addresses import network_of
from campus.shares import Places

PER_ADDRESS = 64


class WaitingCalls:
    """The calls that wait for one thing: at most `limit`, and at most `per_address` of one address (the /64 of an IPv6 address).

    One more takes the place of the one that has waited longest: of its own address, or of the address with the most.
    """

    def __init__(self, *, limit: int, per_address: int = PER_ADDRESS) -> None:
        self._places: Places[anyio.CancelScope] = Places(
            limit=limit, per_holder=per_address, since=attrgetter("deadline"), end=methodcaller("cancel")
        )

    @contextmanager
    def joined(self, address: str, wait: anyio.CancelScope) -> Iterator[None]:
        """Count a wait. Its scope is cancelled when another needs the place, and the scope's deadline tells how long it has waited."""
        self._places.take(wait, network_of(address))
        try:
            yield
        finally:
            self._places.release(wait)
