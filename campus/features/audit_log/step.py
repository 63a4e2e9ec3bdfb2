"""Notes how each call ended, stores that every few seconds, and deletes what is old."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from campus.building import Building, Job
from campus.catalog.parts import FeatureSite
from campus.context import Context
from campus.features.audit_log.feature import AuditLogTable
from campus.features.audit_log.log import AuditLog
from campus.steps import PAID, GatedCall, Step

FLUSH = timedelta(seconds=10)  # What a crash may lose.
DELETED_AT = "03:40"
LogSite = FeatureSite[AuditLogTable, AuditLog]


class Noted(Step):
    name = "audit_log"
    after = ("limits", "credits", "sale")

    def __init__(self, log: AuditLog) -> None:
        self._log = log

    def ended(self, call: GatedCall[Any], context: Context, outcome: str) -> None:
        amount, request_id = PAID.of(context), call.scope.get("request_id")
        self._log.note(actor_of(context), context.site.name, call.tool, outcome, frame=call.frame, amount=amount, request_id=request_id)


def actor_of(context: Context) -> str | None:
    if context.caller is not None and context.caller.payer is not None:
        return context.caller.payer
    key = context.credential and context.credential.key
    return key.id if key else None


@asynccontextmanager
async def opened(site: LogSite) -> AsyncIterator[AuditLog]:
    log = AuditLog(site.storage, now=site.clock, kept=timedelta(days=site.settings.days))
    yield log
    await log.flush()


async def flush(site: LogSite) -> None:
    await site.state.flush()


async def delete_old(site: LogSite) -> None:
    await site.state.delete_old()


building = Building(
    state=opened,
    steps=lambda site: [Noted(site.state)],
    jobs=[Job(flush, every=FLUSH, on="each"), Job(delete_old, daily_at=DELETED_AT)],
)
