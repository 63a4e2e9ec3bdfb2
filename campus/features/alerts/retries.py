"""When a message that was not delivered is sent again, and when its target is given up. Pure: time and chance are arguments."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from campus.backoff import Backoff
from campus.features.alerts.message import Outcome

WAITS = tuple(timedelta(seconds=seconds) for seconds in (5, 30, 2 * 60, 10 * 60, 30 * 60, 2 * 3600, 6 * 3600, 12 * 3600, 24 * 3600))
RETRIES = Backoff(WAITS, spread=0.2)
LONGEST_FAILING = timedelta(days=5)
"""A target that fails for so long is disabled."""
LONGEST_HOLD = timedelta(hours=24)
"""The longest pause that a target may ask for."""


@dataclass(frozen=True)
class NextStep:
    """What happens to the target: when it is tried again, until when it asked for a pause, or why it is disabled."""

    try_at: datetime | None
    hold_until: datetime | None = None
    disabled_because: str | None = None


def step_after(outcome: Outcome, *, attempts: int, failing_since: datetime | None, now: datetime, chance: float) -> NextStep:
    """The next step after a failed try; `attempts` counts this one too; `chance` in 0..1 spreads the wait."""
    if outcome.result == "gone":
        return NextStep(None, disabled_because=outcome.reason)
    if failing_since is not None and now - failing_since >= LONGEST_FAILING:
        return NextStep(None, disabled_because=f"it failed for {LONGEST_FAILING.days} days: {outcome.reason}")
    wait = RETRIES.wait(attempts, chance=chance)
    if outcome.retry_after is None:
        return NextStep(now + wait)
    # a target may ask for a longer wait, not for a shorter one, which would repeat the same message at once
    hold = now + max(min(outcome.retry_after, LONGEST_HOLD), wait)
    return NextStep(hold, hold_until=hold)
