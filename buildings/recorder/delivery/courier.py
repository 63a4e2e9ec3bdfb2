"""The courier: claims what is due, sends it, and notes what became of it."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial

import anyio
from sqlalchemy import Connection

from buildings.recorder.delivery.discord import send_discord
from buildings.recorder.delivery.email import send_email
from buildings.recorder.delivery.ladder import Outcome, after
from buildings.recorder.delivery.outbox import Done, Failed, claim, settle
from buildings.recorder.delivery.parcel import Parcel
from buildings.recorder.delivery.shares import Health
from buildings.recorder.delivery.turns import Turns
from buildings.recorder.delivery.webhook import send_webhook
from campus import Entropy, GuardedClient, Mail, Storage, StorageUnavailable, in_transaction

log = logging.getLogger(__name__)

SLOW_SECONDS = 3.0
"""A target that takes longer is suspect: others do not wait for it."""
BETWEEN_CLAIMS = 0.02
"""Seconds between two looks at the outbox, so that many deliveries that end give room to many at once."""

Settle = Callable[[Done | Failed], Awaitable[None]]


@dataclass(frozen=True)
class Courier:
    """What delivery needs.

    `webs` is a client for each kind of target, `hurried` one for new targets while others wait; `chance` gives a number in
    0..1 and spreads the tries; one target is sent `most` messages a minute, and `ring` says that a delivery has ended.
    """

    storage: Storage
    webs: Mapping[Health, GuardedClient]
    hurried: GuardedClient
    mail: Mail | None
    url: str
    now: Callable[[], datetime]
    chance: Callable[[], float]
    entropy: Entropy
    count: Callable[..., None]
    turns: Turns
    most: int
    ring: Callable[[], None]

    async def deliver_due(self) -> int:
        """Send everything that is due now, once; returns how many messages that were."""
        sent = 0
        async with self._settling() as settled:
            while parcels := await self.claim():
                async with anyio.create_task_group() as tasks:
                    for parcel in parcels:
                        tasks.start_soon(self._deliver, parcel, settled)
                sent += len(parcels)
        return sent

    async def run(self, let_through: Callable[[], Awaitable[None]], news: Callable[[], Awaitable[None]]) -> None:
        """Deliver until cancelled; `let_through` is awaited before each claim, `news` returns when there may be something to do."""
        async with self._settling() as settled, anyio.create_task_group() as tasks:
            while True:
                await let_through()
                next_claim = anyio.current_time() + BETWEEN_CLAIMS
                parcels = await self._claimed_or_none()
                for parcel in parcels:
                    tasks.start_soon(self._deliver_or_log, parcel, settled)
                if not parcels:
                    await news()
                await anyio.sleep_until(next_claim)

    async def claim(self) -> list[Parcel]:
        """The next messages; each counts as under way in `turns` until its delivery has ended."""
        claimed: list[Parcel] = []

        def work(connection: Connection) -> None:
            claimed.extend(claim(connection, self.now(), turns=self.turns, entropy=self.entropy))

        try:
            await in_transaction(self.storage, work)
        except BaseException:  # it was not committed: none of them is sent
            self.turns.give_back(parcel.lane for parcel in claimed)
            raise
        return claimed

    @asynccontextmanager
    async def _settling(self) -> AsyncIterator[Settle]:
        async with self.storage.batch(partial(settle, most=self.most)) as put:
            yield put

    async def _claimed_or_none(self) -> list[Parcel]:
        try:
            return await self.claim()
        except StorageUnavailable as error:  # alerts wait in it until it is back
            log.warning("outbox not read", extra={"reason": error})
        except Exception:  # the border: a fault of ours must not end the courier
            log.exception("outbox not read")
        return []

    async def _deliver_or_log(self, parcel: Parcel, settled: Settle) -> None:
        try:
            await self._deliver(parcel, settled)
        except Exception:  # the border: the lease lapses, and the message is sent again under its id
            log.exception("delivery not noted", extra={"target": parcel.target_id, "message": parcel.message_id})
        finally:
            self.ring()

    async def _deliver(self, parcel: Parcel, settled: Settle) -> None:
        try:
            began = anyio.current_time()
            outcome = await self._sent(parcel)
            slow = anyio.current_time() - began > SLOW_SECONDS
            self.count("alerts", channel=parcel.kind, result=outcome.result)
            await settled(self._result(parcel, outcome, slow=slow))
        finally:
            self.turns.end(parcel.lane)

    def _result(self, parcel: Parcel, outcome: Outcome, *, slow: bool) -> Done | Failed:
        now, taken = self.now(), outcome.result == "delivered"
        reopens = self.turns.note(parcel.lane, now, taken=taken)
        if taken:
            return Done(parcel.lane, parcel.message_id, now, "suspect" if slow else "proven", reopens=reopens)
        attempts = parcel.attempts + 1
        step = after(outcome, attempts=attempts, failing_since=parcel.failing_since, now=now, chance=self.chance())
        log.info(
            "alert not delivered",
            extra={"target": parcel.target_id, "channel": parcel.kind, "attempts": attempts, "reason": outcome.reason},
        )
        return Failed(parcel.target_id, parcel.message_id, now, outcome.reason, step)

    async def _sent(self, parcel: Parcel) -> Outcome:
        health = parcel.lane.health
        web = self.hurried if health == "new" and self.turns.is_short(health) else self.webs[health]
        try:
            match parcel.kind:
                case "discord":
                    return await send_discord(parcel, web, url=self.url)
                case "email":
                    return await send_email(parcel, self.mail, url=self.url, now=self.now())
                case _:
                    return await send_webhook(parcel, web, url=self.url, now=self.now())
        except Exception as error:  # the border: one message that cannot be made must not stop the others
            log.exception("alert not sent", extra={"target": parcel.target_id})
            return Outcome("retry", f"it could not be sent ({type(error).__name__})")
