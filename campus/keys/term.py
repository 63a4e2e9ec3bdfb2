"""How long a key is good from its purchase. Pure: no clock."""

import re
from calendar import monthrange
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, cast

SHAPE = re.compile(r"([1-9][0-9]{0,3}) (day|month)s?")


@dataclass(frozen=True, slots=True)
class Term:
    """A number of days of 86,400 seconds, or of calendar months."""

    count: int
    unit: Literal["day", "month"]

    @classmethod
    def parse(cls, text: str) -> "Term":
        """Read "30 days" or "12 months", at most 9,999 of them; ValueError naming both forms for anything else."""
        if (match := SHAPE.fullmatch(text)) is None:
            raise ValueError(f'{text!r} is no term; write it as "30 days" or "12 months"')
        return cls(int(match[1]), cast(Literal["day", "month"], match[2]))

    def end(self, start: datetime) -> datetime:
        """The moment at which a key is no longer valid; `start` in UTC.

        Months keep the day and the time of day; where the last month is too short, its last day counts:
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
