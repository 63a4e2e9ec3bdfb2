"""A node of the chain, asked by plain JSON-RPC for blocks, logs and receipts; what it answers is read, and nothing is concluded."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx
from pydantic import BaseModel, TypeAdapter, ValidationError

from campus.errors import JobFailed
from campus.payments.outcome import one_line
from campus.payments.proof import Block, Log, Receipt

SPAN = 500
"""Blocks per eth_getLogs; nodes refuse large ranges, and where one does, smaller ones are asked for."""
NEAR = 16
"""Blocks: a moment of the chain's clock is looked for no closer."""
LOGS = TypeAdapter(list[Log])
Model = TypeVar("Model", bound=BaseModel)


class RpcUnavailable(JobFailed):
    """The node gave no answer, or none that can be read."""


class RpcRefused(RpcUnavailable):
    """The node answered with an error."""


class Node:
    """One node by its URL, which may hold a secret and is never shown. Each method raises RpcUnavailable when it cannot be asked."""

    def __init__(self, client: httpx.AsyncClient, url: str) -> None:
        self._client = client
        self._url = url

    @property
    def name(self) -> str:
        """What it is called in messages."""
        return f"the chain's node at {urlsplit(self._url).hostname}"

    async def chain_id(self) -> int:
        """The chain's number."""
        answer = await self.ask("eth_chainId")
        try:
            return int(answer, 16)
        except (TypeError, ValueError):
            raise self._garbled() from None

    async def block(self, number: int | None = None) -> Block:
        """A block, by default the latest."""
        return self._read(Block, await self.ask("eth_getBlockByNumber", "latest" if number is None else hex(number), False))

    async def receipt(self, transaction: str) -> Receipt | None:
        """What a transaction did; None where the chain has no such transaction, or not yet."""
        found = await self.ask("eth_getTransactionReceipt", transaction)
        return None if found is None else self._read(Receipt, found)

    async def call(self, question: Mapping[str, Any], *, block: int) -> int:
        """What a contract's view returns as of a block, a number."""
        answer = await self.ask("eth_call", question, hex(block))
        try:
            return int(answer, 16)
        except (TypeError, ValueError):
            raise self._garbled() from None

    async def logs(self, question: Mapping[str, Any], first: int, last: int, *, span: int = SPAN) -> AsyncGenerator[Sequence[Log]]:
        """The logs between two blocks, both included, backward in ranges of `span` blocks, or fewer where the node refuses so many."""
        while last >= first:
            blocks = min(span, last - first + 1)
            try:
                found = await self.ask("eth_getLogs", {**question, "fromBlock": hex(last - blocks + 1), "toBlock": hex(last)})
            except RpcRefused:
                if blocks == 1:
                    raise
                span = blocks // 2
                continue
            try:
                yield LOGS.validate_python(found)
            except ValidationError:
                raise self._garbled() from None
            last -= blocks

    async def around(self, seconds: int, latest: Block) -> tuple[int, int]:
        """Two blocks near each other, between which the chain's clock came to a moment; twice the latest where it has not yet."""
        high, step = latest.number, NEAR
        if latest.timestamp < seconds:
            return high, high
        low = max(0, high - step)
        while low > 0 and (await self.block(low)).timestamp >= seconds:
            high, step = low, 2 * step
            low = max(0, high - step)
        while high - low > NEAR:
            middle = (low + high) // 2
            if (await self.block(middle)).timestamp >= seconds:
                high = middle
            else:
                low = middle
        return low, high

    async def ask(self, method: str, *params: Any) -> Any:
        """Any question, and the answer as it came."""
        try:
            response = await self._client.post(self._url, json={"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
            answer = response.json()
        except httpx.HTTPError as error:
            raise RpcUnavailable(f"{self.name} cannot be asked: {one_line(error) or type(error).__name__}") from None
        except (ValueError, RecursionError):
            raise self._garbled() from None
        if not isinstance(answer, Mapping):
            raise self._garbled()
        if (refusal := answer.get("error")) is not None:
            raise RpcRefused(
                f"{self.name} refuses {method}: {one_line(refusal.get('message') if isinstance(refusal, Mapping) else refusal)}"
            )
        return answer.get("result")

    def _read(self, model: type[Model], found: Any) -> Model:
        try:
            return model.model_validate(found)
        except ValidationError:
            raise self._garbled() from None

    def _garbled(self) -> RpcUnavailable:
        return RpcUnavailable(f"{self.name} gave an answer that no node gives; see that [payments] rpc_url is the address of one")
