"""What `python -m benchmarks` and the soak make of what they measure; what that is is no matter of tests."""

from random import Random

from benchmarks.__main__ import Rounds
from benchmarks.soak import SAMPLE_SECONDS, growth_of


def test_every_part_is_measured_as_often_as_the_caller_says() -> None:
    assert Rounds.of(2) == Rounds(comparisons=2, costs=2, starts=2)


def test_parts_that_take_long_are_measured_less_often_unless_the_caller_says() -> None:
    assert Rounds.of(None) == Rounds(comparisons=9, costs=3, starts=7)


def verdicts(*, minutes: int, growth: float) -> set[str]:
    """Of twenty runs with a noise of some MB, which lasts for some samples, as that of a garbage collector does."""
    found = set()
    for seed in range(20):
        random, samples, noise = Random(seed), [], 0.0
        for number in range(round(minutes * 60 / SAMPLE_SECONDS)):
            noise = 0.9 * noise + random.gauss(0, 0.4)
            time = number * SAMPLE_SECONDS
            samples.append((time, 190 + growth * time / 3600 + noise))
        found.add(growth_of(samples).verdict.partition(":")[0])
    return found


def test_forty_megabytes_an_hour_never_pass_for_flat_however_short_the_run() -> None:
    assert verdicts(minutes=6, growth=40) == {"undecided"}
    assert "flat" not in verdicts(minutes=15, growth=40)
    assert verdicts(minutes=60, growth=40) == {"it grows"}


def test_a_run_says_that_memory_is_flat_only_once_it_is_long_enough_to_tell() -> None:
    assert verdicts(minutes=1, growth=0) == {"undecided"}
    assert verdicts(minutes=60, growth=0) == {"flat"}
