"""Payments as the rest of campus sees them: what is behind them is loaded only where campus.toml takes payments."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from campus.jobs import Task
from campus.payments.payment import PaidAnswer, Payment, Sale, StoredAnswer


class Seller(Protocol):
    """What takes a payment, runs the tool, and charges: the processor."""

    async def process(self, payment: Payment, sale: Sale, run: Callable[[str], Awaitable[StoredAnswer]]) -> PaidAnswer:
        """One charge and one answer for a payment; Problem 402 or 409 otherwise."""
        ...

    async def recall(self, sale: Sale) -> PaidAnswer | None:
        """What the sale's Idempotency-Key bought before."""
        ...


class OfferCounter(Protocol):
    """What counts the offers: the ledger."""

    def offered(self, building: str, tool: str, frame: str) -> None:
        """One more 402 with terms was shown."""
        ...


class PaymentService(Protocol):
    """Payments that are open."""

    @property
    def processor(self) -> Seller:
        """Where they are taken."""
        ...

    @property
    def ledger(self) -> OfferCounter:
        """Where they are written down."""
        ...

    @property
    def tasks(self) -> Sequence[Task]:
        """Their jobs."""
        ...

    async def warm(self) -> None:
        """Load what would make the first payment slow."""
        ...

    async def findings(self) -> Sequence[str]:
        """What went wrong with those who are asked for payments, and not well since; and which charges are not proven."""
        ...

    async def check(self) -> Sequence[str]:
        """Ask them: what is wrong and what to do."""
        ...
