"""Usage: what each key calls, counted by day and tool, and the quotas of products. Calls come in as a step's `admitted`.

`counts.KeyUsage`, the state of the feature, is the front door: pages and the operator ask it what was called.
"""
