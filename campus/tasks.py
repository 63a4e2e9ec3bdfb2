"""Every job as the scheduler runs it: the buildings', and campus's own."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from campus.catalog.server import OpenBuilding
from campus.jobs import Task
from campus.keys.keyring import KeyRing
from campus.site import Site

FLUSH_SECONDS = 60


def tasks_of(
    opened: Sequence[OpenBuilding], sites: Mapping[str, Site[Any, Any]], keys: KeyRing, *, more: Sequence[Task] = ()
) -> list[Task]:
    """The jobs of all buildings by name, each with its building's site, the flush of keys' last use, and `more` of the house."""
    tasks = [
        Task(f"{one.name}.{job.name}", partial(job.run, sites[one.name]), every=job.every, daily_at=job.daily_at, on=job.on)
        for one in opened
        for job in one.loaded.building.jobs
    ]

    async def flush_last_used() -> None:
        await keys.flush_last_used()

    return [*tasks, *more, Task("campus.flush_last_used", flush_last_used, every=timedelta(seconds=FLUSH_SECONDS), on="each")]
