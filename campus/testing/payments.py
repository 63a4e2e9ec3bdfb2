"""Payments for tests: a real local chain, x402's facilitator on it, and wallets that pay. Needs the extra `campus[chain]`."""

from campus.testing.chain import Chain, ChainError, Transfer, open_chain
from campus.testing.facilitator import Call, Facilitator, open_facilitator
from campus.testing.faults import Faults, Hold
from campus.testing.payer import PAYMENT, RECEIPT, Payer, headers_of, receipt_of, terms_of
from campus.testing.relay import NodeFaults, Relay, open_relay
from campus.testing.token import Wallet, new_wallet

__all__ = [
    "PAYMENT",
    "RECEIPT",
    "Call",
    "Chain",
    "ChainError",
    "Facilitator",
    "Faults",
    "Hold",
    "NodeFaults",
    "Payer",
    "Relay",
    "Transfer",
    "Wallet",
    "headers_of",
    "new_wallet",
    "open_chain",
    "open_facilitator",
    "open_relay",
    "receipt_of",
    "terms_of",
]
