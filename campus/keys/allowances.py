"""How a product's key pays for its calls: by an allowance of so many in a calendar day or month, in UTC, and by credits. Pure."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

from campus.keys.sales import Term
from campus.pricing import Offer

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


class Meter(NamedTuple):
    """How the calls of a product's keys are paid for: out of an allowance, of credits, or of both, the allowance first."""

    allowance: Allowance | None
    has_credits: bool

    def counts(self, offer: Offer) -> bool:
        """Whether a call of the tool takes something from the key: free tools do not, nor tools without a price from credits."""
        return not offer.access.is_free and (offer.price is not None or not self.has_credits)

    def __str__(self) -> str:
        """As a refusal names it: 3 calls a day and credits."""
        return " and ".join([*([str(self.allowance)] if self.allowance else []), *(["credits"] if self.has_credits else [])])
