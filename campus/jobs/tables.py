"""The table of jobs: who runs each, until when, and how its last run ended."""

from datetime import datetime

from sqlmodel import Field

from campus.storage import CoreTables, UtcDateTime


class JobRow(CoreTables, table=True):
    """One job of the campus; all processes share the row."""

    __tablename__ = "jobs"

    name: str = Field(primary_key=True)
    holder: str | None = None
    lease_until: datetime | None = Field(default=None, sa_type=UtcDateTime)
    last_started: datetime | None = Field(default=None, sa_type=UtcDateTime)
    last_success: datetime | None = Field(default=None, sa_type=UtcDateTime)
    last_error: str | None = None
    failures: int = 0
    retry_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
