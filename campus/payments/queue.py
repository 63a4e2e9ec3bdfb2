"""The queue before the facilitator, fair per client address: many invalid payments from one address do not delay the others.

A call is counted before anything is read for it, and one too many of its address is refused: it costs the database nothing.
"""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from math import ceil
from typing import TypeVar

import anyio

from campus.alerts import TokenBuckets
from campus.payments.states import RETRY_AFTER, in_flight
from twins import Problem

T = TypeVar("T")
Authorization = tuple[str, str]
"""A payment's payer and nonce."""


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """How many payments may be checked at once, in all, per client address and per wallet at an address; and how many calls there may be.

    `calls_per_client` are the calls with a payment that one address may have at once, whatever they wait for. When all addresses have
    `calls`, one may have `calls_per_client_then` at most: those with few are still served, and calls without a payment have room.
    `copies` are calls that bring a payment while another call with it is answered: they wait for that one, and look again and again.

    `worthless_per_client` and `worthless_per_payer` are the payments a minute that may turn out to be worthless, of an address and of a
    wallet that has signed them itself. The next ones are refused before anybody is asked about them.

    The limits per address leave places for others: four addresses that hang in a slow facilitator fill it, three do not. A wallet is
    counted per address, because everybody can name another's wallet as the payer of a worthless payment.
    """

    at_once: int = 64
    at_once_per_client: int = 16
    at_once_per_payer: int = 8
    calls: int = 384
    calls_per_client: int = 128
    calls_per_client_then: int = 8
    copies: int = 128
    copies_per_client: int = 16
    wait_seconds: float = 10.0
    worthless_per_client: int = 30
    worthless_per_payer: int = 10


@dataclass(slots=True, eq=False)
class _Place:
    client: str
    payer: str
    decided: anyio.Event = field(default_factory=anyio.Event)
    admitted: bool = False


class FairQueue:
    """Grants turns in rounds: each waiting client address gets one per round, and the wallets at an address take turns."""

    def __init__(self, limits: QueueLimits | None = None) -> None:
        self._limits = limits or QueueLimits()
        self._at_once = 0
        self._of_client: Counter[str] = Counter()
        self._of_payer: Counter[tuple[str, str]] = Counter()
        self._waiting: dict[str, dict[str, list[_Place]]] = {}  # in the order of the next turns
        self._calls: Counter[Authorization] = Counter()
        self._calls_of_client: Counter[str] = Counter()
        self._copies: Counter[str] = Counter()
        self._in_check: set[Authorization] = set()

    @contextmanager
    def call(self, client: str, authorization: Authorization) -> Iterator[None]:
        """Count a call with a payment. Problem 429 for one call too many of the address, 409 `payment_in_flight` for one copy too many."""
        is_full = self._calls_of_client.total() >= self._limits.calls
        if self._calls_of_client[client] >= (self._limits.calls_per_client_then if is_full else self._limits.calls_per_client):
            raise too_many_of_one()
        is_copy = authorization in self._calls
        if is_copy:
            if self._copies[client] >= self._limits.copies_per_client or self._copies.total() >= self._limits.copies:
                raise in_flight()
            self._copies[client] += 1
        self._calls[authorization] += 1
        self._calls_of_client[client] += 1
        try:
            yield
        finally:
            _count_down(self._calls, authorization)
            _count_down(self._calls_of_client, client)
            if is_copy:
                _count_down(self._copies, client)

    def is_in_check(self, authorization: Authorization) -> bool:
        """Whether a call with this payment has its turn, or waits for it."""
        return authorization in self._in_check

    @asynccontextmanager
    async def turn(self, client: str, authorization: Authorization) -> AsyncIterator[None]:
        """Wait for the turn to check a payment that is not in check. Problem 503 if it does not come in time."""
        place = _Place(client, authorization[0])
        self._waiting.setdefault(client, {}).setdefault(place.payer, []).append(place)
        self._in_check.add(authorization)
        self._admit()
        try:
            with anyio.move_on_after(self._limits.wait_seconds):
                await place.decided.wait()
            if not place.admitted:
                raise too_many_payments()
            yield
        finally:
            self._in_check.discard(authorization)
            self._leave(place)

    def _admit(self) -> None:
        while self._at_once < self._limits.at_once and (place := self._next()) is not None:
            self._remove(place)
            self._to_the_end(place)
            self._at_once += 1
            self._of_client[place.client] += 1
            self._of_payer[place.client, place.payer] += 1
            place.admitted = True
            place.decided.set()

    def _next(self) -> _Place | None:
        for client, payers in self._waiting.items():
            if self._of_client[client] < self._limits.at_once_per_client:
                for payer, places in payers.items():
                    if self._of_payer[client, payer] < self._limits.at_once_per_payer:
                        return places[0]
        return None

    def _to_the_end(self, place: _Place) -> None:
        """Move the address, and the wallet among its wallets, to the end: they have had their turn in this round."""
        if (payers := self._waiting.pop(place.client, None)) is not None:
            self._waiting[place.client] = payers
            if (places := payers.pop(place.payer, None)) is not None:
                payers[place.payer] = places

    def _leave(self, place: _Place) -> None:
        if not place.admitted:
            self._remove(place)
            return
        self._at_once -= 1
        _count_down(self._of_client, place.client)
        _count_down(self._of_payer, (place.client, place.payer))
        self._admit()

    def _remove(self, place: _Place) -> None:
        payers = self._waiting.get(place.client, {})
        places = payers.get(place.payer, [])
        if place not in places:
            return
        places.remove(place)
        if not places:
            del payers[place.payer]
        if not payers:
            del self._waiting[place.client]


