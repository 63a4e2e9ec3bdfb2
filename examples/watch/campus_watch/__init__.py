"""Watches web pages: holders of a key are told by webhook when one goes down, and when it is up again."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from secrets import token_bytes
from typing import Any

import httpx
import sqlmodel
from fastmcp import FastMCP
from pydantic import BaseModel, Field
from sqlalchemy import Connection, delete, insert, select, update

import campus
from campus import storage
from campus.features import alerts


class Options(campus.Settings):
    """The keys of [buildings.watch] in campus.toml."""

    pages: tuple[str, ...] = ()
    """The addresses to watch."""


class Tables(sqlmodel.SQLModel, registry=storage.registry()):
    """Base of the building's tables."""


class Page(Tables, table=True):
    """A page as it was seen last."""

    address: str = sqlmodel.Field(primary_key=True)
    is_up: bool
    since: datetime = sqlmodel.Field(sa_type=storage.UtcDateTime)


class Target(alerts.AlertTarget, Tables, table=True):
    """Where alerts go, and the key or connected client that said so: they end with it."""

    made_by: str | None


class Alert(alerts.WaitingAlert, Tables, table=True):
    """An alert that waits. Its kind is `problem` or `recovery`."""

    address: str


PAGES = Tables.metadata.tables["page"]
OUTBOX = alerts.Outbox(Target, Alert)


class PageState(BaseModel, frozen=True):
    """A page that is watched."""

    address: str = Field(description="The page's address.")
    is_up: bool = Field(description="True if it answered without an error when it was seen last.")
    since: datetime = Field(description="Since when that is so (UTC).")


class States(BaseModel, frozen=True):
    """Several pages; also the JSON of a webhook."""

    pages: tuple[PageState, ...] = Field(description="The pages, by address.")


class PageAlerts(alerts.AlertContents):
    """What an alert says."""

    def compose(self, rows: Sequence[Any]) -> alerts.Content:
        states = tuple(PageState(address=row.address, is_up=row.kind == "recovery", since=row.at) for row in rows)
        texts = tuple(alerts.AlertText(f"{row.kind}: {row.address}", [], row.at, row.kind) for row in rows)
        return alerts.Content(States(pages=states), texts[-1].headline, texts)


WatchSite = campus.Site[Options, alerts.Dispatcher]
mcp = FastMCP("Watch", instructions="Watches web pages: states says how they are, tell_me sends alerts to a webhook.")


@mcp.tool(title="States of the pages", annotations={"readOnlyHint": True}, meta=campus.free())
async def states(site: WatchSite = campus.CurrentSite()) -> States:
    """Return every page that is watched, whether it is up, and since when."""
    rows = await storage.in_snapshot(site.storage, lambda connection: connection.execute(select(PAGES).order_by(PAGES.c.address)).all())
    return States(pages=tuple(PageState(**row._mapping) for row in rows))


@mcp.tool(title="Tell me", meta=campus.access())
async def tell_me(webhook: str, site: WatchSite = campus.CurrentSite(), caller: campus.Caller = campus.CurrentCaller()) -> str:
    """Have an alert sent to a webhook whenever a page goes down or is up again. Returns the secret that signs the messages, as Standard
    Webhooks says; the same webhook sent again has the same secret."""
    address = alerts.webhook_address(webhook, site.web, site.state.channels, argument="webhook")
    await alerts.check_webhook(address, site.web, argument="webhook")
    assert caller.key is not None, "the tool needs a key"
    by = alerts.Registrant(caller.key.lineage, sender=caller.key.lineage, per_host=10, shared_hosts=frozenset())

    def claim(connection: Connection) -> bytes:
        target = OUTBOX.claim(connection, address, by, now=site.now(), entropy=token_bytes)
        connection.execute(update(OUTBOX.targets).where(OUTBOX.targets.c.id == target.id).values(made_by=caller.maker))
        return target.secret

    return alerts.signing_secret(await storage.in_transaction(site.storage, claim))


async def look(site: WatchSite) -> bool:
    """Look at every page, store what changed, and raise an alert for each target in the same transaction."""
    now = site.now()
    seen = {address: await answers(site.feeds, address) for address in site.settings.pages}
    targets = await storage.in_snapshot(site.storage, lambda db: db.execute(select(OUTBOX.targets.c.id, OUTBOX.targets.c.made_by)).all())
    makers = await site.keys.makers({row.made_by for row in targets})
    told = [row.id for row in targets if not makers[row.made_by].has_ended(now)]

    def store(connection: Connection) -> bool:
        before = {row.address: row.is_up for row in connection.execute(select(PAGES))}
        changed = [address for address, is_up in seen.items() if before.get(address) is not is_up]
        for address in changed:
            connection.execute(delete(PAGES).where(PAGES.c.address == address))
            connection.execute(insert(PAGES).values(address=address, is_up=seen[address], since=now))
        news = [(address, "recovery" if seen[address] else "problem") for address in changed if address in before or not seen[address]]
        rows = [{"target_id": target, "kind": kind, "at": now, "address": address} for target in told for address, kind in news]
        OUTBOX.raise_alerts(connection, rows, now=now)
        return bool(changed)

    changed = await storage.in_transaction(site.storage, store)
    site.state.wake()
    return changed


async def deliver(site: WatchSite) -> None:
    """Send alerts as long as the process serves."""
    await site.state.run(every=1.0)


async def answers(client: httpx.AsyncClient, address: str) -> bool:
    """True if the page answers without an error."""
    with suppress(httpx.HTTPError):
        return (await client.get(address)).is_success
    return False


building = campus.Building(
    mcp,
    settings=Options,
    tables=Tables,
    state=lambda site: alerts.Dispatcher(OUTBOX, PageAlerts(), site, channels=(alerts.Webhook(),)),
    jobs=[campus.Job(look, every=timedelta(minutes=5))],
    services=[campus.Service(deliver)],
    gives={"alerts": OUTBOX},
)
