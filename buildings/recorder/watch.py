"""The watch: what is past its deadline is found as it passes, and delivered at once. One per process; any number may keep it."""

import logging
from collections.abc import Awaitable, Callable
from functools import partial

import anyio

from buildings.recorder.clock import ADOPT_AFTER, MAX_DRIFT, step_back
from buildings.recorder.runtime import Here
from buildings.recorder.sweep import MONITORS_PER_TRANSACTION, SweepResult, last_tick
from buildings.recorder.tables import OUTBOX
from campus import StorageUnavailable, in_snapshot, in_transaction

log = logging.getLogger(__name__)

SECONDS = 1.0
"""Between two looks at the most, at deadlines and at the outbox: other processes change them too."""
LEAST_SECONDS = 0.05
"""Between two looks at deadlines, however many fall due one after the other."""


async def watch(site: Here) -> None:
    """Sweep and deliver until the process ends. It is started again should it ever return."""
    await agree_on_time(site)
    if site.alone:  # else another process may be sending what is leased
        await in_transaction(site.storage, OUTBOX.void_leases)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_sweep_on, site)
        tasks.start_soon(partial(site.state.dispatcher.run, every=SECONDS))


async def agree_on_time(site: Here, wait: Callable[[float], Awaitable[None]] = anyio.sleep) -> None:
    """Settle with a last tick in the future: the clock was set back while nobody watched, or other processes are ahead of it."""
    last, now = await in_snapshot(site.storage, last_tick), site.state.time.now()
    if last is None or last - now < MAX_DRIFT:
        return
    await wait(ADOPT_AFTER.total_seconds())
    now = site.state.time.now()
    if await in_transaction(site.storage, partial(step_back, last=last, now=now)):
        log.warning("the clock was set back", extra={"seconds": (last - now).total_seconds()})
        return
    theirs = await in_snapshot(site.storage, last_tick) or now
    site.state.time.follow_others(theirs - now)
    log.error("this machine's clock is behind that of other processes", extra={"seconds": (theirs - now).total_seconds()})


async def _sweep_on(site: Here) -> None:
    while True:
        seconds = SECONDS
        try:
            swept = await _swept(site)
            if swept.next_deadline is not None:
                seconds = (swept.next_deadline - site.state.time.now()).total_seconds()
        except StorageUnavailable as error:  # the next look comes in a second
            log.warning("sweep failed", extra={"reason": error})
        except Exception:  # the border: a fault of ours must not end the watch
            log.exception("sweep failed")
        await anyio.sleep(min(max(seconds, LEAST_SECONDS), SECONDS))


async def sweep_now(site: Here) -> int:
    """Make up for an outage, then flip all that is due; returns how many."""
    return (await _swept(site)).died


async def _swept(site: Here) -> SweepResult:
    died = 0
    with site.state.dispatcher.wake_up.held():
        while True:
            swept = await site.state.sweep(site.state.time.read())
            died += swept.died
            if swept.adopted is not None:
                site.state.time.adopt(swept.adopted)
                log.warning("the clock jumped", extra={"seconds": swept.adopted.total_seconds()})
            if (outage := swept.outage) is not None:
                log.warning("was not watching", extra={"since": outage.start.isoformat(), "until": outage.end.isoformat()})
            if swept.died or outage is not None:
                site.state.dispatcher.wake()
            if swept.died < MONITORS_PER_TRANSACTION:
                break
    if died:
        log.info("monitors dead", extra={"count": died})
        site.count("deaths", died)
    return swept._replace(died=died)


async def deliver_now(site: Here) -> int:
    """Deliver all that is due; returns how many messages were sent."""
    return await site.state.dispatcher.deliver_due()
