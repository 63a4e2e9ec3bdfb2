"""The states of a payment, and what to do with one that is presented. Pure: no clock, no network, no database.

    (none) ──► reserved ──► settling ──► settled
                │  ▲         │   │          ▲
                ▼  │         │   ▼          │
              released ◄─────┴─ unknown ────┘

reserved    its tool may be running; nothing was sent to be charged
settling    its answer is stored, and it was, or is about to be, sent to be charged
settled     it was charged, and its answer is given to whoever presents it again
unknown     it was sent, and nobody could say what became of it
released    it was not charged, and may be reserved again

A reserved or settling payment is worked on by the process that keeps its lease. One whose lease is past belongs to nobody: when it was
reserved it is as good as released, when it was settling it is unknown.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Literal

from campus.payments.payment import Payment, Sale
from campus.payments.tables import PaymentRow

State = Literal["reserved", "settling", "settled", "unknown", "released"]
Step = Literal["reserve", "wait", "resolve", "replay", "refuse"]

AFTER: Mapping[str, tuple[State, ...]] = {
    "reserved": ("settling", "released"),
    "settling": ("settled", "unknown", "released"),
    "unknown": ("settled", "unknown", "released"),
    "settled": (),
    "released": ("reserved",),
}
"""Which states may follow; whoever comes too late changes nothing."""

CLOCK_SKEW = 300
LONGEST_WINDOW = 600
"""Seconds beyond the terms' own that a payment may stay valid: for so long its outcome might stay unknown."""


def step_for(row: PaymentRow | None, payment: Payment, sale: Sale, *, now: datetime) -> Step:
    """What to do with a payment, given what is known of its authorization."""
    if row is None or row.state == "released":
        return "reserve"
    is_worked_on = now < row.lease_until
    if row.state == "reserved" and not is_worked_on:
        return "reserve"
    if row.payment != payment.digest or row.resource != sale.digest:
        return "refuse"
    if row.state == "settled":
        return "replay" if row.answer is not None and row.answer_until is not None and now < row.answer_until else "refuse"
    return "wait" if is_worked_on else "resolve"


def mismatch_of(payment: Payment, sale: Sale, *, now: datetime) -> str | None:
    """Why a payment cannot buy this, as far as it shows without asking anybody; None when nothing is wrong with it."""
    wanted, seconds = sale.requirements, int(now.timestamp())
    if payment.network != wanted["network"]:
        return f"it pays on the network {payment.network}; pay on {wanted['network']}"
    if payment.accepted is not None and str(payment.accepted.get("asset", "")).lower() != sale.asset.lower():
        return f"it pays in another asset; pay in {sale.asset}"
    if payment.pay_to != str(wanted["payTo"]).lower():
        return f"it pays to {payment.pay_to}; pay to {wanted['payTo']}"
    if payment.value != sale.amount:
        return f"it pays {payment.value}, and the price is {sale.amount}, in the smallest unit of the asset"
    if payment.resource is not None and payment.resource != sale.resource:
        return f"it was signed for another call; this one is {sale.resource}"
    return _untimely(payment, seconds, longest=int(wanted["maxTimeoutSeconds"]) + LONGEST_WINDOW)


def _untimely(payment: Payment, seconds: int, *, longest: int) -> str | None:
    if payment.valid_before <= seconds:
        return "its authorization has expired (validBefore); sign a new one"
    if payment.valid_after > seconds + CLOCK_SKEW:
        return "its authorization is not valid yet (validAfter); sign one that is"
    if payment.valid_before > seconds + longest:
        return f"its authorization is valid for more than {longest} seconds (validBefore); sign a shorter one"
    return None
