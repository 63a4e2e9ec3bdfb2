"""The table of what was measured each day."""

from datetime import datetime

from sqlmodel import BigInteger, Field, SQLModel

from campus.storage import UtcDateTime, registry


class Tables(SQLModel, registry=registry()):
    """Base of the feature's tables."""


class StatusDay(Tables, table=True):
    """How one part did on one day, such as 2026-08-21 in UTC: a server by its name, or what days.py names.

    `good` and `bad` are the seconds in which it worked and in which it did not, or the alerts that were delivered in time and late.
    """

    __tablename__ = "status_days"

    day: str = Field(primary_key=True)
    name: str = Field(primary_key=True)
    good: int = Field(sa_type=BigInteger)
    bad: int = Field(sa_type=BigInteger)
    until: datetime = Field(sa_type=UtcDateTime)
