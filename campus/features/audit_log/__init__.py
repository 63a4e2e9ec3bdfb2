"""The audit log: every call comes in as a step's `ended`; rows of `audit_log` go out, by `campus audit-log` and to the operator's pages."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from pydantic import Field

from campus.building import Building, Command, Job, Settings
from campus.features.audit_log.tables import Tables

FLUSH = timedelta(seconds=10)
"""What a crash may lose."""
DELETED_AT = "03:40"


class AuditLogTable(Settings):
    """[audit_log]: notes who called which tool, how that ended and what was paid; without the table only changes of keys are noted."""

    days: int = Field(default=90, ge=1, le=3_660)
    """How many days an entry is kept."""


@asynccontextmanager
async def opened(site: Any) -> AsyncIterator[Any]:
    """The log of one process."""
    from campus.features.audit_log.log import AuditLog

    log = AuditLog(site.storage, now=site.clock, kept=timedelta(days=site.settings.days))
    yield log
    await log.flush()


def steps(site: Any) -> list[Any]:
    """What notes each call."""
    from campus.features.audit_log.step import Noted  # with FastMCP, as all that handles calls

    return [Noted(site.state)]


async def flush(site: Any) -> None:
    """Store what was noted."""
    await site.state.flush()


async def delete_old(site: Any) -> None:
    """Delete what was kept for long enough."""
    await site.state.delete_old()


feature = Building(
    settings=AuditLogTable,
    tables=Tables,
    state=opened,
    steps=steps,
    jobs=[Job(flush, every=FLUSH, on="each"), Job(delete_old, daily_at=DELETED_AT)],
    commands=[
        Command(
            "audit-log",
            "campus.features.audit_log.command:audit_log",
            "Write the audit log to standard output, the oldest entry first; a running server's entries appear within 10 seconds.\n\n"
            "Changes of keys are always in it, calls and acts of the operator's pages while campus.toml has [audit_log].",
        )
    ],
)
