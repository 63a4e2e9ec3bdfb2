"""A shop for tests: a till on real storage, a real facilitator and a real chain, and a payer with money."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from campus.config import Config, PaymentsTable
from campus.payments.opening import Payments, open_payments
from campus.payments.payment import Goods, Payment, Sale, Sold
from campus.payments.tables import LedgerRow, PaymentRow
from campus.payments.wire import PAYMENT_META, payment_in_meta
from campus.storage import House, Storage, Vault
from campus.testing import money
from twins import Problem

PAY_TO = "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC"
PRICE = 20_000
URL = "https://campus.example/v1/cve/brief"
TRUST = httpx.create_ssl_context()
"""For all shops: it takes 20 ms to make."""
Run = Callable[[str], Any]


class Clock:
    """The time, which a test may set forward."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.ahead


@dataclass
class Shop:
    """One process of a campus that sells; `runs` are the payments for which the tool ran."""

    chain: money.Chain
    facilitator: money.Facilitator
    wallet: money.Wallet
    storage: Storage
    clock: Clock
    payments: Payments
    runs: list[str] = field(default_factory=list)
    settled: list[str] = field(default_factory=list)
    released: list[str] = field(default_factory=list)

    def requirements(self, amount: int = PRICE) -> dict[str, Any]:
        """What the terms ask for."""
        return {
            "scheme": "exact",
            "network": self.chain.network,
            "asset": self.chain.asset,
            "amount": str(amount),
            "payTo": PAY_TO,
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

    def sign(self, sale: Sale | None = None, *, by: money.Wallet | None = None, **changes: Any) -> dict[str, Any]:
        """A payment for the call, on the wire, signed with the changes."""
        sold = sale or self.sale()
        terms = {"x402Version": 2, "error": "", "resource": {"url": sold.resource}, "accepts": [dict(sold.requirements)]}
        return money.Payer(by or self.wallet).payload(terms, **changes)

    def pay(self, sale: Sale | None = None, **changes: Any) -> Payment:
        """The same as the till gets it."""
        return read(self.sign(sale, **changes))

    async def run(self, payment_id: str) -> Goods:
        """The tool."""
        self.runs.append(payment_id)
        return Goods(b'{"answer": %d}' % len(self.runs))

    async def sell(self, payment: Payment, sale: Sale | None = None, run: Run | None = None) -> Sold:
        """One call."""
        return await self.payments.till.sell(payment, sale or self.sale(), run or self.run)

    async def refusal(self, payment: Payment, sale: Sale | None = None, run: Run | None = None) -> Problem:
        """One call that is refused."""
        try:
            sold = await self.sell(payment, sale, run)
        except Problem as problem:
            return problem
        raise AssertionError(f"sold {sold}")

    async def takings(self) -> int:
        """What was ever paid to the shop."""
        return await self.chain.balance(PAY_TO)

    async def row(self, payment: Payment) -> PaymentRow:
        """The payment's row."""
        async with self.storage.read() as session:
            return (await session.exec(select(PaymentRow).where(PaymentRow.nonce == payment.nonce))).one()

    async def rows(self) -> list[PaymentRow]:
        """Every payment's row."""
        async with self.storage.read() as session:
            return list(await session.exec(select(PaymentRow)))

    async def job(self, name: str) -> None:
        """Run one of the jobs of payments."""
        await next(task for task in self.payments.tasks if task.name == name).run()

    async def events(self, payment: Payment) -> list[str]:
        """What the ledger has of the payer's payments of this shop, in order."""
        return [row.event for row in await self.ledger() if row.payer == payment.payer]

    async def ledger(self) -> list[LedgerRow]:
        """All of the ledger, with what was only counted so far."""
        await self.payments.ledger.flush()
        async with self.storage.read() as session:
            return list(await session.exec(select(LedgerRow).order_by(col(LedgerRow.id))))

    async def on_settled(self, session: AsyncSession, payment_id: str) -> None:
        """What follows from a settlement."""
        self.settled.append(payment_id)

    async def on_released(self, session: AsyncSession, payment_id: str) -> None:
        """What follows from a release."""
        self.released.append(payment_id)


def read(signed: dict[str, Any]) -> Payment:
    """A payment as the frames read it."""
    payment = payment_in_meta({PAYMENT_META: signed})
    assert payment is not None
    return payment


def config(chain: money.Chain, facilitator_url: str, *, rpc_url: str | None = None) -> Config:
    """A campus that takes payments."""
    table = PaymentsTable(network=chain.network, pay_to=PAY_TO, facilitator_url=facilitator_url, rpc_url=rpc_url or chain.rpc_url)
    return Config(payments=table, folder=Path())


@asynccontextmanager
async def open_shop(
    chain: money.Chain,
    facilitator: money.Facilitator,
    storage_url: str,
    *,
    wallet: money.Wallet,
    clock: Clock | None = None,
    patience: float = 15.0,
    rpc_url: str | None = None,
) -> AsyncIterator[Shop]:
    """One process on the database; open two for two."""
    now = clock or Clock()
    async with Vault.open(storage_url) as vault:
        storage = await vault.room("campus", House)
        shops: list[Shop] = []

        async def on_settled(session: AsyncSession, payment_id: str) -> None:
            await shops[0].on_settled(session, payment_id)

        async def on_released(session: AsyncSession, payment_id: str) -> None:
            await shops[0].on_released(session, payment_id)

        around = config(chain, facilitator.url, rpc_url=rpc_url)
        consequences = {"on_settled": on_settled, "on_released": on_released}
        async with open_payments(around, storage, now=now, **consequences, patience=patience, trust=TRUST) as payments:
            shops.append(Shop(chain, facilitator, wallet, storage, now, payments))
            yield shops[0]
