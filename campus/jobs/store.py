"""Where job records are stored, in campus's database or in memory; the transaction by which one process wins a lease."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Protocol

from sqlmodel import Field, select

from campus.jobs.record import JobRecord
from campus.storage import CoreTables, Storage, UtcDateTime

Change = Callable[[JobRecord], JobRecord | None]
"""Returns what a record becomes, or None to leave it as it is."""


class JobRow(CoreTables, table=True):
    """A JobRecord by the name of its job; all processes share the row."""

    __tablename__ = "jobs"

    name: str = Field(primary_key=True)
    holder: str | None = None
    lease_until: datetime | None = Field(default=None, sa_type=UtcDateTime)
    last_started: datetime | None = Field(default=None, sa_type=UtcDateTime)
    last_success: datetime | None = Field(default=None, sa_type=UtcDateTime)
    last_error: str | None = None
    failures: int = 0
    retry_at: datetime | None = Field(default=None, sa_type=UtcDateTime)

    def record(self) -> JobRecord:
        """The row without its name."""
        return JobRecord(**self.model_dump(exclude={"name"}))


class JobStore(Protocol):
    """The records of jobs by name."""

    async def records(self) -> Mapping[str, JobRecord]:
        """All records."""
        ...

    async def change(self, name: str, change: Change) -> JobRecord | None:
        """Change a record while nobody else does; returns it as it was before, or None when `change` left it as it is."""
        ...


class SharedJobStore:
    """For jobs that one process of the campus runs: one row per job, changed in a transaction each."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    async def records(self) -> Mapping[str, JobRecord]:
        """See JobStore."""
        async with self._storage.read() as session:
            return {row.name: row.record() for row in await session.exec(select(JobRow))}

    async def change(self, name: str, change: Change) -> JobRecord | None:
        """See JobStore."""
        async with self._storage.write() as session:
            row = await session.get(JobRow, name) or JobRow(name=name)
            before = row.record()
            after = change(before)
            if after is None:
                return None
            session.add(row.sqlmodel_update(asdict(after)))
            return before


class ProcessJobStore:
    """For jobs that every process runs: in memory, for as long as the process lives."""

    def __init__(self) -> None:
        self._records: dict[str, JobRecord] = {}

    async def records(self) -> Mapping[str, JobRecord]:
        """See JobStore."""
        return dict(self._records)

    async def change(self, name: str, change: Change) -> JobRecord | None:
        """See JobStore."""
        before = self._records.get(name, JobRecord())
        if (after := change(before)) is None:
            return None
        self._records[name] = after
        return before
