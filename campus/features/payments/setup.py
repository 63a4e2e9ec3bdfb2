"""Opens payments: connects every part to one database, and to the facilitators and the chain of each way; and the checks of all of them."""

import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from time import monotonic

import anyio
import httpx
from pydantic import SecretStr

from campus.clock_steps import ClockSteps
from campus.errors import CampusError, StorageError, one_line
from campus.features.payments.audit import UNCLAIMED_EXPLAINED, Audit, Findings, Wallet
from campus.features.payments.authentication import authentication_of
from campus.features.payments.chain import Chain
from campus.features.payments.facilitators import LazyFacilitators
from campus.features.payments.feature import FacilitatorTable, PaymentsTable
from campus.features.payments.ledger import Ledger
from campus.features.payments.processor import PaymentProcessor
from campus.features.payments.queue import WorthlessPayments
from campus.features.payments.reconciler import Reconciler, Resolution, UnprovenPayments
from campus.features.payments.reservations import LEASE, Leases, Reservations
from campus.features.payments.settlement import ChainTimeouts, Settlement
from campus.features.payments.terms import SCHEME
from campus.features.payments.ways import OpenWay, Way, ways_of
from campus.jobs.scheduler import process_name
from campus.keys.sales import KeySales
from campus.outbound.http_clients import BoundedClient, certificate_authorities
from campus.storage import Storage
from campus.storage.databases import run_until_left
from campus.storage.leases import Lease

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
NO_SECRETS: Mapping[str, SecretStr] = {}


@dataclass(frozen=True)
class Payments:
    """The open payments of a campus. `ways` are by the ids of their networks."""

    processor: PaymentProcessor
    ledger: Ledger
    ways: Mapping[str, OpenWay]
    reservations: Reservations
    unproven: UnprovenPayments
    now: Callable[[], datetime]
    clock_steps: ClockSteps

    async def findings(self) -> list[str]:
        """The last failure of each facilitator and of each chain's node, unless it has worked since; unproven payments; the last audits."""
        found = [sentence for way in self.ways.values() for sentence in way.facilitators.troubles]
        found += [f"the chain is in trouble: {way.chain.trouble}" for way in self.ways.values() if way.chain.trouble is not None]
        found += await self._overdue()
        return found + [sentence for way in self.ways.values() for sentence in way.audit.last.sentences]

    async def resolve(self) -> Sequence[Resolution]:
        return [resolution for way in self.ways.values() for resolution in await way.reconciler.resolve()]

    async def compare(self, since: datetime, *, most: int | None = None) -> Findings:
        """Compare the ledger with every chain since then: see Audit. JobFailed if a node does not answer."""
        found = [await way.audit.run(since, most=most) for way in self.ways.values()]
        return Findings(tuple(one for each in found for one in each.missing), tuple(one for each in found for one in each.unclaimed))

    async def reconcile(self, since: datetime) -> tuple[Sequence[Resolution], Findings]:
        resolutions = await self.resolve()
        return resolutions, await self.compare(since)

    async def check(self) -> list[str]:
        """Ask each facilitator and node whether it serves its network, and compare a day of income with the ledger's claims."""
        found, compared = [], []
        for way in self.ways.values():
            chain = await _check_chain(way)
            found += [sentence for one in way.facilitators.clients for sentence in await _check_facilitator(way, *one)] + chain
            compared += [] if chain else await self._compare(way)
        return [*found, *await self._overdue(), *await self._elsewhere(), *compared]

    async def _compare(self, way: OpenWay) -> list[str]:
        try:
            return (await way.audit.run(self.now() - CHECKED_BACK, most=UNCLAIMED_EXPLAINED)).sentences
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
            networks = await self.reservations.open_elsewhere(self.ways.keys())
        except StorageError as error:
            return [f"it cannot be checked whether payments on other networks are in doubt: {error}"]
        return [
            f"payments on {network} are in doubt, and the node of {' or '.join(self.ways)} cannot show them; run `campus ledger reconcile` "
            f"with a campus.toml whose [payments] names {network} and its node"
            for network in networks
        ]


