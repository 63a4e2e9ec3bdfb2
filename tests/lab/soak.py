"""What the soak says of a server whose memory grows, and of one whose memory does not: `make soak` begins with it."""

from random import Random

from benchmarks.soak import SAMPLE_SECONDS, growth_of


def verdicts(*, minutes: int, growth: float) -> set[str]:
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
