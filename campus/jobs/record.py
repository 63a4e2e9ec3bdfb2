"""The record of a job's runs, and how each event changes it. Pure: clock and randomness are arguments."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from campus.errors import CampusError
from campus.observability import redacted
from campus.storage import Backoff, Lease, is_held

RETRIES = Backoff([timedelta(minutes=minutes) for minutes in (1, 2, 4, 8, 16, 32, 60)], spread=0.1)
LEASE = Lease(timedelta(seconds=60))
LONGEST_ERROR = 300
SKEW = timedelta(minutes=1)
"""How far in the future a stored time may be. One beyond it was written before a clock was set back, and is ignored."""


@dataclass(frozen=True)
class JobRecord:
    """A job's runs so far.

    `last_success` is when the last successful run began: a run that began before a daily slot and ended after it used the data of
    the day before. `failures` counts the failures since. `holder` has the lease until `lease_until`; once that is past, the lease
    lapsed: the process of the run died or hangs.
    """

    last_started: datetime | None = None
    last_success: datetime | None = None
    last_error: str | None = None
    failures: int = 0
    retry_at: datetime | None = None
    holder: str | None = None
    lease_until: datetime | None = None

    def as_of(self, now: datetime) -> "JobRecord":
        """The record without times too far in the future: otherwise a clock that was ahead for a while would stop the job."""
        latest = now + SKEW
        return replace(
            self,
            last_started=_unless_later(self.last_started, latest),
            last_success=_unless_later(self.last_success, latest),
            retry_at=_unless_later(self.retry_at, latest + RETRIES.longest),
            lease_until=_unless_later(self.lease_until, latest + LEASE.length),
        )

    def is_leased(self, now: datetime) -> bool:
        """Whether a process runs the job."""
        return is_held(self.as_of(now).lease_until, now)

    def claimed(self, holder: str, *, now: datetime, chance: float) -> "JobRecord":
        """A run begins. A lapsed lease of an earlier run is a failure, so that a job that kills its process is not retried at once."""
        started = replace(self, holder=holder, lease_until=LEASE.end(now), last_started=now)
        return started if self.holder is None else started._with_failure(f"{self.holder} went away while it ran the job", now, chance)

    def renewed(self, now: datetime) -> "JobRecord":
        """The run is still going on."""
        return replace(self, lease_until=LEASE.end(now))

    def succeeded(self) -> "JobRecord":
        """The run succeeded."""
        return JobRecord(last_started=self.last_started, last_success=self.last_started)

    def failed(self, error: Exception, *, now: datetime, chance: float) -> "JobRecord":
        """The run raised."""
        return replace(self, holder=None, lease_until=None)._with_failure(describe_error(error), now, chance)

    def _with_failure(self, text: str, now: datetime, chance: float) -> "JobRecord":
        failures = self.failures + 1
        return replace(self, last_error=text, failures=failures, retry_at=now + RETRIES.wait(failures, chance=chance))


def _unless_later(moment: datetime | None, latest: datetime) -> datetime | None:
    return None if moment is not None and moment > latest else moment


def describe_error(error: Exception) -> str:
    """An error in one line, without secrets; a group of one error is that error. A CampusError is its sentence, without its class."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    sentence = " ".join(str(error).split())
    return redacted(sentence if isinstance(error, CampusError) else f"{type(error).__name__}: {sentence}")[:LONGEST_ERROR]
