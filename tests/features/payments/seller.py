"""A seller for tests: a payment processor on real storage, with a real facilitator, a real chain, and a payer with funds."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from time import monotonic
from types import SimpleNamespace
from typing import Any

import httpx
from patience import patience
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from campus.features.chain import Chain, Facilitator, Payer, Wallet
from campus.features.payments import opened as jobs
from campus.features.payments.audit import Findings
from campus.features.payments.feature import PaymentsTable
from campus.features.payments.ledger import CHARGED
from campus.features.payments.payment import PaidAnswer, Payment, Sale
from campus.features.payments.reservations import LEASE
from campus.features.payments.settlement import ChainTimeouts
from campus.features.payments.setup import Payments, Timing, open_payments
from campus.features.payments.tables import LedgerRow, PaymentRow, Tables
from campus.features.payments.ways import OpenWay
from campus.features.payments.wire import PAYMENT_META, payment_in_meta
from campus.installed import place_of
from campus.keys.keyring import KeyRing
from campus.storage import Storage
from campus.storage.databases import Databases
from campus.storage.leases import Lease
from campus.storage.tables import CoreTables
from twins import Problem

PAY_TO = "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC"
PRICE = 20_000
URL = "https://campus.example/v1/cve/brief"
SHORT = ChainTimeouts(proof=0.3, strict=0.5, search=0.3)
"""Of the sellers' calls with the chain, which shows at once what it will show."""
Run = Callable[[str], Any]


class Clock:
    """The time, which a test may set forward."""

    def __init__(self) -> None:
        self.ahead = timedelta()
        self.wrong = timedelta()

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.ahead + self.wrong

    def elapsed(self) -> float:
        return monotonic() + self.ahead.total_seconds()


class Bought:
    """What payments buy: their ids by how they ended, or what `keys` makes of them."""

    def __init__(self) -> None:
        self.keys: KeyRing | None = None
        self.settled: list[str] = []
        self.released: list[str] = []
        self.reversed: list[str] = []

    async def objection(self, session: AsyncSession, payment: str) -> str | None:
        return await self.keys.sales.objection(session, payment) if self.keys else None

    async def deliver(self, session: AsyncSession, payment: str) -> None:
        self.settled.append(payment)
        if self.keys:
            await self.keys.sales.deliver(session, payment)

    async def drop(self, session: AsyncSession, payment: str) -> None:
        self.released.append(payment)
        if self.keys:
            await self.keys.sales.drop(session, payment)

    async def take_back(self, session: AsyncSession, payment: str) -> None:
        self.reversed.append(payment)
        if self.keys:
            await self.keys.sales.take_back(session, payment)


