"""What the tools of one process share: the writer of beats and sweeps, the clock, and the dispatcher of alerts."""

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from buildings.recorder.alert_texts import MonitorAlerts
from buildings.recorder.beat import Beat
from buildings.recorder.beats import BeatOutcome, record_beats
from buildings.recorder.clock import ClockReading, RecorderClock
from buildings.recorder.registration import RegistrationLimits
from buildings.recorder.settings import RecorderSettings
from buildings.recorder.sweep import SweepResult, sweep_at_each
from buildings.recorder.tables import OUTBOX
from campus import Entropy, GuardedClient, Site
from campus.alerts import AlertLimits, Channel, Discord, Dispatcher, Email, Webhook, open_dispatcher


@dataclass(frozen=True)
class Runtime:
    """`beat` returns the outcome of a beat once it is on disk, and `sweep` that of a sweep; both use the one writer.

    `checks` is the client that checks webhooks at registration. It resolves names in its own threads, so that name servers that
    do not answer delay no alerts.
    """

    beat: Callable[[Beat], Awaitable[BeatOutcome]]
    sweep: Callable[[ClockReading], Awaitable[SweepResult]]
    time: RecorderClock
    checks: GuardedClient
    registration_limits: RegistrationLimits
    dispatcher: Dispatcher
    entropy: Entropy = secrets.token_bytes


Here = Site[RecorderSettings, Runtime]


@asynccontextmanager
async def open_runtime(site: Here) -> AsyncIterator[Runtime]:
    """Open the runtime of this process, until the process ends."""
    async with site.storage.batch(record_beats) as beat, site.storage.batch(sweep_at_each) as sweep:
        time, limits = RecorderClock(site.clock, site.elapsed), RegistrationLimits(site.settings.registrations_per_minute)
        yield Runtime(beat, sweep, time, site.web.apart(), limits, _dispatcher_of(site, time))


def channels_of(site: Here) -> Sequence[Channel]:
    """How alerts reach their targets; the first that recognizes an address is used."""
    return Discord(site.settings.discord_hosts), Email(site.mail, links=f"{site.url}/v1/recorder/email"), Webhook()


def _dispatcher_of(site: Here, time: RecorderClock) -> Dispatcher:
    settings = site.settings
    return open_dispatcher(
        OUTBOX,
        MonitorAlerts(site.url),
        storage=site.storage,
        web=site.web,
        channels=channels_of(site),
        now=time.now,
        count=site.count,
        limits=AlertLimits(
            per_target=settings.alerts_per_target,
            per_host=settings.alerts_per_host,
            at_once=settings.deliveries,
            shared_hosts=settings.everyones_hosts,
        ),
    )
