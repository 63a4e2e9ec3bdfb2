"""A node of the chain: JSON-RPC calls for blocks, logs and receipts, and the models of its answers. It only reads; chain.py interprets."""

import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Annotated, Any, TypeVar
from urllib.parse import urlsplit

import httpx
from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, TypeAdapter, ValidationError

from campus.errors import JobFailed, one_line

BLOCKS_PER_QUERY = 500
"""Blocks per eth_getLogs. If a node refuses the range, smaller ones are asked for."""
NEAR = 16
"""The search for the block of a given time stops at a range of so many blocks."""
TRANSACTION_HASH = WORD = re.compile("0x[0-9a-f]{64}")
"""32 bytes: the hash of a transaction, or a number in the data of an event."""
T = TypeVar("T")


def _number(value: Any) -> int:
    if isinstance(value, str):
        return int(value, 16)
    if type(value) is not int:  # pydantic reports a ValueError as an answer that cannot be read
        raise ValueError("neither a number nor its hexadecimal digits")
    return value


Quantity = Annotated[int, BeforeValidator(_number)]
Hex = Annotated[str, AfterValidator(str.lower)]


class Log(BaseModel):
    """One event of a contract."""

    address: Hex
    topics: Sequence[Hex]
    data: Hex
    index: Quantity = Field(alias="logIndex")
    transaction: Hex = Field(alias="transactionHash")
    block: Quantity = Field(alias="blockNumber")
    removed: bool = False


class Receipt(BaseModel):
    """What a transaction did; `status` is 1 where it succeeded."""

    status: Quantity
    logs: Sequence[Log]
    block: Quantity = Field(alias="blockNumber")


class Block(BaseModel):
    """A block's number and its time, in Unix seconds."""

    number: Quantity
    timestamp: Quantity


RECEIPT, BLOCK, QUANTITY, LOGS = TypeAdapter(Receipt), TypeAdapter(Block), TypeAdapter(Quantity), TypeAdapter(list[Log])


class RpcUnavailable(JobFailed):
    """The node did not answer, or its answer cannot be read."""


class RpcRefused(RpcUnavailable):
    """The node answered with an error."""


class Node:
    """One node. Its URL may hold a secret and is never shown. Each method raises RpcUnavailable if the node cannot be asked."""

    def __init__(self, client: httpx.AsyncClient, url: str) -> None:
        self._client = client
        self._url = url

    @property
    def name(self) -> str:
        """Its name in messages: its host, without the rest of the URL."""
        return f"the chain's node at {urlsplit(self._url).hostname}"

    async def chain_id(self) -> int:
        return self._read(QUANTITY, await self.ask("eth_chainId"))

    async def block(self, number: int | None = None) -> Block:
        return self._read(BLOCK, await self.ask("eth_getBlockByNumber", "latest" if number is None else hex(number), False))

    async def receipt(self, transaction: str) -> Receipt | None:
        """The receipt of a transaction; None if the chain does not have it, or not yet."""
        found = await self.ask("eth_getTransactionReceipt", transaction)
        return None if found is None else self._read(RECEIPT, found)

    async def call(self, question: Mapping[str, Any], *, block: int) -> int:
        """The number that a contract's view function returns as of a block."""
        return self._read(QUANTITY, await self.ask("eth_call", question, hex(block)))

    async def logs(
        self, log_filter: Mapping[str, Any], first: int, last: int, *, span: int = BLOCKS_PER_QUERY
    ) -> AsyncGenerator[Sequence[Log]]:
        """The logs between two blocks, both included, from last to first in ranges of `span` blocks, or fewer if a node refuses."""
        while last >= first:
            blocks = min(span, last - first + 1)
            try:
                found = await self.ask("eth_getLogs", {**log_filter, "fromBlock": hex(last - blocks + 1), "toBlock": hex(last)})
            except RpcRefused:
                if blocks == 1:
                    raise
                span = blocks // 2
                continue
            logs = self._read(LOGS, found)
            yield logs
            last -= blocks

    async def around(self, seconds: int, latest: Block) -> tuple[int, int]:
        """Two blocks close together, between which the chain's clock reached a time; the latest block twice if it has not yet."""
        high = latest.number
        step = NEAR
        if latest.timestamp < seconds:
            return high, high
        low = max(0, high - step)
        while low > 0 and (await self.block(low)).timestamp >= seconds:
            high = low
            step *= 2
            low = max(0, high - step)
        while high - low > NEAR:
            middle = (low + high) // 2
            if (await self.block(middle)).timestamp >= seconds:
                high = middle
            else:
                low = middle
        return low, high

    async def ask(self, method: str, *params: Any) -> Any:
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

    def _read(self, kind: TypeAdapter[T], found: Any) -> T:
        try:
            return kind.validate_python(found)
        except ValidationError:
            raise self._garbled() from None

    def _garbled(self) -> RpcUnavailable:
        return RpcUnavailable(f"{self.name} did not answer as a node does; check that [payments] rpc_url is the address of one")
