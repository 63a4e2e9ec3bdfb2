"""Credits: calls that a key pays for out of what it was sold with, the calls of its allowance first and then its balance.

`accounts` is the front door: pages ask its `Accounts`, the state of the feature, what a key has left and what it spent.
"""
