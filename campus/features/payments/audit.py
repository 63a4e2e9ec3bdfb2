"""The audit of `campus check`: compares the wallet's income on the chain with the settled payments, exact to the smallest unit.

Each settled payment claims one transfer to the wallet, with the same transaction, payer and amount; one transfer fits one claim. A claim
without a transfer is looked up by its own receipt, and is *missing* if that does not prove it. A transfer without a claim is *unclaimed*:
another database takes payments to the same wallet, a payment was charged after it was released, or somebody sent money. Transfers of
nothing, from the operator's own wallets, and of payments that are not concluded yet are left out.
"""

import logging
from collections import Counter
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import NamedTuple

from sqlalchemy.orm import defer
from sqlmodel import col, select

from campus.features.payments.chain import TRANSFER, Chain, amount_of, income_filter, nonce_of, topic_of
from campus.features.payments.node import Log, RpcUnavailable
from campus.features.payments.reconciler import UnprovenPayments
from campus.features.payments.reservations import transfer_of
from campus.features.payments.tables import PaymentRow
from campus.pricing import Price
from campus.storage import Storage

WALLET_BLOCKS_PER_QUERY = 10_000
"""Blocks per eth_getLogs of one wallet's transfers: they are few, and most nodes allow so many blocks."""
HASHES_PER_QUERY = 500
UNCLAIMED_EXPLAINED = 100
"""How many unclaimed transfers an audit explains that nobody waits for, at two calls to the node each."""
NOT_EXPLAINED = "not looked into, because there are many"
LISTED = "`campus ledger reconcile` lists them"
log = logging.getLogger(__name__)


class WalletTransfer(NamedTuple):
    """What a claim and its transfer have in common."""

    transaction: str | None
    payer: str
    amount: int


@dataclass(frozen=True, slots=True)
class Difference:
    """A payment that counts as charged, and that the chain does not show; or a transfer to the wallet that no payment claims.

    `payment_id` of a transfer is the payment that it was signed for, if known; `at` is its time, None if it was not looked into.
    """

    transaction: str | None
    payer: str
    amount: int
    reason: str
    payment_id: str | None = None
    at: datetime | None = None
    network: str = ""


@dataclass(frozen=True, slots=True)
class Findings:
    """The payments that are missing on the chain, and the transfers that are unclaimed."""

    missing: Sequence[Difference] = ()
    unclaimed: Sequence[Difference] = ()

    @property
    def sentences(self) -> list[str]:
        """A sentence for the operator for each kind of finding, with what to do."""
        found = []
        if self.missing:
            found.append(f"payments count as charged and are not on the chain ({_sums(self.missing)}); {LISTED}")
        if self.unclaimed:
            found.append(
                f"transfers reached the wallet that no payment of this ledger claims ({_sums(self.unclaimed)}); {LISTED}. "
                "Let one database alone take payments to a wallet, and name your own wallets in own_wallets"
            )
        return found


def _sums(differences: Sequence[Difference]) -> str:
    """How many there are and of how much, for each network, since money of a test network is not real."""
    networks = {one.network: [each.amount for each in differences if each.network == one.network] for one in differences}
    return "; ".join(f"{len(amounts)} on {network}, ${Price(sum(amounts))}" for network, amounts in networks.items())


class Received(NamedTuple):
    """A transfer to the wallet, in a block."""

    transfer: WalletTransfer
    block: int


@dataclass(frozen=True, slots=True)
class Wallet:
    """The wallet that is paid: the token and the address in lower-case hex, and the operator's own wallets."""

    network: str
    asset: str
    address: str
    own: Collection[str] = ()


