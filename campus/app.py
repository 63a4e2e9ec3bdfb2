"""The composition root: a configuration becomes a campus, every object made here and handed what it needs."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import httpx
from starlette.types import ASGIApp
from twins import RouteTable, Twins
from twins.fastmcp_internals import serve_schemas

from campus.building import Check
from campus.config import Config
from campus.counters import Counters
from campus.directory import Directory
from campus.edge.edge import Edge
from campus.edge.health import Health
from campus.feeds import feeds_client
from campus.frames.http import gate
from campus.frames.mcp import PaywallFrame
from campus.house import open_house, open_room
from campus.jobs import Scheduler
from campus.keys.keyring import KeyRing
from campus.loader import Installed, installed_buildings
from campus.opening import Opened, guard
from campus.pages import ERRORS, building_routes, own_routes, pages_app
from campus.paywall import Paywall
from campus.plan import Plan, make_plan
from campus.routing import Router
from campus.site import Site
from campus.tasks import tasks_of

Findings = dict[str, Sequence[str]]


@dataclass(frozen=True)
class Campus:
    """A campus that is open: its app, and what the command line and tests ask of it."""

    plan: Plan
    app: ASGIApp
    keys: KeyRing
    sites: Mapping[str, Site[Any, Any]]
    scheduler: Scheduler

    async def run_jobs(self) -> None:
        """Run every job when it is due, until cancelled."""
        await self.scheduler.run()

    async def run_job(self, name: str, **options: Any) -> None:
        """Run one job now; JobRefused when another process runs it."""
        await self.scheduler.run_now(name, **options)

    async def ask(self, on: str) -> Findings:
        """What the buildings' checks of one kind find wrong, by building."""
        return await answers(self.plan.opened, self.sites, on)


def utc_now() -> datetime:
    """The time, aware, in UTC."""
    return datetime.now(UTC)


async def open_servers(config: Config, installed: Sequence[Installed] | None = None) -> Directory:
    """The directory of what campus.toml names; no database is opened."""
    return (await make_plan(config, installed or installed_buildings())).directory


@asynccontextmanager
async def assemble(
    config: Config,
    *,
    exclusive: bool,
    clock: Callable[[], datetime] = utc_now,
    installed: Sequence[Installed] | None = None,
    feeds: httpx.AsyncClient | None = None,
) -> AsyncIterator[Campus]:
    """Open a campus. `exclusive` claims embedded data for this process, as serving does.

    Everything that campus.toml can have wrong is found before anything is written.
    """
    plan = await make_plan(config, installed or installed_buildings())
    async with AsyncExitStack() as stack:
        house = await stack.enter_async_context(open_house(config, exclusive=exclusive, clock=clock))
        client = await stack.enter_async_context(feeds or feeds_client())
        surroundings = Surroundings(plan, house.keys, client, clock, Counters())
        sites = {one.name: await stack.enter_async_context(open_site(one, house, surroundings)) for one in plan.opened}
        scheduler = Scheduler(tasks_of(plan.opened, sites, house.keys), house.storage, now=clock)
        paywall = Paywall(house.keys, plan.products)
        servers = {one.mcp_path: await stack.enter_async_context(open_mcp(one, sites[one.name], plan, paywall)) for one in plan.opened}
        twins = [await Twins.open(one.server, name=one.name, gate=gate(sites[one.name], one.offers, paywall), problem_types=ERRORS) for one in plan.opened]
        pages = pages_app([*own_routes(plan.directory, plan.documents, surroundings.counters), *page_routes(plan, sites)], plan.directory)
        health = Health(readiness(plan, sites, house, scheduler))
        router = Router(RouteTable.merged(one.table for one in twins), servers, pages)
        edge = Edge(router, public_url=config.url, port=config.server.port, probes=health.probes)
        yield Campus(plan, edge, house.keys, sites, scheduler)
