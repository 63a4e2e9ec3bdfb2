"""Durations in words, which pages, alerts, jobs and terms of keys share."""

from datetime import timedelta

import pytest

from campus.observability import counted, every, in_words

MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-3, "0 s"), (45.9, "45 s"), (720, "12 min"), (12_000, "3 h 20 min"), (86_400, "1 day 0 h"), (187_200, "2 days 4 h")],
)
def test_a_length_of_time_has_its_two_largest_units(seconds: float, text: str) -> None:
    assert in_words(timedelta(seconds=seconds)) == text


def test_a_number_of_units_is_singular_for_one_and_rounded_to_seven_digits() -> None:
    assert [counted(number, "minute") for number in (1, 1.000_000_01, 2.5, 0, 525_600)] == [
        *("1 minute", "1 minute", "2.5 minutes", "0 minutes", "525600 minutes"),
    ]


def test_how_often_is_said_in_the_largest_whole_unit_or_the_one_that_is_asked_for() -> None:
    spans = (timedelta(days=1), timedelta(hours=2), 90 * MINUTE, timedelta(seconds=5), timedelta(milliseconds=100))
    assert [every(span) for span in spans] == ["every day", "every 2 hours", "every 90 minutes", "every 5 seconds", "every 0.1 seconds"]
    assert [every(span, "minute") for span in (MINUTE, timedelta(hours=1), 2.5 * MINUTE)] == [
        *("every minute", "every 60 minutes", "every 2.5 minutes"),
    ]
