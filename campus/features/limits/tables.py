"""What callers have spent, in campus's own database."""

from datetime import datetime

from sqlalchemy import Double
from sqlmodel import Field, SQLModel

from campus.storage import UtcDateTime, registry


class Tables(SQLModel, registry=registry()):
    """Base of the limits' tables."""


class SpentLimitRow(Tables, table=True):
    """What a caller has spent of a limit in all processes, as the seconds from `at` on in which it comes back. Only PostgreSQL has rows."""

    __tablename__ = "limits_spent"

    name: str = Field(primary_key=True)
    missing: float = Field(sa_type=Double)
    at: datetime = Field(sa_type=UtcDateTime)
