"""The queue before the facilitator, fair per client address: many invalid payments from one address do not delay the others.

A call is counted before anything is read for it, and one too many of its address is refused: it costs the database nothing.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime

from campus.features.payments.states import RETRY_AFTER, in_flight
from campus.shares import Counts, FairQueue, TokenBuckets, shares_of
from twins import Problem

Authorization = tuple[str, str, str]
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


class PaymentQueue:
    """Counts the calls with a payment, and grants turns to check one: in rounds over the client addresses, and over their wallets."""

    def __init__(self, limits: QueueLimits | None = None) -> None:
        self._limits = limits = limits or QueueLimits()
        self._turns = FairQueue(limit=limits.at_once, per_holder=limits.at_once_per_client, per_part=limits.at_once_per_payer)
        self._calls: Counts[Authorization] = Counts()
        self._of_client: Counts[str] = Counts()
        self._copies: Counts[str] = Counts(limits.copies, limits.copies_per_client)
        self._in_check: set[Authorization] = set()

    @contextmanager
    def call(self, client: str, authorization: Authorization) -> Iterator[None]:
        """Count a call with a payment. Problem 429 for one call too many of the address, 409 `payment_in_flight` for one copy too many."""
        is_full = self._of_client.total >= self._limits.calls
        most = self._limits.calls_per_client_then if is_full else self._limits.calls_per_client
        if any(self._of_client[each] >= most * times for each, times in shares_of(client)):
            raise too_many_of_one()
        is_copy = self._calls[authorization] > 0
        if is_copy and not self._copies.has_room(client):
            raise in_flight()
        with self._calls.added(authorization), self._of_client.added(client), self._copies.added(client) if is_copy else nullcontext():
            yield

    def is_in_check(self, authorization: Authorization) -> bool:
        """Whether a call with this payment has its turn, or waits for it."""
        return authorization in self._in_check

    @asynccontextmanager
    async def turn(self, client: str, authorization: Authorization) -> AsyncIterator[None]:
        """Wait for the turn to check a payment that is not in check. Problem 503 if it does not come in time."""
        self._in_check.add(authorization)
        try:
            async with self._turns.turn(client, authorization[0], seconds=self._limits.wait_seconds) as granted:
                if not granted:
                    raise too_many_payments()
                yield
        finally:
            self._in_check.discard(authorization)


class WorthlessPayments:
    """Counts the payments that were refused, or could not be charged, after work was done for them, as long as it takes to forget them."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        limits = QueueLimits()
        self._now = now
        self._of_client = TokenBuckets(limits.worthless_per_client)
        self._of_payer = TokenBuckets(limits.worthless_per_payer)

    def check(self, client: str, payer: str | None = None) -> None:
        """Problem 429 if the address, or the wallet that has signed, has sent too many."""
        now = self._now()
        for buckets, name in ((self._of_client, client), *([(self._of_payer, payer)] if payer else [])):
            if buckets.left(name, now) < 1:
                raise too_many_worthless(buckets.seconds_left(name, now))

    def count(self, client: str, payer: str | None = None) -> None:
        """One more of the address; `payer` is named only if that wallet has signed it, since anybody can name another's."""
        self._of_client.take(client, self._now())
        if payer:
            self._of_payer.take(payer, self._now())


def too_many_worthless(seconds: int) -> Problem:
    return Problem(
        429,
        "too_many_worthless_payments",
        "too many payments from your network address or wallet were refused, or could not be charged, within a minute; this one was not"
        " looked at, and not charged. Find out why: a wrong signature, a wallet without funds, or a used nonce. Then send it again",
        headers={"Retry-After": str(seconds)},
    )


def too_many_of_one() -> Problem:
    return Problem(
        429,
        "too_many_payments",
        "too many payments from your network address are being processed; this call did nothing with its payment. Send fewer at once, and"
        " send the same payment again in a few seconds",
        headers=RETRY_AFTER,
    )


def too_many_payments() -> Problem:
    return Problem(
        503,
        "payments_busy",
        "the payment could not be checked in time, because many others are being checked; nothing was charged. Send the same payment"
        " again in a few seconds",
        headers=RETRY_AFTER,
    )
