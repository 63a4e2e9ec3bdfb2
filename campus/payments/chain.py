"""The chain: whether a payment was made, and whether the transaction that somebody names is it. It submits nothing."""

from collections.abc import Awaitable, Sequence
from contextlib import aclosing
from datetime import datetime

import anyio
import httpx

from campus.payments.node import SPAN, Node, RpcUnavailable
from campus.payments.outcome import Outcome
from campus.payments.proof import Block, Log, Transfer, is_over, judge, proves, question, state_question, takes

LOOK_SECONDS = 20.0
SKEW_SECONDS = 300
"""How far this machine's clock may be ahead of the chain's; with more, authorizations seem to have expired when they are presented."""
RECENT_BLOCKS = 20 * SPAN
"""How far back from the latest block a transfer is looked for where the chain's times do not lead to it; on Base 5 hours."""


class Chain:
    """One chain, by one node's URL; the URL may hold a secret, and is never shown.

    A payment was made where the chain shows its transfer. It never will be made where its authorization's time is over by both clocks, no
    event of its nonce is found, and the token itself says that the nonce is not taken. Everything else is unknown, however likely.
    """

    def __init__(self, client: httpx.AsyncClient, url: str) -> None:
        self.node = Node(client, url)
        self.trouble: str | None = None

    async def outcome_of(self, transfer: Transfer, *, since: datetime, now: datetime) -> Outcome:
        """Whether a payment that was reserved at `since` was made; unknown too where the node cannot be asked."""
        return await self._answered(self._look(transfer, since=int(since.timestamp()) - SKEW_SECONDS, own=int(now.timestamp())))

    async def shown(self, transaction: str, transfer: Transfer) -> Outcome:
        """Whether this transaction is the payment; refused where it is not, unknown while the chain does not show it."""
        return await self._answered(self._shown(transaction, transfer))

    async def doubt_of(self, transaction: str | None, transfer: Transfer) -> str | None:
        """Why the transaction does not prove the payment; None when it does. JobFailed when the node cannot be asked."""
        if transaction is None:
            return "no transaction is recorded"
        outcome = await self._shown(transaction, transfer)
        return None if outcome.state == "settled" else outcome.reason

    async def chain_id(self) -> int:
        """The chain's number. JobFailed when the node cannot be asked."""
        return await self.node.chain_id()

    async def _answered(self, look: Awaitable[Outcome]) -> Outcome:
        trouble = f"{self.node.name} took more than {LOOK_SECONDS:g} s to say whether a payment was made"
        with anyio.move_on_after(LOOK_SECONDS):
            try:
                outcome = await look
            except RpcUnavailable as error:
                trouble = str(error)
            else:
                self.trouble = None
                return outcome
        self.trouble = trouble
        return Outcome("unknown", reason=trouble)

    async def _shown(self, transaction: str, transfer: Transfer) -> Outcome:
        receipt = await self.node.receipt(transaction)
        if receipt is None:
            return Outcome("unknown", reason="the chain has no such transaction")
        if not proves(receipt, transfer):
            return Outcome("refused", reason="the transaction is not this payment")
        return Outcome("settled", transaction, "shown by the chain", receipt.block)

    async def _look(self, transfer: Transfer, *, since: int, own: int) -> Outcome:
        # the clock is read first: what the search does not find up to this block was not there when the clock stood so
        latest = await self.node.block()
        over = is_over(transfer, chain=latest.timestamp, own=own)
        taken = await self._taken(transfer, latest, since=since)
        if not taken and over:
            if not await self.node.call(state_question(transfer), block=latest.number):
                reason = "its authorization expired, and the chain has no such payment"
                return Outcome("refused", reason=reason, block=latest.number)
            # the token knows better than the node's times
            taken = await self._search(transfer, max(0, latest.number - RECENT_BLOCKS), latest.number)
        if taken:
            return await self._judged(taken, transfer, over=latest.number if over else None)
        not_shown = "the token says that its nonce is taken, and the node does not show by what"
        return Outcome("unknown", reason=not_shown if over else "the chain has no such payment yet")

    async def _judged(self, taken: Sequence[Log], transfer: Transfer, *, over: int | None) -> Outcome:
        """What took the nonce; that it was something else counts when time is over, as it is by the block `over`."""
        outcome = Outcome("unknown")
        for each in taken:
            if (receipt := await self.node.receipt(each.transaction)) is None:
                outcome = Outcome("unknown", reason=f"the chain does not show the transaction {each.transaction} yet")
            elif (outcome := judge(each, receipt, transfer)).state == "settled":
                return outcome
        if outcome.state != "refused":
            return outcome
        return Outcome("unknown" if over is None else "refused", reason=outcome.reason, block=over)

    async def _taken(self, transfer: Transfer, latest: Block, *, since: int) -> Sequence[Log]:
        """The logs that say that the nonce was taken, between the reservation's time and the authorization's end.

        They are looked for there alone, backward, so that a payment of last week is found as quickly as one of this minute. A reservation
        of a time to come, by the chain's clock, tells nothing of where to look: then it is the most recent blocks.
        """
        if latest.timestamp < since:
            return await self._search(transfer, max(0, latest.number - RECENT_BLOCKS), latest.number)
        first, _ = await self.node.around(since, latest)
        _, last = await self.node.around(transfer.valid_before, latest)
        return await self._search(transfer, first, last)

    async def _search(self, transfer: Transfer, first: int, last: int) -> Sequence[Log]:
        async with aclosing(self.node.logs(question(transfer), first, last)) as ranges:
            async for logs in ranges:
                if found := [log for log in logs if takes(log, transfer)]:
                    return found
        return ()
