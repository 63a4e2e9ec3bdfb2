"""What a payer is told whose payment buys nothing, or nothing yet."""

from campus.payments.payment import Sale
from twins import Problem

RETRY_AFTER = {"Retry-After": "5"}


def already_used() -> Problem:
    """409: the payment bought something, and this is not a resend that may have it again."""
    return Problem(
        409,
        "payment_already_used",
        "this payment was used before. Its answer is given again to the very same payment for the very same call for 15 minutes; if it"
        " came with an Idempotency-Key, to that key alone, for 24 hours. For anything else sign a new payment",
    )


def used_elsewhere() -> Problem:
    """409: the payment came from another address before, without an Idempotency-Key; it stands on the chain for all to read."""
    return Problem(
        409,
        "payment_used_elsewhere",
        "this payment was used before by a call from another network address, and without an Idempotency-Key its answer is given again to"
        " that address alone, because a settled payment can be read on the chain by everyone. If it is yours, send the same call from the"
        " address that it was first sent from, within 15 minutes, and send an Idempotency-Key with the next one; else sign a new payment",
    )


def key_reused() -> Problem:
    """422: the Idempotency-Key is that of another purchase."""
    return Problem(
        422,
        "idempotency_key_reused",
        "this Idempotency-Key was sent before with another purchase; nothing was charged. Make a new one for a new purchase",
    )


def key_ambiguous() -> Problem:
    """409: several wallets have bought with this Idempotency-Key, and the call does not say which one is meant."""
    return Problem(
        409,
        "idempotency_key_ambiguous",
        "more than one wallet has bought with this Idempotency-Key, and this call carries no payment. Send it with a payment signed by the"
        " wallet that paid: the answer is given again, and nothing is charged. A key that others send too is no secret: make a new one for"
        " each purchase",
    )


def in_flight() -> Problem:
    """409: nobody can tell yet whether the payment was charged."""
    return Problem(
        409,
        "payment_in_flight",
        "this payment is being worked on, and whether it was charged is not known yet; send the very same payment again in a few seconds:"
        " it is charged once at most, and a new one would be charged too",
        headers=RETRY_AFTER,
    )


def too_many_of_one() -> Problem:
    """429: as many payments of one client address wait to be checked as may."""
    return Problem(
        429,
        "too_many_payments",
        "too many payments from your network address are waiting to be checked; nothing was charged. Send fewer at once, and the very same"
        " payment again in a few seconds",
        headers=RETRY_AFTER,
    )


def too_many_payments() -> Problem:
    """503: the payment's turn to be checked did not come in time."""
    return Problem(
        503,
        "payments_busy",
        "the payment could not be checked in time, because many others are being checked; nothing was charged. Send the very same payment"
        " again in a few seconds",
        headers=RETRY_AFTER,
    )


def refused(sale: Sale, reason: str) -> Problem:
    """402: the payment is no good; nothing was charged."""
    return sale.refused("payment_refused", reason)


def unverified(sale: Sale) -> Problem:
    """402: the facilitator could not say whether the payment is good; nothing was charged."""
    return sale.refused(
        "payment_unverified", "the payment could not be checked, and was not charged; send the very same payment again in a few seconds"
    )
