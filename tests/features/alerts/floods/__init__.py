"""Flood warnings by port: a building as a stranger would write it, whose alerts also reach pagers, through a channel of its own."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from secrets import token_bytes
from typing import Any

from fastmcp import FastMCP
from pydantic import BaseModel
from sqlalchemy import Connection, insert, select
from sqlmodel import Field, SQLModel

from campus import Building, Caller, CurrentCaller, CurrentSite, Service, Settings, Site, access, free
from campus.features.alerts import (
    AlertContents,
    AlertTarget,
    AlertText,
    Attempt,
    Channel,
    Content,
    Dispatcher,
    Outbox,
    Outcome,
    Registrant,
    WaitingAlert,
    Webhook,
    address_of,
    check_webhook,
    signing_secret,
    webhook_address,
)
from campus.outbound import GuardedClient
from campus.storage import in_transaction, registry


class Tables(SQLModel, registry=registry()):
    """The building's own registry."""


class Level(Tables, table=True):
    """The water's level at a port."""

    __tablename__ = "level"

    port: str = Field(primary_key=True)
    metres: float


class Target(AlertTarget, Tables, table=True):
    """Where warnings go."""


class Alert(WaitingAlert, Tables, table=True):
    """A warning that waits."""

    port: str
    metres: float


LEVELS = Tables.metadata.tables["level"]
OUTBOX = Outbox(Target, Alert)


class Flood(BaseModel):
    """The JSON of a webhook."""

    ports: tuple[str, ...]


class FloodAlerts(AlertContents):
    """What a warning says."""

    def compose(self, alerts: Sequence[Any]) -> Content:
        texts = tuple(AlertText(f"Flood at {row.port}", [f"The water is at {row.metres:g} m."], row.at, "problem") for row in alerts)
        left_out = sum(row.omitted for row in alerts)
        subject = texts[0].headline if len(texts) == 1 else f"{len(texts)} floods" + (f" after {left_out} more" if left_out else "")
        return Content(Flood(ports=tuple(row.port for row in alerts)), subject, texts)


@dataclass
class Pager(Channel):
    """Pagers by number; `outcomes` are what becomes of the next messages, those after them are delivered."""

    kind = "pager"
    sent: list[tuple[str, str, str]] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)

    def recognizes(self, address: str) -> bool:
        return address.startswith("pager:")

    def host_of(self, address: str) -> str:
        return "pager"

    async def check(self, address: str, client: GuardedClient) -> None:
        pass

    async def send(self, attempt: Attempt, content: Content) -> Outcome:
        self.sent.append((attempt.message.id, attempt.message.address, content.subject))
        return self.outcomes.pop(0) if self.outcomes else Outcome("delivered")


@dataclass(frozen=True)
class Floods:
    """What the building shares in one process."""

    pager: Pager
    dispatcher: Dispatcher


FloodSite = Site[Settings, Floods]
mcp = FastMCP("Flood warnings")


@mcp.tool(meta=free())
async def subscribe(address: str, site: FloodSite = CurrentSite()) -> str:
    """Have warnings sent to a pager (pager:123) or a webhook."""
    found = address_of(address, site.state.dispatcher.channels)
    assert found is not None
    by = Registrant(owner="harbour", sender="key:harbour", per_host=10, shared_hosts=frozenset())

    def work(connection: Connection) -> str:
        return OUTBOX.claim(connection, found, by, now=site.now(), entropy=token_bytes).id

    return await in_transaction(site.storage, work)


@mcp.tool(meta=access())
async def send_warnings(webhook: str, site: FloodSite = CurrentSite(), caller: Caller = CurrentCaller()) -> str:
    """Have warnings sent to a webhook. Returns the secret that signs them."""
    channels = site.state.dispatcher.channels
    address = webhook_address(webhook, site.web, channels, argument="webhook")
    await check_webhook(address, site.web, argument="webhook")
    assert caller.key is not None, "the tool needs a key"
    by = Registrant(caller.key.lineage, sender=caller.key.lineage, per_host=10, shared_hosts=frozenset())

    def claim(connection: Connection) -> bytes:
        return OUTBOX.claim(connection, address, by, now=site.now(), entropy=token_bytes).secret

    return signing_secret(await in_transaction(site.storage, claim))


@mcp.tool(meta=free())
async def report(port: str, metres: float, site: FloodSite = CurrentSite()) -> None:
    """Store a level, once for each port, and warn of a flood."""

    def work(connection: Connection, now: datetime) -> None:
        if metres > 5:
            targets = connection.scalars(select(OUTBOX.targets.c.id)).all()
            rows = [{"target_id": target, "kind": "flood", "at": now, "port": port, "metres": metres} for target in targets]
            OUTBOX.raise_alerts(connection, rows, now=now)
        connection.execute(insert(LEVELS).values(port=port, metres=metres))

    await in_transaction(site.storage, lambda connection: work(connection, site.now()))
    site.state.dispatcher.wake()


def open_floods(site: FloodSite) -> Floods:
    """The dispatcher, with the building's own channel before campus's."""
    pager = Pager()
    return Floods(pager, Dispatcher(OUTBOX, FloodAlerts(), site, channels=(pager, Webhook())))


async def deliver(site: FloodSite) -> None:
    """Send warnings as long as the process serves."""
    await site.state.dispatcher.run(every=1.0)


building = Building(mcp, tables=Tables, state=open_floods, services=[Service(deliver)])
