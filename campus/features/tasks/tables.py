"""The table of background tasks: one row per call that goes on after its request."""

from datetime import datetime

from sqlmodel import Field, SQLModel

from campus.storage import UtcDateTime, registry


class Tables(SQLModel, registry=registry(), defer_build=True):  # no row is validated
    """Base of the feature's tables."""


class TaskRow(Tables, table=True):
    """One task, by the id that its caller polls. store.py has its states.

    `owner` is the lineage of the key that it was called with; without one, whoever knows the id may see it. `started_by` is what limits
    count by: that lineage, or the caller's network. `holder` is the process that runs it while `lease_until` lasts. `purchase` finds the
    task of a payment again; `payment` is the payment's id until it is known whether it was charged. `result` is an MCP result as JSON,
    and is deleted with the row after `kept_until`.
    """

    __tablename__ = "tasks"

    id: str = Field(primary_key=True)
    building: str
    tool: str
    owner: str | None
    started_by: str = Field(index=True)
    purchase: bytes | None = Field(default=None, unique=True)
    payment: str | None = None
    status: str
    holder: str
    lease_until: datetime = Field(sa_type=UtcDateTime)
    created_at: datetime = Field(sa_type=UtcDateTime)
    updated_at: datetime = Field(sa_type=UtcDateTime)
    deadline: datetime = Field(sa_type=UtcDateTime)
    kept_until: datetime = Field(sa_type=UtcDateTime, index=True)
    result: bytes | None = None
