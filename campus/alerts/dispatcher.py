"""The dispatcher: claims the messages that are due, sends them through their channels, and stores the results."""

import logging
import random
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime
from functools import partial

import anyio
import anyio.lowlevel
from sqlalchemy import Connection

from campus.alerts.deliveries import Claimer, Delivered, Failed, store_results
from campus.alerts.message import HEALTHS, AlertContents, Attempt, Channel, Health, Message, Outcome, Question
from campus.alerts.outbox import Outbox
from campus.alerts.rates import step_after
from campus.alerts.targets import confirm_target
from campus.alerts.turns import Pace, Shares, Turns, UnderWay
from campus.errors import StorageUnavailable
from campus.outbound.http_clients import GuardedClient
from campus.secrets import Entropy
from campus.storage import Storage, in_transaction

log = logging.getLogger(__name__)

SLOW_SECONDS = 3.0
"""A target that needs longer for a message counts as suspect."""
BETWEEN_CLAIMS = 0.02
"""Seconds between two claims, so that each claims many messages at once."""
HURRIED_SECONDS = 5.0
"""Time limit for the first message to a target while others wait, half of it for the handshake. The next try has the usual limit."""

StoreResult = Callable[[Delivered | Failed], Awaitable[None]]


class WakeUp:
    """Wakes the dispatcher. A call while it is not waiting ends its next wait at once.

    While it is held, the dispatcher claims nothing, so that all alerts that become due together are sent as one digest.
    """

    def __init__(self) -> None:
        self._event = anyio.Event()
        self._released = anyio.Event()
        self._released.set()

    def wake(self) -> None:
        """Wake the dispatcher."""
        self._event.set()

    async def wait(self, seconds: float) -> None:
        """Wait until it is woken, at most this long: another process cannot wake this one."""
        with anyio.move_on_after(seconds):
            await self._event.wait()
        self._event = anyio.Event()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Stop the dispatcher from claiming inside the `with` block."""
        self._released = anyio.Event()
        try:
            yield
        finally:
            self._released.set()

    async def until_released(self) -> None:
        """Wait until it is not held."""
        await self._released.wait()


@dataclass(frozen=True)
class AlertLimits:
    """Limits: messages a minute to one target, messages a minute of one sender without a key to one host, concurrent deliveries.

    Shared hosts serve everyone: only senders are limited, not the host.
    """

    per_target: int = 6
    per_host: int = 60
    at_once: int = 512
    shared_hosts: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Clients:
    """The guarded clients: one for each kind of target, and a `hurried` one for new targets while others wait.

    Each resolves names in its own threads, so that a name server that does not answer delays only messages of the same kind.
    """

    by_health: Mapping[Health, GuardedClient]
    hurried: GuardedClient

    @classmethod
    def of(cls, web: GuardedClient, limits: AlertLimits) -> "Clients":
        """The clients made from a building's `site.web`, each with one resolver thread for each concurrent message."""
        shares = Shares(limits.at_once)
        by_health = {health: web.apart(lookups=shares.of(health)) for health in HEALTHS}
        return cls(by_health, by_health["new"].within(HURRIED_SECONDS))


