"""The jobs of payments: look on the chain for those in doubt, compare income with the ledger, wipe old answers, write counts."""

import logging
from collections.abc import Callable
from datetime import datetime, timedelta

from campus.jobs import Task
from campus.features.payments.audit import UNCLAIMED_EXPLAINED, Audit, report
from campus.features.payments.ledger import Ledger
from campus.features.payments.reconciler import Reconciler
from campus.features.payments.reservations import delete_expired, delete_released
from campus.storage import Storage

RECONCILE_SECONDS = 15
AUDITED_AT = "03:20"
AUDITED_BACK = timedelta(days=3)
"""How far back the daily audit goes: a node that was down for a weekend leaves no gap."""
JUMP = timedelta(minutes=1)
"""A clock that differs by more from elapsed time was set to another time. NTP corrects less than that gradually or in steps of seconds."""
REST_SECONDS = 3600.0
"""For how long nothing is deleted after a jump: long enough for an operator or a time server to undo it."""
log = logging.getLogger(__name__)


class ClockSteps:
    """Tells whether the machine's clock was set to another time; if it was, the clock does not show which answers are old.

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
            self._started = started
            self._jumped_at = self._elapsed()
        return self._jumped_at is None or self._elapsed() - self._jumped_at >= REST_SECONDS

    def _start_by_the_clock(self) -> datetime:
        return self._now() - timedelta(seconds=self._elapsed())


def tasks_of(
    storage: Storage, ledger: Ledger, reconciler: Reconciler, audit: Audit, *, now: Callable[[], datetime], steps: ClockSteps
) -> list[Task]:
    """The jobs of payments."""

    async def reconcile_payments() -> bool:
        return any(one.before != one.after for one in await reconciler.resolve())

    async def audit_payments() -> None:
        audit.last = await audit.run(now() - AUDITED_BACK, most=UNCLAIMED_EXPLAINED)
        report(audit.last)

    async def wipe_answers() -> bool:
        if not steps.is_settled():
            log.warning("no answers are wiped: the clock was set to another time within the last hour")
            return False
        expired = await delete_expired(storage, now=now())
        released = await delete_released(storage, now=now())
        return expired + released > 0

    minute = timedelta(minutes=1)
    return [
        Task("campus.reconcile_payments", reconcile_payments, every=timedelta(seconds=RECONCILE_SECONDS)),
        Task("campus.audit_payments", audit_payments, daily_at=AUDITED_AT),
        Task("campus.wipe_answers", wipe_answers, every=minute),
        Task("campus.flush_ledger", ledger.flush, every=minute, on="each"),
    ]
