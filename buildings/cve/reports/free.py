"""How many reports are read free: a few a day from one network and so many a minute from all, one at a time, in a process of its own.

So strangers delay neither each other for long, nor those who pay, whose reports have a reader of their own.
"""

from math import ceil

import anyio

from campus import Problem
from campus.shares import TokenBuckets

IN_ALL = 60
"""A minute, in each process; the larger ones take a tenth of a second each."""
DAY_IN_MINUTES = 24 * 60


class FreeReports:
    def __init__(self, per_day: int) -> None:
        self.per_day = per_day
        self.reader = anyio.CapacityLimiter(1)
        self._of_network = TokenBuckets(per_day)
        self._in_all = TokenBuckets(IN_ALL)

    def take(self, network: str, seconds: float) -> None:
        """Count one report at this second of any clock. Problem 429 if there is none left."""
        at = seconds / DAY_IN_MINUTES  # the tokens of a day come in what the bucket takes for a minute
        left = self._of_network.spend(network, at)
        if left < 0:
            wait = ceil(-left * DAY_IN_MINUTES * 60 / self.per_day)
            detail = f"{self.per_day} reports a day are free for each network, and yours has had them; a key opens as many as you like"
            raise Problem(429, "free_reports_used", detail, headers={"Retry-After": str(max(wait, 1))})
        if self._in_all.spend("all", seconds) < 0:
            self._of_network.replace(network, at, left + 1)
            detail = "many visitors have reports read at this moment; try again in a minute"
            raise Problem(429, "free_reports_used", detail, headers={"Retry-After": "60"})
