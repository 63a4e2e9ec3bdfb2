"""Facilitators and nodes that lie, lag or are away: no key goes out unpaid, nobody is charged without an answer, the ledger is the chain's.

Each lie concerns a small call and a bought key. Then the services tell the truth again, time passes, and the caller retries as
the answer said.
"""

import gzip
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Literal

import anyio
import anyio.abc
import httpx
import pytest
from features.payments.seller import PRICE, Seller, open_seller, read
from sqlmodel import select

from campus.features.chain import (
    Chain,
    Facilitator,
    Faults,
    NodeFaults,
    Relay,
    Wallet,
    new_wallet,
    open_chain,
    open_facilitator,
    open_relay,
)
from campus.features.payments.audit import Findings
from campus.features.payments.node import Node, RpcUnavailable
from campus.features.payments.payment import Payment, Sale
from campus.features.payments.settlement import ChainTimeouts
from campus.keys.keyring import KeyRing
from campus.keys.sales import Product, Term
from campus.keys.tables import KeySale
from campus.outbound.http_clients import MOST_BYTES, BoundedClient, certificate_authorities
from twins import Problem

pytestmark = pytest.mark.anyio
LATER = timedelta(seconds=11)
HOUR = timedelta(hours=1)
SECONDS = 1_000
"""More than any authorization lasts."""
NOTHING, ELSEWHERE, NETWORK = "0x" + "77" * 32, "0x" + "66" * 20, "eip155:8453"
MANY_BLOCKS = 40
Kind = Literal["call", "key"]
KINDS: tuple[Kind, ...] = ("call", "key")


def says(transaction: str) -> dict[str, Any]:
    return {"success": True, "transaction": transaction, "network": NETWORK}


def refuses(reason: str) -> dict[str, Any]:
    return {"success": False, "errorReason": reason, "transaction": ""}


@dataclass
class Trial:
    """A seller whose facilitator and node are in the test's hands, which sells answers and keys."""

    seller: Seller
    relay: Relay
    ring: KeyRing
    payer: Wallet
    """Whose turn it is."""

    @property
    def faults(self) -> Faults:
        return self.seller.facilitator.faults

    @property
    def node(self) -> NodeFaults:
        """The node's."""
        return self.relay.faults

    async def new_payer(self) -> None:
        self.payer = new_wallet()
        await self.seller.chain.mint(self.payer.address, 10 * PRICE)

    def sign(self, **changes: Any) -> dict[str, Any]:
        return self.seller.sign(by=self.payer, **changes)

    async def spend(self, **changes: Any) -> str:
        return await self.seller.chain.transfer_with_authorization(self.sign(**changes))

    def sale(self, kind: Kind) -> Sale:
        """What is bought."""
        return self.seller.sale(idempotency_key=secrets.token_urlsafe(16) if kind == "key" else None)

    async def buy(self, payment: Payment, sale: Sale, lie: Callable[[], Awaitable[None]]) -> bool:
        async def run(payment_id: str) -> bytes:
            await lie()
            if sale.idempotency_key is None:
                return await self.seller.run(payment_id)
            sold = await self.ring.sell("dice", payment=payment_id, by="test")
            return b'{"key": "%s"}' % str(sold.token).encode()

        try:
            await self.seller.sell(payment, sale, run)
        except Problem as problem:
            if problem.code != "payment_in_flight" or "Retry-After" not in problem.headers:
                raise  # nothing but an answer or word to come back may come of what was sent to be charged
            return False
        return True

    async def keys(self) -> int:
        return sum(record.state == "valid" for record in await self.ring.list())


@pytest.fixture
async def own_chain() -> AsyncIterator[tuple[Chain, Facilitator]]:
    """A chain whose clock may be set forward."""
    async with open_chain() as chain, open_facilitator(chain) as facilitator:
        yield chain, facilitator


@asynccontextmanager
async def open_trial(chain: Chain, facilitator: Facilitator, relay: Relay, storage_url: str) -> AsyncIterator[Trial]:
    wallet, around = new_wallet(), {"pay_to": new_wallet().address, "rpc_url": relay.url, "wait_seconds": 0.3}
    soon = ChainTimeouts(proof=0.1, strict=0.1, search=0)
    async with open_seller(chain, facilitator, storage_url, wallet=wallet, timeouts=soon, **around) as seller:
        ring = KeyRing(seller.storage, {"dice": Product("dice", "dice", "0.02", Term.parse("30 days"), None)}, now=seller.clock)
        trial = Trial(seller, relay, ring, wallet)
        seller.bought.keys = ring
        yield trial


