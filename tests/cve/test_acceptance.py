"""The thresholds for well-formed feeds."""

from datetime import UTC, datetime, timedelta

import pytest

from buildings.cve.feeds.acceptance import EPSS, KEV, Issue, Thresholds, check
from buildings.cve.feeds.errors import FeedRefused

THEN = datetime(2026, 8, 20, 12, tzinfo=UTC)


def issue(entries: int, *, hours: int = 24) -> Issue:
    return Issue(version=f"v{hours}", issued=THEN + timedelta(hours=hours), entries=entries)


@pytest.mark.parametrize(
    ("thresholds", "before", "fewest"),
    [(KEV, 1674, 1641), (EPSS, 360_142, 324_128), (KEV, 1_000, 980), (EPSS, 1_000, 900)],
    ids=["KEV −2 %", "EPSS −10 %", "KEV exactly −2 %", "EPSS exactly −10 %"],
)
def test_a_feed_may_shrink_up_to_its_threshold(thresholds: Thresholds, before: int, fewest: int) -> None:
    used = issue(before, hours=0)
    check("FEED", issue(fewest), used=used, thresholds=thresholds)
    with pytest.raises(FeedRefused, match=f"{fewest - 1:,} entries, .* fewer than the {before:,} of v0 of 2026-08-20"):
        check("FEED", issue(fewest - 1), used=used, thresholds=thresholds)


def test_the_first_kev_has_a_thousand_entries_at_least() -> None:
    check("KEV", issue(1000), used=None, thresholds=KEV)
    with pytest.raises(FeedRefused, match="has 999 entries, the first should have 1,000"):
        check("KEV", issue(999), used=None, thresholds=KEV)


def test_an_older_issue_is_refused_and_the_same_one_is_not() -> None:
    check("KEV", issue(1674, hours=0), used=issue(1674, hours=0), thresholds=KEV)
    with pytest.raises(FeedRefused, match="v-1 of 2026-08-20 is older than v0 of 2026-08-20"):
        check("KEV", issue(1674, hours=-1), used=issue(1674, hours=0), thresholds=KEV)


def test_every_refusal_says_what_to_do() -> None:
    for thresholds, new, used in [(KEV, issue(5), None), (KEV, issue(5), issue(1674, hours=0)), (EPSS, issue(9, hours=-1), issue(9))]:
        with pytest.raises(FeedRefused, match="--accept if that is right"):
            check("FEED", new, used=used, thresholds=thresholds)
