"""Finds out from the blockchain whether a payment was charged. It only reads; the rules for proof are pure.

A payment was charged if the chain shows its transfer. A token (EIP-3009) marks a nonce as used with the event
`AuthorizationUsed(authorizer, nonce)`, and the very next event that it writes is `Transfer(from, to, value)`. Both must be there, in one
transaction that succeeded, the second directly after the first. The first alone proves nothing: its payer can spend the nonce on a transfer
to himself. Nor is it enough that both are in one transaction: it can hold several authorizations, and one transfer must not prove two
payments. A nonce is used once, by a transfer or by a cancellation.

A payment will never be charged if its authorization has expired by the chain's clock and by this machine's, no event of its nonce is found,
and the token itself says that the nonce is unused. A cancellation or another transfer with the same nonce is then the reason, and counts no
earlier: a node that shows one falsely must not take from a payer what he paid for. Everything else is unknown, however likely.
"""

from collections.abc import Awaitable, Iterable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import anyio
import httpx

from campus.features.payments.node import BLOCKS_PER_QUERY, WORD, Block, Log, Node, Receipt, RpcUnavailable
from campus.features.payments.payment import PaymentOutcome

ANSWER_SECONDS = 20.0
CLOCK_SECONDS = 3.0
CLOCK_READ_EVERY = timedelta(minutes=1)
SKEW_SECONDS = 300
"""How far this machine's clock may be ahead of the chain's. With more, valid authorizations would seem to have expired."""
RECENT_BLOCKS = 20 * BLOCKS_PER_QUERY
"""How many recent blocks are searched for a transfer if the chain's times do not lead to it; 5 hours on Base."""
AUTHORIZATION_USED = "0x98de503528ee59b575ef0c0a2576a82497bfc029a5685b209e9ec333479b10a5"
AUTHORIZATION_CANCELED = "0x1cdd46ff242716cdaa72d159d339a485b3438398348d68f09d7c8c0a59353d81"
TRANSFER = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"
"""Keccak-256 of the events' signatures; a test computes them."""
STATE_SELECTOR = "0xe94a0102"
"""The first four bytes of Keccak-256 of `authorizationState(address,bytes32)`: whether a nonce is used; a test computes it."""
CHAIN_MARGIN_SECONDS = 30
"""How far the chain's clock must be past an authorization's end: the nodes behind one address may differ by less."""
OWN_MARGIN_SECONDS = 60
"""The same for this machine's clock, which no node can set: synchronized clocks differ by less."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """The transfer that a payment authorizes. Addresses and nonce are lower-case hex; `valid_before` is in Unix seconds."""

    asset: str
    payer: str
    pay_to: str
    amount: int
    nonce: str
    valid_before: int


class Chain:
    """One chain, asked through one node. The node's URL may hold a secret and is never shown.

    `trouble` is the last failure of the node; None if it has answered since.
    """

    def __init__(self, client: httpx.AsyncClient, url: str) -> None:
        self.node = Node(client, url)
        self.trouble: str | None = None
        self._ahead: timedelta | None = None
        self._clock_read_at = datetime.min.replace(tzinfo=UTC)

    async def clock(self, now: datetime) -> int | None:
        """The chain's clock, in Unix seconds; None if it is unknown. Only one block a minute is read for it, however many ask."""
        if abs(now - self._clock_read_at) >= CLOCK_READ_EVERY:
            self._clock_read_at, self._ahead = now, None
            with anyio.move_on_after(CLOCK_SECONDS), suppress(RpcUnavailable):
                self._ahead = datetime.fromtimestamp((await self.node.block()).timestamp, UTC) - now
        return None if self._ahead is None else int((now + self._ahead).timestamp())

    async def outcome_of(self, transfer: Transfer, *, since: datetime, now: datetime) -> PaymentOutcome:
        """Whether a payment that was reserved at `since` was charged. Also unknown if the node cannot be asked."""
        search = self._outcome_of(transfer, since=int(since.timestamp()) - SKEW_SECONDS, own=int(now.timestamp()))
        return await self._noting_trouble(search)

    async def shown(self, transaction: str, transfer: Transfer) -> PaymentOutcome:
        """Whether this transaction is the payment: settled if it is, refused if it is not, unknown while the chain does not show it."""
        return await self._noting_trouble(self._shown(transaction, transfer))

    async def doubt_of(self, transaction: str | None, transfer: Transfer) -> str | None:
        """Why the transaction does not prove the payment; None if it does. JobFailed if the node cannot be asked."""
        if transaction is None:
            return "no transaction is recorded"
        outcome = await self._shown(transaction, transfer)
        return None if outcome.state == "settled" else outcome.reason

    async def is_contract(self, address: str) -> bool | None:
        """Whether the address has code, which checks signatures in its own way; None if the node cannot be asked."""
        try:
            return bool(str(await self.node.ask("eth_getCode", address, "latest")).strip("0x"))
        except RpcUnavailable:
            return None

    async def _noting_trouble(self, search: Awaitable[PaymentOutcome]) -> PaymentOutcome:
        trouble = f"{self.node.name} took more than {ANSWER_SECONDS:g} s to say whether a payment was charged"
        with anyio.move_on_after(ANSWER_SECONDS):
            try:
                outcome = await search
            except RpcUnavailable as error:
                trouble = str(error)
            else:
                self.trouble = None
                return outcome
        self.trouble = trouble
        return PaymentOutcome("unknown", reason=trouble)

    async def _shown(self, transaction: str, transfer: Transfer) -> PaymentOutcome:
        receipt = await self.node.receipt(transaction)
        if receipt is None:
            return PaymentOutcome("unknown", reason="the chain has no such transaction")
        if not proves(receipt, transfer):
            return PaymentOutcome("refused", reason="the transaction is not this payment")
        return PaymentOutcome("settled", transaction, "shown by the chain", receipt.block)

    async def _outcome_of(self, transfer: Transfer, *, since: int, own: int) -> PaymentOutcome:
        # the chain's clock is read before the search: a transfer that is missing up to this block was not there at that time
        latest = await self.node.block()
        expired = has_expired(transfer, chain=latest.timestamp, own=own)
        used = await self._nonce_events(transfer, latest, since=since)
        if not used and expired:
            if not await self.node.call(nonce_state_call(transfer), block=latest.number):
                reason = "its authorization expired, and the chain has no such payment"
                return PaymentOutcome("refused", reason=reason, block=latest.number)
            # the token says that the nonce is used, so the search by time missed the transfer
            used = await self._search(transfer, max(0, latest.number - RECENT_BLOCKS), latest.number)
        if used:
            return await self._judged(used, transfer, expired_at=latest.number if expired else None)
        not_shown = "the token says that its nonce is used, and the node does not show by which transaction"
        return PaymentOutcome("unknown", reason=not_shown if expired else "the chain has no such payment yet")

    async def _judged(self, used: Sequence[Log], transfer: Transfer, *, expired_at: int | None) -> PaymentOutcome:
        """What used the nonce. Anything but the payment counts only once the authorization has expired, as of block `expired_at`."""
        outcome = PaymentOutcome("unknown")
        for each in used:
            if (receipt := await self.node.receipt(each.transaction)) is None:
                outcome = PaymentOutcome("unknown", reason=f"the chain does not show the transaction {each.transaction} yet")
            elif (outcome := judge(each, receipt, transfer)).state == "settled":
                return outcome
        if outcome.state != "refused":
            return outcome
        return PaymentOutcome("unknown" if expired_at is None else "refused", reason=outcome.reason, block=expired_at)

    async def _nonce_events(self, transfer: Transfer, latest: Block, *, since: int) -> Sequence[Log]:
        """The events that used the nonce, between the reservation and the end of the authorization.

        Only that range is searched, so that a payment of last week is found as fast as one of this minute. If the reservation is in the
        future by the chain's clock, the most recent blocks are searched instead.
        """
        if latest.timestamp < since:
            return await self._search(transfer, max(0, latest.number - RECENT_BLOCKS), latest.number)
        first, _ = await self.node.around(since, latest)
        _, last = await self.node.around(transfer.valid_before, latest)
        return await self._search(transfer, first, last)

    async def _search(self, transfer: Transfer, first: int, last: int) -> Sequence[Log]:
        async with aclosing(self.node.logs(nonce_filter(transfer), first, last)) as ranges:
            async for logs in ranges:
                if found := [log for log in logs if uses_nonce(log, transfer)]:
                    return found
        return ()


