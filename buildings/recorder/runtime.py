"""What the tools of one process share: the way in for beats, and word to the courier that there is something to deliver."""

import random
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

import anyio

from buildings.recorder.admission import Admission
from buildings.recorder.beat import Beat
from buildings.recorder.beats import BeatOutcome, record_beats
from buildings.recorder.clock import ClockReading, RecorderClock
from buildings.recorder.delivery.courier import Courier
from buildings.recorder.delivery.pace import Pace
from buildings.recorder.delivery.shares import HEALTHS, Health, Shares, UnderWay
from buildings.recorder.delivery.turns import Turns
from buildings.recorder.settings import RecorderSettings
from buildings.recorder.sweep import SweepResult, sweep_at_each
from campus import Entropy, GuardedClient, Site

HURRIED_SECONDS = 5.0
"""For the first message to a target, half of it for the handshake, while others wait: the next try has the usual time."""


class News:
    """A bell: whoever waits is woken by the next ring, or by one that nobody has waited for yet.

    While it is held nobody is let through: first all deaths are found, and then they are told, those of one target together.
    """

    def __init__(self) -> None:
        self._event = anyio.Event()
        self._free = anyio.Event()
        self._free.set()

    def ring(self) -> None:
        """Wake who waits."""
        self._event.set()

    async def wait(self, seconds: float) -> None:
        """Until it rings, or for so long: other processes ring bells of their own."""
        with anyio.move_on_after(seconds):
            await self._event.wait()
        self._event = anyio.Event()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let nobody through for as long as this lasts."""
        self._free = anyio.Event()
        try:
            yield
        finally:
            self._free.set()

    async def let_through(self) -> None:
        """Go on when it is not held."""
        await self._free.wait()


@dataclass(frozen=True)
class Runtime:
    """`beat` gives what a beat did, once it is on disk, and `sweep` what a sweep found; both go through the one writer.

    `checks` is the client that looks at targets when they are registered, `webs` are those that deliver, and `hurried` one that
    delivers to new targets while others wait: each looks names up in
    threads of its own, so that names whose servers do not answer delay only their like. `turns` says whose alert goes out next,
    and `admission` who may register. `entropy` returns random bytes, and `chance` a number in 0..1.
    """

    beat: Callable[[Beat], Awaitable[BeatOutcome]]
    sweep: Callable[[ClockReading], Awaitable[SweepResult]]
    time: RecorderClock
    checks: GuardedClient
    webs: Mapping[Health, GuardedClient]
    hurried: GuardedClient
    turns: Turns
    admission: Admission
    news: News = field(default_factory=News)
    entropy: Entropy = secrets.token_bytes
    chance: Callable[[], float] = random.random


Here = Site[RecorderSettings, Runtime]


@asynccontextmanager
async def open_runtime(site: Here) -> AsyncIterator[Runtime]:
    """Take beats until the process ends."""
    async with site.storage.batch(record_beats) as beat, site.storage.batch(sweep_at_each) as sweep:
        time, admission = RecorderClock(site.clock, site.elapsed), Admission(site.settings.registrations_per_minute)
        webs = webs_of(site)
        hurried = webs["new"].within(HURRIED_SECONDS)
        yield Runtime(beat, sweep, time, site.web.apart(), webs, hurried, turns_of(site.settings), admission)


def webs_of(site: Here) -> Mapping[Health, GuardedClient]:
    """A client for each kind of target, with a thread to look a name up for each message that may be under way."""
    shares = Shares(site.settings.deliveries)
    return {health: site.web.apart(lookups=shares.of(health)) for health in HEALTHS}


def turns_of(settings: RecorderSettings) -> Turns:
    """Whose alert goes out next in this process."""
    hosts = settings.everyones_hosts
    return Turns(UnderWay(Shares(settings.deliveries, shared_hosts=hosts)), Pace(settings.alerts_per_host, shared_hosts=hosts))


def courier_of(site: Here) -> Courier:
    """The courier of a process."""
    state = site.state
    return Courier(
        storage=site.storage,
        webs=state.webs,
        hurried=state.hurried,
        mail=site.mail,
        url=site.url,
        now=state.time.now,
        chance=state.chance,
        entropy=state.entropy,
        count=site.count,
        turns=state.turns,
        most=site.settings.alerts_per_target,
        ring=state.news.ring,
    )
