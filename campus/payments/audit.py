"""The audit: whether the wallet's income on the chain and what the ledger claims of it are the same, to the token's smallest unit.

Each claim is held against one transfer to the wallet, by transaction, payer and amount; one transfer upholds one claim. What is claimed and
not found that way is looked up by its own receipt, and is *missing* where that does not prove it. What reached the wallet and no payment
claims is *unclaimed*: another database takes payments to the same wallet, or a payment was charged after it was released, or somebody sent
money. Transfers of nothing, those of the operator's own wallets, and those of payments that are still in work are left out of it.
"""

import logging
from collections import Counter
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from sqlalchemy import select as select_columns
from sqlmodel import col, select

from campus.payments.chain import Chain
from campus.payments.node import RpcUnavailable
from campus.payments.proof import TRANSFER, Log, Transfer, amount_of, income_question, nonce_of, word
from campus.payments.tables import PaymentRow
from campus.payments.unproven import UnprovenPayments
from campus.storage import Storage
from campus.tool_access import Price

SPAN = 10_000
"""Blocks per eth_getLogs of one wallet's transfers: few answer to that, and most nodes allow so many."""
HASHES_AT_ONCE = 500
LISTED = "`campus ledger reconcile` lists them"
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Received:
    """A transfer to the wallet; `amount` is in the token's smallest unit."""

    transaction: str
    payer: str
    amount: int
    block: int


@dataclass(frozen=True, slots=True)
class Missing:
    """A payment that counts as charged, and which the chain does not have so."""

    payment_id: str
    transaction: str | None
    payer: str
    amount: int
    reason: str


@dataclass(frozen=True, slots=True)
class Unclaimed:
    """A transfer to the wallet that no payment of this ledger claims; `payment_id` is the one that it was signed for, if it is known.

    `at` is None where the transfer was not looked into.
    """

    transaction: str
    payer: str
    amount: int
    at: datetime | None
    payment_id: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class Findings:
    """What an audit found."""

    missing: Sequence[Missing] = ()
    unclaimed: Sequence[Unclaimed] = ()

    @property
    def sentences(self) -> list[str]:
        """The same for an operator, with what to do."""
        found = []
        if self.missing:
            total = Price(sum(one.amount for one in self.missing))
            found.append(f"payments count as charged and are not on the chain ({len(self.missing)}, ${total}); {LISTED}")
        if self.unclaimed:
            total = Price(sum(one.amount for one in self.unclaimed))
            found.append(
                f"transfers reached the wallet that no payment of this ledger claims ({len(self.unclaimed)}, ${total}); {LISTED}. "
                "Let one database alone take payments to a wallet, and name your own wallets in own_wallets"
            )
        return found


@dataclass(frozen=True, slots=True)
class Wallet:
    """Where payments go: the token and the address, lower-case hex, and whose transfers are the operator's own."""

    network: str
    asset: str
    address: str
    own: Collection[str] = ()


class Claim(NamedTuple):
    """A payment that counts as charged, without its answer, which may be large."""

    payment_id: str
    transaction: str | None
    payer: str
    pay_to: str
    amount: int
    nonce: str
    valid_before: int

    @property
    def transfer(self) -> tuple[str | None, str, int]:
        """What must be among the transfers to the wallet."""
        return self.transaction, self.payer, self.amount


Transfers = Counter[tuple[str | None, str, int]]
"""Transfers by transaction, payer and amount."""


