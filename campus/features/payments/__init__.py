"""Payments per call by x402: terms from configuration alone, one charge and one answer per payment, and the ledger of all.

`ledger` and `receipts` are the front doors: what was paid, for the operator, and for what people bought.
"""
