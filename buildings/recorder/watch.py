"""The watch: every second what is past its deadline is found, and delivered at once. One per process; any number may keep it."""

import logging
from functools import partial

import anyio

from buildings.recorder.delivery.outbox import void_leases
from buildings.recorder.live import Here, courier_of
from buildings.recorder.sweep import AT_ONCE
from buildings.recorder.transactions import in_transaction

log = logging.getLogger(__name__)

SECONDS = 1.0
"""Between two looks, at deadlines and at the outbox."""


async def watch(site: Here) -> None:
    """Sweep and deliver until the process ends. It is started again should it ever return."""
    await in_transaction(site.storage, void_leases)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_sweep_on, site)
        tasks.start_soon(courier_of(site).run, partial(site.state.news.wait, SECONDS))


async def _sweep_on(site: Here) -> None:
    while True:
        try:
            await sweep_now(site)
        except Exception:  # the border: the database may be away; the next look comes in a second
            log.exception("sweep failed")
        await anyio.sleep(SECONDS)


async def sweep_now(site: Here) -> int:
    """Make up for an outage, then flip all that is due; gives how many."""
    flipped = 0
    while True:
        outage, found = await site.state.look(site.now())
        if outage is not None:
            log.warning("was not watching", extra={"since": outage.start.isoformat(), "until": outage.end.isoformat()})
        if found or outage is not None:
            site.state.news.ring()
        flipped += found
        if found < AT_ONCE:
            break
    if flipped:
        log.info("monitors dead", extra={"count": flipped})
        site.count("deaths")
    return flipped


async def deliver_now(site: Here) -> int:
    """Deliver all that is due; gives how many messages were sent."""
    return await courier_of(site).deliver_due()
