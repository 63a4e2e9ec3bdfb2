"""What can be bought: a key of a scope for a term, and when a term ends. Pure: no clock."""

import re
from calendar import monthrange
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, cast

TERM = re.compile(r"([1-9][0-9]{0,3}) (day|month)s?")


@dataclass(frozen=True, slots=True)
class Term:
    """How long a key is valid from its purchase: a number of days of 86,400 seconds, or of calendar months."""

    count: int
    unit: Literal["day", "month"]

    @classmethod
    def parse(cls, text: str) -> "Term":
        """Read "30 days" or "12 months", at most 9,999 of them; anything else raises a ValueError that names both forms."""
        if (match := TERM.fullmatch(text)) is None:
            raise ValueError(f'{text!r} is not a term; write it as "30 days" or "12 months"')
        return cls(int(match[1]), cast(Literal["day", "month"], match[2]))

    def end(self, start: datetime) -> datetime:
        """When a key that is bought at `start`, in UTC, is no longer valid.

        Months keep the day and the time of day. Where the last month is too short, its last day counts:
        one month from 31 January ends on 28 or 29 February.
        """
        if self.unit == "day":
            return start + timedelta(days=self.count)
        years, month = divmod(start.month - 1 + self.count, 12)
        year = start.year + years
        return start.replace(year=year, month=month + 1, day=min(start.day, monthrange(year, month + 1)[1]))

    def __str__(self) -> str:
        """As in campus.toml: 30 days, 12 months."""
        return f"{self.count} {self.unit}{'' if self.count == 1 else 's'}"


@dataclass(frozen=True, slots=True)
class Product:
    """One table [products.NAME] of campus.toml. `price` is US dollars, decimal; `url` is a page where a person buys it."""

    name: str
    scope: str
    price: str
    term: Term
    url: str | None = None
