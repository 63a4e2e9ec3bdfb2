"""What each process runs: the state that its tools share, the service that sweeps and delivers alerts, and the checks of both."""

import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial

import anyio
from sqlalchemy import exists, select

from buildings.recorder.alerts.sweep import SweepResult, last_tick, sweep_at_each
from buildings.recorder.alerts.texts import MonitorAlerts
from buildings.recorder.beats.beat import Beat, BeatOutcome
from buildings.recorder.beats.rules import BEATS_PER_MINUTE, minute_of
from buildings.recorder.beats.sql import record_beats, record_by_row
from buildings.recorder.clock import ADOPT_AFTER, MAX_DRIFT, ClockReading, RecorderClock, step_back
from buildings.recorder.problems import TOO_MANY_BEATS, too_many_beats
from buildings.recorder.settings import RecorderSettings
from buildings.recorder.tables import DEMO, MONITOR_TARGETS, MONITORS, OUTBOX
from campus import Problem, Site
from campus.errors import StorageUnavailable
from campus.features.alerts import AlertLimits, Dispatcher, Registrations, open_channels
from campus.layout import EventStreams
from campus.observability import utc_text
from campus.secrets import Entropy
from campus.shares import TokenBuckets
from campus.storage import in_snapshot, in_transaction

log = logging.getLogger(__name__)

LONGEST_WAIT = 1.0  # Most seconds between two sweeps, and between two readings of the outbox, which other processes change too.
SHORTEST_WAIT = 0.05  # Fewest seconds between two sweeps, even if many deadlines pass one after the other.
TEST_ALERTS_PER_MINUTE = 3
WRONG_PINGS_PER_MINUTE = 60
FREE_STREAMS = 50
FREE_VIEWS_PER_MINUTE = 60
"""Views of pages of monitors without an owner, for one visitor: each reads the database."""
EMAIL_PAGES = "/v1/recorder/email"
SWEEP_IS_LATE = timedelta(seconds=30)


@dataclass(frozen=True)
class Runtime:
    """`beat` returns the outcome of a beat once it is on disk, `sweep` the outcome of a sweep. The database has one writer for both.

    `streams` are the open event streams of each key, `test_alerts` the test alerts of each monitor, `wrong_pings` the pings of each network
    that reached no monitor. Pages of monitors without an owner have streams of their own, so that strangers take no key's place, and
    `free_views`.
    """

    beat: Callable[[Beat], Awaitable[BeatOutcome]]
    sweep: Callable[[ClockReading], Awaitable[SweepResult]]
    time: RecorderClock
    registrations: Registrations
    dispatcher: Dispatcher
    entropy: Entropy = secrets.token_bytes
    streams: EventStreams = field(default_factory=EventStreams)
    free_streams: EventStreams = field(default_factory=partial(EventStreams, in_all=FREE_STREAMS))
    free_views: TokenBuckets = field(default_factory=lambda: TokenBuckets(FREE_VIEWS_PER_MINUTE))
    test_alerts: TokenBuckets = field(default_factory=lambda: TokenBuckets(TEST_ALERTS_PER_MINUTE))
    wrong_pings: TokenBuckets = field(default_factory=lambda: TokenBuckets(WRONG_PINGS_PER_MINUTE))


class LimitedBeats:
    """`put` records a beat, has its alert sent, and refuses beats of a monitor at its limit without the database, until the minute is over.

    A monitor is at its limit only for who knows its secret: others get the same answer as ever. Who knew it until a takeover in the
    same minute is told of that in the next one.
    """

    def __init__(self, put: Callable[[Beat], Awaitable[BeatOutcome]], send_alerts: Callable[[], None]) -> None:
        self._put = put
        self._send_alerts = send_alerts
        self._minute = 0
        self._at_limit: set[tuple[str, bytes]] = set()

    async def put(self, beat: Beat) -> BeatOutcome:
        """The outcome once the beat is on disk; Problem 429 at the limit."""
        if (minute := minute_of(beat)) != self._minute:
            self._minute = minute
            self._at_limit.clear()
        elif (beat.monitor_id, beat.secret_digest) in self._at_limit:
            raise too_many_beats(beat.at, limit=BEATS_PER_MINUTE)
        try:
            outcome = await self._put(beat)
        except Problem as problem:
            if problem.code == TOO_MANY_BEATS and minute == self._minute:
                self._at_limit.add((beat.monitor_id, beat.secret_digest))
            raise
        if outcome.alert is not None:
            self._send_alerts()
        return outcome


