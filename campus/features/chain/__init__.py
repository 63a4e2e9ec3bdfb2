"""Payments for tests: a real local chain, x402's facilitator on it, and wallets that pay. Needs the extra `mcp-campus[chain]`.

`python -m campus.features.chain` offers a chain and a facilitator until Ctrl-C, to try a paid tool without money.
"""

from campus.features.chain.chain import Chain, ChainError, NodeFaults, Relay, Transfer, open_chain, open_relay
from campus.features.chain.contract_wallets import ContractWallet
from campus.features.chain.facilitator import Call, Facilitator, Faults, Hold, open_facilitator
from campus.features.chain.payer import PAYMENT, RECEIPT, Payer, headers_of, receipt_of, terms_of
from campus.features.chain.usdc import Wallet, new_wallet

__all__ = [
    "PAYMENT",
    "RECEIPT",
    "Call",
    "Chain",
    "ChainError",
    "ContractWallet",
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
