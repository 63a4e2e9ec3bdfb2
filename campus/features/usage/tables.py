"""The table of what keys call."""

from sqlmodel import BigInteger, Field, SQLModel

from campus.storage import registry


class Tables(SQLModel, registry=registry()):
    """Base of the feature's tables."""


class UsageRow(Tables, table=True):
    """How many calls of a tool came with the key of a lineage on a day, such as 2026-08-21, in UTC."""

    __tablename__ = "usage_calls"

    day: str = Field(primary_key=True)
    lineage: str = Field(primary_key=True, index=True)
    building: str = Field(primary_key=True)
    tool: str = Field(primary_key=True)
    calls: int = Field(sa_type=BigInteger)
