"""The node of a local chain for tests: eth-tester behind JSON-RPC, in this process."""

import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from eth_tester import EthereumTester, PyEVMBackend  # type: ignore[import-untyped]  # it ships no types
from eth_tester.exceptions import TransactionFailed  # type: ignore[import-untyped]  # the same
from eth_utils.address import to_canonical_address
from eth_utils.crypto import keccak
from web3 import EthereumTesterProvider, Web3
from x402.mechanisms.evm.constants import MULTICALL3_ADDRESS

from campus.features.chain import usdc
from campus.features.chain.contract_wallets import FACTORY
from campus.features.chain.listener import Answered, Asked, Listener

CONTRACTS = {"wallet": FACTORY, "multicall": MULTICALL3_ADDRESS}
REVERTED = 3
FAILED = -32000
ACCOUNTS = 2
AHEAD = re.compile(r"nonce: Expected (?P<expected>\d+), but got (?P<got>\d+)")


class TesterNode:
    """Answers JSON-RPC calls. All threads share one eth-tester, so calls run one at a time."""

    def __init__(self, chain_id: int, token: str) -> None:
        self._chain_id = chain_id
        self._provider = EthereumTesterProvider(_Tester(backend=_backend(chain_id, token), auto_mine_transactions=True))
        web3 = Web3(self._provider)
        # web3's middleware is for callers, not for nodes: it would read a list of addresses as a name
        web3.middleware_onion.clear()
        self._request = self._provider.request_func(web3, web3.middleware_onion)
        self._waiting: list[str] = []
        self._lock = threading.Lock()

    def answer(self, asked: Asked) -> Answered:
        if isinstance(asked.body, list):
            return Answered(200, [self._answer(call) for call in asked.body])
        return Answered(200, self._answer(asked.body))

    def _answer(self, call: Mapping[str, Any]) -> dict[str, Any]:
        envelope = {"jsonrpc": "2.0", "id": call.get("id")}
        try:
            return envelope | self._outcome(call["method"], call.get("params") or [])
        except TransactionFailed as error:
            return envelope | {"error": {"code": REVERTED, "message": str(error)}}
        except Exception as error:  # the border to the caller: whatever eth-tester raises becomes the message of an error
            return envelope | {"error": {"code": FAILED, "message": f"{type(error).__name__}: {error}"}}

    def _outcome(self, method: str, params: Sequence[Any]) -> dict[str, Any]:
        if method == "eth_chainId":
            return {"result": hex(self._chain_id)}
        if method == "net_version":
            return {"result": str(self._chain_id)}
        with self._lock:
            if method == "eth_sendRawTransaction":
                return {"result": self._send(params[0])}
            if method == "evm_increaseTime":
                return {"result": self._advance(params[0])}
            return {"result": self._call(method, params)}

    def _call(self, method: str, params: Sequence[Any]) -> Any:
        response = self._request(method, params)
        if response.get("error"):
            raise RuntimeError(str(response["error"]))
        return _plain(response.get("result"))

    def _advance(self, seconds: int) -> Any:
        latest = self._call("eth_getBlockByNumber", ["latest", False])
        return self._call("testing_timeTravel", [max(int(latest["timestamp"], 16), int(time.time())) + seconds])

    def _send(self, raw: str) -> str:
        """Submit a transaction. If its nonce is too high for its account, it waits, as in a node's pool."""
        try:
            self._call("eth_sendRawTransaction", [raw])
        except Exception as error:
            ahead = AHEAD.search(str(error))
            if ahead is None or int(ahead["got"]) < int(ahead["expected"]):
                raise
            self._waiting.append(raw)
        else:
            self._send_waiting()
        return "0x" + keccak(hexstr=raw).hex()

    def _send_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for raw in waiting:
            self._send(raw)


class _Tester(EthereumTester):  # type: ignore[misc]  # it ships no types
    """Keeps blocks and receipts, which eth-tester makes again for each search of events. Only a revert changes what was mined."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._receipts: dict[str, Mapping[str, Any]] = {}
        self._blocks: dict[int, Mapping[str, Any]] = {}

    def get_block_by_number(self, block_number: int | str = "latest", full_transactions: bool = False) -> Mapping[str, Any]:
        known = None if full_transactions or isinstance(block_number, str) else self._blocks.get(block_number)
        if known is None:
            known = super().get_block_by_number(block_number, full_transactions)
            mined = self.backend.chain.get_canonical_head().block_number
            if isinstance(block_number, int) and not full_transactions and block_number <= mined:
                self._blocks[block_number] = known
        return known

    def get_transaction_receipt(self, transaction_hash: str) -> Mapping[str, Any]:
        known = self._receipts.get(transaction_hash)
        if known is None:
            known = super().get_transaction_receipt(transaction_hash)
            if known["block_number"] is not None:
                self._receipts[transaction_hash] = known
        return known

    def revert_to_snapshot(self, snapshot_id: Any) -> None:
        super().revert_to_snapshot(snapshot_id)
        self._receipts.clear()
        self._blocks.clear()


@contextmanager
def running_node(chain_id: int, token: str) -> Iterator[str]:
    """Start a chain that has the token at this address; yields its URL."""
    with Listener(TesterNode(chain_id, token).answer, keep_alive=True) as listener:
        yield listener.url


def _backend(chain_id: int, token: str) -> Any:
    state = PyEVMBackend.generate_genesis_state(num_accounts=ACCOUNTS)
    for name, address in {"usdc": token, **CONTRACTS}.items():
        state[to_canonical_address(address)] = {"balance": 0, "nonce": 1, "storage": {}, "code": bytes.fromhex(usdc.code(name)[2:])}
    backend = PyEVMBackend(genesis_state=state)
    # eth-tester has no parameter for the chain id; each backend makes its own class for its chain
    type(backend.chain).chain_id = chain_id
    return backend


def _plain(value: Any) -> Any:
    """A result of web3 as JSON-RPC spells it: numbers and bytes are hexadecimal."""
    match value:
        case bool() | None | str():
            return value
        case int():
            return hex(value)
        case bytes() | bytearray():
            return "0x" + bytes(value).hex()
        case Mapping():
            return {key: _plain(each) for key, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
    return str(value)
