"""The states of a payment, what to do with one that is presented, and the problems of one that buys nothing. Pure: no clock, no network.

    (none) ──► reserved ──► settling ──► settled ──► reversed
                │  ▲         │   │          ▲
                ▼  │         │   ▼          │
              released ◄─────┴─ unknown ────┘

reserved    its tool may be running; nothing was sent to be charged
settling    its answer is stored, and it was, or is about to be, sent to be charged
settled     it was charged, and its answer is returned to a resend; the chain shows it, or is expected to (reconciler.py)
unknown     it was sent to be charged, and the outcome is unknown: its answer is kept, the chain is asked again and again, and the signed
            payment, which is kept too, is submitted again until its authorization ends or the facilitator refuses it for good
released    it was not charged, and may be reserved again; once it was sent to be charged, only the chain can release it (chain.py)
reversed    it counted as charged, and the chain does not show it, or no longer

The process that holds its lease works on a reserved or settling payment. After the end of the lease nobody does: a reserved payment then
counts as released, a settling one as unknown. A lease that ends later than any lease that is taken now was taken while a clock was wrong,
and does not count: a payment must not wait until a time in the far future.

A purchase with an Idempotency-Key is also found by that key. Sent again with another payment of the same payer from any address, or without
a payment from the same address, it is the same purchase. Two payers who send the same key make two purchases.

Without a key only the payment finds its answer, and everybody can read a settled payment on the chain. So the answer is returned again only
to the address that the payment came from.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Literal

from campus.features.payments.payment import Payment, Sale
from campus.features.payments.tables import PaymentRow
from twins import Problem

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
"""Which states may follow each state. A change that comes too late is none of these, and is not made."""

CLOCK_SKEW = 300
LONGEST_WINDOW = 600
"""Seconds that a payment may stay valid beyond the terms' own limit. Its outcome could stay unknown for so long."""
LATEST_LEASE = timedelta(seconds=CLOCK_SKEW)
"""How far in the future a lease may end: its length, and the difference between two machines' clocks."""
RETRY_AFTER = {"Retry-After": "5"}


def next_step(rows: Iterable[PaymentRow], payment: Payment | None, sale: Sale, *, now: datetime) -> tuple[Step, PaymentRow | None]:
    """What to do with a payment, or with a purchase without one, by the rows that are stored of both; and the row that decides."""
    if payment is None:  # the key alone does not prove who bought: agents invent the same keys
        rows = [row for row in rows if row.client == sale.client]
    steps: list[tuple[Step, PaymentRow | None]] = [(step_for(row, payment, sale, now=now), row) for row in rows]
    deciding = [found for found in steps if found[0] != "reserve"]
    if payment is None and len(deciding) > 1:
        return "ambiguous", None
    return deciding[0] if deciding else ("reserve", None)


def step_for(row: PaymentRow | None, payment: Payment | None, sale: Sale, *, now: datetime) -> Step:
    """What one row says. `resolve` continues with the payment that the caller sent; `look` with the one that is stored."""
    if row is None or row.state == "released":
        return "reserve"
    worked_on = is_worked_on(row, now=now)
    if row.state == "reserved" and not worked_on:
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
    if worked_on:
        return "wait"
    return "resolve" if is_resend else "look"


def is_released_resend(row: PaymentRow, payment: Payment, sale: Sale) -> bool:
    """Whether the row is a payment that counts as not charged, and this call may have its answer if it was charged after all."""
    if row.state != "released" or row.payment != payment.digest or row.resource != sale.digest:
        return False
    return row.client == sale.client if row.purchase is None else row.purchase == sale.purchase


def is_worked_on(row: PaymentRow, *, now: datetime) -> bool:
    return now < row.lease_until <= now + LATEST_LEASE


