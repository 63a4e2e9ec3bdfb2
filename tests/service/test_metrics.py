"""Counters: /metrics shows what was counted, and an event keeps its labels."""

import pytest

from campus.observability import Counters


def test_events_are_counted_by_their_labels() -> None:
    counters = Counters()
    for kind in ("book", "book", "pen"):
        counters.add("shop", "sales", {"kind": kind, "way": "key"})
    counters.add("shop", "visits", {})
    page = counters.page().decode()
    assert 'campus_shop_sales_total{kind="book",way="key"} 2.0\ncampus_shop_sales_total{kind="pen",way="key"} 1.0\n' in page
    assert "# TYPE campus_shop_visits_total counter\ncampus_shop_visits_total 1.0\n" in page


def test_an_event_cannot_be_counted_with_other_labels() -> None:
    counters = Counters()
    counters.add("shop", "sales", {"kind": "book"})
    with pytest.raises(ValueError, match="Incorrect label names"):
        counters.add("shop", "sales", {"size": "large"})
    assert "large" not in counters.page().decode()
