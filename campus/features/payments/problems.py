"""The codes of the problems that callers get who pay, explained."""

from collections.abc import Mapping

PROBLEMS: Mapping[str, str] = {
    "invalid_payment": "What was sent as a payment cannot be read as one: broken, too large, or of the other version. Nothing is charged.",
    "payment_refused": "The payment does not fit the terms or is not valid; `error` says why, and the terms are fresh. Nothing is charged.",
    "payment_unverified": "The facilitator cannot be reached. Nothing is charged; send the same payment again after Retry-After.",
    "payment_in_flight": "The payment is being processed, or its outcome is not known yet. Send the same payment again after Retry-After.",
    "payment_already_used": "The payment was spent: on another call, with another key, or too long ago. Sign a new one.",
    "key_not_sold": "The key cannot be sold or renewed as requested; `detail` says why. Nothing was charged.",
    "too_many_payments": "Too many payments of the address are being processed. Nothing was done with this one; send fewer at once.",
    "too_many_worthless_payments": "Too many payments of the address or wallet were refused within a minute. This one was not looked at.",
    "payments_busy": "The payment's turn to be checked did not come in time. Nothing is charged; send it again after Retry-After.",
    "payment_used_elsewhere": "The payment was spent by a call from another address, without an Idempotency-Key. Resend from that address.",
    "idempotency_key_required": "The answer is a secret: pay for it with an Idempotency-Key of 22 or more random characters.",
    "idempotency_key_ambiguous": "Several wallets bought with the Idempotency-Key; send it with a payment signed by the one that paid.",
}
