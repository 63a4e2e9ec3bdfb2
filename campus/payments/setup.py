"""Payments, opened: the processor, the ledger and the reconciler on one database, one facilitator and one chain."""

import logging
import ssl
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from importlib import import_module
from time import monotonic
from types import ModuleType
from typing import Any

import anyio
import httpx
from anyio.to_thread import run_sync

from campus.config import Config, PaymentsTable
from campus.core import Core
from campus.errors import CampusError, StorageError
from campus.jobs import Task
from campus.jobs.scheduler import process_name
from campus.payments.audit import Audit, Findings, Wallet
from campus.payments.chain import Chain
from campus.payments.clock_steps import ClockSteps
from campus.payments.leases import LEASE, Leases
from campus.payments.ledger import Ledger
from campus.payments.outcome import Facilitator, Outcome, Verdict, one_line
from campus.payments.payment import Payment, Sale
from campus.payments.processor import PATIENCE_SECONDS, PaymentProcessor
from campus.payments.reconciler import Reconciler
from campus.payments.reservations import Consequence, Reservations, forget
from campus.payments.settlement import PATIENCE, Patience, Settlement
from campus.payments.stored_answers import wipe
from campus.payments.unproven import UnprovenPayments
from campus.storage import Storage

TOKEN = "CAMPUS_PAYMENTS_FACILITATOR_TOKEN"  # noqa: S105  # the variable's name, not a token
ENGINE = "campus.payments.x402_facilitator"
RECONCILE_SECONDS = 15
AUDITED_AT = "03:20"
AUDITED_BACK = timedelta(days=3)
"""How far back the daily audit goes: a node that was down for a weekend leaves no gap."""
CHECKED_BACK = timedelta(days=1)
LOOKED_INTO = 100
"""How many unclaimed transfers are looked into, at two questions to the node each."""
TIMEOUT = httpx.Timeout(30.0, connect=5.0)
log = logging.getLogger(__name__)


class LazyFacilitator:
    """The facilitator behind x402, which is loaded in a thread: by `warm`, or at the first use."""

    def __init__(self, client: httpx.AsyncClient, *, url: str, network: str, token: str | None) -> None:
        self._options: dict[str, Any] = {"url": url, "network": network, "token": token}
        self._client = client
        self._engine: Any = None
        self._loading = anyio.Lock()

    @property
    def trouble(self) -> str | None:
        """What it last failed in, if it did not succeed since."""
        return None if self._engine is None else self._engine.trouble

    async def warm(self) -> Facilitator:
        """Load x402, once."""
        async with self._loading:
            if self._engine is None:
                module = await run_sync(load_engine)
                self._engine = module.X402Facilitator(self._client, **self._options)
        engine: Facilitator = self._engine
        return engine

    async def mismatch(self, payment: Payment, sale: Sale) -> str | None:
        """See Facilitator."""
        return await (await self.warm()).mismatch(payment, sale)

    async def verify(self, payment: Payment, sale: Sale) -> Verdict:
        """See Facilitator."""
        return await (await self.warm()).verify(payment, sale)

    async def settle(self, payment: Payment, sale: Sale) -> Outcome:
        """See Facilitator."""
        return await (await self.warm()).settle(payment, sale)


def load_engine() -> ModuleType:
    """Load x402. Below it a library of elliptic curves lets Python nest 100,000 calls deep, which ends the process, not the call."""
    limit = sys.getrecursionlimit()
    try:
        return import_module(ENGINE)
    finally:
        sys.setrecursionlimit(limit)


