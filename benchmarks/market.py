"""What a run about payments asks: a campus that takes them and the same without, a facilitator on a real chain, and who pays.

The chain and the facilitator are threads of this process: what they use of a CPU is not counted as campus's.
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
from campus.testing.payments import Chain, Facilitator, Payer, new_wallet, open_chain, open_facilitator, terms_of

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
facilitator_url = "{facilitator}"
rpc_url = "{rpc}"
"""
PURSE = 1_000_000_000
SOLD, FREE = "/v1/brief/today", "/v1/brief/teaser"
PATIENCE_SECONDS = HANG_SECONDS = 60


@dataclass(frozen=True)
class Side:
    """A campus, and a key of it that opens what is sold."""

    server: Server
    key: str


@dataclass(frozen=True)
class Market:
    """Both sides of the comparison; `on` takes payments."""

    on: Side
    off: Side
    facilitator: Facilitator
    payer: Payer
    client: httpx.Client = field(repr=False)

    def signed(self, count: int) -> list[Mapping[str, str]]:
        """The headers of so many good payments for what is sold."""
        terms = terms_of(self.client.get(SOLD))
        return [self.payer.pay_headers(terms) for _ in range(count)]

    def pay(self, headers: Mapping[str, str]) -> httpx.Response:
        """One paid call."""
        return self.client.get(SOLD, headers=dict(headers))

    @contextmanager
    def hanging(self, count: int) -> Iterator[None]:
        """So many paid calls that stand in the facilitator all the while; then they are told that it said nothing."""
        payments = self.signed(count)
        with self.facilitator.hold("verify") as hold, ThreadPoolExecutor(count) as threads:
            calls = [threads.submit(self.pay, headers) for headers in payments]
            hold.wait(count)
            stands = not any(call.done() for call in calls)
            yield
            stands = stands and not any(call.done() for call in calls)
            hold.drop()
        said = {(answer.status_code, answer.json()["code"]) for answer in (call.result() for call in calls)}
        if said != {(402, "payment_unverified")} or not stands:
            raise WrongAnswerError(f"paid calls did not hang until the end of the turn, or were answered wrongly: {said}")


@dataclass(frozen=True)
class Money:
    """A chain, a facilitator that works and one that never answers, and a payer."""

    chain: Chain
    facilitator: Facilitator
    hanging: Facilitator
    payer: Payer

    def table(self, facilitator_url: str) -> str:
        """The table of a campus.toml that is paid by way of this facilitator."""
        return PAYMENTS.format(facilitator=facilitator_url, rpc=self.chain.rpc_url)


@contextmanager
def open_money() -> Iterator[Money]:
    """All of it, in threads that keep to the CPU of the load."""
    with ExitStack() as stack:
        with on_cpu(LAST):
            portal = stack.enter_context(start_blocking_portal())
            chain = stack.enter_context(portal.wrap_async_context_manager(open_chain()))
            working, hanging = (stack.enter_context(portal.wrap_async_context_manager(open_facilitator(chain))) for _ in range(2))
        hanging.faults.hang_seconds = HANG_SECONDS
        payer = Payer(new_wallet())
        portal.call(chain.mint, payer.wallet.address, PURSE)
        yield Money(chain, working, hanging, payer)


@contextmanager
def open_market(folder: Path, feeds: Feeds, money: Money) -> Iterator[Market]:
    """Two campuses with the same building."""
    text = CONFIG.format(feeds=feeds.settings)
    with ExitStack() as stack:
        on = stack.enter_context(_side(folder / "on", feeds, text + money.table(money.facilitator.url)))
        off = stack.enter_context(_side(folder / "off", feeds, text))
        url = f"http://127.0.0.1:{on.server.port}"
        limits = httpx.Limits(max_connections=None)
        client = stack.enter_context(httpx.Client(base_url=url, timeout=PATIENCE_SECONDS, limits=limits, trust_env=False))
        yield Market(on, off, money.facilitator, money.payer, client)


@contextmanager
def _side(folder: Path, feeds: Feeds, text: str) -> Iterator[Side]:
    folder.mkdir(parents=True)
    refresh(folder, feeds, text)
    with campus(folder, text) as (server, served):
        yield Side(server, served.key("cve"))
