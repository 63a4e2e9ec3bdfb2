"""What the building stores. After a change: campus migration example "what changes", and read the step that it writes."""

from datetime import datetime

from campus.storage import UtcDateTime, registry
from sqlmodel import Field, SQLModel


class Tables(SQLModel, registry=registry()):
    """Base of the building's tables, which no other building shares."""


class Draw(Tables, table=True):
    """A number that was drawn."""

    id: int | None = Field(default=None, primary_key=True)
    at: datetime = Field(sa_type=UtcDateTime, index=True)
    number: int
