"""Where the records of jobs stand: in the house's database for the whole campus, or in this process alone."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Protocol

from sqlmodel import select

from campus.jobs.record import JobRecord
from campus.jobs.tables import JobRow
from campus.storage import Storage

Change = Callable[[JobRecord], JobRecord | None]
"""What becomes of a record; None: it stays."""


class JobStore(Protocol):
    """The records of jobs by name."""

    async def records(self) -> Mapping[str, JobRecord]:
        """All that there are."""
        ...

    async def change(self, name: str, change: Change) -> JobRecord | None:
        """Change a record that nobody else changes meanwhile; gives it as it was, or None when it stayed."""
        ...


class SharedJobStore:
    """One row per job in the house's database: whoever changes a record does so in a transaction of its own."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    async def records(self) -> Mapping[str, JobRecord]:
        """See JobStore."""
        async with self._storage.read() as session:
            return {row.name: _record_of(row) for row in await session.exec(select(JobRow))}

    async def change(self, name: str, change: Change) -> JobRecord | None:
        """See JobStore."""
        async with self._storage.write() as session:
            row = await session.get(JobRow, name) or JobRow(name=name)
            before = _record_of(row)
            after = change(before)
            if after is None:
                return None
            session.add(row.sqlmodel_update(asdict(after)))
            return before


class ProcessJobStore:
    """The records of jobs that run in each process, for as long as it lives."""

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


def _record_of(row: JobRow) -> JobRecord:
    return JobRecord(
        last_started=row.last_started,
        last_success=row.last_success,
        last_error=row.last_error,
        failures=row.failures,
        retry_at=row.retry_at,
        holder=row.holder,
        lease_until=row.lease_until,
    )
