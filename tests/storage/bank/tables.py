"""A bank as a building would have it: accounts, and entries that go when their account goes."""

from datetime import datetime
from typing import Any

from sqlmodel import Field, SQLModel

from campus.storage import Json, UtcDateTime, registry


class Tables(SQLModel, registry=registry()):
    """The bank's own registry."""


class Account(Tables, table=True):
    """Who has how much."""

    name: str = Field(primary_key=True)
    balance: int = 0
    currency: str = Field(default="EUR", max_length=3)


class Entry(Tables, table=True):
    """One change of an account."""

    id: int | None = Field(default=None, primary_key=True)
    account: str = Field(foreign_key="account.name", ondelete="CASCADE", index=True)
    amount: int
    at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    detail: Any = Field(default=None, sa_type=Json, nullable=True)
