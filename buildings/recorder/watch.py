"""The service that runs all the time in each process: it sweeps as each deadline passes, and delivers alerts."""

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

LONGEST_WAIT = 1.0
"""Seconds between two sweeps, and two readings of the outbox, at the most: other processes change them too."""
SHORTEST_WAIT = 0.05
"""Seconds between two sweeps at the least, however many deadlines pass one after the other."""


async def watch(site: Here) -> None:
    """Sweep and deliver until the process ends. If it returns, it is started again."""
    await agree_on_time(site)
    if site.alone:  # otherwise another process may hold the leases
        await in_transaction(site.storage, OUTBOX.void_leases)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_sweep_forever, site)
        tasks.start_soon(partial(site.state.dispatcher.run, every=LONGEST_WAIT))


async def agree_on_time(site: Here, wait: Callable[[float], Awaitable[None]] = anyio.sleep) -> None:
    """Handle a last tick in the future: the clock was set back while the recorder was down, or other processes are ahead of it."""
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


async def _sweep_forever(site: Here) -> None:
    while True:
        wait = LONGEST_WAIT
        try:
            swept = await _sweep(site)
            if swept.next_deadline is not None:
                wait = (swept.next_deadline - site.state.time.now()).total_seconds()
        except StorageUnavailable as error:  # the next sweep comes in a second
            log.warning("sweep failed", extra={"reason": error})
        except Exception:  # a border: a bug must not end the sweeps
            log.exception("sweep failed")
        await anyio.sleep(min(max(wait, SHORTEST_WAIT), LONGEST_WAIT))


async def sweep_now(site: Here) -> int:
    """Handle an outage, then make every monitor past its deadline dead; returns how many."""
    return (await _sweep(site)).died


async def _sweep(site: Here) -> SweepResult:
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
