"""The servers of the payment benchmarks: a campus with payments and one without, facilitators on a real chain, and a payer.

The chain and the facilitator are threads of this process: their CPU is not counted as campus's.
"""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from anyio.from_thread import start_blocking_portal

from benchmarks.feeds import Feeds
from benchmarks.load import WrongAnswerError
from benchmarks.processes import LAST, Server, campus, on_cpu
from benchmarks.servers import refresh
from campus.features.chain import Chain, Facilitator, Payer, new_wallet, open_chain, open_facilitator, terms_of

CONFIG = """
[products.cve]
scope = "cve"
price = "19"
term = "30 days"

[buildings.cve]
sample = true
{feeds}
"""
PAYMENTS = """
[payments]
network = "eip155:8453"
pay_to = "0x00000000000000000000000000000000000000bb"
facilitators = ["{facilitator}"]
rpc_url = "{rpc}"
"""
PAYER_BALANCE = 1_000_000_000
SOLD, FREE = "/v1/brief/today", "/v1/brief/teaser"
PATIENCE_SECONDS = HANG_SECONDS = 60


@dataclass(frozen=True)
class Side:
    """A campus, and a key that opens its paid tools."""

    server: Server
    key: str


@dataclass(frozen=True)
class PaidServers:
    """Both sides of the comparison; `on` takes payments."""

    on: Side
    off: Side
    facilitator: Facilitator
    payer: Payer
    client: httpx.Client = field(repr=False)

    def signed(self, count: int) -> list[Mapping[str, str]]:
        """The headers of `count` valid payments for the paid tool."""
        terms = terms_of(self.client.get(SOLD))
        return [self.payer.pay_headers(terms) for _ in range(count)]

    def pay(self, headers: Mapping[str, str]) -> httpx.Response:
        """One paid call."""
        return self.client.get(SOLD, headers=dict(headers))

    @contextmanager
    def hanging(self, count: int) -> Iterator[None]:
        """Keep `count` paid calls waiting for the facilitator during the block; then drop its connections without an answer."""
        payments = self.signed(count)
        with self.facilitator.hold("verify") as hold, ThreadPoolExecutor(count) as threads:
            calls = [threads.submit(self.pay, headers) for headers in payments]
            hold.wait(count)
            waiting = not any(call.done() for call in calls)
            yield
            waiting = waiting and not any(call.done() for call in calls)
            hold.drop()
        said = {(answer.status_code, answer.json()["code"]) for answer in (call.result() for call in calls)}
        if said != {(402, "payment_unverified")} or not waiting:
            raise WrongAnswerError(f"paid calls did not hang until the end of the turn, or were answered wrongly: {said}")


@dataclass(frozen=True)
class PaymentNetwork:
    """A chain, a working facilitator, one that never answers, and a payer."""

    chain: Chain
    facilitator: Facilitator
    hanging: Facilitator
    payer: Payer

    def table(self, facilitator_url: str) -> str:
        """The [payments] table of a campus.toml that uses this facilitator."""
        return PAYMENTS.format(facilitator=facilitator_url, rpc=self.chain.rpc_url)


@contextmanager
def open_payment_network() -> Iterator[PaymentNetwork]:
    """Open the network in threads that run on the load's CPU."""
    with ExitStack() as stack:
        with on_cpu(LAST):
            portal = stack.enter_context(start_blocking_portal())
            chain = stack.enter_context(portal.wrap_async_context_manager(open_chain()))
            working, hanging = (stack.enter_context(portal.wrap_async_context_manager(open_facilitator(chain))) for _ in range(2))
        hanging.faults.hang_seconds = HANG_SECONDS
        payer = Payer(new_wallet())
        portal.call(chain.mint, payer.wallet.address, PAYER_BALANCE)
        yield PaymentNetwork(chain, working, hanging, payer)


@contextmanager
def open_paid_servers(folder: Path, feeds: Feeds, network: PaymentNetwork) -> Iterator[PaidServers]:
    """Serve two campuses with the same building, one with payments and one without."""
    text = CONFIG.format(feeds=feeds.settings)
    with ExitStack() as stack:
        on = stack.enter_context(_side(folder / "on", feeds, text + network.table(network.facilitator.url)))
        off = stack.enter_context(_side(folder / "off", feeds, text))
        url = f"http://127.0.0.1:{on.server.port}"
        limits = httpx.Limits(max_connections=None)
        client = stack.enter_context(httpx.Client(base_url=url, timeout=PATIENCE_SECONDS, limits=limits, trust_env=False))
        yield PaidServers(on, off, network.facilitator, network.payer, client)


@contextmanager
def _side(folder: Path, feeds: Feeds, text: str) -> Iterator[Side]:
    folder.mkdir(parents=True)
    refresh(folder, feeds, text)
    with campus(folder, text) as (server, served):
        yield Side(server, served.key("cve"))
