"""When a message is tried again: the waits of the retry policy, and what a target may ask for instead."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

from hypothesis import given
from hypothesis import strategies as st

from campus.features.alerts.channels.webhook import pause_of, retry_after
from campus.features.alerts.message import Outcome
from campus.features.alerts.retries import WAITS, step_after

NOW = datetime(2026, 8, 21, 12, 0, tzinfo=UTC)


def test_the_waits_are_spread_and_end_in_days() -> None:
    failed = Outcome("retry", "no")
    for attempts, wait in enumerate(WAITS, start=1):
        for chance, factor in ((0.0, 0.8), (0.5, 1.0), (1.0, 1.2)):
            step = step_after(failed, attempts=attempts, failing_since=NOW, now=NOW, chance=chance)
            assert step.try_at == NOW + wait * factor
    assert step_after(failed, attempts=50, failing_since=NOW, now=NOW, chance=0.5).try_at == NOW + WAITS[-1]
    assert step_after(failed, attempts=50, failing_since=NOW - timedelta(days=5), now=NOW, chance=0.5).disabled_because
    held = step_after(Outcome("retry", "no", retry_after=timedelta(days=9)), attempts=1, failing_since=None, now=NOW, chance=0.5)
    assert held.hold_until == NOW + timedelta(hours=24)


HEADERS = {
    "120": 120,
    " 7 ": 7,
    "0": 0,
    "0\x1f": 0,
    "Fri, 21 Aug 2026 12:01:00 GMT": 60,
    "Fri, 21 Aug 2026 11:00:00 GMT": None,
    **dict.fromkeys(("soon", "-5", "1.5", "1e3", "nan", "inf", "٣", "9" * 10, "9" * 5_000, "", None)),
}


def test_retry_after_is_whole_seconds_or_a_date_to_come() -> None:
    for text, seconds in HEADERS.items():
        assert retry_after(text, now=NOW) == (None if seconds is None else timedelta(seconds=seconds)), text


@given(st.text(), st.datetimes())
def test_no_retry_after_raises_anything(text: str, date: datetime) -> None:
    for header in (text, format_datetime(date), f"{date:%a, %d %b %Y %H:%M:%S} {text[:5]}", f"{date:%a, %d %b %Y %H:%M:%S} -2359"):
        found = retry_after(header, now=NOW)
        assert found is None or found >= timedelta(0)


def test_discord_and_telegram_ask_for_seconds_with_a_fraction_and_nothing_else_is_heard() -> None:
    assert pause_of(b'{"message":"slow down","retry_after":1.25,"global":false}') == timedelta(seconds=1.25)
    assert pause_of(b'{"ok":false,"error_code":429,"parameters":{"retry_after":35}}') == timedelta(seconds=35)
    for value in ("NaN", "Infinity", "-1", "1e400", "1e12", "9" * 99, "true", '"5"', "null", "[]", "{}", "[" * 999, ""):
        assert pause_of(b'{"retry_after":%b}' % value.encode()) is None, value
        assert pause_of(b'{"parameters":{"retry_after":%b}}' % value.encode()) is None, value
        assert pause_of(value.encode()) is None, value
