"""The jobs of payments: look on the chain for those in doubt, compare income with the ledger, wipe old answers, write counts."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from campus.features.payments.audit import UNCLAIMED_EXPLAINED, Audit, report
from campus.features.payments.reconciler import Reconciler
from campus.features.payments.reservations import delete_expired, delete_released
from campus.storage import Storage

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


@dataclass(frozen=True)
class PaymentJobs:
    """What the jobs of payments do."""

    storage: Storage
    reconciler: Reconciler
    audit: Audit
    now: Callable[[], datetime]
    steps: ClockSteps

    async def reconcile_payments(self) -> bool:
        """Conclude what is in doubt; returns whether anything was."""
        return any(one.before != one.after for one in await self.reconciler.resolve())

    async def audit_payments(self) -> None:
        """Compare income with the ledger, and log what differs."""
        self.audit.last = await self.audit.run(self.now() - AUDITED_BACK, most=UNCLAIMED_EXPLAINED)
        report(self.audit.last)

    async def wipe_answers(self) -> bool:
        """Delete old answers, and old payments that were not charged; returns whether there were any."""
        if not self.steps.is_settled():
            log.warning("no answers are wiped: the clock was set to another time within the last hour")
            return False
        expired = await delete_expired(self.storage, now=self.now())
        released = await delete_released(self.storage, now=self.now())
        return expired + released > 0
