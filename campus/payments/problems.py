"""The problems of payments: what a caller receives whose payment buys nothing, or nothing yet."""

from campus.payments.payment import Sale
from twins import Problem

RETRY_AFTER = {"Retry-After": "5"}


def already_used() -> Problem:
    """409: the payment bought something before, and this call is not a resend that may get it again."""
    return Problem(
        409,
        "payment_already_used",
        "this payment was used before. Its answer is returned again only for the same payment and the same call, within 15 minutes; if it"
        " came with an Idempotency-Key, only with that key, within 24 hours. For anything else sign a new payment",
    )


def used_elsewhere() -> Problem:
    """409: the payment came from another address before, without an Idempotency-Key, and everybody can read it on the chain."""
    return Problem(
        409,
        "payment_used_elsewhere",
        "this payment was used before by a call from another network address. Without an Idempotency-Key its answer is returned again only"
        " to that address, because everyone can read a settled payment on the chain. If it is yours, send the same call from that address"
        " within 15 minutes, and send an Idempotency-Key with your next payment; otherwise sign a new payment",
    )


def key_reused() -> Problem:
    """422: the Idempotency-Key belongs to another purchase."""
    return Problem(
        422,
        "idempotency_key_reused",
        "this Idempotency-Key was sent before with another purchase; nothing was charged. Make a new key for a new purchase",
    )


def key_ambiguous() -> Problem:
    """409: several wallets have bought with this Idempotency-Key, and the call does not say which one is meant."""
    return Problem(
        409,
        "idempotency_key_ambiguous",
        "more than one wallet has bought with this Idempotency-Key, and this call carries no payment. Send it with a payment signed by the"
        " wallet that paid: you get the answer again, and nothing is charged. A key that others send too is not secret: make a new random"
        " key for each purchase",
    )


def in_flight() -> Problem:
    """409: it is not known yet whether the payment was charged."""
    return Problem(
        409,
        "payment_in_flight",
        "this payment is being processed, and it is not known yet whether it was charged. Send the same payment again in a few seconds:"
        " it is charged at most once. A new payment would be charged too",
        headers=RETRY_AFTER,
    )


def too_many_of_one() -> Problem:
    """429: too many payments from one client address are waiting to be checked."""
    return Problem(
        429,
        "too_many_payments",
        "too many payments from your network address are waiting to be checked; nothing was charged. Send fewer at once, and send the same"
        " payment again in a few seconds",
        headers=RETRY_AFTER,
    )


def too_many_payments() -> Problem:
    """503: the payment could not be checked in time."""
    return Problem(
        503,
        "payments_busy",
        "the payment could not be checked in time, because many others are being checked; nothing was charged. Send the same payment"
        " again in a few seconds",
        headers=RETRY_AFTER,
    )


def refused(sale: Sale, reason: str) -> Problem:
    """402: the payment is no good; nothing was charged."""
    return sale.refused("payment_refused", reason)


def unverified(sale: Sale) -> Problem:
    """402: the facilitator could not say whether the payment is good; nothing was charged."""
    return sale.refused(
        "payment_unverified", "the payment could not be checked, and was not charged; send the same payment again in a few seconds"
    )