@dataclass(frozen=True)
class Dispatcher:
    """Sends the alerts of one outbox; `open_dispatcher` makes one for each process.

    `entropy` returns random bytes, and `chance` a number in 0..1 that spreads the tries.
    """

    outbox: Outbox
    contents: AlertContents
    _: KW_ONLY
    storage: Storage
    channels: Sequence[Channel]
    clients: Clients
    turns: Turns
    limits: AlertLimits
    now: Callable[[], datetime]
    count: Callable[..., None]
    entropy: Entropy = secrets.token_bytes
    chance: Callable[[], float] = random.random
    wake_up: WakeUp = field(default_factory=WakeUp)

    def wake(self) -> None:
        """Look at the outbox now, because alerts were raised."""
        self.wake_up.wake()

    async def deliver_due(self) -> int:
        """Send everything that is due now, once; returns the number of messages."""
        sent = 0
        async with self._storing() as store:
            while messages := await self.claim():
                async with anyio.create_task_group() as tasks:
                    for message in messages:
                        tasks.start_soon(self._deliver, message, store)
                sent += len(messages)
        return sent

    async def run(self, *, every: float) -> None:
        """Deliver until cancelled; looks at the outbox when it is woken, and every `every` seconds."""
        async with self._storing() as store, anyio.create_task_group() as tasks:
            while True:
                await self.wake_up.until_released()
                next_claim = anyio.current_time() + BETWEEN_CLAIMS
                messages = await self._claimed_or_none()
                for message in messages:
                    tasks.start_soon(self._deliver_or_log, message, store)
                    # one for each turn of the event loop: hundreds at once would hold it for a third of a second, and with it every call
                    await anyio.lowlevel.checkpoint()
                if not messages:
                    await self.wake_up.wait(every)
                await anyio.sleep_until(next_claim)

    async def claim(self) -> list[Message]:
        """Claim the next messages; each counts as running in `turns` until its delivery has ended."""
        claimed: list[Message] = []
        claimer = Claimer(self.outbox, self.contents, self.turns, self.entropy)

        def work(connection: Connection) -> None:
            claimed.extend(claimer.claim(connection, self.now()))

        try:
            await in_transaction(self.storage, work)
        except BaseException:  # not committed, so none of them is sent
            self.turns.give_back(message.lane for message in claimed)
            raise
        return claimed

    @asynccontextmanager
    async def _storing(self) -> AsyncIterator[StoreResult]:
        async with self.storage.batch(partial(store_results, outbox=self.outbox, most=self.limits.per_target)) as put:
            yield put

    async def _claimed_or_none(self) -> list[Message]:
        try:
            return await self.claim()
        except StorageUnavailable as error:  # the alerts wait in it until it is back
            log.warning("outbox not read", extra={"reason": error})
        except Exception:  # the border: a fault in our code must not end the dispatcher
            log.exception("outbox not read")
        return []

    async def _deliver_or_log(self, message: Message, store: StoreResult) -> None:
        try:
            await self._deliver(message, store)
        except Exception:  # the border: the lease ends, and the message is sent again under its id
            log.exception("delivery not noted", extra={"target": message.target_id, "message_id": message.id})
        finally:
            self.wake()

    async def _deliver(self, message: Message, store: StoreResult) -> None:
        try:
            began = anyio.current_time()
            outcome = await self._sent(message)
            slow = anyio.current_time() - began > SLOW_SECONDS
            self.count("alerts", channel=message.kind, result=outcome.result)
            if outcome.confirms:
                confirm = partial(confirm_target, outbox=self.outbox, target_id=message.target_id, now=self.now())
                await in_transaction(self.storage, confirm)
            await store(self._result(message, outcome, slow=slow))
        finally:
            self.turns.end(message.lane)

    def _result(self, message: Message, outcome: Outcome, *, slow: bool) -> Delivered | Failed:
        now = self.now()
        withheld = outcome.result == "withheld"
        taken = withheld or outcome.result == "delivered"
        reopens = self.turns.note(message.lane, now, taken=taken)
        if taken:
            return Delivered(message.lane, message.id, now, "suspect" if slow else "proven", reopens=reopens, withheld=withheld)
        attempts = message.attempts + 1
        step = step_after(outcome, attempts=attempts, failing_since=message.failing_since, now=now, chance=self.chance())
        log.info(
            "alert not delivered",
            extra={"target": message.target_id, "channel": message.kind, "attempts": attempts, "reason": outcome.reason},
        )
        return Failed(message.target_id, message.id, now, outcome.reason, step)

    async def _sent(self, message: Message) -> Outcome:
        health = message.lane.health
        hurries = health == "new" and self.turns.is_short(health)
        client = self.clients.hurried if hurries else self.clients.by_health[health]
        try:
            channel = next(one for one in self.channels if one.kind == message.kind)
            attempt = Attempt(message, client, self.now())
            content = self.contents.compose(message.alerts)
            return await (channel.ask(attempt, content) if isinstance(content, Question) else channel.send(attempt, content))
        except Exception as error:  # the border: one message that cannot be made must not stop the others
            log.exception("alert not sent", extra={"target": message.target_id})
            return Outcome("retry", f"it could not be sent ({type(error).__name__})")


def open_dispatcher(
    outbox: Outbox,
    contents: AlertContents,
    *,
    storage: Storage,
    web: GuardedClient,
    channels: Sequence[Channel],
    now: Callable[[], datetime],
    count: Callable[..., None],
    limits: AlertLimits | None = None,
) -> Dispatcher:
    """Make a building's dispatcher. Keep it in the building's state, and await its `run` in a service of the building.

    `storage`, `web`, `now` and `count` are those of the building's Site. The most specific of `channels` comes first.
    """
    limits = limits or AlertLimits()
    hosts = limits.shared_hosts
    return Dispatcher(
        outbox,
        contents,
        storage=storage,
        channels=channels,
        clients=Clients.of(web, limits),
        turns=Turns(UnderWay(Shares(limits.at_once, shared_hosts=hosts)), Pace(limits.per_host, shared_hosts=hosts)),
        limits=limits,
        now=now,
        count=count,
    )
