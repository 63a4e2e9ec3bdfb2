"""A payment as its caller sent it, and a sale as it is offered: what passes between the frames and the processor."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Literal

from twins import Problem


@dataclass(frozen=True, slots=True)
class Payment:
    """A well-formed EIP-3009 authorization; nothing of it is checked yet.

    Addresses and the nonce are lower-case hex with 0x; `value` is in the token's smallest unit; times are Unix seconds.
    `network` is CAIP-2. `resource` is the URL that the payment says it is for, None where its version has no such member;
    `accepted` the requirements that it says it accepts. `payload` is `{signature, authorization}`, as x402 takes it.
    """

    version: Literal[1, 2]
    network: str
    payer: str
    pay_to: str
    value: int
    valid_after: int
    valid_before: int
    nonce: str
    digest: bytes
    payload: Mapping[str, Any]
    resource: str | None = None
    accepted: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Sale:
    """One call as it is sold: what is bought, and what must be paid for it.

    `resource` is the call's canonical URL, arguments and all. `requirements` is the one entry of the terms' `accepts` (x402 v2)
    that this call wants; `description` and `extensions` are theirs, which the facilitator is told too.
    `refused(code, reason)` gives the 402 with fresh terms. `idempotency_key` is the caller's:
    the answer is sealed under it, and found again by it. `client` is the caller's address (IPv6: its /64): without a key
    the answer is given again to that address alone.
    """

    building: str
    tool: str
    frame: str
    resource: str
    asset: str
    amount: int
    requirements: Mapping[str, Any]
    refused: Callable[[str, str], Problem]
    idempotency_key: str | None = None
    client: str = ""
    description: str = ""
    extensions: Mapping[str, Any] = field(default_factory=dict)

    @property
    def digest(self) -> bytes:
        """What a reservation is bound to."""
        return sha256(self.resource.encode()).digest()

    @property
    def purchase(self) -> bytes | None:
        """What the purchases made with the Idempotency-Key are found by, one for each payer; the key cannot be had from this."""
        return None if self.idempotency_key is None else sha256(f"find\n{self.idempotency_key}".encode()).digest()


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """An answer as it is stored and delivered by either frame: the JSON object that MCP carries as structured content."""

    body: bytes


@dataclass(frozen=True, slots=True)
class PaidAnswer:
    """What a payment bought: the answer and x402's receipt (`success`, `transaction`, `network`, `payer`)."""

    answer: StoredAnswer
    receipt: Mapping[str, Any]
    replayed: bool = False
