"""Moments and spans as they are stored: numbers of microseconds, moments since 1970 in UTC."""

from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
"""A number of them is a span at a third of the cost of timedelta(microseconds=number)."""
