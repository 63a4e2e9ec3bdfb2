"""Durations and numbers of units in words, in one place, so that pages, alerts, jobs and terms of keys say them alike. Pure."""

from datetime import timedelta

UNITS = {"day": timedelta(days=1), "hour": timedelta(hours=1), "minute": timedelta(minutes=1), "second": timedelta(seconds=1)}


def in_words(span: timedelta) -> str:
    """A length of time: 3 days 4 h, 2 h 5 min, 40 s; 0 s for one below zero, after a clock was set back. campus.js says the same."""
    minutes, seconds = divmod(max(int(span.total_seconds()), 0), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{counted(days, 'day')} {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min" if minutes else f"{seconds} s"


def counted(number: float, unit: str) -> str:
    """A number of units: 1 day, 12 months, 2.5 minutes."""
    text = f"{number:.7g}"
    return f"{text} {unit}" if text == "1" else f"{text} {unit}s"


def every(span: timedelta, unit: str | None = None) -> str:
    """How often something happens, in the largest unit that divides the span: every day, every 90 minutes; or in this one."""
    name = unit or next((name for name, length in UNITS.items() if not span % length), "second")
    return f"every {counted(span / UNITS[name], name).removeprefix('1 ')}"
