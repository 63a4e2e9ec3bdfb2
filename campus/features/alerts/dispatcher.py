"""The dispatcher: claims the messages that are due, sends them through their channels, and stores the results."""

import logging
import random
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Protocol, Self, TypeVar

import anyio
import anyio.lowlevel

from campus.errors import StorageUnavailable
from campus.features.alerts.deliveries import Claimer, Delivered, Failed, store_results
from campus.features.alerts.mailboxes import Mailboxes
from campus.features.alerts.message import HEALTHS, AlertContents, Attempt, Channel, Health, Lane, Message, Outcome, Question
from campus.features.alerts.outbox import Outbox
from campus.features.alerts.retries import step_after
from campus.features.alerts.targets import TargetState
from campus.features.alerts.turns import AlertLimits, Pace, Turns, UnderWay
from campus.outbound.http_clients import GuardedClient, KeptConnections
from campus.storage import Storage, in_transaction

log = logging.getLogger(__name__)

IN_TIME = timedelta(minutes=1)  # Alerts that are delivered later count as late.
SLOW_SECONDS = 3.0
"""A target that needs longer for a message counts as suspect."""
BETWEEN_CLAIMS = 0.02
"""Seconds between two claims, so that each claims many messages at once."""
HURRIED_SECONDS = 5.0
"""Time limit for the first message to a target while others wait, half of it for the handshake. The next try has the usual limit."""

StoreResult = Callable[[Delivered | Failed], Awaitable[bool]]


class WakeUp:
    """Wakes the dispatcher. A call while it is not waiting ends its next wait at once.

    While it is held, the dispatcher claims nothing, so that all alerts that become due together are sent as one digest.
    """

    def __init__(self) -> None:
        self._event = anyio.Event()
        self._released = anyio.Event()
        self._released.set()

    def wake(self) -> None:
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
        await self._released.wait()


class TargetModel(Protocol):
    """What a tool of a building shows of a target."""

    @property
    def kind(self) -> str: ...
    @property
    def state(self) -> TargetState: ...
    def model_copy(self, *, update: Mapping[str, Any]) -> Self: ...


ShownTarget = TypeVar("ShownTarget", bound=TargetModel)


@dataclass(frozen=True)
class Clients:
    """The guarded clients: one for each kind of target, and a `hurried` one for new targets while others wait.

    Each resolves names in its own threads, so that a name server that does not answer delays only messages of the same kind.
    """

    by_health: Mapping[Health, GuardedClient]
    hurried: GuardedClient
    kept: KeptConnections

    @classmethod
    def of(cls, web: GuardedClient, limits: AlertLimits) -> "Clients":
        """The clients made from a building's `site.web`, each with one resolver thread for each concurrent message."""
        kept = KeptConnections()
        by_health = {health: web.apart(lookups=limits.share_of(health), kept=kept) for health in HEALTHS}
        return cls(by_health, by_health["new"].within(HURRIED_SECONDS), kept)