Lie = Callable[[Trial, Mapping[str, Any]], Awaitable[None]]


async def refuses_what_it_sent(trial: Trial, signed: Mapping[str, Any]) -> None:
    trial.faults.lie, trial.node.down = refuses("insufficient_funds"), True


async def refuses_as_invalid_what_it_sent_and_the_node_lags(trial: Trial, signed: Mapping[str, Any]) -> None:
    trial.faults.lie, trial.node.behind = refuses("invalid_exact_evm_payload_signature"), 1


async def refuses_what_lands_seconds_later(trial: Trial, signed: Mapping[str, Any]) -> None:
    trial.faults.unsent = refuses("insufficient_funds")


async def refuses_what_it_sent_and_the_nodes_clock_is_ahead(trial: Trial, signed: Mapping[str, Any]) -> None:
    await trial.seller.chain.mine(MANY_BLOCKS)
    trial.faults.lie, trial.node.ahead_seconds = refuses("unsupported_scheme"), 86_400


async def loses_its_reply_and_the_node_hides_logs(trial: Trial, signed: Mapping[str, Any]) -> None:
    trial.faults.settle_status, trial.node.hides_logs = 500, True


async def names_no_transaction(trial: Trial, signed: Mapping[str, Any]) -> None:
    trial.faults.unsent = says("")


async def names_a_transaction_that_is_none(trial: Trial, signed: Mapping[str, Any]) -> None:
    trial.faults.unsent = says(NOTHING)


async def names_anothers_payment(trial: Trial, signed: Mapping[str, Any]) -> None:
    payer = trial.payer
    await trial.new_payer()
    trial.faults.unsent = says(await trial.spend(to=ELSEWHERE))
    trial.payer = payer


async def names_another_payment_of_the_same_payer(trial: Trial, signed: Mapping[str, Any]) -> None:
    trial.faults.unsent = says(await trial.spend(to=ELSEWHERE))


async def names_a_transfer_of_the_nonce_to_the_payer(trial: Trial, signed: Mapping[str, Any]) -> None:
    trial.faults.unsent = says(await trial.spend(to=trial.payer.address, nonce=signed["payload"]["authorization"]["nonce"]))


async def names_a_transfer_of_another_amount(trial: Trial, signed: Mapping[str, Any]) -> None:
    trial.faults.unsent = says(await trial.spend(value=1, to=ELSEWHERE, nonce=signed["payload"]["authorization"]["nonce"]))


async def is_honest_and_the_node_shows_removed_logs(trial: Trial, signed: Mapping[str, Any]) -> None:
    trial.node.removed = True


async def is_honest_and_the_node_shows_failed_receipts(trial: Trial, signed: Mapping[str, Any]) -> None:
    trial.node.failed = True


async def is_honest_and_the_node_shows_foreign_addresses(trial: Trial, signed: Mapping[str, Any]) -> None:
    trial.node.foreign = True


async def is_honest_and_the_node_is_down(trial: Trial, signed: Mapping[str, Any]) -> None:
    trial.node.down = True


LIES: tuple[Lie, ...] = (
    refuses_what_it_sent,
    refuses_as_invalid_what_it_sent_and_the_node_lags,
    refuses_what_lands_seconds_later,
    loses_its_reply_and_the_node_hides_logs,
    names_no_transaction,
    names_a_transaction_that_is_none,
    names_anothers_payment,
    names_another_payment_of_the_same_payer,
    names_a_transfer_of_the_nonce_to_the_payer,
    names_a_transfer_of_another_amount,
    is_honest_and_the_node_shows_removed_logs,
    is_honest_and_the_node_shows_failed_receipts,
    is_honest_and_the_node_shows_foreign_addresses,
    is_honest_and_the_node_is_down,
    refuses_what_it_sent_and_the_nodes_clock_is_ahead,
)