@dataclass(frozen=True)
class Payments:
    """What a campus that takes payments has beside its keys."""

    processor: PaymentProcessor
    ledger: Ledger
    reconciler: Reconciler
    unproven: UnprovenPayments
    audit: Audit
    now: Callable[[], datetime]
    tasks: Sequence[Task]
    facilitator: LazyFacilitator
    chain: Chain
    client: httpx.AsyncClient
    table: PaymentsTable

    async def warm(self) -> None:
        """Load x402 now, in a thread, so that the first paid call need not wait for it."""
        await self.facilitator.warm()

    async def findings(self) -> list[str]:
        """What went wrong with the facilitator or the chain, and not well since; what is not proven, and what the last audit found."""
        troubles = {"facilitator": self.facilitator.trouble, "chain": self.chain.trouble}
        found = [f"the {name} is in trouble: {trouble}" for name, trouble in troubles.items() if trouble is not None]
        return [*found, *await self._overdue(), *self.audit.last.sentences]

    async def check(self) -> list[str]:
        """Ask the facilitator and the node whether they serve the network, and compare a day of income with the ledger's claims."""
        chain = await self._check_chain()
        found = [*await self._check_facilitator(), *chain, *await self._overdue()]
        return found if chain else [*found, *await self._compare()]

    async def _compare(self) -> list[str]:
        try:
            return (await self.audit.run(self.now() - CHECKED_BACK, most=LOOKED_INTO)).sentences
        except CampusError as error:
            return [f"the wallet's income could not be compared with the ledger: {error}"]

    async def _overdue(self) -> list[str]:
        try:
            rows = await self.unproven.overdue()
        except StorageError as error:
            return [f"nobody can tell whether payments are unproven: {error}"]
        if not rows:
            return []
        first = f"{len(rows)}; the first is {rows[0].id}, {rows[0].state}"
        return [
            f"payments were reported as settled and are not on the chain ({first}), so every paid call waits for its proof; "
            "`campus ledger list` shows them, and `campus ledger accept-unproven` ends this once you know why"
        ]

    async def _check_facilitator(self) -> list[str]:
        wanted = ("exact", self.table.network)
        try:
            answer = (await self.client.get(f"{self.table.facilitator_url}/supported")).raise_for_status().json()
            kinds = [(kind["scheme"], kind["network"]) for kind in answer["kinds"] if kind["x402Version"] == 2]
        except httpx.HTTPError as error:
            return [f"the facilitator does not answer: {one_line(error) or type(error).__name__}; see [payments] facilitator_url"]
        except (ValueError, KeyError, TypeError):
            return ["the facilitator does not say what it supports; see that [payments] facilitator_url is the address of one"]
        if wanted in kinds:
            return []
        served = ", ".join(sorted({network for _, network in kinds})) or "none"
        return [f"the facilitator does not serve {self.table.network}; it serves {served}"]

    async def _check_chain(self) -> list[str]:
        try:
            number = await self.chain.chain_id()
        except CampusError as error:
            return [f"{error}; see [payments] rpc_url"]
        if f"eip155:{number}" != self.table.network:
            return [f"[payments] rpc_url is a node of eip155:{number}, and network is {self.table.network}"]
        return []


def payments_of(
    config: Config,
    core: Core,
    *,
    now: Callable[[], datetime],
    elapsed: Callable[[], float] = monotonic,
    trust: ssl.SSLContext | None = None,
) -> AbstractAsyncContextManager[Payments]:
    """The payments of a campus; what one buys of keys is delivered or dropped with it."""
    keys = core.keys
    return open_payments(
        config,
        core.storage,
        now=now,
        elapsed=elapsed,
        on_settled=keys.deliver,
        on_released=keys.drop,
        on_reversed=keys.take_back,
        trust=trust,
    )


