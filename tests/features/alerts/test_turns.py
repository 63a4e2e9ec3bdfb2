"""Turns, shares and pace: nobody has more than a share, and whoever has least comes first."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from campus import Caller
from campus.features.alerts.message import HEALTHS, Health, Lane
from campus.features.alerts.retries import WAITS
from campus.features.alerts.targets import sender_of
from campus.features.alerts.turns import FIRST_TRIES, MAX_DOUBTED, MOST_CHOSEN, AlertLimits, Pace, UnderWay
from campus.shares import Counts

NOON = datetime(2026, 8, 21, 12, 0, tzinfo=UTC)
LIMITS = AlertLimits(at_once=16, sender=3, host=5, unproven=2, shared_hosts=frozenset({"shared.dev"}))
LANES = st.builds(
    Lane,
    target_id=st.integers(0, 10**9).map("tgt_{}".format),
    health=st.sampled_from(HEALTHS),
    sender=st.sampled_from([f"net:{number}" for number in range(9)]),
    host=st.sampled_from(["a.dev", "b.dev", "shared.dev"]),
    keyed=st.booleans(),
    answered=st.booleans(),
    attempts=st.integers(0, 3),
)


def lane(number: int = 0, *, sender: str = "net:a", host: str = "a.dev", health: Health = "new", **more: Any) -> Lane:
    return Lane(f"tgt_{number}", health, sender, host, **{"keyed": False, "answered": False, "attempts": 0, **more})


def seconds(number: float) -> datetime:
    return NOON + timedelta(seconds=number)


def choose(under_way: UnderWay, lanes: list[Lane], health: Health) -> list[Lane]:
    return under_way.choose([one for one in lanes if one.health == health], health, may_begin=lambda one: True)


@given(st.lists(LANES, max_size=60))
def test_no_share_is_exceeded_and_none_is_left_empty_while_someone_may_begin(lanes: list[Lane]) -> None:
    under_way, begun = UnderWay(LIMITS), list[Lane]()
    for health in HEALTHS:
        begun += choose(under_way, lanes, health)
    assert len(begun) == under_way.by_health.total <= LIMITS.at_once
    assert max(Counter(one.sender for one in begun).values(), default=0) <= LIMITS.sender
    for health in HEALTHS:
        assert sum(one.health == health for one in begun) <= LIMITS.share_of(health)
        assert choose(under_way, [one for one in lanes if one not in begun], health) == []
    for host in ("a.dev", "b.dev"):
        senders = len({one.sender for one in begun if one.host == host})
        assert sum(one.host == host for one in begun) <= LIMITS.host + senders
    for one in begun:
        under_way.end(one)
    assert not any([*counts] for counts in vars(under_way).values() if isinstance(counts, Counts))


@given(st.lists(LANES, max_size=60), st.sampled_from(HEALTHS))
def test_nobody_begins_a_second_while_another_who_may_has_none(lanes: list[Lane], health: Health) -> None:
    lanes = [one._replace(host="shared.dev") for one in lanes]
    begun = Counter(one.sender for one in choose(UnderWay(LIMITS), lanes, health))
    waiting = {one.sender for one in lanes if one.health == health}
    if begun and max(begun.values()) > 1:
        assert begun.keys() == waiting


def test_few_begin_at_one_time_and_the_next_ones_at_the_next() -> None:
    under_way = UnderWay(AlertLimits(shared_hosts=frozenset({"shared.dev"})))
    lanes = [lane(number, sender=f"net:{number}", host="shared.dev") for number in range(3 * MOST_CHOSEN)]
    assert choose(under_way, lanes, "new") == lanes[:MOST_CHOSEN]
    assert choose(under_way, lanes[MOST_CHOSEN:], "new") == lanes[MOST_CHOSEN : 2 * MOST_CHOSEN]


def test_each_kind_has_all_its_room_however_many_of_the_others_hang() -> None:
    for health in HEALTHS:
        limits = AlertLimits(at_once=64)
        under_way = UnderWay(limits)
        for other in HEALTHS:
            if other != health:
                many = [lane(number, sender=f"net:{number}", host=f"{number}.dev", health=other) for number in range(200)]
                assert len(choose(under_way, many, other)) == limits.share_of(other)
        assert under_way.free(health) == limits.share_of(health) > 0


def test_a_sender_with_nothing_under_way_to_a_host_may_begin_there_however_many_others_have() -> None:
    under_way = UnderWay(LIMITS)
    assert len(choose(under_way, [lane(number) for number in range(9)], "new")) == 2
    assert under_way.full_pairs("new") == ["net:a a.dev"]
    assert len(choose(under_way, [lane(number, sender="net:b") for number in range(9)], "new")) == 1


def test_the_longest_waiting_of_equals_comes_first() -> None:
    lanes = [lane(number, sender=f"net:{number}", host=f"{number}.dev") for number in range(20)]
    assert choose(UnderWay(AlertLimits(at_once=8)), lanes, "new") == lanes[:5]


def test_lanes_that_must_wait_take_no_room() -> None:
    under_way = UnderWay(LIMITS)
    lanes = [lane(number, host="shared.dev") for number in range(9)]
    chosen = under_way.choose(lanes, "new", may_begin=lambda one: one in lanes[6:])
    assert chosen == lanes[6:]
    assert under_way.by_health.total == 3


def test_a_host_that_takes_nothing_from_a_sender_is_asked_by_one_at_a_time() -> None:
    pace = Pace(60)
    for number in range(FIRST_TRIES):
        assert pace.begin(lane(number), NOON) is None
        assert not pace.note(lane(number), NOON, taken=False)
    assert pace.begin(lane(10), NOON) == NOON + WAITS[0]
    assert pace.begin(lane(10, sender="net:b"), NOON) is None
    assert pace.begin(lane(10, host="b.dev"), NOON) is None
    assert pace.begin(lane(10, answered=True), NOON) is None
    now = NOON + WAITS[0]
    assert pace.begin(lane(10), now) is None
    assert pace.begin(lane(11), now) == now + WAITS[0], "while the first is asked"
    assert not pace.note(lane(10), now, taken=False)
    assert pace.begin(lane(11), now) == now + WAITS[1]
    assert pace.note(lane(12), now, taken=True)
    assert pace.begin(lane(11), now) is None


def test_a_few_targets_that_fail_close_no_host() -> None:
    pace = Pace(60)
    for tries in range(20):
        for number in range(FIRST_TRIES - 1):
            assert pace.begin(lane(number, attempts=tries), seconds(tries * 60)) is None
            assert not pace.note(lane(number, attempts=tries), seconds(tries * 60), taken=False)
    assert pace.begin(lane(10), seconds(1200)) is None


def test_a_host_takes_only_so_many_a_minute_and_the_first_of_each_sender() -> None:
    pace = Pace(10)
    begun = [pace.begin(lane(host="a.dev", sender=f"net:{sender}", answered=True), NOON) for sender in range(20) for _ in range(10)]
    assert sum(one is None for one in begun) == 5 * 10 + 15 * 6
    assert min(one for one in begun if one is not None) > NOON
    shared = Pace(10, shared_hosts=frozenset({"a.dev"}))
    assert all(shared.begin(lane(sender=f"net:{sender}"), NOON) is None for sender in range(20) for _ in range(10))


def test_a_sender_whose_new_target_failed_is_doubted_for_some_minutes() -> None:
    pace = Pace(60)
    pace.note(lane(answered=True), NOON, taken=False)
    pace.note(lane(sender="net:b"), NOON, taken=True)
    pace.note(lane(sender="key:c", keyed=True), NOON, taken=False)
    assert pace.doubted(NOON) == []
    for sender, at in (("net:d", 0), ("net:e", 1), ("net:d", 2)):
        pace.note(lane(sender=sender), seconds(at), taken=False)
    pace.note(lane(1, sender="net:e"), seconds(3), taken=True)
    assert pace.doubted(seconds(3)) == ["net:e", "net:d"], "one target that takes messages does not vouch for the others"
    assert pace.doubted(seconds(601)) == ["net:d"]
    assert pace.doubted(seconds(602)) == []
    for number in range(2 * MAX_DOUBTED):
        pace.note(lane(sender=f"net:{number}"), NOON, taken=False)
    assert len(pace.doubted(NOON)) == MAX_DOUBTED
    assert pace.doubted(seconds(-1)) == [], "after a clock that went back"


def test_for_a_key_no_pace_is_kept() -> None:
    pace = Pace(1)
    for number in range(100):
        assert pace.begin(lane(number, keyed=True, sender="key:a"), NOON) is None
        assert not pace.note(lane(number, keyed=True), NOON, taken=False)


def test_a_sender_is_a_network() -> None:
    for address, sender in {
        "192.0.2.7": "net:192.0.2.7",
        "::ffff:192.0.2.7": "net:192.0.2.7",
        "2001:db8::1": "net:2001:db8::/64",
        "2001:db8:0:0:ffff::1": "net:2001:db8::/64",
        "fe80::1%eth0": "net:fe80::/64",
        "": "net:",
        "testclient": "net:testclient",
    }.items():
        network = Caller(None, None, "http", address).network
        assert (sender_of(None, network), sender_of("lin_1", network)) == (sender, "key:lin_1")