def nonce_state_call(transfer: Transfer) -> dict[str, Any]:
    return {"to": transfer.asset, "data": STATE_SELECTOR + topic_of(transfer.payer)[2:] + transfer.nonce[2:]}


def nonce_filter(transfer: Transfer) -> dict[str, Any]:
    return {"address": transfer.asset, "topics": [[AUTHORIZATION_USED, AUTHORIZATION_CANCELED], topic_of(transfer.payer), transfer.nonce]}


def uses_nonce(log: Log, transfer: Transfer) -> bool:
    """Whether the log says that the transfer's nonce was used. A node may return logs that were not asked for."""
    about = [topic_of(transfer.payer), transfer.nonce]
    return (
        not log.removed
        and log.address == transfer.asset
        and list(log.topics) in ([AUTHORIZATION_USED, *about], [AUTHORIZATION_CANCELED, *about])
    )


def judge(used: Log, receipt: Receipt, transfer: Transfer) -> PaymentOutcome:
    """Whether the transaction that used the nonce was the payment; `refused` if not, which counts once the authorization has expired."""
    if receipt.status != 1:  # a failed transaction has no events, so this node contradicts itself
        return PaymentOutcome("unknown", reason=f"the node shows events of the transaction {used.transaction} and says that it failed")
    if used.topics[0] == AUTHORIZATION_CANCELED:
        return PaymentOutcome("refused", reason="its payer cancelled the authorization on the chain")
    if not proves(receipt, transfer):
        return PaymentOutcome("refused", reason=f"its nonce was spent on another transfer, in the transaction {used.transaction}")
    return PaymentOutcome("settled", used.transaction, "found on the chain", receipt.block)


