"""Token buckets: each name has its rate, and whoever waits is not forgotten when the clock changes."""

from datetime import UTC, datetime, timedelta
from math import inf

from hypothesis import given
from hypothesis import strategies as st

from campus.addresses import network_of
from campus.shares import LONGEST_WAIT, SENDER, WIDER_DONE, WIDER_HELD, Counts, Places, TokenBuckets

NOON = datetime(2026, 8, 21, 12, 0, tzinfo=UTC)


def seconds(number: float) -> datetime:
    return NOON + timedelta(seconds=number)


def test_a_bucket_gives_as_many_a_minute_and_fills_while_it_is_quiet() -> None:
    buckets = TokenBuckets(6)
    assert [buckets.take("a", NOON) for _ in range(7)] == [True] * 6 + [False]
    assert buckets.take("b", NOON)
    assert buckets.next_at("a", NOON) == seconds(10)
    assert [buckets.queued_at("a", NOON) for _ in range(3)] == [seconds(10), seconds(20), seconds(30)]
    assert not buckets.take("a", seconds(9))
    assert buckets.take("a", seconds(10))
    assert [buckets.take("a", seconds(900)) for _ in range(7)] == [True] * 6 + [False]
    assert not buckets.take("a", seconds(0)), "a clock that goes back fills nothing"
    assert buckets.take("a", seconds(11)), "and takes nothing"


def test_nobody_who_waits_is_looked_at_later_for_having_been_asked_about_often() -> None:
    buckets = TokenBuckets(6)
    assert [buckets.take("a", NOON) for _ in range(6)] == [True] * 6
    moments = [buckets.queued_at("a", NOON) for _ in range(1_000)]
    assert moments == sorted(moments)
    assert moments[-1] == NOON + LONGEST_WAIT
    assert moments.count(moments[-1]) == 1_000 - LONGEST_WAIT // timedelta(seconds=10) + 1


def test_a_clock_that_is_set_back_leaves_nobody_waiting_for_the_time_that_it_showed() -> None:
    buckets, ahead = TokenBuckets(6), NOON + timedelta(days=400)
    assert [buckets.take("a", ahead) for _ in range(7)] == [True] * 6 + [False]
    assert [buckets.queued_at("a", ahead) - ahead for _ in range(2)] == [timedelta(seconds=10), timedelta(seconds=20)]
    assert buckets.left("a", NOON) == 0
    assert buckets.queued_at("a", NOON) == seconds(30)
    assert buckets.left("a", seconds(20)) == 2


@given(st.lists(st.floats(0, 300), min_size=1, max_size=200), st.integers(1, 20))
def test_in_any_minute_a_bucket_gives_no_more_than_twice_its_rate(moments: list[float], rate: int) -> None:
    buckets = TokenBuckets(rate)
    taken = [moment for moment in sorted(moments) if buckets.take("a", seconds(moment))]
    for start in taken:
        assert sum(start <= moment < start + 60 for moment in taken) <= 2 * rate


def test_no_more_buckets_are_remembered_than_may_be() -> None:
    buckets = TokenBuckets(1, names=10)
    for number in range(1_000):
        buckets.take(str(number), NOON)
    assert len(buckets) == 10
    assert not buckets.take("999", NOON)


def test_networks_of_one_site_or_provider_have_a_few_times_the_share_of_one_and_no_more() -> None:
    def networks(beginning: str) -> list[str]:
        return [network_of(f"{beginning}{number:x}::1") for number in range(100)]

    counts: Counts[str] = Counts(1_000, 4)
    places: Places[str] = Places(limit=1_000, per_holder=4, since=lambda member: inf, end=lambda member: None)
    of_site = sum(places.take(f"{name} {number}", name) for name in networks("2001:db8:1:") for number in range(5))
    for name in networks("2001:db8:1:"):
        while counts.has_room(name):
            counts.add(name)
    assert (counts.total, of_site) == (4 * WIDER_HELD[48],) * 2
    for name in networks("2001:db8:"):
        while counts.has_room(name):
            counts.add(name)
    assert counts.total == 4 * WIDER_HELD[32]
    assert counts.has_room(network_of("2001:db9::1"))
    assert counts.has_room(network_of("192.0.2.1"))
    for name in [*networks("2001:db8:1:"), *networks("2001:db8:")]:
        while counts[name]:
            counts.remove(name)
    assert list(counts) == []


def test_what_networks_of_one_site_do_in_a_minute_is_bounded_and_comes_back_with_time() -> None:
    buckets = TokenBuckets(10)
    networks = [network_of(f"2001:db8:1:{number:x}::1") for number in range(100)]
    assert sum(buckets.take(name, NOON) for name in networks) == 10 * WIDER_DONE[48]
    of_provider = [network_of(f"2001:db9:{number:x}::1") for number in range(200)]
    assert sum(buckets.take(name, NOON) for name in of_provider) == 10 * WIDER_DONE[32]
    assert buckets.take(f"{SENDER}{networks[-1]}", NOON), "senders of alerts have buckets of their own"
    assert buckets.left(networks[-1], NOON) == 0
    assert buckets.left(network_of("2001:db8:2::1"), NOON) == 10
    assert sum(buckets.take(name, NOON + timedelta(minutes=1)) for name in networks) == 10 * WIDER_DONE[48]
