"""Amounts by day and tool of the last days, as the operator's charts and tables show them. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from campus.features.payments.ledger import Revenue
from campus.pricing import Price

DAYS_SHOWN = 30
WEEK = 7
LINES = 2
"""Tools that have a line of their own in a chart, beside that of all."""


@dataclass(frozen=True)
class Daily:
    """The last 30 UTC days, the oldest first, and for each tool an amount a day; the tools with the largest sums first."""

    days: Sequence[str]
    tools: Mapping[str, Sequence[int]]

    @property
    def totals(self) -> Sequence[int]:
        return [sum(amounts) for amounts in zip(*self.tools.values(), strict=True)] or [0] * len(self.days)

    def series(self, scale: float = 1) -> Mapping[str, Sequence[float]]:
        """The lines of a chart: all tools, and the largest where there are several."""
        largest = list(self.tools.items())[:LINES] if len(self.tools) > 1 else []
        return {name: [amount / scale for amount in amounts] for name, amounts in [("all tools", self.totals), *largest]}

    def sums(self) -> list[tuple[str, int, int, int]]:
        """By tool: the sum of 30 days, of 7, and of today."""
        return [(name, sum(amounts), sum(amounts[-WEEK:]), amounts[-1]) for name, amounts in self.tools.items()]


def daily_of(amounts: Iterable[tuple[str, str, int]], today: date) -> Daily:
    """Amounts by day and tool, in any order, several of one day and tool added."""
    days = [f"{today - timedelta(days=back)}" for back in range(DAYS_SHOWN - 1, -1, -1)]
    found: dict[str, Counter[str]] = {}
    for day, tool, amount in amounts:
        found.setdefault(tool, Counter())[day] += amount
    tools = {tool: [of_tool[day] for day in days] for tool, of_tool in found.items()}
    return Daily(days, dict(sorted(tools.items(), key=lambda item: (-sum(item[1]), item[0]))))


@dataclass(frozen=True)
class Income:
    """What one network's payments earned in the last 30 days, in the token's smallest unit; and their sum."""

    network: str
    daily: Daily
    usd: str
    payments: int


def income_of(revenue: Sequence[Revenue], today: date) -> list[Income]:
    """Income by network, since money of a test network is not real."""
    found = []
    for network in sorted({one.network for one in revenue}):
        of_it = [one for one in revenue if one.network == network]
        daily = daily_of(((one.day, f"{one.building}.{one.tool}", one.amount) for one in of_it), today)
        found.append(Income(network, daily, str(Price(sum(one.amount for one in of_it))), sum(one.payments for one in of_it)))
    return found
