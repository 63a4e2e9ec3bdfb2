"""Payments for tests: a real local chain, x402's facilitator on it, and wallets that pay. Needs the extra `mcp-campus[chain]`."""

from campus.testing.chain import Chain, ChainError, NodeFaults, Relay, Transfer, open_chain, open_relay
from campus.testing.facilitator import Call, Facilitator, Faults, Hold, open_facilitator
from campus.testing.payer import PAYMENT, RECEIPT, Payer, headers_of, receipt_of, terms_of
from campus.testing.usdc import Wallet, new_wallet

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
