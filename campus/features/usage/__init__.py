"""Usage: what each key calls, counted by day and tool, and the quotas of products. Calls come in as a step's `admitted`.

`counts` is the front door: pages and the operator ask its `KeyUsage`, the state of the feature, what was called.
"""
