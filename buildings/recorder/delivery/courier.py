"""The courier: claims what is due, sends it, and notes what became of it."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial

import anyio

from buildings.recorder.delivery.discord import send_discord
from buildings.recorder.delivery.email import send_email
from buildings.recorder.delivery.ladder import Outcome, after
from buildings.recorder.delivery.outbox import Done, Failed, claim, settle
from buildings.recorder.delivery.parcel import Parcel
from buildings.recorder.delivery.webhook import send_webhook
from buildings.recorder.secrets import Entropy
from buildings.recorder.transactions import in_transaction
from campus import Mail, Storage, StorageUnavailable, Web

log = logging.getLogger(__name__)

AT_ONCE = 64
"""Messages under way at once."""

Settle = Callable[[Done | Failed], Awaitable[None]]


@dataclass(frozen=True)
class Courier:
    """What delivery needs. `chance` gives a number in 0..1, and spreads the tries."""

    storage: Storage
    web: Web
    mail: Mail | None
    url: str
    now: Callable[[], datetime]
    chance: Callable[[], float]
    entropy: Entropy
    count: Callable[..., None]

    async def deliver_due(self) -> int:
        """Send everything that is due now, once; gives how many messages that were."""
        sent = 0
        async with self._settling() as settled:
            while parcels := await self.claim(AT_ONCE):
                async with anyio.create_task_group() as tasks:
                    for parcel in parcels:
                        tasks.start_soon(self._deliver, parcel, settled)
                sent += len(parcels)
        return sent

    async def run(self, let_through: Callable[[], Awaitable[None]], news: Callable[[], Awaitable[None]]) -> None:
        """Deliver until cancelled; `let_through` is awaited before each claim, `news` returns when there may be something to do."""
        free = anyio.Semaphore(AT_ONCE)
        async with self._settling() as settled, anyio.create_task_group() as tasks:
            while True:
                await free.acquire()
                free.release()
                await let_through()
                parcels = await self._claimed_or_none(free.value)
                for parcel in parcels:
                    await free.acquire()
                    tasks.start_soon(self._deliver_and_free, parcel, settled, free)
                if not parcels:
                    await news()

    async def claim(self, limit: int) -> list[Parcel]:
        """The next messages."""
        return await in_transaction(self.storage, partial(claim, now=self.now(), limit=limit, entropy=self.entropy))

    @asynccontextmanager
    async def _settling(self) -> AsyncIterator[Settle]:
        async with self.storage.batch(settle) as put:
            yield put

    async def _claimed_or_none(self, limit: int) -> list[Parcel]:
        try:
            return await self.claim(limit)
        except StorageUnavailable as error:  # alerts wait in it until it is back
            log.warning("outbox not read", extra={"reason": error})
        except Exception:  # the border: a fault of ours must not end the courier
            log.exception("outbox not read")
        return []

    async def _deliver_and_free(self, parcel: Parcel, settled: Settle, free: anyio.Semaphore) -> None:
        try:
            await self._deliver(parcel, settled)
        except Exception:  # the border: the lease lapses, and the message is sent again under its id
            log.exception("delivery not noted", extra={"target": parcel.target_id, "message": parcel.message_id})
        finally:
            free.release()

    async def _deliver(self, parcel: Parcel, settled: Settle) -> None:
        outcome = await self._sent(parcel)
        self.count("alerts", channel=parcel.kind, result=outcome.result)
        now = self.now()
        if outcome.result == "delivered":
            await settled(Done(parcel.target_id, parcel.message_id, now))
            return
        attempts = parcel.attempts + 1
        step = after(outcome, attempts=attempts, failing_since=parcel.failing_since, now=now, chance=self.chance())
        log.info(
            "alert not delivered",
            extra={"target": parcel.target_id, "channel": parcel.kind, "attempts": attempts, "reason": outcome.reason},
        )
        await settled(Failed(parcel.target_id, parcel.message_id, now, outcome.reason, step))

    async def _sent(self, parcel: Parcel) -> Outcome:
        try:
            match parcel.kind:
                case "discord":
                    return await send_discord(parcel, self.web, url=self.url)
                case "email":
                    return await send_email(parcel, self.mail, url=self.url, now=self.now())
                case _:
                    return await send_webhook(parcel, self.web, url=self.url, now=self.now())
        except Exception as error:  # the border: one message that cannot be made must not stop the others
            log.exception("alert not sent", extra={"target": parcel.target_id})
            return Outcome("retry", f"it could not be sent ({type(error).__name__})")