async def test_no_false_report_buys_a_key_or_charges_anybody_without_an_answer(
    own_chain: tuple[Chain, Facilitator], tmp_path: Path
) -> None:
    chain, facilitator = own_chain
    trials: dict[str, Trial] = {}
    async with open_relay(chain) as relay, AsyncExitStack() as opened:
        for lie in LIES:
            opening = open_trial(chain, facilitator, relay, f"sqlite:{tmp_path / lie.__name__}")
            trial = trials[lie.__name__] = await opened.enter_async_context(opening)
            await lied_to(trial, lie)
        await chain.advance(SECONDS)
        for name, trial in trials.items():
            seller = trial.seller
            seller.clock.ahead += HOUR
            await seller.payments.resolve()
            assert {row.state for row in await seller.rows()} <= {"settled", "released", "reversed"}, name
            assert await seller.claimed() == await seller.income(), name
            assert await seller.audit() == Findings(), name


async def lied_to(trial: Trial, lie: Lie) -> None:
    """A call and a key are bought while a lie goes on, and asked for again when it is over."""
    seller, bought = trial.seller, []
    for kind in KINDS:
        await trial.new_payer()
        sale, signed = trial.sale(kind), trial.sign()
        answered = await trial.buy(read(signed), sale, partial(lie, trial, signed))
        assert kind == "call" or not answered, f"the key went out before the chain showed its payment: {lie.__name__}"
        if lie is refuses_what_lands_seconds_later:
            await seller.chain.transfer_with_authorization(signed)
        bought.append((read(signed), sale, answered))
    assert await trial.keys() == 0
    seller.clock.ahead = HOUR  # the lying goes on, and time is over by this machine's clock
    await seller.payments.resolve()
    trial.faults.clear()
    trial.node.clear()
    seller.clock.ahead += LATER
    await come_back(trial, bought)


async def come_back(trial: Trial, bought: Sequence[tuple[Payment, Sale, bool]]) -> None:
    paid_keys = 0
    for payment, sale, answered in bought:
        if await trial.seller.chain.transfers(sender=payment.payer, receiver=trial.seller.pay_to):
            assert answered or await trial.buy(payment, sale, nothing), "charged, and no answer"
            paid_keys += sale.idempotency_key is not None
    assert await trial.keys() == paid_keys


async def nothing() -> None:
    """No lie."""


async def test_a_key_that_is_prepared_after_its_reservation_was_released_leaves_nothing(
    chain: Chain, facilitator: Facilitator, storage_url: str
) -> None:
    async with open_relay(chain) as relay, open_trial(chain, facilitator, relay, storage_url) as trial:

        async def stall() -> None:
            trial.seller.clock.ahead += LATER
            assert [each.after for each in await trial.seller.payments.resolve()] == ["released"]

        await trial.new_payer()
        assert not await trial.buy(read(trial.sign()), trial.sale("key"), stall)
        async with trial.seller.storage.read() as session:
            assert (await session.exec(select(KeySale))).all() == []


def answered(body: bytes, *headers: str) -> bytes:
    """An HTTP answer that ends with its connection."""
    return "\r\n".join(["HTTP/1.1 200 OK", "Connection: close", *headers, "", ""]).encode() + body


BOMB = gzip.compress(b"\0" * (8 * MOST_BYTES))
ZIPPED = "Content-Encoding: gzip"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (answered(b'{"result": 7}'), 7),
        (answered(gzip.compress(b'{"result": 7}'), ZIPPED), 7),
        (answered(BOMB, ZIPPED), "has more than 8,388,608 bytes"),
        (answered(b" " * (MOST_BYTES + 1)), "has more than 8,388,608 bytes"),
        (answered(BOMB, "Content-Encoding: br"), "packed in another way than gzip"),
        (answered(BOMB, "Content-Encoding: gzip, gzip"), "packed in another way than gzip"),
        (answered(b'{"result": 7}', ZIPPED), "is not gzip, as it says it is"),
    ],
    ids=["plain", "gzip", "a bomb", "long", "brotli", "twice", "not gzip"],
)
async def test_a_chain_node_that_sends_too_much_is_a_node_that_cannot_be_asked(answer: bytes, said: Any) -> None:
    async def lie(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            await stream.receive()
            with suppress(anyio.BrokenResourceError):
                await stream.send(answer)

    client = BoundedClient(timeout=httpx.Timeout(20), trust=certificate_authorities())
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, client, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, lie)
        node = Node(client, f"http://127.0.0.1:{listener.extra(anyio.abc.SocketAttribute.local_port)}/secret")
        if isinstance(said, str):
            with pytest.raises(RpcUnavailable, match=said):
                await node.ask("eth_chainId")
        else:
            assert await node.ask("eth_chainId") == said
        tasks.cancel_scope.cancel()
