"""A facilitator for tests: x402's own, on the local chain, over HTTP on 127.0.0.1, with faults that a test switches on."""

import threading
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import anyio.to_thread
from pydantic import BaseModel
from x402 import x402FacilitatorSync
from x402.mechanisms.evm import FacilitatorWeb3Signer
from x402.mechanisms.evm.exact import register_exact_evm_facilitator
from x402.schemas import parse_payment_payload, parse_payment_requirements

from campus.features.chain.chain import Chain
from campus.features.chain.contract_wallets import FACTORY
from campus.features.chain.listener import Answered, Asked, Listener, Switches
from campus.features.chain.usdc import Wallet, new_wallet

Operation = Literal["supported", "verify", "settle"]
Point = Literal["verify", "verified", "settle", "settled"]
"""Before and after the work of a call. At `settled` the transfer is on the chain, and the caller has no answer yet."""
WAIT_SECONDS = 30
GAS_WEI = 10**20
PAGE = b"<!doctype html><title>Bad gateway</title>"


@dataclass
class Faults(Switches):
    """Switches; each stays on until it is reset. Without any, the facilitator works."""

    hang_seconds: float = 0
    """How long every answer is delayed after its work is done."""
    verify_status: int | None = None
    """Answer this status instead of verifying."""
    invalid_status: int | None = None
    """Answer this status with the verdict that a payment is not valid."""
    settle_status_before: int | None = None
    """Answer this status instead of settling."""
    unsent: Mapping[str, Any] | None = None
    """Submit nothing to the chain, and answer this: {"success": True, …}."""
    settle_status: int | None = None
    """Settle, then answer this status."""
    lie: Mapping[str, Any] | None = None
    """Settle, then override these members of the answer: {"network": "eip155:1"}."""
    verify_lie: Mapping[str, Any] | None = None
    """The same for verifying: {"isValid": True}."""
    garbled: Collection[Operation] = ()
    """Which operations do their work and then answer 200 with an HTML page instead of JSON."""


class Hold:
    """A point where calls wait until the test releases them. `hits` counts the calls that reached it."""

    def __init__(self) -> None:
        self.hits = 0
        self._continues: bool | None = None
        self._changed = threading.Condition()

    def release(self) -> None:
        """Let all calls continue, also later ones, whether or not their callers are still there."""
        self._decide(continues=True)

    def drop(self) -> None:
        """Close the connections of all calls, also later ones, without doing their work."""
        self._decide(continues=False)

    def wait(self, times: int = 1, *, seconds: float = WAIT_SECONDS) -> None:
        """Wait until so many calls have reached the point. Raises TimeoutError."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.hits >= times, seconds):
                raise TimeoutError(f"{self.hits} of {times} calls reached the point in {seconds} s")

    async def reached(self, times: int = 1, *, seconds: float = WAIT_SECONDS) -> None:
        """The same, for a test on an event loop."""
        await anyio.to_thread.run_sync(lambda: self.wait(times, seconds=seconds))

    def passes(self) -> bool:
        """Wait at the point; then return whether the call continues."""
        with self._changed:
            self.hits += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._continues is not None)
            return bool(self._continues)

    def _decide(self, *, continues: bool) -> None:
        with self._changed:
            if self._continues is None:
                self._continues = continues
                self._changed.notify_all()


class Call(NamedTuple):
    """A call that was answered. `outcome` is `valid`, `settled`, the facilitator's reason, or the status of a fault."""

    operation: Operation
    payer: str
    nonce: str
    outcome: str


