"""Usage: what each key calls, counted by day and tool. Calls come in as a step's `admitted`, and those that keys pay for from credits.

`counts` is the front door: pages and the operator ask its `KeyUsage`, the state of the feature, what was called.
"""
