"""When a key's term ends, and how a term is written."""

from calendar import monthrange
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from campus.keys.sales import Term

moments = st.datetimes(datetime(2000, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))
days = st.integers(1, 9999).map(lambda count: Term(count, "day"))
months = st.integers(1, 9999).map(lambda count: Term(count, "month"))
terms = days | months


@given(days, moments)
def test_days_are_86400_seconds_each(term: Term, start: datetime) -> None:
    assert (term.end(start) - start).total_seconds() == term.count * 86_400


@given(months, moments)
def test_months_are_counted_by_the_calendar(term: Term, start: datetime) -> None:
    end = term.end(start)
    assert end.year * 12 + end.month == start.year * 12 + start.month + term.count
    assert end.timetz() == start.timetz()
    assert end.day == min(start.day, monthrange(end.year, end.month)[1])


@given(terms, moments, moments)
def test_a_later_purchase_ends_no_earlier(term: Term, one: datetime, other: datetime) -> None:
    earlier, later = sorted((one, other))
    assert term.end(earlier) <= term.end(later)


@given(terms, moments)
def test_a_term_is_subtracted_as_it_was_added_but_for_days_that_a_month_lacks(term: Term, start: datetime) -> None:
    lost = start - term.start(term.end(start))
    assert timedelta() <= lost <= (timedelta(days=3) if start.day > 28 else timedelta())


@given(terms, moments)
def test_a_key_ends_after_it_began(term: Term, start: datetime) -> None:
    assert term.end(start) > start


@given(terms)
def test_a_term_reads_back_as_it_is_written(term: Term) -> None:
    assert Term.parse(str(term)) == term


@given(st.text(max_size=12).filter(lambda text: "day" not in text and "month" not in text))
def test_random_text_is_refused_with_the_two_forms(text: str) -> None:
    with pytest.raises(ValueError, match='is not a term; write it as "30 days" or "12 months"'):
        Term.parse(text)


@pytest.mark.parametrize(
    "text",
    [
        *("", "30", "days", "0 days", "-1 days", "1.5 months", "030 days", "12 years"),
        *("30 days ", " 30 days", "30  days", "30 days\n", "٣ days", "10000 days"),
    ],
)
def test_other_forms_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match='write it as "30 days" or "12 months"'):
        Term.parse(text)


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("30 days", "2026-01-31T10:00:00Z", "2026-03-02T10:00:00Z"),
        ("12 months", "2026-08-21T23:59:59Z", "2027-08-21T23:59:59Z"),
        ("12 months", "2028-02-29T00:00:00Z", "2029-02-28T00:00:00Z"),
        ("1 month", "2026-01-31T12:00:00Z", "2026-02-28T12:00:00Z"),
        ("1 months", "2027-12-31T12:00:00Z", "2028-01-31T12:00:00Z"),
        ("11 months", "2026-01-15T12:00:00Z", "2026-12-15T12:00:00Z"),
    ],
)
def test_terms_end_on_these_days(text: str, start: str, end: str) -> None:
    assert Term.parse(text).end(datetime.fromisoformat(start)) == datetime.fromisoformat(end)


def test_thirty_days_are_thirty_days_in_any_month() -> None:
    assert Term.parse("30 days").end(datetime(2026, 2, 1, tzinfo=UTC)) == datetime(2026, 2, 1, tzinfo=UTC) + timedelta(hours=720)
