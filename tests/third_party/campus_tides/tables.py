"""What is stored: one row per high or low water. The table's name is also that of a shipped building's."""

from datetime import date

from sqlmodel import Field, SQLModel

from campus.storage import registry


class Tables(SQLModel, registry=registry()):
    """The building's own registry."""


class Feed(Tables, table=True):
    """One high or low water."""

    __tablename__ = "feed"

    port: str = Field(primary_key=True)
    day: date = Field(primary_key=True)
    minute: int = Field(primary_key=True)
    metres: float
