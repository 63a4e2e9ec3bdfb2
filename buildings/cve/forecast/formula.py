"""The forecast: which CVEs outside KEV are likeliest to be listed in it within 30 days. Pure: no clock, no network, no database.

    score = 0.5·logit(EPSS) − ln(age + 0.02) + 1.5·neighbor + min(4, rise)

`age` is in years: a CVE is as old as its number says, the numbers of a year that EPSS has scored being spread evenly from
1 January to 31 December, or to the day of the list. `neighbor` is 1 if KEV lists the number just before or after in the
same year. `rise` is how much logit(EPSS) rose in a week, 0 where there is no score of the same model to compare with.
"""

import heapq
import math
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import accumulate

from buildings.cve.arguments import SEQUENCES, number_of
from buildings.cve.plain_names import plain_name
from buildings.cve.ranking.edition import Edition
from buildings.cve.ranking.formula import BRIEF_LENGTH, UNSCORED, RankedSet, factors_of, logit, row_of

FORECAST_LENGTH = 100
GRADED_LENGTH = 1_000  # This many ranks are graded; the first 100 are published.
WINDOW_DAYS = 30

EPSS_WEIGHT = 0.5
YOUNGEST = 0.02
NEIGHBOR_POINTS = 1.5
LARGEST_RISE = 4.0
DAYS_PER_YEAR = 365.25
EXCLUDED, LOWEST = -math.inf, -sys.float_info.max

Standings = tuple[tuple[int, float], ...]
"""CVE numbers, each with the share, 0 to 1, of the other CVEs that are ranked below it; equal ones count half."""


@dataclass(frozen=True, slots=True)
class ForecastFactors:
    epss: float
    age: float
    neighbor: float
    rise: float

    @property
    def score(self) -> float:
        return self.epss + self.age + self.neighbor + self.rise


@dataclass(frozen=True, slots=True)
class ForecastCve:
    """A CVE of the forecast, by number. `age` is in years; `week_ago` its earlier EPSS, None where there is none to compare with."""

    number: int
    factors: ForecastFactors
    epss: float
    percentile: float
    age: float
    week_ago: float | None


@dataclass(frozen=True, kw_only=True)
class EarlierScores:
    """EPSS of a week before, by the same model: its day, and the scores of the CVEs that have another now (UNSCORED: none)."""

    day: date
    changed: Mapping[int, float]


@dataclass(frozen=True)
class Forecast:
    """A day's forecast: its first ranks in order, how many CVEs were ranked, and the day of the earlier EPSS, None without any."""

    day: date
    first: Sequence[ForecastCve]
    total: int
    compared_with: date | None


@dataclass(frozen=True)
class Order:
    """One ranking on one day, for grading: CVE numbers in rank order, the first `leading` of them on the list, of `total` ranked.

    `made_on` is the day on which it was made, which may be a later one.
    """

    day: date
    ranking: str
    numbers: Sequence[int]
    leading: int
    total: int
    made_on: date


