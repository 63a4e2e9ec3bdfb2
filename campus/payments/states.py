"""The states of a payment, and what to do with one that is presented. Pure: no clock, no network, no database.

    (none) ──► reserved ──► settling ──► settled ──► reversed
                │  ▲         │   │          ▲
                ▼  │         │   ▼          │
              released ◄─────┴─ unknown ────┘

reserved    its tool may be running; nothing was sent to be charged
settling    its answer is stored, and it was, or is about to be, sent to be charged
settled     it was charged, and its answer is given to whoever presents it again; the chain shows it, or will (unproven.py)
unknown     it was sent, and nobody could say what became of it: its answer is kept, and the chain is asked again and again
released    it was not charged, and may be reserved again; what was sent to be charged is released by the chain's word alone (proof.py)
reversed    it counted as charged, and the chain does not have it, or not any more

A reserved or settling payment is worked on by the process that keeps its lease. One whose lease is past belongs to nobody: when it was
reserved it is as good as released, when it was settling it is unknown.

A purchase with an Idempotency-Key is known by that key too: sent again with another payment of its payer, from anywhere, or without a
payment from the address that it came from, it is the same purchase. Two payers who send the same key make two purchases.

Without a key the payment alone finds its answer, and a settled payment can be read on the chain by everybody. So it is given again only
to the address that it came from.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Literal

from campus.payments.payment import Payment, Sale
from campus.payments.tables import PaymentRow
from campus.storage import is_held

State = Literal["reserved", "settling", "settled", "unknown", "released", "reversed"]
Step = Literal["reserve", "wait", "resolve", "look", "replay", "refuse", "reused", "elsewhere", "ambiguous"]

TRANSITIONS: Mapping[str, tuple[State, ...]] = {
    "reserved": ("settling", "released"),
    "settling": ("settled", "unknown", "released"),
    "unknown": ("settled", "unknown", "released"),
    "settled": ("reversed",),
    "reversed": (),
    "released": ("reserved",),
}
"""Which states may follow; whoever comes too late changes nothing."""

CLOCK_SKEW = 300
LONGEST_WINDOW = 600
"""Seconds beyond the terms' own that a payment may stay valid: for so long its outcome might stay unknown."""


def next_step(rows: Iterable[PaymentRow], payment: Payment | None, sale: Sale, *, now: datetime) -> tuple[Step, PaymentRow | None]:
    """What to do with a payment, or with a purchase that came with none, given all that is known of the two; and the row that decides."""
    if payment is None:  # the key alone is no proof of who bought: agents make up the same keys
        rows = [row for row in rows if row.client == sale.client]
    steps: list[tuple[Step, PaymentRow | None]] = [(step_for(row, payment, sale, now=now), row) for row in rows]
    deciding = [found for found in steps if found[0] != "reserve"]
    if payment is None and len(deciding) > 1:
        return "ambiguous", None
    return deciding[0] if deciding else ("reserve", None)


def step_for(row: PaymentRow | None, payment: Payment | None, sale: Sale, *, now: datetime) -> Step:
    """What one row says. `resolve` may have the payment charged once more; `look` only asks, for that payment is not at hand."""
    if row is None or row.state == "released":
        return "reserve"
    is_worked_on = is_held(row.lease_until, now)
    if row.state == "reserved" and not is_worked_on:
        return "reserve"
    is_resend = payment is not None and row.payment == payment.digest
    is_its_payer = payment is None or row.payer == payment.payer
    is_same_purchase = sale.purchase is not None and row.purchase == sale.purchase and is_its_payer
    if not (is_resend or is_same_purchase):
        return "refuse"
    if not is_same_purchase and row.purchase is None and row.client is not None and row.client != sale.client:
        return "elsewhere"
    if row.resource != sale.digest:
        return "reused" if is_same_purchase else "refuse"
    if row.state == "reversed":
        return "refuse"
    if row.state == "settled":
        return "replay" if row.answer is not None and row.answer_until is not None and now < row.answer_until else "refuse"
    if is_worked_on:
        return "wait"
    return "resolve" if is_resend else "look"


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
