"""The facilitators of one network, asked in the order of campus.toml: what one cannot do, the next does with the same authorization.

That charges nobody twice, because the chain accepts an authorization once. Nor does it decide anything: what one reports as settled, and
another denies, is for the chain to tell. One that failed is asked last for a while, so that its timeouts do not delay every call.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from typing import Protocol

import anyio
import httpx
from anyio.to_thread import run_sync

from campus.features.payments.feature import FacilitatorTable
from campus.features.payments.payment import Payment, PaymentOutcome, Sale, Verification

MODULE = "campus.features.payments.facilitator"


class Facilitator(Protocol):
    """X402Facilitator, whose module takes a second to load: there each method says what it does."""

    @property
    def name(self) -> str: ...
    @property
    def is_resting(self) -> bool: ...
    @property
    def trouble(self) -> str | None: ...
    def note(self, trouble: str | None) -> None: ...
    async def mismatch(self, payment: Payment, sale: Sale) -> str | None: ...
    async def is_signed(self, payment: Payment, sale: Sale) -> bool | None: ...
    async def verify(self, payment: Payment, sale: Sale) -> Verification: ...
    def signed(self, payment: Payment, sale: Sale) -> bytes: ...
    async def settle(self, signed: bytes) -> PaymentOutcome: ...


class Facilitators:
    """At least one. Each bounds the time of its requests, so that all of them together take no longer than one alone would."""

    def __init__(self, facilitators: Sequence[Facilitator]) -> None:
        self._all = list(facilitators)

    @property
    def count(self) -> int:
        return len(self._all)

    @property
    def troubles(self) -> Sequence[str]:
        return [f"the facilitator at {one.name} is in trouble: {one.trouble}" for one in self._all if one.trouble is not None]

    async def mismatch(self, payment: Payment, sale: Sale) -> str | None:
        return await self._all[0].mismatch(payment, sale)

    async def is_signed(self, payment: Payment, sale: Sale) -> bool | None:
        return await self._all[0].is_signed(payment, sale)

    def signed(self, payment: Payment, sale: Sale) -> bytes:
        return self._all[0].signed(payment, sale)

    async def verify(self, payment: Payment, sale: Sale) -> Verification:
        """Valid if one says so before another says that it never will be; unreachable if nobody answers."""
        refusal = Verification(valid=False, reachable=False)
        for facilitator in self._in_order():
            verdict = await facilitator.verify(payment, sale)
            if verdict.valid or verdict.is_denied:
                return verdict
            if verdict.reachable or not refusal.reachable:
                refusal = verdict
        return refusal

    async def settle(self, signed: bytes, *, turn: int = 0) -> PaymentOutcome:
        """Charge a payment by the first that reports it as settled. `turn` counts earlier tries, each of which begins with another one."""
        reasons: list[PaymentOutcome] = []
        for facilitator in self._in_order(turn):
            outcome = replace(await facilitator.settle(signed), by=facilitator.name)
            if outcome.state == "settled":
                return outcome
            reasons.append(outcome)
        said = "; ".join(f"{one.by}: {one.reason}" for one in reasons) if self.count > 1 else reasons[0].reason
        return PaymentOutcome("unknown", reason=said, is_denied=all(one.is_denied for one in reasons))

    def contradicted(self, reported: PaymentOutcome) -> None:
        """Note that the chain does not show what one of them reported as settled."""
        for one in self._all:
            if one.name == reported.by:
                one.note(f"settle: it reported the transaction {reported.transaction}, in which the chain shows no such payment")

    def _in_order(self, turn: int = 0) -> list[Facilitator]:
        first = turn % self.count
        return sorted([*self._all[first:], *self._all[:first]], key=lambda one: one.is_resting)


class LazyFacilitators:
    """The facilitators of a way behind x402, a library that takes a second to load: the first call of `loaded` does so, in a thread."""

    def __init__(self, clients: Sequence[tuple[FacilitatorTable, httpx.AsyncClient]], network: str) -> None:
        self.clients = clients
        self._network = network
        self._loaded: Facilitators | None = None
        self._loading = anyio.Lock()

    @property
    def troubles(self) -> Sequence[str]:
        return () if self._loaded is None else self._loaded.troubles

    async def loaded(self) -> Facilitators:
        """The facilitators, each with its share of the time of one."""
        if self._loaded is not None:
            return self._loaded
        async with self._loading:
            if self._loaded is None:
                await run_sync(load_x402)
                from campus.features.payments.facilitator import X402Facilitator  # now in memory

                share = len(self.clients)
                made = [
                    X402Facilitator(client, url=one.url, name=one.host, network=self._network, share=share) for one, client in self.clients
                ]
                self._loaded = Facilitators(made)
            return self._loaded


def load_x402() -> None:
    """Load x402. A library of elliptic curves below it raises Python's recursion limit so far that deep JSON would end the process."""
    limit = sys.getrecursionlimit()
    try:
        import_module(MODULE)
    finally:
        sys.setrecursionlimit(limit)
