"""Metrics: /metrics shows what was counted and how late the event loop is, and an event keeps its labels."""

import re
import time

import anyio
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


@pytest.mark.anyio
async def test_a_stall_of_the_event_loop_is_in_the_histogram_of_its_lag() -> None:
    counters = Counters()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(counters.event_loop_lag.measure)
        await anyio.sleep(0.05)
        before = lags_over_quarter_second(counters)
        time.sleep(0.4)  # noqa: ASYNC251  # the stall
        await anyio.sleep(0.05)
        tasks.cancel_scope.cancel()
    assert lags_over_quarter_second(counters) == before + 1


def lags_over_quarter_second(counters: Counters) -> int:
    page = counters.page().decode()
    upto, everything = (re.search(rf'campus_event_loop_lag_seconds_bucket{{le="{bound}"}} (\d+)', page) for bound in ("0.25", r"\+Inf"))
    assert upto is not None
    assert everything is not None
    return int(everything[1]) - int(upto[1])
