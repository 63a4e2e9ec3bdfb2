"""Opens payments: connects every part to one database, one facilitator and one chain; and the checks of all of them."""

import logging
import ssl
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from importlib import import_module
from time import monotonic

import anyio
import httpx
from anyio.to_thread import run_sync

from campus.errors import CampusError, StorageError, one_line
from campus.features.payments.audit import UNCLAIMED_EXPLAINED, Audit, Findings, Wallet
from campus.features.payments.chain import Chain
from campus.features.payments.clock_steps import ClockSteps
from campus.features.payments.feature import PaymentsTable
from campus.features.payments.ledger import Ledger
from campus.features.payments.networks import network_of
from campus.features.payments.payment import Facilitator
from campus.features.payments.processor import PaymentProcessor
from campus.features.payments.queue import WorthlessPayments
from campus.features.payments.reconciler import Reconciler, Resolution, UnprovenPayments
from campus.features.payments.reservations import LEASE, Leases, Reservations
from campus.features.payments.settlement import ChainTimeouts, Settlement
from campus.jobs.scheduler import process_name
from campus.keys.sales import KeySales
from campus.outbound.http_clients import BoundedClient, certificate_authorities
from campus.storage import Storage
from campus.storage.leases import Lease

FACILITATOR = "campus.features.payments.facilitator"
WAIT_LONGER = 1.25
"""How many times as long a call waits for another one that presented the same payment before: for its tool and the chain."""
CHECKED_BACK = timedelta(days=1)
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Timing:
    """How long things take: a lease of a payment, a call's wait for another with the same payment and for the chain, a request."""

    lease: Lease = LEASE
    wait_seconds: float | None = None
    """Default: somewhat longer than `chain_wait_seconds` of the settings."""
    chain: ChainTimeouts | None = None
    """Default: as the settings say."""
    request: httpx.Timeout = field(default_factory=lambda: httpx.Timeout(30.0, connect=5.0))


DEFAULT_TIMING = Timing()


class LazyFacilitator:
    """The facilitator behind x402, a library that takes a second to load: the first call of `loaded` does so, in a thread."""

    def __init__(self, client: httpx.AsyncClient, *, url: str, network: str) -> None:
        self._client = client
        self._url = url
        self._network = network
        self._loaded: Facilitator | None = None
        self._loading = anyio.Lock()

    @property
    def trouble(self) -> str | None:
        """Its last failure; None if it has succeeded since."""
        return None if self._loaded is None else self._loaded.trouble

    async def loaded(self) -> Facilitator:
        """The facilitator; X402Facilitator in facilitator.py."""
        if self._loaded is not None:
            return self._loaded
        async with self._loading:
            if self._loaded is None:
                await run_sync(load_x402)
                from campus.features.payments.facilitator import X402Facilitator  # now in memory

                self._loaded = X402Facilitator(self._client, url=self._url, network=self._network)
            return self._loaded


def load_x402() -> None:
    """Load x402. A library of elliptic curves below it raises Python's recursion limit so far that deep JSON would end the process."""
    limit = sys.getrecursionlimit()
    try:
        import_module(FACILITATOR)
    finally:
        sys.setrecursionlimit(limit)


