"""What is known of a job's runs, and how each event changes it. Pure: clock and chance are arguments."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from campus.observability.logs import redacted
from campus.storage import Backoff, Lease, is_held

RETRIES = Backoff([timedelta(minutes=minutes) for minutes in (1, 2, 4, 8, 16, 32, 60)], spread=0.1)
LEASE = Lease(timedelta(seconds=60))
LONGEST_ERROR = 300
SKEW = timedelta(minutes=1)
"""How far ahead a time may be that another process wrote; one beyond it was written by a clock that was set back since."""


@dataclass(frozen=True)
class JobRecord:
    """A job's runs so far.

    `last_success` is when the last run that succeeded began: one that began before a daily slot and ended after it had the data
    of the day before. `failures` counts those since. `holder` has the lease until `lease_until`; when that is past, it lapsed:
    the run ended without a word.
    """

    last_started: datetime | None = None
    last_success: datetime | None = None
    last_error: str | None = None
    failures: int = 0
    retry_at: datetime | None = None
    holder: str | None = None
    lease_until: datetime | None = None

    def as_of(self, now: datetime) -> "JobRecord":
        """The record without the times that cannot be: else a clock that was ahead for a moment would stop the job until then."""
        latest = now + SKEW
        return replace(
            self,
            last_started=_until(self.last_started, latest),
            last_success=_until(self.last_success, latest),
            retry_at=_until(self.retry_at, latest + RETRIES.longest),
            lease_until=_until(self.lease_until, latest + LEASE.length),
        )

    def is_leased(self, now: datetime) -> bool:
        """Whether somebody runs the job."""
        return is_held(self.as_of(now).lease_until, now)

    def claimed(self, holder: str, *, now: datetime, chance: float) -> "JobRecord":
        """A run begins. That the lease of another lapsed counts as a failure, or a job that kills its process would never rest."""
        started = replace(self, holder=holder, lease_until=LEASE.end(now), last_started=now)
        return started if self.holder is None else started._with_failure(f"{self.holder} went away while it ran the job", now, chance)

    def renewed(self, now: datetime) -> "JobRecord":
        """The run goes on."""
        return replace(self, lease_until=LEASE.end(now))

    def succeeded(self) -> "JobRecord":
        """The run ended well."""
        return JobRecord(last_started=self.last_started, last_success=self.last_started)

    def failed(self, error: Exception, *, now: datetime, chance: float) -> "JobRecord":
        """The run raised."""
        return replace(self, holder=None, lease_until=None)._with_failure(one_line(error), now, chance)

    def _with_failure(self, text: str, now: datetime, chance: float) -> "JobRecord":
        failures = self.failures + 1
        return replace(self, last_error=text, failures=failures, retry_at=now + RETRIES.wait(failures, chance=chance))


def _until(moment: datetime | None, latest: datetime) -> datetime | None:
    return None if moment is not None and moment > latest else moment


def one_line(error: Exception) -> str:
    """An error in one line; a group of one is that one."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return redacted(f"{type(error).__name__}: {' '.join(str(error).split())}")[:LONGEST_ERROR]
