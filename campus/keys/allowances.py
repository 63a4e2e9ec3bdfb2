"""The allowance of a product: how many calls its key opens in a calendar day or month, in UTC. Pure: no clock, no database."""

from dataclasses import dataclass
from datetime import datetime
from math import ceil
from typing import Literal

from campus.keys.sales import Term

Per = Literal["day", "month"]


@dataclass(frozen=True, slots=True)
class Allowance:
    """So many calls in each day, or each month, of one key and of those that replaced it."""

    calls: int
    per: Per

    def start(self, now: datetime) -> datetime:
        midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
        return midnight if self.per == "day" else midnight.replace(day=1)

    def end(self, now: datetime) -> datetime:
        return Term(1, self.per).end(self.start(now))

    def __str__(self) -> str:
        """As callers read it: 10,000 calls a month."""
        return f"{self.calls:,} call{'' if self.calls == 1 else 's'} a {self.per}"


@dataclass(slots=True)
class Spent:
    """The calls that a key has opened in a period, as far as this process knows."""

    calls: int


@dataclass(frozen=True, slots=True)
class Standing:
    """What a key has left of its quota until the period ends."""

    quota: Allowance
    spent: Spent
    start: datetime
    now: datetime

    @property
    def ends_at(self) -> datetime:
        """When the key opens all calls of its quota again."""
        return self.quota.end(self.now)

    @property
    def seconds(self) -> int:
        """Whole seconds until then, at least one: for Retry-After."""
        return max(ceil((self.ends_at - self.now).total_seconds()), 1)

    @property
    def left(self) -> int:
        return max(self.quota.calls - self.spent.calls, 0)
