"""A real local chain for tests. Like Base it has chain id 8453, with a token at the address of USD Coin that anybody can mint."""

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import anyio.to_thread
import httpx
from eth_abi.abi import decode
from eth_utils.address import to_checksum_address

from campus.testing import anvil, evm, token
from campus.testing.token import Wallet

GAS = 500_000
ChainKind = Literal["eth-tester", "anvil"]
TIMEOUT_SECONDS = 60
PAUSE_SECONDS = 0.01


class ChainError(Exception):
    """The chain refused a call or a transaction; the message is its reason."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """A transfer of the token, in atomic units. `sender` is the zero address if it was minted."""

    sender: str
    receiver: str
    amount: int
    transaction: str


@dataclass(frozen=True)
class Chain:
    """The chain and its token, at the address `asset`. All methods work on any event loop."""

    kind: ChainKind
    rpc_url: str
    client: httpx.Client = field(repr=False)
    asset: str = token.ADDRESS
    network: str = token.NETWORK

    async def mint(self, address: str, atomic: int) -> None:
        """Mint tokens for an address: 1_000_000 is a dollar."""
        await self._submit("mint", ("address", "uint256"), address, atomic)

    async def balance(self, address: str) -> int:
        """The token balance of an address, in atomic units."""
        found = await self.rpc("eth_call", self._to_token("balanceOf", ("address",), address), "latest")
        return int(found, 16)

    async def gas(self, address: str) -> int:
        """The balance of an address for gas, in wei."""
        return int(await self.rpc("eth_getBalance", address, "latest"), 16)

    async def fund(self, address: str, wei: int) -> None:
        """Send an address wei for gas."""
        await self._mined({"to": address, "value": hex(wei)})

    async def time(self) -> int:
        """The chain's clock: the time of the latest block, in seconds since 1970."""
        block = await self.rpc("eth_getBlockByNumber", "latest", False)
        return int(block["timestamp"], 16)

    async def mine(self, blocks: int = 1) -> None:
        """Mine empty blocks."""
        for _ in range(blocks):
            await self.rpc("evm_mine")

    async def advance(self, seconds: int) -> None:
        """Set the chain's clock forward, by a block. It cannot be set back."""
        await self.rpc("evm_increaseTime", seconds)
        await self.mine()

    async def transfers(self, *, sender: str | None = None, receiver: str | None = None) -> list[Transfer]:
        """All transfers of the token in order, only those from `sender` and to `receiver` if given."""
        topics = [token.TRANSFER, *(None if each is None else "0x" + each[2:].lower().rjust(64, "0") for each in (sender, receiver))]
        return [_transfer(log) for log in await self.logs(topics)]

    async def logs(self, topics: list[str | None] | None = None) -> list[dict[str, Any]]:
        """All events of the token, as the node returns them."""
        found: list[dict[str, Any]] = await self.rpc(
            "eth_getLogs", {"fromBlock": "0x0", "toBlock": "latest", "address": self.asset, "topics": topics or []}
        )
        return found

    async def is_used(self, authorizer: str, nonce: str) -> bool:
        """Whether an authorization was used or cancelled."""
        call = self._to_token("authorizationState", ("address", "bytes32"), authorizer, bytes.fromhex(nonce[2:]))
        return bool(int(await self.rpc("eth_call", call, "latest"), 16))

    async def transfer_with_authorization(self, payment: Mapping[str, Any], *, in_one_piece: bool = False) -> str:
        """Submit the transfer that a payment authorizes, without a facilitator, as anybody can. Returns the transaction.

        The token takes the signature as three numbers, or with `in_one_piece` as bytes. Raises ChainError with the token's reason.
        """
        signature = bytes.fromhex(payment["payload"]["signature"][2:])
        signed = token.authorization(payment["payload"]["authorization"])
        if in_one_piece:
            return await self._submit("transferWithAuthorization", (*token.AUTHORIZATION, "bytes"), *signed, signature)
        return await self._submit("transferWithAuthorization", (*token.AUTHORIZATION, *token.PARTS), *signed, *token.parts(signature))

    async def cancel_authorization(self, wallet: Wallet, nonce: str) -> str:
        """Cancel an unused authorization with its payer's signature. Returns the transaction."""
        return await self._submit(
            "cancelAuthorization",
            ("address", "bytes32", *token.PARTS),
            wallet.address,
            bytes.fromhex(nonce[2:]),
            *token.parts(bytes.fromhex(wallet.sign_cancel(nonce)[2:])),
        )

    async def rpc(self, method: str, *params: Any) -> Any:
        """Any JSON-RPC call. Raises ChainError with the node's message."""
        return await anyio.to_thread.run_sync(self._ask, method, *params)

    async def _submit(self, function: str, types: tuple[str, ...], *arguments: Any) -> str:
        return await self._mined(self._to_token(function, types, *arguments))

    async def _mined(self, transaction: Mapping[str, str]) -> str:
        return await anyio.to_thread.run_sync(self._mine, transaction)

    def _mine(self, transaction: Mapping[str, str]) -> str:
        funded = {"from": self._ask("eth_accounts")[0], **transaction}
        sent: str = self._ask("eth_sendTransaction", {"gas": hex(GAS), **funded})
        while (receipt := self._ask("eth_getTransactionReceipt", sent)) is None:
            time.sleep(PAUSE_SECONDS)
        if int(receipt["status"], 16) != 1:
            # the receipt has no reason: calling the same once more finds it
            self._ask("eth_call", funded, "latest")
            raise ChainError("the transaction was reverted; the chain does not say why")
        return sent

    def _to_token(self, function: str, types: tuple[str, ...], *arguments: Any) -> dict[str, str]:
        return {"to": self.asset, "data": token.call_data(function, types, *arguments)}

    def _ask(self, method: str, *params: Any) -> Any:
        call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        answer = self.client.post(self.rpc_url, json=call).json()
        if "error" in answer:
            raise ChainError(answer["error"]["message"])
        return answer["result"]


def _transfer(log: Mapping[str, Any]) -> Transfer:
    sender, receiver = (to_checksum_address("0x" + topic[-40:]) for topic in log["topics"][1:])
    (amount,) = decode(["uint256"], bytes.fromhex(log["data"][2:]))
    return Transfer(sender, receiver, amount, log["transactionHash"])


@asynccontextmanager
async def open_chain(*, kind: ChainKind | None = None) -> AsyncIterator[Chain]:
    """A new chain, until the block ends.

    `anvil` is a separate program, and faster. The default is anvil if CAMPUS_ANVIL names it or it is on the PATH, otherwise eth-tester,
    which needs only `campus[chain]`. The chain's clock starts with the machine's and runs ahead if more than one block is mined in a
    second: after a few hundred payments, open another chain.
    """
    kind = kind or ("anvil" if anvil.program() else "eth-tester")
    running: AbstractContextManager[str] = anvil.running() if kind == "anvil" else evm.running()
    with running as rpc_url, httpx.Client(timeout=TIMEOUT_SECONDS, trust_env=False) as client:
        yield Chain(kind, rpc_url, client)