RecorderSite = Site[RecorderSettings, Runtime]


@asynccontextmanager
async def open_runtime(site: RecorderSite) -> AsyncIterator[Runtime]:
    async with site.storage.batch(record_beats, by_row=record_by_row) as beat, site.storage.batch(sweep_at_each) as sweep:
        time = RecorderClock(site.clock, site.elapsed)
        dispatcher = _dispatcher_of(site, time)
        registrations = Registrations(dispatcher.channels, site.web, per_minute=site.settings.registrations_per_minute)
        yield Runtime(LimitedBeats(beat, dispatcher.wake).put, sweep, time, registrations, dispatcher)


def _dispatcher_of(site: RecorderSite, time: RecorderClock) -> Dispatcher:
    settings = site.settings
    return Dispatcher(
        OUTBOX,
        MonitorAlerts(site.url),
        site,
        channels=open_channels(site, links=EMAIL_PAGES),
        now=time.now,
        limits=AlertLimits(
            per_target=settings.alerts_per_target,
            per_host=settings.alerts_per_host,
            at_once=settings.deliveries,
            shared_hosts=settings.everyones_hosts,
        ),
    )


async def watch(site: RecorderSite) -> None:
    """Sweep and deliver until the process ends. If it returns, it is started again."""
    await agree_on_time(site)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_sweep_forever, site)
        tasks.start_soon(partial(site.state.dispatcher.run, every=LONGEST_WAIT))


async def agree_on_time(site: RecorderSite, wait: Callable[[float], Awaitable[None]] = anyio.sleep) -> None:
    """Handle a last tick in the future: the clock was set back while the recorder was down, or other processes are ahead."""
    last = await in_snapshot(site.storage, last_tick)
    now = site.state.time.now()
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


async def _sweep_forever(site: RecorderSite) -> None:
    while True:
        wait = LONGEST_WAIT
        try:
            swept = await sweep_now(site)
            if swept.telling:
                wait = SHORTEST_WAIT
            elif swept.next_deadline is not None:
                wait = (swept.next_deadline - site.state.time.now()).total_seconds()
        except StorageUnavailable as error:  # the next sweep comes in a second
            log.log(error.level, "sweep failed", extra={"reason": error})
        except Exception:  # a border: a bug must not end the sweeps
            log.exception("sweep failed")
        await anyio.sleep(min(max(wait, SHORTEST_WAIT), LONGEST_WAIT))


async def sweep_now(site: RecorderSite) -> SweepResult:
    """After an outage, move the deadlines; then mark every monitor past its deadline as dead, and tell some targets of the outage."""
    while (swept := await _sweep_all(site)).moving:
        pass
    return swept


async def _sweep_all(site: RecorderSite) -> SweepResult:
    """Sweep until no monitor is past its deadline; alerts of all deaths are sent together. Returns early while deadlines are moved."""
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
            if swept.died or swept.telling:
                site.state.dispatcher.wake()
            if not swept.more:
                break
    if died:
        log.info("monitors dead", extra={"count": died})
        site.count("deaths", died)
    return swept._replace(died=died)


async def watches(site: RecorderSite) -> Sequence[str]:
    last = await in_snapshot(site.storage, last_tick)
    if last is None:
        return ["monitors have never been checked; they are while campus serves"]
    if site.state.time.now() - last > SWEEP_IS_LATE:
        return [f"monitors were last checked at {utc_text(last)}; see the log for why the sweep fails"]
    return []


async def clock_is_steady(site: RecorderSite) -> Sequence[str]:
    return site.state.time.findings()


async def limits_name_products(site: RecorderSite) -> Sequence[str]:
    known = {product.name for product in site.directory.products}
    return [f"monitors_of names {name!r}, and no product has that name" for name in site.settings.monitors_of if name not in known]


async def monitors_have_targets(site: RecorderSite) -> Sequence[str]:
    without_target = ~exists().where(MONITOR_TARGETS.c.monitor_id == MONITORS.c.id)
    chosen = select(MONITORS.c.id).where(without_target, MONITORS.c.id != DEMO)
    monitors = await in_snapshot(site.storage, lambda connection: connection.scalars(chosen).all())
    return [f"monitor {monitor_id} has no target; delete it" for monitor_id in monitors]
