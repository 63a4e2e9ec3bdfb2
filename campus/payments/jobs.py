"""The jobs of payments: reconcile, audit, delete what is no longer needed, write the ledger's counts."""

import logging
from collections.abc import Callable
from datetime import datetime, timedelta

from sqlalchemy import delete, update
from sqlmodel import col

from campus.jobs import Task
from campus.payments.audit import Audit, Findings
from campus.payments.ledger import Ledger
from campus.payments.reconciler import Reconciler
from campus.payments.tables import PaymentRow
from campus.storage import Storage

RECONCILE_SECONDS = 15
AUDITED_AT = "03:20"
AUDITED_BACK = timedelta(days=3)
"""How far back the daily audit goes: a node that was down for a weekend leaves no gap."""
UNCLAIMED_EXPLAINED = 100
"""How many unclaimed transfers the audit explains, at two calls to the node each."""
RELEASED_RETENTION = timedelta(days=1)
"""How long a payment that was not charged is kept after its authorization has ended, when it cannot be charged any more."""
JUMP = timedelta(minutes=1)
"""A clock that differs by more from elapsed time was set to another time. NTP corrects less than that gradually or in steps of seconds."""
REST_SECONDS = 3600.0
"""For how long nothing is deleted after a jump: long enough for an operator or a time server to undo it."""
log = logging.getLogger(__name__)


class ClockSteps:
    """Tells whether the machine's clock was set to another time; if it was, it cannot say which answers are old.

    `elapsed` counts seconds from any starting point, and nobody can set it.
    """

    def __init__(self, now: Callable[[], datetime], elapsed: Callable[[], float]) -> None:
        self._now = now
        self._elapsed = elapsed
        self._started = self._start_by_the_clock()
        self._jumped_at: float | None = None

    def is_settled(self) -> bool:
        """Whether the clock kept pace with elapsed time for the last hour, as far as this process has seen."""
        if abs((started := self._start_by_the_clock()) - self._started) > JUMP:
            self._started, self._jumped_at = started, self._elapsed()
        return self._jumped_at is None or self._elapsed() - self._jumped_at >= REST_SECONDS

    def _start_by_the_clock(self) -> datetime:
        return self._now() - timedelta(seconds=self._elapsed())


def tasks_of(
    storage: Storage, ledger: Ledger, reconciler: Reconciler, audit: Audit, *, now: Callable[[], datetime], steps: ClockSteps
) -> list[Task]:
    """The jobs of payments."""

    async def reconcile_payments() -> None:
        await reconciler.resolve()

    async def audit_payments() -> None:
        audit.last = await audit.run(now() - AUDITED_BACK, most=UNCLAIMED_EXPLAINED)
        report(audit.last)

    async def wipe_answers() -> None:
        if not steps.is_settled():
            log.warning("no answers are wiped: the clock was set to another time within the last hour")
            return
        await delete_expired(storage, now=now())
        await delete_released(storage, now=now())

    minute = timedelta(minutes=1)
    return [
        Task("campus.reconcile_payments", reconcile_payments, every=timedelta(seconds=RECONCILE_SECONDS)),
        Task("campus.audit_payments", audit_payments, daily_at=AUDITED_AT),
        Task("campus.wipe_answers", wipe_answers, every=minute),
        Task("campus.flush_ledger", ledger.flush, every=minute, on="each"),
    ]


def report(found: Findings) -> None:
    """Log what an audit found, a line each."""
    for missing in found.missing:
        log.error("payment not on the chain: %s", missing.reason, extra={"payment": missing.payment_id, "transaction": missing.transaction})
    for one in found.unclaimed:
        transfer = {"transaction": one.transaction, "payer": one.payer, "amount": one.amount, "payment": one.payment_id}
        log.warning("income that no payment claims: %s", one.reason, extra=transfer)


async def delete_expired(storage: Storage, *, now: datetime) -> None:
    """Delete the answers whose time is over, and what they are found by."""
    async with storage.write() as session:
        past = update(PaymentRow).where(col(PaymentRow.answer_until) <= now)
        await (await session.connection()).execute(past.values(answer=None, answer_until=None, purchase=None, client=None))


async def delete_released(storage: Storage, *, now: datetime) -> None:
    """Delete the payments that were not charged and cannot be charged any more; the ledger keeps their history."""
    dead = col(PaymentRow.valid_before) < int((now - RELEASED_RETENTION).timestamp())
    async with storage.write() as session:
        await (await session.connection()).execute(delete(PaymentRow).where(col(PaymentRow.state) == "released", dead))
