"""The ranking's laws, and its results against an independent recomputation."""

import csv
import gzip
import json
from collections.abc import Mapping
from datetime import date, timedelta
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import pytest
from cve.thinned import thinned
from hypothesis import given
from hypothesis import strategies as st

from buildings.cve.arguments import number_of, spelled
from buildings.cve.feeds.epss import parse_epss
from buildings.cve.feeds.kev import parse_kev
from buildings.cve.ranking.edition import listing_days
from buildings.cve.ranking.formula import UNSCORED, factors_of, fresh_window, order, ranked

DAY = date(2026, 8, 21)

GOLDEN = {"CVE-2026-8037": 86.009, "CVE-2026-33824": 85.614, "CVE-2026-34486": 79.492, "CVE-2026-73570": 75.135}

KEV = "known_exploited_vulnerabilities-2026.08.21.json"
EPSS = "epss_scores-2026-08-15.reconstructed.csv.gz"


def recomputed(kev: Mapping[str, str], epss: Mapping[str, str], day: date) -> list[tuple[str, float]]:
    rows = []
    for cve in kev.keys() | epss.keys():
        _, year, sequence = cve.split("-")
        chance = float(epss[cve]) if cve in epss else None
        score, added = 25 * (chance or 0.0), 0
        if cve in kev:
            listed = date.fromisoformat(kev[cve])
            added = listed.toordinal()
            score = 25 + score + 50 * 2 ** (-max(0, day.toordinal() - added) / 30)
        none_last = 1.0 if chance is None else -chance
        rows.append((-score, none_last, -added, -int(year), -int(sequence), cve))
    return [(row[-1], -row[0]) for row in sorted(rows)]


def test_order_and_scores_equal_an_independent_recomputation(real_feeds: Path) -> None:
    kev_body = (real_feeds / KEV).read_bytes()
    kev = {one["cveID"]: one["dateAdded"] for one in json.loads(kev_body)["vulnerabilities"]}
    scores_body = thinned(real_feeds / EPSS, lambda cve_id: cve_id.endswith("88") or cve_id in kev)
    listing = listing_days(parse_kev(kev_body).entries)
    got = ranked(parse_epss(scores_body).scores, listing, day=DAY)

    epss = {row["cve"]: row["epss"] for row in csv.DictReader(gzip.decompress(scores_body).decode().splitlines()[1:])}
    expected = recomputed(kev, epss, DAY)

    assert len(got) == len(expected) > 4_000
    by_rank = sorted(range(len(got)), key=got.ranks.__getitem__)
    assert [spelled(got.numbers[row]) for row in by_rank] == [cve for cve, _ in expected]
    scores = [
        factors_of(epss=None if got.epss[row] == UNSCORED else got.epss[row], added=listing.get(got.numbers[row]), day=DAY).score
        for row in by_rank
    ]
    assert scores == pytest.approx([score for _, score in expected], abs=1e-12)
    assert {cve: round(score, 3) for (cve, _), score in zip(expected, scores[: len(GOLDEN)], strict=False)} == GOLDEN


cves = st.builds(lambda year, sequence: number_of(f"CVE-{year}-{sequence:04d}"), st.integers(1999, 2027), st.integers(0, 60))
chances = st.sampled_from([UNSCORED, 0.0, 2e-05, 0.1, 0.5, 0.99999, 1.0])
days = st.none() | st.integers(-5, 400).map(lambda age: DAY - timedelta(days=age))
facts = st.dictionaries(cves, st.tuples(chances, days), max_size=40).map(
    # A CVE outside KEV is known by its EPSS alone, so it has one.
    lambda found: {number: (0.3 if chance == UNSCORED and added is None else chance, added) for number, (chance, added) in found.items()}
)


def ranking_of(known: Mapping[int, tuple[float, date | None]]) -> list[int]:
    numbers = list(known)
    listed = {number: added for number, (_, added) in known.items() if added}
    return [numbers[row] for row in order(numbers, [known[number][0] for number in numbers], listed, day=DAY)]


@given(facts)
def test_every_cve_has_exactly_one_rank(known: Mapping[int, tuple[float, date | None]]) -> None:
    assert sorted(ranking_of(known)) == sorted(known)


@given(facts, st.randoms(use_true_random=False))
def test_the_order_of_the_input_does_not_matter(known: Mapping[int, tuple[float, date | None]], random) -> None:
    items = list(known.items())
    random.shuffle(items)
    assert ranking_of(dict(items)) == ranking_of(known)


@given(facts)
def test_each_neighbour_is_placed_by_the_published_rules(known: Mapping[int, tuple[float, date | None]]) -> None:
    def place(number: int) -> tuple[float, float, int, int]:
        chance, added = known[number]
        factors = factors_of(epss=None if chance == UNSCORED else chance, added=added, day=DAY)
        return factors.score, chance, added.toordinal() if added else 0, number

    ranking = ranking_of(known)
    assert all(place(above) > place(below) for above, below in pairwise(ranking))


@given(st.floats(0, 1), st.integers(0, 20_000))
def test_a_score_is_between_0_and_100_and_a_listing_is_above_everything_unlisted(chance: float, age: int) -> None:
    listed = factors_of(epss=chance, added=DAY - timedelta(days=age), day=DAY).score
    unlisted = factors_of(epss=chance, added=None, day=DAY).score
    assert 0 <= unlisted <= 25 <= listed <= 100


def test_a_listing_of_tomorrow_counts_as_of_today() -> None:
    today, tomorrow = (factors_of(epss=None, added=DAY + timedelta(days=ahead), day=DAY) for ahead in (0, 1))
    assert today == tomorrow
    assert today.score == 75


def test_recency_halves_every_30_days_exactly() -> None:
    for halvings in range(6):
        points = factors_of(epss=None, added=DAY - timedelta(days=30 * halvings), day=DAY)
        assert Fraction(points.recency) == Fraction(50, 2**halvings)


def test_seven_days_end_with_the_lists_own_day() -> None:
    assert fresh_window(DAY) == (date(2026, 8, 15), DAY)
