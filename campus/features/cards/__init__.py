"""Cards: a person buys a key by card at Stripe's Checkout, and the browser that paid is shown the key.

Every sale is in the ledger of payments, by the network `card`, or `card-test` where the key is one for tests; `sales` says what follows
from Stripe's words.
"""
