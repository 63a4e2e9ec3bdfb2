"""How long work belongs to a process."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from campus.storage.leases import Lease, is_held

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
LENGTHS = st.timedeltas(timedelta(milliseconds=10), timedelta(days=1))


@given(LENGTHS, st.timedeltas(timedelta(0), timedelta(days=2)))
def test_a_lease_is_held_until_its_end_and_no_longer(length: timedelta, later: timedelta) -> None:
    lease = Lease(length)
    assert is_held(lease.end(NOW), NOW + later) is (later < length)
    assert NOW < NOW + 2 * lease.renewal < lease.end(NOW), "one renewal may be missed"


def test_what_was_never_taken_is_held_by_nobody() -> None:
    assert not is_held(None, NOW)