def has_expired(transfer: Transfer, *, chain: int, own: int) -> bool:
    """Whether the authorization has expired by both clocks, in Unix seconds, each with its margin."""
    return chain > transfer.valid_before + CHAIN_MARGIN_SECONDS and own > transfer.valid_before + OWN_MARGIN_SECONDS


def proves(receipt: Receipt, transfer: Transfer) -> bool:
    """Whether the transaction succeeded and used the nonce for exactly this transfer."""
    used_topics = [AUTHORIZATION_USED, topic_of(transfer.payer), transfer.nonce]
    moved_topics = [TRANSFER, topic_of(transfer.payer), topic_of(transfer.pay_to)]
    return receipt.status == 1 and any(
        list(used.topics) == used_topics and list(moved.topics) == moved_topics and moved.data == f"0x{transfer.amount:064x}"
        for used, moved in _neighbours(receipt, transfer.asset)
    )


def nonce_of(receipt: Receipt, asset: str, *, payer: str, pay_to: str, amount: int) -> str | None:
    """The nonce of the authorization for this transfer in a transaction; None if there is none."""
    moved_topics = [TRANSFER, topic_of(payer), topic_of(pay_to)]
    for used, moved in _neighbours(receipt, asset):
        is_it = list(moved.topics) == moved_topics and amount_of(moved) == amount
        if is_it and list(used.topics[:2]) == [AUTHORIZATION_USED, topic_of(payer)] and len(used.topics) == 3:
            return used.topics[2]
    return None


def _neighbours(receipt: Receipt, asset: str) -> Iterable[tuple[Log, Log]]:
    """Each event of the token with the next one, in the order in which the token wrote them."""
    return pairwise(sorted((log for log in receipt.logs if log.address == asset and not log.removed), key=lambda log: log.index))


def amount_of(moved: Log) -> int | None:
    """The amount of a token's Transfer event; None if its data is not a number."""
    return int(moved.data, 16) if WORD.fullmatch(moved.data) else None


def income_filter(asset: str, pay_to: str) -> dict[str, Any]:
    return {"address": asset, "topics": [TRANSFER, None, topic_of(pay_to)]}


def topic_of(address: str) -> str:
    """An address as the topic of a log: 32 bytes."""
    return "0x" + address.removeprefix("0x").rjust(64, "0")