@dataclass
class Facilitator:
    """The running facilitator: its calls so far, with their `bodies`, and the switches of its `faults`. It pays the gas."""

    chain: Chain
    wallet: Wallet
    token: str | Callable[[Asked], bool] | None = field(default=None, repr=False)
    calls: list[Call] = field(default_factory=list)
    bodies: list[Mapping[str, Any]] = field(default_factory=list, repr=False)

    def __post_init__(self) -> None:
        self._listener = Listener(self._answer, keep_alive=False)
        self.faults = Faults(self._listener)
        self._holds: dict[Point, Hold] = {}
        self._held_payers: Collection[str] | None = None
        self._closing = threading.Event()
        self._facilitator = x402FacilitatorSync()
        signer = FacilitatorWeb3Signer(private_key=self.wallet.key, rpc_url=self.chain.rpc_url)
        networks, factories = self.chain.network, [FACTORY]
        register_exact_evm_facilitator(self._facilitator, signer, networks=networks, eip6492_allowed_factories=factories)

    @property
    def url(self) -> str:
        """Its URL, which stays the same while it is down."""
        return self._listener.url

    def table(self, pay_to: str) -> dict[str, Any]:
        """The table [payments] of a campus.toml that uses this chain and facilitator."""
        return {"network": self.chain.network, "pay_to": pay_to, "facilitators": [self.url], "rpc_url": self.chain.rpc_url}

    def outcomes(self, operation: Operation) -> list[str]:
        """The outcomes of the calls of an operation, in order."""
        return [call.outcome for call in self.calls if call.operation == operation]

    @contextmanager
    def hold(self, point: Point, *, payers: Collection[str] | None = None) -> Iterator[Hold]:
        """Hold every call that reaches a point, until the block ends.

        At `verify`, only payments of the addresses in `payers` are held, if given.
        """
        hold = self._holds[point] = Hold()
        self._held_payers = payers
        try:
            yield hold
        finally:
            self._holds.pop(point, None)
            self._held_payers = None
            hold.release()

    def open(self) -> None:
        """Accept calls."""
        self._listener.open()

    def close(self) -> None:
        """Accept no more calls. Calls that hang or are held end without an answer."""
        self._closing.set()
        for hold in self._holds.values():
            hold.drop()
        self._listener.close()

    def _answer(self, asked: Asked) -> Answered | None:
        if self.token is not None and not (self.token(asked) if callable(self.token) else asked.authorization == f"Bearer {self.token}"):
            return Answered(401, {"error": "a bearer token is required"})
        try:
            match asked.path:
                case "/supported":
                    return self._answered("supported", _plain(self._facilitator.get_supported()))
                case "/verify":
                    return self._verify(asked.body)
                case "/settle":
                    return self._settle(asked.body)
        except (ValueError, LookupError, TypeError) as error:
            return Answered(400, {"error": f"not a payment with its terms: {error}"})
        return Answered(404, {"error": "the paths are /supported, /verify and /settle"})

    def _verify(self, body: Mapping[str, Any]) -> Answered | None:
        if self.faults.verify_status is not None:
            return self._failed("verify", body, self.faults.verify_status)
        payer = body["paymentPayload"]["payload"]["authorization"]["from"]
        if (self._held_payers is None or payer in self._held_payers) and not self._passes("verify"):
            return None
        result = _plain(self._facilitator.verify(*_parsed(body)))
        self._record("verify", body, "valid" if result["isValid"] else result["invalidReason"])
        if not self._passes("verified"):
            return None
        if self.faults.invalid_status is not None and not result["isValid"]:
            return Answered(self.faults.invalid_status, result)
        return self._answered("verify", {**result, **(self.faults.verify_lie or {})})

    def _settle(self, body: Mapping[str, Any]) -> Answered | None:
        if self.faults.settle_status_before is not None:
            return self._failed("settle", body, self.faults.settle_status_before)
        if not self._passes("settle"):
            return None
        if self.faults.unsent is not None:
            self._record("settle", body, "unsent")
            return self._answered("settle", self.faults.unsent)
        result = _plain(self._facilitator.settle(*_parsed(body)))
        self._record("settle", body, "settled" if result["success"] else result["errorReason"])
        if not self._passes("settled"):
            return None
        return self._answered("settle", {**result, **(self.faults.lie or {})}, status=self.faults.settle_status)

    def _passes(self, point: Point) -> bool:
        hold = self._holds.get(point)
        return hold is None or hold.passes()

    def _answered(self, operation: Operation, result: Mapping[str, Any], *, status: int | None = None) -> Answered | None:
        faults = self.faults
        if faults.hang_seconds and self._closing.wait(faults.hang_seconds):
            return None
        if status is not None:
            return Answered(status, {"error": f"the test says {status}"})
        return Answered(200, PAGE if operation in faults.garbled else result)

    def _failed(self, operation: Operation, body: Mapping[str, Any], status: int) -> Answered | None:
        self._record(operation, body, str(status))
        return self._answered(operation, {}, status=status)

    def _record(self, operation: Operation, body: Mapping[str, Any], outcome: str) -> None:
        authorization = body["paymentPayload"]["payload"]["authorization"]
        self.calls.append(Call(operation, authorization["from"], authorization["nonce"], outcome))
        self.bodies.append(body)


def _parsed(body: Mapping[str, Any]) -> tuple[Any, Any]:
    payment = parse_payment_payload(body["paymentPayload"])
    return payment, parse_payment_requirements(payment.x402_version, body["paymentRequirements"])


def _plain(result: BaseModel) -> dict[str, Any]:
    return result.model_dump(by_alias=True, exclude_none=True)


@asynccontextmanager
async def open_facilitator(chain: Chain, *, token: str | Callable[[Asked], bool] | None = None) -> AsyncIterator[Facilitator]:
    """A facilitator on a chain, until the block ends. With a `token`, callers must send it as a bearer, or what the function admits."""
    wallet = new_wallet()
    await chain.fund(wallet.address, GAS_WEI)
    facilitator = Facilitator(chain, wallet, token)
    facilitator.open()
    with closing(facilitator):
        yield facilitator
