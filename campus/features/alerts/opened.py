"""What runs of the feature: its state, which knows every building's outbox, and the gauges of what waits there."""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from secrets import token_bytes
from typing import Any

import anyio

from campus.building import Building
from campus.catalog.parts import FeatureSite, Given, PlanPart
from campus.catalog.server import OpenBuilding
from campus.config import Config
from campus.errors import LoadError, StorageError
from campus.features.alerts.mailboxes import Mailboxes
from campus.features.alerts.outbox import DeliveryState, Outbox, TroubledTarget
from campus.storage import in_snapshot

BACKLOG_SECONDS = 1.5
"""How long /metrics waits for a building's database."""


@dataclass(frozen=True)
class Alerts:
    """The mailboxes of the campus, and the outbox of each building that sends alerts."""

    mailboxes: Mailboxes
    outboxes: Mapping[str, Given]
    delivered: Counter[bool] = field(default_factory=Counter)
    """How many alerts this process delivered within a minute (True) and later, since they were last stored by what counts them."""

    async def states(self) -> dict[str, DeliveryState]:
        return {name: await given.what.state(given.site.storage) for name, given in self.outboxes.items()}

    async def troubled_targets(self, limit: int | None = None) -> dict[str, Sequence[TroubledTarget]]:
        """By building, the targets that alerts do not reach, at most `limit` of each."""
        return {name: await given.what.troubled_targets(given.site.storage, limit=limit) for name, given in self.outboxes.items()}


def opened(site: FeatureSite) -> Alerts:
    return Alerts(Mailboxes(site.storage, site.clock, token_bytes), site.given)


def check_outboxes(config: Config, settings: None, buildings: Sequence[OpenBuilding]) -> PlanPart:
    """LoadError for a building that gives the feature something else than its Outbox."""
    for one in buildings:
        given = one.loaded.building.gives.get("alerts")
        if given is not None and not isinstance(given, Outbox):
            raise LoadError(f'building {one.name!r} gives "alerts" {given!r}; give it the Outbox of its alerts')
    return PlanPart()


async def backlogs(site: FeatureSite[Any, Alerts]) -> Mapping[tuple[str, str], Mapping[str, float]]:
    """By building whose database can be read: how many alerts wait, how late the next message is, and the age of the oldest alert."""
    waiting: dict[str, float] = {}
    late: dict[str, float] = {}
    oldest: dict[str, float] = {}

    async def read(name: str, given: Given) -> None:
        with suppress(StorageError), anyio.move_on_after(BACKLOG_SECONDS):
            waiting[name], *times = await in_snapshot(given.site.storage, given.what.backlog)
            late[name], oldest[name] = (max((site.now() - at).total_seconds(), 0.0) if at else 0.0 for at in times)

    async with anyio.create_task_group() as tasks:
        for name, given in site.state.outboxes.items():
            tasks.start_soon(read, name, given)
    return {("waiting", "building"): waiting, ("oldest_seconds", "building"): oldest, ("late_seconds", "building"): late}


building = Building(
    state=opened,
    plans=check_outboxes,
    gauges=backlogs,
    problems={"link_not_found": "The link of an e-mail is not valid. Check that it was copied completely."},
)
