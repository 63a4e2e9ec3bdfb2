"""CVE identifiers: spelling and numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buildings.cve.arguments import SEQUENCES, canonical, number_of, spelled


@given(st.integers(0, 9999), st.integers(0, SEQUENCES - 1))
def test_a_number_stands_for_one_identifier(year: int, sequence: int) -> None:
    cve_id = spelled(year * SEQUENCES + sequence)
    assert canonical(cve_id) == cve_id
    assert number_of(cve_id) == year * SEQUENCES + sequence


@pytest.mark.parametrize("text", ["cve-2021-44228", "CVE-2021-44228", "Cve-2021-44228"])
def test_case_does_not_matter(text: str) -> None:
    assert canonical(text) == "CVE-2021-44228"


@pytest.mark.parametrize(
    "text",
    [
        *("", "CVE", "CVE-2021", "CVE-2021-", "CVE-2021-123", "CVE-21-44228", "CVE_2021_44228", "CVE-2021-44228-1", "GHSA-jfh8-c2jp-5v3q"),
        *(" CVE-2021-44228", "CVE-2021-44228 ", "CVE-2021-44228\n", "CVE-2021-044228", "CVE-2021-1234567890123", "CVE-２０２１-44228"),
    ],
)
def test_anything_else_is_no_identifier(text: str) -> None:
    assert canonical(text) is None


def test_numbers_follow_year_then_sequence() -> None:
    ids = ["CVE-1999-0001", "CVE-1999-9999", "CVE-1999-10000", "CVE-2021-44228", "CVE-2021-100000", "CVE-2026-0001"]
    assert sorted(ids, key=number_of) == ids
