"""Payments per call by x402: terms from configuration alone, one charge and one answer per payment, and the ledger of all.

`ledger` is the front door: what was paid, for the operator. What people see is here too: /pricing, /pricing/<product> and /keys/receipt.
"""