class Audit:
    """Compares the ledger with the chain. It changes nothing but that a payment which is missing counts as unproven again."""

    def __init__(self, storage: Storage, unproven: UnprovenPayments, chain: Chain, wallet: Wallet) -> None:
        self._storage = storage
        self._unproven = unproven
        self._chain = chain
        self._wallet = wallet
        self.last = Findings()
        """What the daily audit found, where this process ran it."""

    async def run(self, since: datetime, *, most: int | None = None) -> Findings:
        """What does not add up since then; of unclaimed transfers at most `most` are looked into.

        JobFailed when the node does not answer.
        """
        # the chain first: what settles meanwhile is proved by its receipt
        received = [one async for one in self._received(since)]
        free: Transfers = Counter((one.transaction, one.payer, one.amount) for one in received)
        claims = await self._claims(since)
        # where more claim a transfer than there are, each shows its own receipt
        wanted = Counter(one.transfer for one in claims if one.pay_to == self._wallet.address)
        certain = {key for key, count in wanted.items() if count <= free[key]}
        missing = [found for one in claims if one.transfer not in certain and (found := await self._missing(one)) is not None]
        free.subtract(wanted)
        for lost in missing:
            free[lost.transaction, lost.payer, lost.amount] += 1
        await self._take_earlier(free, since)
        unclaimed: list[Unclaimed | None] = []
        for one in received:
            if free[one.transaction, one.payer, one.amount] > 0:
                free[one.transaction, one.payer, one.amount] -= 1
                unclaimed.append(await self._named(one) if most is None or len(unclaimed) < most else _unnamed(one))
        return Findings(tuple(missing), tuple(one for one in unclaimed if one is not None))

    async def _received(self, since: datetime) -> AsyncIterator[Received]:
        node, wallet = self._chain.node, self._wallet
        latest = await node.block()
        first, _ = await node.around(int(since.timestamp()), latest)
        async for logs in node.logs(income_question(wallet.asset, wallet.address), first, latest.number, span=SPAN):
            for log in logs:
                if (one := _received(log, wallet)) is not None:
                    yield one

    async def _claims(self, since: datetime) -> Sequence[Claim]:
        """Whatever counts as charged since then."""
        row, wallet = PaymentRow, self._wallet
        columns: Any = (row.id, row.transaction, row.payer, row.pay_to, row.amount, row.nonce, row.valid_before)
        claimed: Any = (row.state == "settled", col(row.settled_at) >= since, row.network == wallet.network, row.asset == wallet.asset)
        async with self._storage.read() as session:
            query = select_columns(*columns).where(*claimed).order_by(col(row.settled_at))
            return [Claim(*found) for found in (await (await session.connection()).execute(query)).all()]

    async def _missing(self, claim: Claim) -> Missing | None:
        transfer = Transfer(self._wallet.asset, claim.payer, claim.pay_to, claim.amount, claim.nonce, claim.valid_before)
        if (doubt := await self._chain.doubt_of(claim.transaction, transfer)) is None:
            return None
        await self._unproven.miss(claim.payment_id, doubt)
        return Missing(claim.payment_id, claim.transaction, claim.payer, claim.amount, doubt)

    async def _take_earlier(self, free: Transfers, since: datetime) -> None:
        """Take out what is claimed by payments that settled before."""
        hashes = sorted({transaction for (transaction, _, _), count in free.items() if count > 0 and transaction is not None})
        for start in range(0, len(hashes), HASHES_AT_ONCE):
            among = col(PaymentRow.transaction).in_(hashes[start : start + HASHES_AT_ONCE])
            earlier = PaymentRow.state == "settled", PaymentRow.network == self._wallet.network, col(PaymentRow.settled_at) < since
            async with self._storage.read() as session:
                rows = await session.exec(select(PaymentRow.transaction, PaymentRow.payer, PaymentRow.amount).where(among, *earlier))
                free.subtract(rows.all())

    async def _named(self, one: Received) -> Unclaimed | None:
        """What is known of an unclaimed transfer; None where its payment is still in work."""
        node, wallet = self._chain.node, self._wallet
        receipt = await node.receipt(one.transaction)
        nonce = None if receipt is None else nonce_of(receipt, wallet.asset, payer=one.payer, pay_to=wallet.address, amount=one.amount)
        at = datetime.fromtimestamp((await node.block(one.block)).timestamp, UTC)
        if nonce is None:
            return Unclaimed(one.transaction, one.payer, one.amount, at, None, "somebody sent it, and no payment was signed for it")
        row = await self._signed(one.payer, nonce)
        if row is None:
            reason = "it was paid by x402, and not to this database; does another one take payments to this wallet?"
            return Unclaimed(one.transaction, one.payer, one.amount, at, None, reason)
        if row.state in ("reserved", "settling", "unknown"):
            return None
        return Unclaimed(one.transaction, one.payer, one.amount, at, row.id, f"its payment is {row.state}, and was charged by this")

    async def _signed(self, payer: str, nonce: str) -> PaymentRow | None:
        row, wallet = PaymentRow, self._wallet
        same = row.network == wallet.network, row.asset == wallet.asset, row.payer == payer, row.nonce == nonce
        async with self._storage.read() as session:
            return (await session.exec(select(PaymentRow).where(*same))).first()


def _received(log: Log, wallet: Wallet) -> Received | None:
    """A transfer to the wallet; None for what it was not asked for, and for what is left out. RpcUnavailable where it cannot be read."""
    is_transfer = len(log.topics) == 3 and log.topics[0] == TRANSFER and log.topics[2] == word(wallet.address)
    if log.removed or log.address != wallet.asset or not is_transfer:
        return None
    if (amount := amount_of(log)) is None:
        raise RpcUnavailable(f"the chain's node shows a transfer without an amount, in the transaction {log.transaction}")
    payer = f"0x{log.topics[1][-40:]}"
    return None if amount == 0 or payer in wallet.own else Received(log.transaction, payer, amount, log.block)


def _unnamed(one: Received) -> Unclaimed:
    return Unclaimed(one.transaction, one.payer, one.amount, None, None, "not looked into, for there are many")
