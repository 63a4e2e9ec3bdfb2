"""What the building asks itself: does it watch, do alerts arrive, does the outbox add up."""

from collections.abc import Sequence
from datetime import timedelta

from sqlalchemy import select

from buildings.recorder.runtime import Here
from buildings.recorder.sweep import last_tick
from buildings.recorder.tables import MONITORS, OUTBOX
from campus import in_snapshot

STALE = timedelta(seconds=30)


async def watches(site: Here) -> Sequence[str]:
    """Whether a sweep has run within half a minute, in any process."""
    last = await in_snapshot(site.storage, last_tick)
    if last is None:
        return ["the recorder has never watched; it does while campus serves"]
    if site.state.time.now() - last > STALE:
        return [f"no monitor was looked at since {last:%Y-%m-%dT%H:%M:%SZ}; see the log for why the sweep fails"]
    return []


async def clock_is_steady(site: Here) -> Sequence[str]:
    """Whether this machine's clock has jumped within the last hour."""
    return site.state.time.findings()


async def targets_are_reached(site: Here) -> Sequence[str]:
    """Whether targets take their alerts."""
    count = await OUTBOX.failing_targets(site.storage)
    return [f"alerts are not taken by {count} of the targets; they are tried again for 5 days"] if count else []


async def outbox_adds_up(site: Here) -> Sequence[str]:
    """Whether every target for which alerts wait will be looked at, and every monitor has the targets that it names."""
    forgotten = await OUTBOX.forgotten_targets(site.storage)
    neither = MONITORS.c.webhook.is_(None) & MONITORS.c.email.is_(None)
    mute = await in_snapshot(site.storage, lambda connection: connection.scalars(select(MONITORS.c.id).where(neither)).all())
    return [
        *(f"alerts wait for target {one}, which nothing will look at; restore a backup" for one in forgotten),
        *(f"monitor {one} has no target; delete it" for one in mute),
    ]