class Dispatcher:
    """Sends the alerts of one outbox, in one process. Keep it in the building's state, and await its `run` in a service of the building."""

    def __init__(
        self,
        outbox: Outbox,
        contents: AlertContents,
        site: Any,
        *,
        channels: Sequence[Channel],
        now: Callable[[], datetime] | None = None,
        limits: AlertLimits | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """`site` is the building's Site. The most specific of `channels` comes first. `now` is the site's, unless the building has its own.

        `chance` returns a number in 0..1 that spreads the tries.
        """
        self.outbox = outbox
        self.storage: Storage = site.storage
        self.mailboxes: Mailboxes = site.feature("alerts").mailboxes
        self._delivered: Counter[bool] = site.feature("alerts").delivered
        self.channels = channels
        self.now: Callable[[], datetime] = now or site.now
        self.wake_up = WakeUp()
        self.limits = limits = limits or AlertLimits()
        self.turns = Turns(UnderWay(limits), Pace(limits.per_host, shared_hosts=limits.shared_hosts))
        self._contents = contents
        self._claimer = Claimer(outbox, contents, self.turns, secrets.token_bytes)
        self._clients = Clients.of(site.web, limits)
        self._count: Callable[..., None] = site.count
        self._alone: bool = site.alone
        self._chance = chance

    def shown(self, target: ShownTarget) -> ShownTarget:
        """A target as a tool shows it, whose channel may send nothing now: what was delivered there before promises nothing."""
        channel = next((one for one in self.channels if one.kind == target.kind), None)
        why = f"nothing here sends to {target.kind} any more" if channel is None else channel.trouble
        if why is None or target.state not in ("ready", "untested"):
            return target
        return target.model_copy(update={"state": "failing", "reason": why})

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
        if self._alone:  # otherwise another process may hold the leases
            await in_transaction(self.storage, self.outbox.void_leases)
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
                    await self._clients.kept.close()
                await anyio.sleep_until(next_claim)

    async def claim(self) -> list[Message]:
        """Claim the next messages; each counts as running in `turns` until its delivery has ended."""
        begun: list[Lane] = []
        messages: list[Message] = []
        try:
            messages = await in_transaction(self.storage, lambda connection: self._claimer.claim(connection, self.now(), begun))
        finally:  # what is not committed is not sent
            sent = {message.target_id for message in messages}
            self.turns.give_back(lane for lane in begun if lane.target_id not in sent)
        return messages

    @asynccontextmanager
    async def _storing(self) -> AsyncIterator[StoreResult]:
        store = partial(store_results, outbox=self.outbox, most=self.limits.per_target)
        async with self.storage.batch(store, by_row=store) as put:
            try:
                yield put
            finally:
                with anyio.CancelScope(shield=True):
                    await self._clients.kept.close()

    async def _claimed_or_none(self) -> list[Message]:
        try:
            return await self.claim()
        except StorageUnavailable as error:  # the alerts wait in it until it is back
            log.log(error.level, "outbox not read", extra={"reason": error})
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
            self._count("alerts", channel=message.kind, result=outcome.result)
            if outcome.result == "delivered" and message.raised_at is not None:
                self._delivered[self.now() - message.raised_at <= IN_TIME] += len(message.alerts)
            if outcome.confirms:
                confirm = partial(self.outbox.confirm, target_id=message.target_id, now=self.now())
                await in_transaction(self.storage, confirm)
            await store(self._result(message, outcome, slow=slow))
        finally:
            self.turns.under_way.end(message.lane)

    def _result(self, message: Message, outcome: Outcome, *, slow: bool) -> Delivered | Failed:
        now = self.now()
        withheld = outcome.result == "withheld"
        taken = withheld or outcome.result == "delivered"
        reopens = self.turns.pace.note(message.lane, now, taken=taken)
        if taken:
            return Delivered(message.lane, message.id, now, "suspect" if slow else "proven", reopens=reopens, withheld=withheld)
        attempts = message.lane.attempts + 1
        step = step_after(outcome, attempts=attempts, failing_since=message.failing_since, now=now, chance=self._chance())
        log.info(
            "alert not delivered",
            extra={"target": message.target_id, "channel": message.kind, "attempts": attempts, "reason": outcome.reason},
        )
        return Failed(message.target_id, message.id, now, outcome.reason, step)

    async def _sent(self, message: Message) -> Outcome:
        health = message.lane.health
        hurries = health == "new" and self.turns.is_short(health)
        client = self._clients.hurried if hurries else self._clients.by_health[health]
        try:
            channel = next(channel for channel in self.channels if channel.kind == message.kind)
            attempt = Attempt(message, client, self.now())
            content = self._contents.compose(message.alerts)
            return await (channel.ask(attempt, content) if isinstance(content, Question) else channel.send(attempt, content))
        except Exception as error:  # the border: one message that cannot be made must not stop the others
            log.exception("alert not sent", extra={"target": message.target_id})
            return Outcome("retry", f"it could not be sent ({type(error).__name__})")
