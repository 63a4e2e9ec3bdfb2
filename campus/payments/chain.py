"""The chain, asked by plain JSON-RPC: whether a payment was made, and what time it is there. It submits nothing."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar
from urllib.parse import urlsplit

import anyio
import httpx
from pydantic import BaseModel, TypeAdapter, ValidationError

from campus.errors import JobFailed
from campus.payments.outcome import Outcome, told
from campus.payments.proof import Block, Log, Receipt, Transfer, judge, proves, question, takes

SPAN = 500
"""Blocks per eth_getLogs; nodes refuse large ranges, and where one does, smaller ones are asked for."""
NEAR = 16
"""Blocks: a moment of the chain's clock is looked for no closer."""
LOOK_SECONDS = 20.0
CERTAIN_SECONDS = 30
"""How far the chain's clock must be past an authorization's end before its absence counts: nodes behind one address differ."""
SKEW_SECONDS = 300
"""How far this machine's clock may be ahead of the chain's; with more, authorizations seem to have expired when they are presented."""
LOGS = TypeAdapter(list[Log])
Model = TypeVar("Model", bound=BaseModel)


class RpcUnavailable(JobFailed):
    """The node gave no answer, or none that can be read."""


class RpcRefused(RpcUnavailable):
    """The node answered with an error."""


class Chain:
    """One chain, by one node's URL; the URL may hold a secret, and is never told."""

    def __init__(self, client: httpx.AsyncClient, url: str) -> None:
        self._client = client
        self._url = url
        self.trouble: str | None = None

    async def outcome_of(self, transfer: Transfer, *, since: datetime) -> Outcome:
        """Whether a payment that was reserved at `since` was made; unknown too where the node cannot be asked."""
        trouble = f"{self._name} took more than {LOOK_SECONDS:g} s to say whether a payment was made"
        with anyio.move_on_after(LOOK_SECONDS):
            try:
                outcome = await self._look(transfer, since=int(since.timestamp()) - SKEW_SECONDS)
            except RpcUnavailable as error:
                trouble = str(error)
            else:
                self.trouble = None
                return outcome
        self.trouble = trouble
        return Outcome("unknown", reason=trouble)

    async def doubt_of(self, transaction: str | None, transfer: Transfer) -> str | None:
        """Why the transaction does not prove the payment; None when it does. JobFailed when the node cannot be asked."""
        if transaction is None:
            return "no transaction is recorded"
        found = await self._ask("eth_getTransactionReceipt", transaction)
        if found is None:
            return "the chain has no such transaction"
        receipt = self._read(Receipt, found)
        return None if proves(receipt, transfer) else "the transaction is not this payment"

    async def chain_id(self) -> int:
        """The chain's number. JobFailed when the node cannot be asked."""
        answer = await self._ask("eth_chainId")
        try:
            return int(answer, 16)
        except (TypeError, ValueError):
            raise self._garbled() from None

    async def _look(self, transfer: Transfer, *, since: int) -> Outcome:
        # the clock is read first: what the search does not find up to this block was not there when the clock stood so
        latest = self._read(Block, await self._ask("eth_getBlockByNumber", "latest", False))
        if (taken := await self._taken(transfer, latest, since=since)) is not None:
            if (found := await self._ask("eth_getTransactionReceipt", taken.transaction)) is None:
                return Outcome("unknown", reason=f"the chain does not show the transaction {taken.transaction} yet")
            return judge(taken, self._read(Receipt, found), transfer)
        if latest.timestamp > transfer.valid_before + CERTAIN_SECONDS:
            return Outcome("refused", reason="its authorization expired, and the chain has no such payment")
        return Outcome("unknown", reason="the chain has no such payment yet")

    async def _taken(self, transfer: Transfer, latest: Block, *, since: int) -> Log | None:
        """The log that says that the nonce was taken, between the reservation's time and the authorization's end.

        It is looked for there alone, backward, so that a payment of last week is found as quickly as one of this minute.
        """
        first, _ = await self._around(since, latest)
        _, last = await self._around(transfer.valid_before, latest)
        blocks = SPAN
        while last >= first:
            blocks = min(blocks, last - first + 1)
            try:
                found = await self._logs(transfer, last - blocks + 1, last)
            except RpcRefused:
                if blocks == 1:
                    raise
                blocks //= 2
                continue
            if found:
                return found[0]
            last -= blocks
        return None

    async def _around(self, seconds: int, latest: Block) -> tuple[int, int]:
        """Two blocks near each other, between which the chain's clock came to a moment; twice the latest where it has not yet."""
        high, step = latest.number, NEAR
        if latest.timestamp < seconds:
            return high, high
        low = max(0, high - step)
        while low > 0 and await self._time_of(low) >= seconds:
            high, step = low, 2 * step
            low = max(0, high - step)
        while high - low > NEAR:
            middle = (low + high) // 2
            if await self._time_of(middle) >= seconds:
                high = middle
            else:
                low = middle
        return low, high

    async def _time_of(self, number: int) -> int:
        return self._read(Block, await self._ask("eth_getBlockByNumber", hex(number), False)).timestamp

    async def _logs(self, transfer: Transfer, first: int, last: int) -> Sequence[Log]:
        asked = {**question(transfer), "fromBlock": hex(first), "toBlock": hex(last)}
        try:
            return [log for log in LOGS.validate_python(await self._ask("eth_getLogs", asked)) if takes(log, transfer)]
        except ValidationError:
            raise self._garbled() from None

    async def _ask(self, method: str, *params: Any) -> Any:
        try:
            response = await self._client.post(self._url, json={"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
            answer = response.json()
        except httpx.HTTPError as error:
            raise RpcUnavailable(f"{self._name} cannot be asked: {told(error) or type(error).__name__}") from None
        except (ValueError, RecursionError):
            raise self._garbled() from None
        if not isinstance(answer, Mapping):
            raise self._garbled()
        if (refusal := answer.get("error")) is not None:
            raise RpcRefused(f"{self._name} refuses {method}: {told(refusal.get('message') if isinstance(refusal, Mapping) else refusal)}")
        return answer.get("result")

    def _read(self, model: type[Model], found: Any) -> Model:
        try:
            return model.model_validate(found)
        except ValidationError:
            raise self._garbled() from None

    def _garbled(self) -> RpcUnavailable:
        return RpcUnavailable(f"{self._name} gave an answer that no node gives; see that [payments] rpc_url is the address of one")

    @property
    def _name(self) -> str:
        return f"the chain's node at {urlsplit(self._url).hostname}"
