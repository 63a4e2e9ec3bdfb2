"""What the tools of one process share: the way in for beats, and word to the courier that there is something to deliver."""

import random
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

import anyio

from buildings.recorder.beats import Taken, take_beats
from buildings.recorder.delivery.courier import Courier
from buildings.recorder.secrets import Entropy
from buildings.recorder.settings import RecorderSettings
from buildings.recorder.signal import Beat
from buildings.recorder.sweep import Swept, look
from buildings.recorder.timekeeper import Look, Timekeeper
from campus import Site


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
class Live:
    """`beat` gives what a beat did, once it is on disk, and `look` what is dead at a moment; both go through the one writer.

    `entropy` gives random bytes, and `chance` a number in 0..1.
    """

    beat: Callable[[Beat], Awaitable[Taken]]
    look: Callable[[Look], Awaitable[Swept]]
    time: Timekeeper
    news: News = field(default_factory=News)
    entropy: Entropy = secrets.token_bytes
    chance: Callable[[], float] = random.random


Here = Site[RecorderSettings, Live]


@asynccontextmanager
async def live(site: Here) -> AsyncIterator[Live]:
    """Take beats until the process ends."""
    async with site.storage.batch(take_beats) as beat, site.storage.batch(look) as looked:
        yield Live(beat, looked, Timekeeper(site.clock, site.elapsed))


def courier_of(site: Here) -> Courier:
    """The courier of a process."""
    state = site.state
    return Courier(
        storage=site.storage,
        web=site.web,
        mail=site.mail,
        url=site.url,
        now=state.time.now,
        chance=state.chance,
        entropy=state.entropy,
        count=site.count,
    )
