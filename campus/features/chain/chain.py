"""A real local chain for tests, with Base's chain id and token address; and a relay before its node, whose answers a test can falsify."""

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio.to_thread
import httpx
from eth_abi.abi import decode
from eth_utils.address import to_checksum_address

from campus.features.chain import evm, usdc
from campus.features.chain.contract_wallets import ANSWERS, FACTORY, Answer, ContractWallet, created
from campus.features.chain.listener import Answered, Asked, Listener, Switches
from campus.features.chain.usdc import Wallet, new_wallet
from campus.outbound.http_clients import certificate_authorities

GAS = 500_000
TIMEOUT_SECONDS = 60
PAUSE_SECONDS = 0.01
STRANGER = "0x" + "5a" * 20


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

    rpc_url: str
    client: httpx.Client = field(repr=False)
    asset: str = usdc.ADDRESS
    network: str = usdc.NETWORK

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
        topics = [usdc.TRANSFER, *(None if each is None else "0x" + each[2:].lower().rjust(64, "0") for each in (sender, receiver))]
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

    async def transfer_with_authorization(self, payment: Mapping[str, Any]) -> str:
        """Submit the transfer that a payment authorizes, without a facilitator, as anybody can. Returns the transaction.

        Raises ChainError with the token's reason.
        """
        signature = bytes.fromhex(payment["payload"]["signature"][2:])
        signed = usdc.authorization(payment["payload"]["authorization"])
        return await self._submit("transferWithAuthorization", (*usdc.AUTHORIZATION, *usdc.PARTS), *signed, *usdc.parts(signature))

    async def cancel_authorization(self, wallet: Wallet, nonce: str) -> str:
        """Cancel an unused authorization with its payer's signature. Returns the transaction."""
        return await self._submit(
            "cancelAuthorization",
            ("address", "bytes32", *usdc.PARTS),
            wallet.address,
            bytes.fromhex(nonce[2:]),
            *usdc.parts(bytes.fromhex(wallet.sign_cancel(nonce)[2:])),
        )

    async def contract_wallet(self, *, is_short: bool = False, is_deployed: bool = True) -> ContractWallet:
        """A new, empty contract wallet; for its options see ContractWallet."""
        owner = new_wallet()
        call = {"to": FACTORY, "data": created(owner.address)}
        found = await self.rpc("eth_call", call, "latest")
        if is_deployed:
            await self._mined(call)
        return ContractWallet(to_checksum_address(f"0x{found[-40:]}"), owner.key, owner.address, is_short, is_deployed)

    async def let_answer(self, wallet: ContractWallet, answer: Answer) -> None:
        """From now on a contract wallet answers so whether its owner has signed."""
        await self._mined({"to": wallet.address, "data": usdc.call_data("answer", ("uint256",), ANSWERS.index(answer))})

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
        return {"to": self.asset, "data": usdc.call_data(function, types, *arguments)}

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
async def open_chain(chain_id: int = usdc.CHAIN_ID, asset: str = usdc.ADDRESS) -> AsyncIterator[Chain]:
    """A new chain, until the block ends: Base, or another one with its USD Coin at the address `asset`.

    Its clock starts with the machine's and runs ahead if more than one block is mined in a second: after a few hundred payments, open
    another chain.
    """
    client = httpx.Client(timeout=TIMEOUT_SECONDS, trust_env=False, verify=certificate_authorities())
    with evm.running_node(chain_id, asset) as rpc_url, client:
        yield Chain(rpc_url, client, asset, f"eip155:{chain_id}")


@dataclass
class NodeFaults(Switches):
    """Switches; each stays on until it is reset. Without any, the node answers as the chain's own."""

    hides_logs: bool = False
    """Answer eth_getLogs with nothing."""
    hides_receipts: bool = False
    """Answer that every transaction is unknown."""
    says_unused: bool = False
    """Answer that every nonce is unused."""
    behind: int = 0
    """How many of the newest blocks are missing."""
    ahead_seconds: int = 0
    """How far the times of blocks are in the future."""
    removed: bool = False
    """Mark every log as removed, also in receipts."""
    failed: bool = False
    """Answer that every transaction failed."""
    foreign: bool = False
    """Every log comes from another contract."""
    empty: bool = False
    """Every log has no data."""


class Relay:
    """The running node: the methods it was asked for, and the switches of its faults."""

    def __init__(self, chain: Chain) -> None:
        self.listener = Listener(self._answer, keep_alive=False)
        self._chain = chain
        self.faults = NodeFaults(self.listener)
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        """Its URL, which stays the same while it is down."""
        return self.listener.url

    def _answer(self, asked: Asked) -> Answered:
        method = asked.body["method"]
        params = asked.body.get("params") or []
        self.asked.append(method)
        return Answered(200, {"jsonrpc": "2.0", "id": asked.body.get("id"), **self._outcome(method, params)})

    def _outcome(self, method: str, params: Sequence[Any]) -> dict[str, Any]:
        faults = self.faults
        if method == "eth_getLogs":
            found = [] if faults.hides_logs else self._result(method, {**params[0], "toBlock": self._known(params[0]["toBlock"])})
            head = self._head()
            return {"result": [self._log(log) for log in found if int(log["blockNumber"], 16) <= head]}
        if method == "eth_getTransactionReceipt":
            return {"result": self._receipt(None if faults.hides_receipts else self._result(method, *params))}
        if method == "eth_getBlockByNumber":
            block = self._result(method, self._known(params[0]), *params[1:])
            return {"result": {**block, "timestamp": hex(int(block["timestamp"], 16) + faults.ahead_seconds)}}
        if method == "eth_call" and faults.says_unused:
            return {"result": "0x" + "00" * 32}
        return self._ask(method, *params)

    def _known(self, block: str) -> str:
        head = self._head()
        return hex(head if block == "latest" else min(int(block, 16), head))

    def _head(self) -> int:
        return int(self._result("eth_blockNumber"), 16) - self.faults.behind

    def _receipt(self, receipt: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        if receipt is None or int(receipt["blockNumber"], 16) > self._head():
            return None
        logs = [self._log(log) for log in receipt["logs"]]
        return {**receipt, "logs": logs, "status": "0x0" if self.faults.failed else receipt["status"]}

    def _log(self, log: Mapping[str, Any]) -> Mapping[str, Any]:
        changes = {"address": STRANGER} if self.faults.foreign else {}
        changes |= {"data": "0x"} if self.faults.empty else {}
        return {**log, **changes, "removed": self.faults.removed}

    def _result(self, method: str, *params: Any) -> Any:
        return self._ask(method, *params)["result"]

    def _ask(self, method: str, *params: Any) -> dict[str, Any]:
        call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        answer: dict[str, Any] = self._chain.client.post(self._chain.rpc_url, json=call).json()
        return {name: answer[name] for name in ("result", "error") if name in answer}


@asynccontextmanager
async def open_relay(chain: Chain) -> AsyncIterator[Relay]:
    """A node before the chain's own, until the block ends. Use its `url` as rpc_url."""
    relay = Relay(chain)
    with relay.listener:
        yield relay
