"""How often `python -m benchmarks` measures each part. What it measures is no matter of tests."""

from benchmarks.__main__ import Rounds


def test_every_part_is_measured_as_often_as_the_caller_says() -> None:
    assert Rounds.of(2) == Rounds(comparisons=2, costs=2, starts=2)


def test_parts_that_take_long_are_measured_less_often_unless_the_caller_says() -> None:
    assert Rounds.of(None) == Rounds(comparisons=9, costs=3, starts=7)