@asynccontextmanager
async def open_payments(
    config: Config,
    storage: Storage,
    *,
    now: Callable[[], datetime],
    on_settled: Consequence,
    on_released: Consequence,
    on_reversed: Consequence,
    elapsed: Callable[[], float] = monotonic,
    lease: timedelta = LEASE,
    patience: float = PATIENCE_SECONDS,
    proof_patience: Patience = PATIENCE,
    trust: ssl.SSLContext | None = None,
) -> AsyncIterator[Payments]:
    """Open what campus.toml says under [payments]; nobody is asked for anything yet. `storage` is the house's.

    `trust` says whose certificates are believed, by default httpx's own choice.
    `on_settled(session, payment_id)`, `on_released` and `on_reversed` write what follows into the transaction that settles, releases
    or reverses a payment.
    """
    table = config.payments
    assert table is not None, "open_payments is for a campus that has [payments]"
    token = config.secrets.get(TOKEN)
    bearer = token.get_secret_value() if token else None
    # a client for each: calls that hang in the facilitator must not keep the chain from being asked
    verify = trust or httpx.create_ssl_context()
    async with httpx.AsyncClient(timeout=TIMEOUT, verify=verify) as client, httpx.AsyncClient(timeout=TIMEOUT, verify=verify) as node:
        facilitator = LazyFacilitator(client, url=table.facilitator_url, network=table.network, token=bearer)
        chain, ledger = Chain(node, table.rpc_url), Ledger(storage, now=now)
        leases = Leases(storage, process=process_name(), now=now, length=lease)
        reservations = Reservations(storage, leases, now=now, on_settled=on_settled, on_released=on_released)
        unproven = UnprovenPayments(storage, now=now, on_reversed=on_reversed)
        limits: Any = {"prove_above": table.proved_above, "patience": proof_patience}
        charges = Settlement(reservations, unproven, facilitator, chain, now=now, **limits)
        reconciler = Reconciler(reservations, unproven, charges, chain)
        audit = Audit(storage, unproven, chain, wallet_of(table))
        processor = PaymentProcessor(reservations, leases, ledger, facilitator, charges, now=now, patience=patience)
        tasks = tasks_of(storage, ledger, reconciler, audit, now=now, steps=ClockSteps(now, elapsed))
        async with _keeping(leases, ledger):
            yield Payments(processor, ledger, reconciler, unproven, audit, now, tasks, facilitator, chain, client, table)


def wallet_of(table: PaymentsTable) -> Wallet:
    """The operator's wallet, as the chain spells it."""
    own = frozenset(address.lower() for address in table.own_wallets)
    return Wallet(table.network, table.chain.asset.lower(), table.pay_to.lower(), own)


def tasks_of(
    storage: Storage, ledger: Ledger, reconciler: Reconciler, audit: Audit, *, now: Callable[[], datetime], steps: ClockSteps
) -> list[Task]:
    """The jobs of payments."""

    async def reconcile_payments() -> None:
        await reconciler.resolve()

    async def audit_payments() -> None:
        audit.last = await audit.run(now() - AUDITED_BACK, most=LOOKED_INTO)
        tell(audit.last)

    async def wipe_answers() -> None:
        if not steps.is_settled():
            log.warning("no answers are wiped: the clock was set to another time within the last hour")
            return
        await wipe(storage, now=now())
        await forget(storage, now=now())

    minute = timedelta(minutes=1)
    return [
        Task("campus.reconcile_payments", reconcile_payments, every=timedelta(seconds=RECONCILE_SECONDS)),
        Task("campus.audit_payments", audit_payments, daily_at=AUDITED_AT),
        Task("campus.wipe_answers", wipe_answers, every=minute),
        Task("campus.flush_ledger", ledger.flush, every=minute, on="each"),
    ]


def tell(found: Findings) -> None:
    """Log what an audit found, a line each."""
    for missing in found.missing:
        log.error("payment not on the chain: %s", missing.reason, extra={"payment": missing.payment_id, "transaction": missing.transaction})
    for one in found.unclaimed:
        money = {"transaction": one.transaction, "payer": one.payer, "amount": one.amount, "payment": one.payment_id}
        log.warning("income that no payment claims: %s", one.reason, extra=money)


@asynccontextmanager
async def _keeping(leases: Leases, ledger: Ledger) -> AsyncIterator[None]:
    """Renew leases meanwhile, and write the last counts at the end."""
    tasks = anyio.create_task_group()
    await tasks.__aenter__()
    tasks.start_soon(leases.keep)
    try:
        yield
    finally:
        tasks.cancel_scope.cancel()
        # the error of the block is not handed to the task group, which would wrap it
        try:
            await tasks.__aexit__(None, None, None)
        finally:
            with anyio.CancelScope(shield=True):
                await _flush(ledger)


async def _flush(ledger: Ledger) -> None:
    try:
        await ledger.flush()
    except StorageError as error:
        log.warning("counts of offers not written: %s", error)
