"""Keys: what can be bought, the token that a caller sends, how long it is valid, and the keyring."""

from datetime import timedelta

USAGE_KEPT = timedelta(days=400)
"""How long a day's counts of calls are kept: a year, and a month to look back."""
