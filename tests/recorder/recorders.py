"""A recorder in a test campus, and what only a test may do to it: move its clock, sweep, deliver, read its rows."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import httpx
from sqlalchemy import Connection, select, update
from sqlmodel import SQLModel

from buildings.recorder.alerts.sweep import keep_time
from buildings.recorder.monitors.credentials import digests_of
from buildings.recorder.monitors.registration import new_row
from buildings.recorder.monitors.state_machine import Schedule, initial_state
from buildings.recorder.runtime import RecorderSite, open_runtime, sweep_now
from buildings.recorder.tables import ALERTS, DELIVERIES, MONITORS, TARGETS, TICKS, Tables
from campus.features.alerts.tables import Tables as MailboxTables
from campus.secrets import digest_of
from campus.storage import in_snapshot, in_transaction
from campus.testing import ORIGIN, Clock, Reply, TestCampus
from tests import patient

SECRET = "s" * 32


@dataclass(frozen=True)
class Recorder:
    """A campus with a recorder, and what only a test may do to it."""

    campus: TestCampus
    clock: Clock

    async def call(self, tool: str, /, **arguments: Any) -> Reply:
        return await self.campus.call(tool, **arguments)

    @asynccontextmanager
    async def calling_from(self, address: str) -> AsyncIterator["Recorder"]:
        transport = httpx.ASGITransport(self.campus.app, client=(address, 1))
        async with patient.AsyncClient(transport=transport, base_url=ORIGIN) as http:
            yield replace(self, campus=replace(self.campus, http=http))

    async def register(self, webhook: str | None = "https://localhost/hook", **arguments: Any) -> dict[str, Any]:
        reply = await self.call("register_monitor", **{"name": "worker", "alert_webhook": webhook, **arguments})
        assert reply.status == 200, reply.data
        found: dict[str, Any] = reply.data
        return found

    async def beat(self, monitor: Mapping[str, Any], **arguments: Any) -> Reply:
        return await self.call("heartbeat", monitor_id=monitor["monitor_id"], secret=monitor["secret"], **arguments)

    async def pass_time(self, **span: float) -> None:
        self.clock.move(timedelta(**span))
        await in_transaction(self.campus.site.storage, lambda connection: _write_tick(connection, self.clock()))

    async def sweep(self) -> int:
        return (await sweep_now(self.campus.site)).died

    async def deliver(self) -> int:
        sent: int = await self.campus.site.state.dispatcher.deliver_due()
        return sent

    async def alerts(self, monitor: Mapping[str, Any]) -> list[tuple[str, int]]:
        chosen = select(ALERTS.c.kind, ALERTS.c.epoch).where(ALERTS.c.monitor_id == monitor["monitor_id"]).order_by(ALERTS.c.id)
        return [
            (kind, epoch)
            for kind, epoch in await in_snapshot(self.campus.site.storage, lambda connection: connection.execute(chosen).all())
        ]

    async def row(self, monitor: Mapping[str, Any]) -> Any:
        chosen = select(MONITORS).where(MONITORS.c.id == monitor["monitor_id"])
        return await in_snapshot(self.campus.site.storage, lambda connection: connection.execute(chosen).one_or_none())

    async def targets(self) -> Sequence[Any]:
        return await in_snapshot(self.campus.site.storage, lambda connection: connection.execute(select(TARGETS)).all())

    async def deliveries(self) -> Sequence[Any]:
        return await in_snapshot(self.campus.site.storage, lambda connection: connection.execute(select(DELIVERIES)).all())


class SharedRuntime:
    """The state of a building that tests share: that of the test which runs now."""

    @asynccontextmanager
    async def open(self, site: RecorderSite) -> AsyncIterator["SharedRuntime"]:
        self._site = site
        yield self

    @asynccontextmanager
    async def renewed(self) -> AsyncIterator[None]:
        """Empty the tables, with the record of mailboxes, and begin with a new Runtime, as after a restart."""
        await in_transaction(self._site.storage, partial(_delete_all, base=Tables))
        await in_transaction(self._site.feature("alerts").mailboxes.storage, partial(_delete_all, base=MailboxTables))
        async with open_runtime(self._site) as self._runtime:
            yield

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)


def _delete_all(connection: Connection, base: type[SQLModel]) -> None:
    for table in reversed(base.metadata.sorted_tables):
        connection.execute(table.delete())


def _write_tick(connection: Connection, now: datetime) -> None:
    if not connection.execute(update(TICKS).values(at=now).returning(TICKS.c.id)).all():
        keep_time(connection, now)


def monitor_row(name: str, schedule: Schedule, now: datetime, *, owned: bool = False) -> dict[str, Any]:
    """The columns of a monitor that was registered now under this id, with SECRET."""
    row = new_row(name, "m", schedule, initial_state(schedule, now), now=now) | {"badge_id": f"badge_{name}", "tags": "", "plain": True}
    return row | digests_of(SECRET, owned=owned) | unlike(name)


def unlike(name: str) -> dict[str, Any]:
    """The columns in which a copy of another monitor's row must differ from it."""
    return {"id": name, "badge_id": f"badge_{name}", "ping_digest": digest_of(name), "page_digest": None}


OpenRecorder = Callable[..., AbstractAsyncContextManager[Recorder]]
