"""A proxy in front of the local chain's node: forwards its answers; a test can make them wrong or late."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, fields
from typing import Any

import httpx

from campus.testing.chain import TIMEOUT_SECONDS, Chain
from campus.testing.listener import Answered, Asked, Listener

STRANGER = "0x" + "5a" * 20


@dataclass
class NodeFaults:
    """Switches; each stays on until it is reset. Without any, the node answers as the chain's own."""

    listener: Listener = field(repr=False)
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

    @property
    def down(self) -> bool:
        """Whether connections are refused."""
        return not self.listener.is_open

    @down.setter
    def down(self, down: bool) -> None:
        if down:
            self.listener.close()
        else:
            self.listener.open()

    def clear(self) -> None:
        """Reset all switches."""
        self.down = False
        for each in fields(self):
            if each.name != "listener":
                setattr(self, each.name, each.default)


class Relay:
    """The running node: the methods it was asked for, and the switches of its faults."""

    def __init__(self, chain: Chain) -> None:
        self._listener = Listener(self._answer, keep_alive=False)
        self._client = httpx.Client(timeout=TIMEOUT_SECONDS, trust_env=False)
        self._chain = chain
        self.faults = NodeFaults(self._listener)
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        """Its URL, which stays the same while it is down."""
        return self._listener.url

    def open(self) -> None:
        """Accept calls."""
        self._listener.open()

    def close(self) -> None:
        """Accept no more calls."""
        self._listener.close()
        self._client.close()

    def _answer(self, asked: Asked) -> Answered:
        method, params = asked.body["method"], asked.body.get("params") or []
        self.asked.append(method)
        return Answered(200, {"jsonrpc": "2.0", "id": asked.body.get("id"), **self._outcome(method, params)})

    def _outcome(self, method: str, params: Sequence[Any]) -> dict[str, Any]:
        faults = self.faults
        if method == "eth_getLogs":
            found = [] if faults.hides_logs else self._result(method, {**params[0], "toBlock": self._known(params[0]["toBlock"])})
            return {"result": [self._log(log) for log in found if int(log["blockNumber"], 16) <= self._head()]}
        if method == "eth_getTransactionReceipt":
            return {"result": self._receipt(None if faults.hides_receipts else self._result(method, *params))}
        if method == "eth_getBlockByNumber":
            block = self._result(method, self._known(params[0]), *params[1:])
            return {"result": {**block, "timestamp": hex(int(block["timestamp"], 16) + faults.ahead_seconds)}}
        if method == "eth_call" and faults.says_unused:
            return {"result": "0x" + "00" * 32}
        return self._ask(method, *params)

    def _known(self, block: str) -> str:
        """The block that is asked for, or the newest that this node has."""
        return hex(self._head() if block == "latest" else min(int(block, 16), self._head()))

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
        answer: dict[str, Any] = self._client.post(self._chain.rpc_url, json=call).json()
        return {name: answer[name] for name in ("result", "error") if name in answer}


@asynccontextmanager
async def open_relay(chain: Chain) -> AsyncIterator[Relay]:
    """A node before the chain's own, until the block ends. Use its `url` as rpc_url."""
    relay = Relay(chain)
    relay.open()
    try:
        yield relay
    finally:
        relay.close()
