"""The tables of payments: one row per authorization, and the ledger, to which rows can only be added."""

from datetime import datetime

from sqlmodel import BigInteger, Field, SQLModel, UniqueConstraint

from campus.storage import UtcDateTime, registry


class Tables(SQLModel, registry=registry(), defer_build=True):  # no row is validated
    """Base of the feature's tables."""


class PaymentRow(Tables, table=True):
    """One authorization, reserved before the tool runs. Its answer is kept as long as it may be asked for again.

    `state`: see states.py. `holder` and `lease_until` say which process works on it. Each reservation has its own `id`.
    `payment` and `resource` are SHA-256 digests of the payment and of what it buys. `answer` is encrypted if `sealed`, and deleted after
    `answer_until`, together with `purchase`, by which a purchase with an Idempotency-Key is found, and `client`, the caller's address; a
    released payment keeps these two until it is deleted itself, in case the chain shows it late.
    `block` is where the chain showed the transfer. `unproven_since` is set while a settled payment has no proof, `overdue_at` when that
    lasted too long, until the chain proves it or the operator accepts it (reconciler.py).
    `signed` is what the facilitator is sent to charge it, sealed with a secret of this campus, from before it is sent until the payment is
    settled, refused for good or over; `submissions` counts how often it was sent in vain.
    """

    __tablename__ = "payments"
    __table_args__ = (
        UniqueConstraint("network", "asset", "payer", "nonce", name="uq_payments_authorization"),
        UniqueConstraint("purchase", "payer", name="uq_payments_purchase_payer"),
    )

    id: str = Field(primary_key=True)
    network: str
    asset: str
    payer: str
    nonce: str
    amount: int = Field(sa_type=BigInteger)
    pay_to: str
    valid_before: int = Field(sa_type=BigInteger)
    payment: bytes
    resource: bytes
    building: str
    tool: str
    frame: str
    state: str = Field(index=True)
    holder: str
    lease_until: datetime = Field(sa_type=UtcDateTime)
    reserved_at: datetime = Field(sa_type=UtcDateTime)
    settled_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    transaction: str | None = Field(default=None, index=True)
    block: int | None = Field(default=None, sa_type=BigInteger)
    unproven_since: datetime | None = Field(default=None, sa_type=UtcDateTime, index=True)
    overdue_at: datetime | None = Field(default=None, sa_type=UtcDateTime, index=True)
    signed: bytes | None = None
    submissions: int = 0
    answer: bytes | None = None
    answer_until: datetime | None = Field(default=None, sa_type=UtcDateTime, index=True)
    sealed: bool = False
    purchase: bytes | None = None
    client: str | None = None
    reason: str = ""


class LedgerRow(Tables, table=True):
    """What happened, when, to which call and payment. Triggers in the database refuse to change or delete a row.

    `event` is one of ledger.Event; `quantity` counts events that share a row. `amount` is in the token's smallest unit.
    """

    __tablename__ = "payments_ledger"

    id: int | None = Field(default=None, primary_key=True)
    at: datetime = Field(sa_type=UtcDateTime, index=True)
    event: str
    building: str
    tool: str
    frame: str
    quantity: int = 1
    payment_id: str | None = Field(default=None, index=True)
    network: str | None = None
    asset: str | None = None
    payer: str | None = None
    amount: int | None = Field(default=None, sa_type=BigInteger)
    transaction: str | None = None
    detail: str = ""