@dataclass(frozen=True)
class Payments:
    """The open payments of a campus."""

    processor: PaymentProcessor
    ledger: Ledger
    reconciler: Reconciler
    unproven: UnprovenPayments
    audit: Audit
    now: Callable[[], datetime]
    clock_steps: ClockSteps
    facilitator: LazyFacilitator
    chain: Chain
    client: httpx.AsyncClient
    settings: PaymentsTable

    async def findings(self) -> list[str]:
        """The last failure of the facilitator and of the chain's node, unless each has worked since; unproven payments; the last audit."""
        troubles = {"facilitator": self.facilitator.trouble, "chain": self.chain.trouble}
        found = [f"the {name} is in trouble: {trouble}" for name, trouble in troubles.items() if trouble is not None]
        return [*found, *await self._overdue(), *self.audit.last.sentences]

    async def reconcile(self, since: datetime) -> tuple[Sequence[Resolution], Findings]:
        """Resolve payments in doubt, then compare the ledger with the chain since then."""
        resolutions = await self.reconciler.resolve()
        return resolutions, await self.audit.run(since)

    async def check(self) -> list[str]:
        """Ask the facilitator and the node whether they serve the network, and compare a day of income with the ledger's claims."""
        chain = await self._check_chain()
        found = [*await self._check_facilitator(), *chain, *await self._overdue(), *await self._elsewhere()]
        return found if chain else [*found, *await self._compare()]

    async def _compare(self) -> list[str]:
        try:
            return (await self.audit.run(self.now() - CHECKED_BACK, most=UNCLAIMED_EXPLAINED)).sentences
        except CampusError as error:
            return [f"the wallet's income could not be compared with the ledger: {error}"]

    async def _overdue(self) -> list[str]:
        try:
            rows = await self.unproven.overdue()
        except StorageError as error:
            return [f"it cannot be checked whether payments are unproven: {error}"]
        if not rows:
            return []
        first = f"{len(rows)}; the first is {rows[0].id}, {rows[0].state}"
        return [
            f"payments were reported as settled and are not on the chain ({first}), so every paid call waits for its proof; "
            "`campus ledger list` shows them, and `campus ledger accept-unproven` ends this once you know why"
        ]

    async def _elsewhere(self) -> list[str]:
        try:
            networks = await self.reconciler.elsewhere()
        except StorageError as error:
            return [f"it cannot be checked whether payments on other networks are in doubt: {error}"]
        return [
            f"payments on {network} are in doubt, and the node of {self.settings.network} cannot show them; run `campus ledger reconcile` "
            f"with a campus.toml whose [payments] names {network} and its node"
            for network in networks
        ]

    async def _check_facilitator(self) -> list[str]:
        wanted = ("exact", self.settings.network)
        try:
            answer = (await self.client.get(f"{self.settings.facilitator_url}/supported")).raise_for_status().json()
            kinds = [(kind["scheme"], kind["network"]) for kind in answer["kinds"] if kind["x402Version"] == 2]
        except httpx.HTTPError as error:
            return [f"the facilitator does not answer: {one_line(error) or type(error).__name__}; see [payments] facilitator_url"]
        except (ValueError, KeyError, TypeError):
            return ["the facilitator does not list what it supports; check that [payments] facilitator_url is the address of a facilitator"]
        if wanted in kinds:
            return []
        served = ", ".join(sorted({network for _, network in kinds})) or "none"
        return [f"the facilitator does not serve {self.settings.network}; it serves {served}"]

    async def _check_chain(self) -> list[str]:
        try:
            number = await self.chain.chain_id()
        except CampusError as error:
            return [f"{error}; see [payments] rpc_url"]
        if f"eip155:{number}" != self.settings.network:
            return [f"[payments] rpc_url is a node of eip155:{number}, and network is {self.settings.network}"]
        return []


@asynccontextmanager
async def open_payments(
    settings: PaymentsTable,
    storage: Storage,
    purchases: KeySales,
    *,
    now: Callable[[], datetime],
    token: str | None = None,
    elapsed: Callable[[], float] = monotonic,
    timing: Timing = DEFAULT_TIMING,
    trust: ssl.SSLContext | None = None,
) -> AsyncIterator[Payments]:
    """Open payments on the campus's own storage. Neither the facilitator nor the node is asked for anything yet.

    `token` is sent to the facilitator as a bearer token, in every request. `trust` verifies the certificates of both.
    """
    # a client for each: calls that hang in the facilitator must not keep the chain from being asked
    new_client = partial(BoundedClient, timeout=timing.request, trust=trust or certificate_authorities())
    async with new_client() as client, new_client() as node:
        if token is not None:
            client.headers["Authorization"] = f"Bearer {token}"
        facilitator = LazyFacilitator(client, url=settings.facilitator_url, network=settings.network)
        chain = Chain(node, settings.rpc_url)
        ledger = Ledger(storage, now=now)
        leases = Leases(storage, process=process_name(), now=now, lease=timing.lease)
        reservations = Reservations(storage, leases, purchases, now=now)
        unproven = UnprovenPayments(storage, purchases, now)
        timeouts = timing.chain or ChainTimeouts(strict=settings.chain_wait_seconds)
        wait_seconds = timing.wait_seconds or WAIT_LONGER * settings.chain_wait_seconds
        settlement = Settlement(reservations, unproven, facilitator.loaded, chain, now, settings.proved_above, timeouts)
        reconciler = Reconciler(reservations, unproven, chain, settlement.submit_again, settings.network, now)
        audit = Audit(storage, unproven, chain, wallet_of(settings))
        worthless = WorthlessPayments(now)
        processor = PaymentProcessor(reservations, ledger, facilitator.loaded, settlement, reconciler, chain, now, wait_seconds, worthless)
        async with _keeping(leases, ledger):
            yield Payments(
                processor, ledger, reconciler, unproven, audit, now, ClockSteps(now, elapsed), facilitator, chain, client, settings
            )


def wallet_of(settings: PaymentsTable) -> Wallet:
    """The operator's wallet, as the chain spells it."""
    own = frozenset(address.lower() for address in settings.own_wallets)
    return Wallet(settings.network, network_of(settings.network).asset.lower(), settings.pay_to.lower(), own)


@asynccontextmanager
async def _keeping(leases: Leases, ledger: Ledger) -> AsyncIterator[None]:
    """Renew the leases while this is open; write the last counts at the end."""
    tasks = anyio.create_task_group()
    await tasks.__aenter__()
    tasks.start_soon(partial(leases.lease.keep, leases.renew, of="payments"))
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
