"""How long to wait before what failed is tried again."""

from datetime import timedelta
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from campus.backoff import Backoff

WAITS = st.lists(st.timedeltas(timedelta(milliseconds=10), timedelta(days=1)), min_size=1, max_size=9).map(sorted)


@given(WAITS, st.integers(1, 100), st.floats(0, 0.5), st.floats(0, 1))
def test_waits_follow_each_other_the_last_goes_on_and_each_is_spread(
    waits: list[timedelta], failures: int, spread: float, chance: float
) -> None:
    backoff, middle = Backoff(waits, spread), waits[min(failures, len(waits)) - 1]
    tick = timedelta(microseconds=1)
    assert Backoff(waits).wait(failures, chance=chance) == middle
    assert middle * (1 - spread) - tick <= backoff.wait(failures, chance=chance) <= middle * (1 + spread) + tick
    assert backoff.wait(failures, chance=chance) <= backoff.longest + tick


@given(st.floats(0.01, 10), st.floats(10, 1000))
def test_waits_that_double_end_with_the_longest(first: float, longest: float) -> None:
    waits = Backoff.doubling(first, longest=longest).waits
    assert (waits[0], waits[-1]) == (timedelta(seconds=first), timedelta(seconds=longest))
    assert all(wait <= later <= 2 * wait + timedelta(microseconds=2) for wait, later in pairwise(waits))
