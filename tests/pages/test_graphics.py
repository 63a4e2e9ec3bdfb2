"""What graphics and pages make of numbers that few see: long ones beside an axis, and shares of the whole."""

import re

from buildings.cve.pages.lists import percent
from campus.layout.graphics import LETTER, chart


def test_the_numbers_of_an_axis_have_room_beside_it() -> None:
    for values, unit in (([3.0, 8.0], ""), ([1440.0, 1500.0], " min"), ([123_456_789.0], "$")):
        drawn = str(chart({"one": values}, [str(value) for value in values], "Values", unit=unit))
        ends = re.findall(r'<text x="([\d.]+)" y="[\d.]+" text-anchor="end">([^<]+)</text>', drawn)[:3]
        assert len(ends) == 3
        assert all(float(x) >= len(text) * LETTER for x, text in ends), ends


def test_a_share_is_written_with_two_digits_and_the_whole_as_100() -> None:
    shares = {0: "0", 0.0004: "0.04", 0.055: "5.5", 0.55: "55", 0.994: "99", 0.995: "100", 1: "100"}
    assert {share: percent(share) for share in shares} == shares