class Audit:
    """Compares the ledger with the chain. Its only change: a missing payment counts as unproven again."""

    def __init__(self, storage: Storage, unproven: UnprovenPayments, chain: Chain, wallet: Wallet) -> None:
        self._storage = storage
        self._unproven = unproven
        self._chain = chain
        self._wallet = wallet
        self.last = Findings()
        """What the daily audit found, if this process ran it."""

    async def run(self, since: datetime, *, most: int | None = None) -> Findings:
        """What differs since then. At most `most` unclaimed transfers are looked into. JobFailed if the node does not answer."""
        # the chain is read first: a payment that settles after that is proven by its own receipt
        received = [one async for one in self._received(since)]
        unmatched = Counter(one.transfer for one in received)
        claims = await self._claims(since)
        # if there are more claims than transfers, each claim is looked up by its own receipt
        wanted = Counter(claimed(claim) for claim in claims if claim.pay_to == self._wallet.address)
        certain = {key for key, count in wanted.items() if count <= unmatched[key]}
        missing = [found for claim in claims if claimed(claim) not in certain and (found := await self._missing(claim)) is not None]
        unmatched.subtract(wanted)
        for lost in missing:
            unmatched[WalletTransfer(lost.transaction, lost.payer, lost.amount)] += 1
        await self._remove_earlier(unmatched, since)
        unclaimed = await self._unclaimed(received, unmatched, most=most)
        return Findings(*(tuple(replace(one, network=self._wallet.network) for one in found) for found in (missing, unclaimed)))

    async def _unclaimed(
        self, received: Sequence[Received], unmatched: Counter[WalletTransfer], *, most: int | None
    ) -> tuple[Difference, ...]:
        left = Counter(unmatched)
        found: list[Difference | None] = []
        for one in received:
            if left[one.transfer] > 0:
                left[one.transfer] -= 1
                found.append(await self._explained(one) if most is None or len(found) < most else Difference(*one.transfer, NOT_EXPLAINED))
        return tuple(one for one in found if one is not None)

    async def _received(self, since: datetime) -> AsyncIterator[Received]:
        node = self._chain.node
        wallet = self._wallet
        latest = await node.block()
        first, _ = await node.around(int(since.timestamp()), latest)
        async for logs in node.logs(income_filter(wallet.asset, wallet.address), first, latest.number, span=WALLET_BLOCKS_PER_QUERY):
            for log in logs:
                if (one := _received(log, wallet)) is not None:
                    yield one

    async def _claims(self, since: datetime) -> Sequence[PaymentRow]:
        wallet = self._wallet
        network = PaymentRow.state == "settled", PaymentRow.network == wallet.network, PaymentRow.asset == wallet.asset
        query = select(PaymentRow).where(*network, col(PaymentRow.settled_at) >= since).order_by(col(PaymentRow.settled_at))
        without_answers = defer(col(PaymentRow.answer))  # type: ignore[arg-type]  # they may be large; sqlmodel types its columns otherwise
        async with self._storage.read() as session:
            return (await session.exec(query.options(without_answers))).all()

    async def _missing(self, claim: PaymentRow) -> Difference | None:
        if (doubt := await self._chain.doubt_of(claim.transaction, transfer_of(claim))) is None:
            return None
        await self._unproven.mark_unproven(claim.id, doubt)
        return Difference(*claimed(claim), doubt, claim.id)

    async def _remove_earlier(self, unmatched: Counter[WalletTransfer], since: datetime) -> None:
        hashes = sorted({one.transaction for one, count in unmatched.items() if count > 0 and one.transaction is not None})
        for start in range(0, len(hashes), HASHES_PER_QUERY):
            among = col(PaymentRow.transaction).in_(hashes[start : start + HASHES_PER_QUERY])
            earlier = PaymentRow.state == "settled", PaymentRow.network == self._wallet.network, col(PaymentRow.settled_at) < since
            async with self._storage.read() as session:
                rows = await session.exec(select(PaymentRow.transaction, PaymentRow.payer, PaymentRow.amount).where(among, *earlier))
                unmatched.subtract(WalletTransfer(*row) for row in rows)

    async def _explained(self, one: Received) -> Difference | None:
        """What is known about an unclaimed transfer; None if its payment is not concluded yet."""
        node = self._chain.node
        wallet = self._wallet
        transaction, payer, amount = one.transfer
        receipt = await node.receipt(transaction or "")
        nonce = None if receipt is None else nonce_of(receipt, wallet.asset, payer=payer, pay_to=wallet.address, amount=amount)
        at = datetime.fromtimestamp((await node.block(one.block)).timestamp, UTC)
        if nonce is None:
            return Difference(*one.transfer, "somebody sent it without an x402 payment", at=at)
        row = await self._signed(payer, nonce)
        if row is None:
            reason = "it was paid by x402, but not to this database; does another database take payments to this wallet?"
            return Difference(*one.transfer, reason, at=at)
        if row.state in ("reserved", "settling", "unknown"):
            return None
        return Difference(*one.transfer, f"its payment is {row.state}, and was charged by this", row.id, at)

    async def _signed(self, payer: str, nonce: str) -> PaymentRow | None:
        row = PaymentRow
        wallet = self._wallet
        same = row.network == wallet.network, row.asset == wallet.asset, row.payer == payer, row.nonce == nonce
        async with self._storage.read() as session:
            return (await session.exec(select(PaymentRow).where(*same))).first()


def claimed(row: PaymentRow) -> WalletTransfer:
    return WalletTransfer(row.transaction, row.payer, row.amount)


def report(found: Findings) -> None:
    for missing in found.missing:
        log.error("payment not on the chain: %s", missing.reason, extra={"payment": missing.payment_id, "transaction": missing.transaction})
    for one in found.unclaimed:
        transfer = {"transaction": one.transaction, "payer": one.payer, "amount": one.amount, "payment": one.payment_id}
        log.warning("income that no payment claims: %s", one.reason, extra=transfer)


def _received(log: Log, wallet: Wallet) -> Received | None:
    """The transfer to the wallet in this log; None for one that is left out or was not asked for. RpcUnavailable if it is unreadable."""
    is_transfer = len(log.topics) == 3 and log.topics[0] == TRANSFER and log.topics[2] == topic_of(wallet.address)
    if log.removed or log.address != wallet.asset or not is_transfer:
        return None
    if (amount := amount_of(log)) is None:
        raise RpcUnavailable(f"the chain's node shows a transfer without an amount, in the transaction {log.transaction}")
    payer = f"0x{log.topics[1][-40:]}"
    return None if amount == 0 or payer in wallet.own else Received(WalletTransfer(log.transaction, payer, amount), log.block)
