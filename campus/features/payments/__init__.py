"""Payments per call by x402: terms from configuration alone, one charge and one answer per payment, and the ledger of all.

What people see of it is here too: /pricing, /pricing/<product> and /keys/receipt.
`ledger` and `receipts` are the front doors: what was paid, for the operator, and for what people bought.
"""