class Forecaster:
    """The scores of one edition; `earlier` is EPSS a week before, None where there is none to compare with.

    Equal scores: the higher EPSS first, then the newer identifier.
    """

    def __init__(self, edition: Edition, earlier: EarlierScores | None) -> None:
        self._edition = edition
        self._earlier = earlier
        self._ranked = edition.ranked
        self._listed = frozenset(number_of(cve_id) for cve_id in edition.facts.kev)
        self._beside = frozenset(number + step for number in self._listed for step in (-1, 1))
        self._ages = _ages(edition.ranked, edition.day)
        self._scores = self._scored()
        self._total = sum(1 for score in self._scores if score != EXCLUDED)

    def forecast(self, length: int = GRADED_LENGTH) -> Forecast:
        first = [self._cve(row) for row in self._first(range(len(self._scores)), self._scores, length)]
        return Forecast(self._edition.day, first, self._total, self._earlier.day if self._earlier else None)

    def orders(self, forecast: Forecast) -> list[Order]:
        edition = self._edition
        day = edition.day
        outside = {
            "next_in_kev": [cve.number for cve in forecast.first],
            "next_in_kev_with_vendor": self._with_vendor(forecast),
            "epss": self._by_epss(),
        }
        return [
            *(Order(day, name, numbers, FORECAST_LENGTH, self._total, edition.made_at.date()) for name, numbers in outside.items()),
            _untied(edition, "brief", {}),
            _untied(edition, "brief_with_vendor", _ransomware_prior(edition)),
        ]

    def standings(self, numbers: Iterable[int]) -> dict[str, Standings]:
        rows = {number: row for number in numbers if (row := row_of(number, self._ranked.numbers)) is not None}
        return {"next_in_kev": _standings(rows, self._scores), "epss": _standings(rows, self._masked_epss())}

    def _scored(self) -> "array[float]":
        scores = array("d")
        logits = dict[float, float]()  # there are few different scores
        changed = self._earlier.changed if self._earlier else {}
        for number, epss, rank, age in zip(self._ranked.numbers, self._ranked.epss, self._ranked.ranks, self._ages, strict=True):
            if epss == UNSCORED or not rank or number in self._listed:
                scores.append(EXCLUDED)
                continue
            likely = logits.get(epss)
            if likely is None:
                likely = logits[epss] = logit(epss)
            score = EPSS_WEIGHT * likely - math.log(age + YOUNGEST)
            if number in self._beside:
                score += NEIGHBOR_POINTS
            if number in changed:
                score += _rise(likely, changed[number])
            scores.append(score)
        return scores

    def _first(self, rows: Collection[int], scores: "array[float] | Mapping[int, float]", length: int) -> list[int]:
        best = heapq.nlargest(length, (scores[row] for row in rows))
        least = max(best[-1], LOWEST) if best else LOWEST
        keyed = [(scores[row], self._ranked.epss[row], self._ranked.numbers[row], row) for row in rows if scores[row] >= least]
        return [row for *_, row in sorted(keyed, reverse=True)[:length]]

    def _cve(self, row: int) -> ForecastCve:
        number = self._ranked.numbers[row]
        epss = self._ranked.epss[row]
        before = self._earlier.changed.get(number, epss) if self._earlier else UNSCORED
        factors = ForecastFactors(
            epss=EPSS_WEIGHT * logit(epss),
            age=-math.log(self._ages[row] + YOUNGEST),
            neighbor=NEIGHBOR_POINTS if number in self._beside else 0.0,
            rise=_rise(logit(epss), before),
        )
        return ForecastCve(number, factors, epss, self._ranked.percentiles[row], self._ages[row], None if before == UNSCORED else before)

    def _with_vendor(self, forecast: Forecast) -> list[int]:
        """The candidate: its first ranks are among those of the forecast and the CVEs that the prior raises."""
        raised = {}
        for number, prior in _vendor_prior(self._edition).items():
            if (row := row_of(number, self._ranked.numbers)) is not None and self._scores[row] != EXCLUDED:
                raised[row] = self._scores[row] + prior
        for cve in forecast.first:
            row = row_of(cve.number, self._ranked.numbers)
            assert row is not None, "the forecast is of ranked CVEs"
            raised.setdefault(row, self._scores[row])
        return [self._ranked.numbers[row] for row in self._first(raised, raised, GRADED_LENGTH)]

    def _by_epss(self) -> list[int]:
        return [self._ranked.numbers[row] for row in self._first(range(len(self._scores)), self._masked_epss(), GRADED_LENGTH)]

    def _masked_epss(self) -> "array[float]":
        return array("d", (EXCLUDED if score == EXCLUDED else epss for score, epss in zip(self._scores, self._ranked.epss, strict=True)))