class WorthlessPayments:
    """Counts the payments that were refused after work was done for them, as long as it takes to forget them."""

    def __init__(self, now: Callable[[], datetime], limits: QueueLimits | None = None) -> None:
        limits = limits or QueueLimits()
        self._now = now
        self._of_client = TokenBuckets(limits.worthless_per_client)
        self._of_payer = TokenBuckets(limits.worthless_per_payer)

    def check(self, client: str, payer: str | None = None) -> None:
        """Problem 429 if the address, or the wallet that has signed, has sent too many."""
        now = self._now()
        for buckets, name in ((self._of_client, client), *([(self._of_payer, payer)] if payer else [])):
            if buckets.left(name, now) < 1:
                raise too_many_worthless(ceil((buckets.next_at(name, now) - now).total_seconds()))

    def count(self, client: str, payer: str | None = None) -> None:
        """One more of the address; `payer` is named only if that wallet has signed it, since anybody can name another's."""
        self._of_client.take(client, self._now())
        if payer:
            self._of_payer.take(payer, self._now())


def too_many_worthless(seconds: int) -> Problem:
    """429: too many payments of this address or wallet were worthless."""
    return Problem(
        429,
        "too_many_worthless_payments",
        "too many payments from your network address or wallet were refused within a minute; this one was not looked at, and not charged."
        " Find out why they are refused: a wrong signature, a wallet without funds, or a used nonce. Then send it again",
        headers={"Retry-After": str(max(1, seconds))},
    )


def too_many_of_one() -> Problem:
    """429: too many calls with a payment from one client address are being answered."""
    return Problem(
        429,
        "too_many_payments",
        "too many payments from your network address are being processed; this call did nothing with its payment. Send fewer at once, and"
        " send the same payment again in a few seconds",
        headers=RETRY_AFTER,
    )


def too_many_payments() -> Problem:
    """503: the payment could not be checked in time."""
    return Problem(
        503,
        "payments_busy",
        "the payment could not be checked in time, because many others are being checked; nothing was charged. Send the same payment"
        " again in a few seconds",
        headers=RETRY_AFTER,
    )


def _count_down(counts: Counter[T], key: T) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
