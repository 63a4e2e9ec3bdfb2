"""EPSS files: their quirks, and what is refused."""

import gzip
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buildings.cve.cve_id import spelled
from buildings.cve.feeds.epss import parse_epss
from buildings.cve.feeds.errors import FeedRefused

HEAD = b"#model_version:v2026.06.15,score_date:2026-08-15T12:55:00Z\ncve,epss,percentile\n"


def test_rows_may_be_unsorted_and_numbers_trimmed_or_scientific() -> None:
    day = parse_epss(HEAD + b"CVE-2026-10000,2e-05,0.1\nCVE-1999-0001,0.5,1\nCVE-2026-9999,1,.25\n")
    assert [spelled(number) for number in day.scores.numbers] == ["CVE-1999-0001", "CVE-2026-9999", "CVE-2026-10000"]
    assert list(day.scores.epss) == [0.5, 1.0, 2e-05]
    assert list(day.scores.percentiles) == [1.0, 0.25, 0.1]
    assert (day.model_version, day.scored_at) == ("v2026.06.15", datetime(2026, 8, 15, 12, 55, tzinfo=UTC))


@pytest.mark.parametrize("written", [b"2024-10-20T00:00:00+0000", b"2024-10-20T00:00:00Z", b"2024-10-20T02:00:00+02:00"])
def test_a_score_date_may_be_written_as_in_any_year(written: bytes) -> None:
    day = parse_epss(b"#model_version:v2023.03.01,score_date:" + written + b"\ncve,epss,percentile\nCVE-1999-0001,0.5,1\n")
    assert day.scored_at == datetime(2024, 10, 20, tzinfo=UTC)


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_line_ends_do_not_matter(end: bytes) -> None:
    body = (HEAD + b"CVE-1999-0001,0.5,1\nCVE-1999-0002,0.25,0.5").replace(b"\n", b"\r\n" if end == b"\r\n" else b"\n") + end
    assert list(parse_epss(body).scores.epss) == [0.5, 0.25]


@given(st.integers(1, 30_000), st.booleans())
def test_no_row_is_lost_where_blocks_meet(rows: int, packed: bool) -> None:
    body = HEAD + b"".join(b"CVE-2026-%d,0.5,0.5\n" % number for number in range(1000, 1000 + rows))
    assert len(parse_epss(gzip.compress(body, 1) if packed else body).scores.numbers) == rows


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "an empty answer"),
        (b"<html>busy</html>", "an HTML page"),
        (b"cve,epss,percentile\nCVE-1999-0001,0.5,1\n", "not EPSS scores"),
        (HEAD.replace(b"percentile", b"centile") + b"CVE-1999-0001,0.5,1\n", "not EPSS scores"),
        (HEAD, "no rows"),
        (HEAD + b"CVE-1999-0001,0.5,1\nCVE-1999-00", "no row 'CVE-…,number,number': b'CVE-1999-00'"),
        (HEAD + b"CVE-1999-0001,0.5\n", "no row 'CVE-…,number,number': b'CVE-1999-0001,0.5'"),
        (HEAD + b"CVE-1999-0001,0.5,1\n\nCVE-1999-0002,0.5,1\n", "no row 'CVE-"),
        (HEAD + b"CVE-1999-0001,nan,1\n", "no row 'CVE-"),
        (HEAD + b"CVE-1999-0001,1-1,1\n", "no number"),
        (HEAD + b"CVE-1999-0001,1.5,1\n", "a score is not between 0 and 1"),
        (HEAD + b"CVE-1999-0001,0.5,-0.1\n", "a percentile is not between 0 and 1"),
        (HEAD + b"CVE-1999-0001,0.5,1\nCVE-1999-0001,0.5,1\n", "CVE-1999-0001 has two rows"),
        (HEAD.replace(b"2026-08-15T12:55:00Z", b"2026-13-15T12:55:00Z") + b"CVE-1999-0001,0.5,1\n", "is no date"),
        (HEAD.replace(b"12:55:00Z", b"12:55:00") + b"CVE-1999-0001,0.5,1\n", "no time zone"),
    ],
)
def test_what_is_no_day_of_scores_is_refused_with_what_was_seen(body: bytes, reason: str) -> None:
    with pytest.raises(FeedRefused) as refusal:
        parse_epss(body)
    assert reason in str(refusal.value)