@dataclass
class Seller:
    """One process of a campus that sells; `runs` are the payments for which the tool ran."""

    chain: Chain
    facilitator: Facilitator
    wallet: Wallet
    storage: Storage
    clock: Clock
    payments: Payments
    bought: Bought
    pay_to: str = PAY_TO
    runs: list[str] = field(default_factory=list)

    @property
    def way(self) -> OpenWay:
        """The first of its networks."""
        return next(iter(self.payments.ways.values()))

    def beside(self, storage_url: str, **changes: Any) -> AbstractAsyncContextManager["Seller"]:
        same = {"wallet": self.wallet, "clock": self.clock, "pay_to": self.pay_to}
        return open_seller(self.chain, self.facilitator, storage_url, **{**same, **changes})

    def requirements(self, amount: int = PRICE) -> dict[str, Any]:
        return {
            "scheme": "exact",
            "network": self.chain.network,
            "asset": self.chain.asset,
            "amount": str(amount),
            "payTo": self.pay_to,
            "maxTimeoutSeconds": 300,
            "extra": {"name": "USD Coin", "version": "2"},
        }

    def sale(self, url: str = URL, *, amount: int = PRICE, frame: str = "http", idempotency_key: str | None = None) -> Sale:
        """A call of the tool."""
        return Sale(
            building="cve",
            tool="brief",
            frame=frame,
            resource=url,
            asset=self.chain.asset,
            amount=amount,
            requirements=self.requirements(amount),
            refused=lambda code, reason: Problem(402, code, reason),
            idempotency_key=idempotency_key,
        )

    def sign(self, sale: Sale | None = None, *, by: Wallet | None = None, **changes: Any) -> dict[str, Any]:
        sold = sale or self.sale()
        terms = {"x402Version": 2, "error": "", "resource": {"url": sold.resource}, "accepts": [dict(sold.requirements)]}
        return Payer(by or self.wallet).payload(terms, **changes)

    def pay(self, sale: Sale | None = None, **changes: Any) -> Payment:
        return read(self.sign(sale, **changes))

    async def run(self, payment_id: str) -> bytes:
        """The tool."""
        self.runs.append(payment_id)
        return b'{"answer": %d}' % len(self.runs)

    async def sell(self, payment: Payment, sale: Sale | None = None, run: Run | None = None) -> PaidAnswer:
        return await self.payments.processor.process(payment, sale or self.sale(), run or self.run)

    async def refusal(self, payment: Payment, sale: Sale | None = None, run: Run | None = None) -> Problem:
        try:
            sold = await self.sell(payment, sale, run)
        except Problem as problem:
            return problem
        raise AssertionError(f"sold {sold}")

    async def income(self) -> int:
        return await self.chain.balance(self.pay_to)

    async def claimed(self) -> int:
        return sum(CHARGED.get(row.event, 0) * (row.amount or 0) for row in await self.ledger())

    async def assert_the_ledger_is_the_chains(self) -> None:
        self.clock.ahead += timedelta(seconds=11)
        vars(self.bought).pop("deliver", None)
        await self.payments.resolve()
        found = await self.audit()
        difference = sum(one.amount for one in found.unclaimed) - sum(one.amount for one in found.missing)
        assert await self.claimed() + difference == await self.income()

    async def audit(self) -> Findings:
        return await self.payments.compare(self.clock() - timedelta(days=1))

    async def row(self, payment: Payment) -> PaymentRow:
        """The payment's row."""
        async with self.storage.read() as session:
            return (await session.exec(select(PaymentRow).where(PaymentRow.nonce == payment.nonce))).one()

    async def rows(self) -> list[PaymentRow]:
        async with self.storage.read() as session:
            return list(await session.exec(select(PaymentRow)))

    async def job(self, name: str) -> None:
        await getattr(jobs, name)(SimpleNamespace(state=self.payments, storage=self.storage))

    async def events(self, payment: Payment) -> list[str]:
        return [row.event for row in await self.ledger() if row.payer == payment.payer]

    async def ledger(self) -> list[LedgerRow]:
        await self.payments.ledger.flush()
        async with self.storage.read() as session:
            return list(await session.exec(select(LedgerRow).order_by(col(LedgerRow.id))))


def read(signed: dict[str, Any]) -> Payment:
    payment = payment_in_meta({PAYMENT_META: signed})
    assert payment is not None
    return payment


def settings(chain: Chain, facilitator: Any, *, rpc_url: str | None = None, pay_to: str = PAY_TO, **more: Any) -> PaymentsTable:
    urls = {"facilitators": [facilitator], "rpc_url": rpc_url or chain.rpc_url}
    return PaymentsTable(network=chain.network, pay_to=pay_to, **{**urls, **more})


async def made_storage(databases: Databases) -> Storage:
    storage = await databases.storage_of("campus", CoreTables)
    await databases.storage_of(place_of("payments"), Tables)
    return storage


@asynccontextmanager
async def open_seller(
    chain: Chain,
    facilitator: Facilitator,
    storage_url: str,
    *,
    wallet: Wallet,
    clock: Clock | None = None,
    wait_seconds: float = 15.0,
    lease: Lease = LEASE,
    rpc_url: str | None = None,
    pay_to: str = PAY_TO,
    timeouts: ChainTimeouts = SHORT,
    **more: Any,
) -> AsyncIterator[Seller]:
    now = clock or Clock()
    async with Databases.open(storage_url) as databases:
        storage = await made_storage(databases)
        bought = Bought()
        around = settings(chain, facilitator.url, rpc_url=rpc_url, pay_to=pay_to, **more)
        timing = Timing(lease, wait_seconds, timeouts, httpx.Timeout(30.0, connect=patience(5)))
        async with open_payments(around, storage, bought, now=now, elapsed=now.elapsed, timing=timing) as payments:
            yield Seller(chain, facilitator, wallet, storage, now, payments, bought, pay_to)
