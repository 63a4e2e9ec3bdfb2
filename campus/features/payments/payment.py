"""A payment as its caller sent it, the sale that it pays for, and its outcome."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Literal

from campus.features.payments.tables import PaymentRow
from twins import Problem


@dataclass(frozen=True, slots=True)
class Payment:
    """A well-formed EIP-3009 authorization; nothing in it is checked yet.

    Addresses and the nonce are lower-case hex with 0x; `value` is in the token's smallest unit; times are Unix seconds.
    `network` is CAIP-2. `resource` is the URL that the payment says it is for, None where its version has no such member;
    `accepted` the requirements that it says it accepts. `payload` is `{signature, authorization}`, as x402 takes it. `identifier` is the
    secret of x402's extension payment-identifier, None without one.
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
    identifier: str | None = None

    @property
    def authorization(self) -> tuple[str, str, str]:
        """What a chain accepts once: the payer, the nonce, and which chain."""
        return self.payer, self.nonce, self.network


@dataclass(frozen=True, slots=True)
class ServiceListing:
    """What catalogs show of the service that sells a call: a name of at most 32 characters, up to five tags, and an icon's URL."""

    name: str
    tags: Sequence[str]
    icon_url: str


@dataclass(frozen=True, slots=True)
class Sale:
    """One call of a paid tool: what is bought, and what must be paid for it.

    `resource` is the call's canonical URL, arguments included; `route` is that URL without them, as in terms for a body that was
    not read. `requirements` is the entry of the terms' `accepts` (x402 v2) on the payment's network, and `networks` are those of
    all entries; `description`, `service` and `extensions` are those of the terms, and are sent to the facilitator too.
    `refused(code, reason)` returns a 402 with fresh terms. `check` raises a Problem for what cannot be sold, before it is reserved.
    `idempotency_key` is the caller's: the answer is encrypted under it, and found again by it. `client` is the caller's address (IPv6: its
    /64): without a key the answer is returned again to that address alone.
    """

    building: str
    tool: str
    frame: str
    resource: str
    asset: str
    amount: int
    requirements: Mapping[str, Any]
    refused: Callable[[str, str], Problem]
    check: Callable[[], Awaitable[None]] | None = None
    route: str = ""
    idempotency_key: str | None = None
    client: str = ""
    description: str = ""
    service: ServiceListing | None = None
    extensions: Mapping[str, Any] = field(default_factory=dict)
    networks: Sequence[str] = ()

    @property
    def network(self) -> str:
        network: str = self.requirements["network"]
        return network

    @property
    def digest(self) -> bytes:
        """What a reservation is bound to: the SHA-256 of the resource."""
        return sha256(self.resource.encode()).digest()

    @property
    def purchase(self) -> bytes | None:
        """Finds the purchases made with the Idempotency-Key, one for each payer. The key cannot be derived from it."""
        return None if self.idempotency_key is None else sha256(f"find\n{self.idempotency_key}".encode()).digest()


@dataclass(frozen=True, slots=True)
class PaidAnswer:
    """What the payment of this id bought: the answer as it is stored, the JSON object that MCP carries as structured content, and x402's
    receipt (`success`, `transaction`, `network`, `payer`)."""

    payment: str
    answer: bytes
    receipt: Mapping[str, Any]
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class Verification:
    """Whether a facilitator would settle a payment. If it is not `reachable`, that is unknown, and `reason` says why.

    `is_denied` if no facilitator would, for a reason that lies in the payment.
    """

    valid: bool
    reason: str = ""
    reachable: bool = True
    is_denied: bool = False


@dataclass(frozen=True, slots=True)
class PaymentOutcome:
    """Whether a payment was charged.

    settled: it was, in `transaction`. `block` is the number of its block if the chain shows it, None if only a facilitator reports it.
    refused: it was not charged and never will be; only the chain shows that, as of `block`. unknown: nobody can tell yet. `is_denied` if
    the facilitator says that it will not charge it, which proves nothing, and means that it need not be asked again. `by` names the one
    that reports it.
    """

    state: Literal["settled", "refused", "unknown"]
    transaction: str | None = None
    reason: str = ""
    block: int | None = None
    is_denied: bool = False
    by: str = ""


def receipt_of(row: PaymentRow) -> dict[str, object]:
    return {"success": True, "transaction": row.transaction, "network": row.network, "payer": row.payer}