def mismatch_of(payment: Payment, sale: Sale, *, now: datetime) -> str | None:
    """Why a payment cannot buy this call, as far as can be told without asking anybody; None if nothing is wrong with it."""
    wanted = sale.requirements
    seconds = int(now.timestamp())
    if payment.network != wanted["network"]:
        return f"it pays on the network {payment.network}; pay on {' or '.join(sale.networks or [wanted['network']])}"
    if payment.accepted is not None and str(payment.accepted.get("asset", "")).lower() != sale.asset.lower():
        return f"it pays in another asset; pay in {sale.asset}"
    if payment.pay_to != str(wanted["payTo"]).lower():
        return f"it pays to {payment.pay_to}; pay to {wanted['payTo']}"
    if payment.value != sale.amount:
        return f"it pays {payment.value}, and the price is {sale.amount}, in the smallest unit of the asset"
    if payment.resource not in (None, sale.resource, sale.route):
        return f"it was signed for another call; this one is {sale.resource}"
    return _time_mismatch(payment, seconds, longest=int(wanted["maxTimeoutSeconds"]) + LONGEST_WINDOW)


def _time_mismatch(payment: Payment, seconds: int, *, longest: int) -> str | None:
    if payment.valid_before <= seconds:
        return "its authorization has expired (validBefore); sign a new one"
    if payment.valid_after > seconds + CLOCK_SKEW:
        return "its authorization is not valid yet (validAfter); sign one that is"
    if payment.valid_before > seconds + longest:
        return f"its authorization is valid for more than {longest} seconds (validBefore); sign a shorter one"
    return None


def clock_advice(payment: Payment, sale: Sale, *, own: int, chain: int | None) -> str | None:
    """What a payment's times say of the clock that it was signed by; None if they are good. `own` and `chain` are Unix seconds.

    A client signs as soon as it has the terms, and lets the payment be valid as long as they say: that tells its time.
    """
    longest = int(sale.requirements["maxTimeoutSeconds"])
    clocks = (own,) if chain is None else (own, chain)
    is_good = payment.valid_after <= min(clocks) and max(clocks) < payment.valid_before <= own + longest + LONGEST_WINDOW
    if is_good or not (ahead := payment.valid_before - longest - clocks[-1]):
        return None
    on_chain = "" if chain is None else f" and {chain} by the chain's"
    return (
        f"It is valid from {payment.valid_after} to {payment.valid_before}, and it is {own} by this service's clock{on_chain}, in Unix"
        f" seconds. If it was signed just now, your clock is about {abs(ahead)} seconds {'fast' if ahead > 0 else 'slow'}: set it, and"
        " sign again"
    )


def already_used() -> Problem:
    return Problem(
        409,
        "payment_already_used",
        "this payment was used before. Its answer is returned again only for the same payment and the same call, within 15 minutes; if it"
        " came with an Idempotency-Key, only with that key, within 24 hours. For anything else sign a new payment",
    )


def used_elsewhere() -> Problem:
    return Problem(
        409,
        "payment_used_elsewhere",
        "this payment was used before by a call from another network address. Without an Idempotency-Key its answer is returned again only"
        " to that address, because everyone can read a settled payment on the chain. If it is yours, send the same call from that address"
        " within 15 minutes, and send an Idempotency-Key with your next payment; otherwise sign a new payment",
    )


def key_reused() -> Problem:
    return Problem(
        422,
        "idempotency_key_reused",
        "this Idempotency-Key was sent before with another purchase; nothing was charged. Make a new key for a new purchase",
    )


def key_ambiguous() -> Problem:
    return Problem(
        409,
        "idempotency_key_ambiguous",
        "more than one wallet has bought with this Idempotency-Key, and this call carries no payment. Send it with a payment signed by the"
        " wallet that paid: you get the answer again, and nothing is charged. A key that others send too is not secret: make a new random"
        " key for each purchase",
    )


def in_flight() -> Problem:
    return Problem(
        409,
        "payment_in_flight",
        "this payment is being processed, and it is not known yet whether it was charged. Send the same payment again in a few seconds:"
        " it is charged at most once. A new payment would be charged too",
        headers=RETRY_AFTER,
    )


def not_sold(reason: str) -> Problem:
    return Problem(409, "key_not_sold", f"{reason}. Nothing was charged.")


def refused(sale: Sale, reason: str) -> Problem:
    return sale.refused("payment_refused", reason)


def unverified(sale: Sale) -> Problem:
    return sale.refused(
        "payment_unverified", "the payment could not be checked, and was not charged; send the same payment again in a few seconds"
    )