def _standings(rows: Mapping[int, int], scores: Sequence[float]) -> Standings:
    everyone = sorted(score for score in scores if score != EXCLUDED)
    found = {number: scores[row] for number, row in rows.items() if scores[row] != EXCLUDED}
    events = sorted(found.values())
    others = len(everyone) - len(events)

    def below(score: float) -> float:
        return sum(cut(everyone, score) - cut(events, score) for cut in (bisect_left, bisect_right)) / 2

    return tuple((number, below(score) / others) for number, score in sorted(found.items())) if others else ()


def _rise(likely: float, before: float) -> float:
    return 0.0 if before == UNSCORED else min(LARGEST_RISE, likely - logit(before))


def _ages(ranked: RankedSet, day: date) -> "array[float]":
    numbers = ranked.numbers
    ages = array("d")
    start = 0
    while start < len(numbers):
        year = numbers[start] // SEQUENCES
        end = bisect_left(numbers, (year + 1) * SEQUENCES, start)
        places = list(accumulate(epss != UNSCORED for epss in ranked.epss[start:end]))
        elapsed, length = _span(year, day)
        step = length / max(places[-1], 1)
        ages.extend([max(elapsed - step * place, 0.0) / DAYS_PER_YEAR for place in places])
        start = end
    return ages


def _span(year: int, day: date) -> tuple[int, int]:
    """The days from 1 January of a year to the end of `day`, and how many of them the year's numbers are spread over."""
    elapsed = day.toordinal() - date(max(year, 1), 1, 1).toordinal() + 1
    length = date(year, 12, 31).timetuple().tm_yday if 1 <= year <= 9999 else 365
    return elapsed, max(min(elapsed, length), 0)


def _untied(edition: Edition, ranking: str, prior: Mapping[str, float]) -> Order:
    """Every CVE in KEV that is not tied to ransomware, if that is known, by score and its vendor's `prior`; `leading`: in the first 25."""
    entries = []
    for cve_id, listing in edition.facts.kev.items():
        cve = edition.ranked.find(cve_id)
        if cve is None:
            continue
        score = factors_of(epss=cve.epss, added=listing.listed_by, day=edition.day).score + prior.get(plain_name(listing.vendor), 0.0)
        entries.append((score, -1.0 if cve.epss is None else cve.epss, listing.listed_by, number_of(cve_id), listing.ransomware))
    entries.sort(reverse=True)
    leading = sum(1 for *_, tied in entries[:BRIEF_LENGTH] if tied is False)
    numbers = [number for *_, number, tied in entries if tied is False]
    return Order(edition.day, ranking, numbers, leading, len(entries), edition.made_at.date())


def _ransomware_prior(edition: Edition) -> dict[str, float]:
    """25 times the share of a vendor's KEV entries that are tied to ransomware, drawn towards a fifth where there are few."""
    tied = _listings_by_vendor(edition, tied_to_ransomware=True)
    return {vendor: 25 * (tied[vendor] + 0.4) / (count + 2) for vendor, count in _listings_by_vendor(edition).items()}


def _vendor_prior(edition: Edition) -> dict[int, float]:
    """ln(1 + how many KEV entries its vendor has), by number, for the CVEs outside KEV whose vendor NVD names."""
    listed = _listings_by_vendor(edition)
    boosts: dict[str, float | None] = {}
    found = {}
    for number, vendor in edition.nvd.vendors:
        if vendor not in boosts:
            count = listed.get(plain_name(vendor))
            boosts[vendor] = math.log1p(count) if count else None
        if (boost := boosts[vendor]) is not None:
            found[number] = boost
    return found


def _listings_by_vendor(edition: Edition, *, tied_to_ransomware: bool = False) -> Counter[str]:
    listings = edition.facts.kev.values()
    return Counter(plain_name(listing.vendor) for listing in listings if listing.ransomware or not tied_to_ransomware)


def window_of(day: date) -> tuple[date, date]:
    return day + timedelta(days=1), day + timedelta(days=WINDOW_DAYS)
