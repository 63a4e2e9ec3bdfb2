"""The checks of /readyz, campus check and campus audit: sweeps run, the clock is steady, alerts arrive, the outbox is consistent."""

from collections.abc import Sequence
from datetime import timedelta

from sqlalchemy import exists, select

from buildings.recorder.runtime import Here
from buildings.recorder.sweep import last_tick
from buildings.recorder.tables import MONITOR_TARGETS, MONITORS, OUTBOX
from campus import in_snapshot

SWEEP_IS_LATE = timedelta(seconds=30)


async def watches(site: Here) -> Sequence[str]:
    """Whether a sweep has run within half a minute, in any process."""
    last = await in_snapshot(site.storage, last_tick)
    if last is None:
        return ["monitors have never been checked; they are while campus serves"]
    if site.state.time.now() - last > SWEEP_IS_LATE:
        return [f"monitors were last checked at {last:%Y-%m-%dT%H:%M:%SZ}; see the log for why the sweep fails"]
    return []


async def clock_is_steady(site: Here) -> Sequence[str]:
    """Whether this machine's clock has jumped within the last hour."""
    return site.state.time.findings()


async def targets_are_reached(site: Here) -> Sequence[str]:
    """Whether alerts are delivered to their targets."""
    count = await OUTBOX.failing_targets(site.storage)
    return [f"alerts cannot be delivered to {count} target{'s' * (count > 1)}; they are retried for 5 days"] if count else []


async def outbox_adds_up(site: Here) -> Sequence[str]:
    """Whether every target with undelivered alerts is due at some time, and every monitor has a target."""
    forgotten = await OUTBOX.forgotten_targets(site.storage)
    without_target = ~exists().where(MONITOR_TARGETS.c.monitor_id == MONITORS.c.id)
    monitors = await in_snapshot(site.storage, lambda connection: connection.scalars(select(MONITORS.c.id).where(without_target)).all())
    return [
        *(f"target {one} has undelivered alerts and no time for the next try; restore a backup" for one in forgotten),
        *(f"monitor {one} has no target; delete it" for one in monitors),
    ]