async def _check_facilitator(way: OpenWay, facilitator: FacilitatorTable, client: httpx.AsyncClient) -> list[str]:
    network, where = way.way.network.id, f"the facilitator at {facilitator.host}"
    try:
        answer = (await client.get(f"{facilitator.url}/supported")).raise_for_status().json()
        kinds = [(kind["scheme"], kind["network"]) for kind in answer["kinds"] if kind["x402Version"] == 2]
    except httpx.HTTPError as error:
        return [f"{where} does not answer: {one_line(error) or type(error).__name__}; see [payments] facilitators"]
    except (ValueError, KeyError, TypeError):
        return [f"{where} does not list what it supports; check that [payments] facilitators has the address of a facilitator"]
    if (SCHEME, network) in kinds:
        return []
    served = ", ".join(sorted({str(one) for _, one in kinds})) or "none"
    return [f"{where} does not serve {network}; it serves {one_line(served)}"]


async def _check_chain(way: OpenWay) -> list[str]:
    network = way.way.network.id
    try:
        number = await way.chain.node.chain_id()
    except CampusError as error:
        return [f"{error}; see [payments] rpc_url"]
    if f"eip155:{number}" != network:
        return [f"[payments] rpc_url is a node of eip155:{number}, and network is {network}"]
    return []


@asynccontextmanager
async def open_payments(
    settings: PaymentsTable,
    storage: Storage,
    purchases: KeySales,
    *,
    now: Callable[[], datetime],
    secrets: Mapping[str, SecretStr] = NO_SECRETS,
    elapsed: Callable[[], float] = monotonic,
    timing: Timing = DEFAULT_TIMING,
) -> AsyncIterator[Payments]:
    """Open payments on the campus's own storage. No facilitator or node is asked for anything yet.

    `secrets` are those of the environment.
    """
    wait_seconds = timing.wait_seconds or WAIT_LONGER * settings.chain_wait_seconds
    ledger = Ledger(storage, now=now)
    leases = Leases(storage, process=process_name(), now=now, lease=timing.lease)
    reservations = Reservations(storage, leases, purchases, now=now)
    unproven = UnprovenPayments(storage, purchases, now)
    async with AsyncExitStack() as stack:
        ways: dict[str, OpenWay] = {}

        async def client(auth: httpx.Auth | None = None) -> httpx.AsyncClient:
            # one for each: calls that hang in a facilitator must not keep a chain from being asked
            made = BoundedClient(timeout=timing.request, trust=certificate_authorities())
            made.auth = auth  # type: ignore[assignment]  # httpx takes None too
            return await stack.enter_async_context(made)

        for way in ways_of(settings, secrets):
            name = way.network.id
            facilitators = LazyFacilitators([(one, await client(authentication_of(one, secrets))) for one in way.facilitators], name)
            chain = Chain(await client(), way.rpc_url)
            timeouts = timing.chain or ChainTimeouts(strict=settings.chain_wait_seconds)
            settlement = Settlement(reservations, unproven, facilitators.loaded, chain, now, settings.proved_above, timeouts)
            reconciler = Reconciler(reservations, unproven, chain, settlement.submit_again, name, now)
            audit = Audit(storage, unproven, chain, wallet_of(way, settings))
            ways[name] = OpenWay(way, chain, facilitators, settlement, reconciler, audit)
        processor = PaymentProcessor(reservations, ledger, ways, now, wait_seconds, WorthlessPayments(now))
        stack.push_async_callback(_flush, ledger)
        await run_until_left(partial(leases.lease.keep, leases.renew, of="payments"), stack)
        yield Payments(processor, ledger, ways, reservations, unproven, now, ClockSteps(now, elapsed))


def wallet_of(way: Way, settings: PaymentsTable) -> Wallet:
    """The operator's wallet on a network, as the chain spells it."""
    own = frozenset(address.lower() for address in settings.own_wallets)
    return Wallet(way.network.id, way.network.asset.lower(), way.pay_to.lower(), own)


async def _flush(ledger: Ledger) -> None:
    """Write the last counts, also when what they are of was cancelled."""
    with anyio.CancelScope(shield=True):
        try:
            await ledger.flush()
        except StorageError as error:
            log.warning("counts of offers not written: %s", error)
