"""How long work belongs to a process, and when failed work is tried again."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from campus.backoff import Backoff
from campus.storage import Lease, is_held

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
LENGTHS = st.timedeltas(timedelta(milliseconds=10), timedelta(days=1))
WAITS = st.lists(LENGTHS, min_size=1, max_size=9).map(sorted)


@given(LENGTHS, st.timedeltas(timedelta(0), timedelta(days=2)))
def test_a_lease_is_held_until_its_end_and_no_longer(length: timedelta, later: timedelta) -> None:
    lease = Lease(length)
    assert is_held(lease.end(NOW), NOW + later) is (later < length)
    assert NOW < NOW + 2 * lease.renewal < lease.end(NOW), "one renewal may be missed"


def test_what_was_never_taken_is_held_by_nobody() -> None:
    assert not is_held(None, NOW)


@given(WAITS, st.integers(1, 100), st.floats(0, 0.5), st.floats(0, 1))
def test_waits_follow_each_other_the_last_goes_on_and_each_is_spread(
    waits: list[timedelta], failures: int, spread: float, chance: float
) -> None:
    backoff, middle = Backoff(waits, spread), waits[min(failures, len(waits)) - 1]
    tick = timedelta(microseconds=1)
    assert Backoff(waits).wait(failures, chance=chance) == middle
    assert middle * (1 - spread) - tick <= backoff.wait(failures, chance=chance) <= middle * (1 + spread) + tick
    assert backoff.wait(failures, chance=chance) <= backoff.longest + tick
