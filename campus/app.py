"""The composition root: opens a campus from its configuration; every object is made here and given what it needs."""

import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from time import monotonic
from typing import Any

import anyio
import httpx

from campus.catalog.loader import Installed, LoadedBuilding, error_with_place, installed_buildings
from campus.catalog.parts import FeatureSite, Given
from campus.catalog.plan import Plan, make_plan
from campus.catalog.server import OpenBuilding
from campus.checks import (
    Findings,
    campus_findings,
    readiness,
    run_checks,
    table_findings,
    tool_findings,
)
from campus.colours import ACCENT
from campus.config import Config
from campus.core import Core, open_core, utc_now
from campus.errors import CampusError, JobFailed, LoadError
from campus.http.health import Health
from campus.installed import OpenFeature
from campus.jobs import Scheduler, ServiceRunner, ServiceTask, Task, run_in_process
from campus.jobs.run import SharedJobStore
from campus.keys.keyring import BuildingKeys, KeyRing
from campus.keys.sign_ins import SignInLimit
from campus.layout.kept import Kept
from campus.layout.renderer import Layout, template_folders
from campus.layout.replaced import mistakes_in
from campus.observability.metrics import Metrics, Reading
from campus.observability.stalls import stalls_named
from campus.outbound.http_clients import GuardedClient, certificate_authorities, feeds_client, guarded_client
from campus.paywall.admission import Paywall
from campus.site import Site
from campus.steps import Step, asked, in_order
from campus.storage import Storage
from campus.storage.database import NoStorage
from campus.storage.migrations import how_to_migrate, missing_from

log = logging.getLogger(__name__)

LAST_USE_FLUSH = timedelta(seconds=60)
BACKLOG_SECONDS = 2.0  # How long /metrics waits for a building's database.


@dataclass
class Campus:
    """An open campus: its buildings, features, database and jobs, used by the command line and by the ASGI app.

    `plan` is replaced when a building opens late.
    """

    plan: Plan
    core: Core
    metrics: Metrics
    sites: Mapping[str, Site[Any, Any]]
    scheduler: Scheduler
    services: ServiceRunner
    health: Health
    layout: Layout
    web: GuardedClient
    paywall: Paywall
    steps: Sequence[Step]
    features: Sequence[OpenFeature]
    sign_ins: SignInLimit
    stopping: anyio.Event = field(default_factory=anyio.Event)

    @property
    def keys(self) -> KeyRing:
        return self.core.keys

    @property
    def parts(self) -> Sequence[OpenFeature | OpenBuilding]:
        """What has jobs, services, checks and gauges: features, then buildings."""
        return [*(one for one in self.features if one.runs), *self.plan.opened]

    def feature(self, name: str) -> Any:
        """The state of a feature, for its front door; None if it is not opened."""
        return self.sites[name].state if any(one.name == name for one in self.features) else None

    async def run_jobs(self) -> None:
        await self.scheduler.run()

    async def run_services(self) -> None:
        async with stalls_named(), anyio.create_task_group() as tasks:
            tasks.start_soon(self.metrics.run, self._readings)
            await self.services.run()

    async def run_job(self, name: str, **options: Any) -> None:
        """Run one job now. Raises JobRefused when another process runs it."""
        await self.scheduler.run_now(name, **options)

    async def warm(self) -> None:
        """Load what the first event needs, so that it delays no call; the service answers meanwhile."""
        await self.metrics.warm()

    async def metrics_page(self) -> bytes:
        return await self.metrics.page(await self._readings())

    async def _readings(self) -> Sequence[Reading]:
        found = await self.health.findings()
        jobs = self.scheduler.status()
        databases = self.core.databases
        succeeded = {job.name: job.last_success.timestamp() for job in jobs if job.last_success}
        return [
            Reading(
                "campus_check_findings",
                "what /readyz on this listener says is wrong",
                "check",
                {name: len(found[name]) for name in found},
            ),
            Reading("campus_job_failures", "failures since the last success", "job_name", {job.name: job.failures for job in jobs}),
            Reading("campus_job_last_success_timestamp_seconds", "when the last successful run began", "job_name", succeeded),
            Reading("campus_writes_waiting", "writes that wait for those before them", "building", databases.waiting()),
            Reading("campus_reads_running", "connections to the database on which something is read", "building", databases.reading()),
            *await self._gauges(),
        ]

    async def _gauges(self) -> Sequence[Reading]:
        """What the buildings' gauges read; one that fails or takes too long is left out."""
        found: list[Reading] = []
        for one in self.parts:
            if (gauges := one.loaded.building.gauges) is None:
                continue
            try:
                with anyio.move_on_after(BACKLOG_SECONDS):
                    read = await gauges(self.sites[one.name])
                    readings = [Reading(f"campus_{one.name}_{name}", name, label, values) for (name, label), values in read.items()]
                    _ = [list(reading.collect()) for reading in readings]  # raises for a name that Prometheus does not take
                    found += readings
            except Exception:  # a building's code may raise anything; the others are shown
                log.exception("gauges not read", extra={"building": one.name})
        return found

    async def ask(self, on: str) -> Findings:
        found = await run_checks(self.parts, self.sites, on)
        if on != "check":
            return found
        for one in self.plan.opened:
            site = self.sites[one.name]
            templates = site.pages.findings() if site.pages else []
            tools = tool_findings(one, are_sold=self.plan.seller is not None)
            found[one.name] = [*found[one.name], *tools, *await table_findings(one, site), *templates]
        found |= {one.name: [*one.findings(), *found.get(one.name, ())] for one in self.plan.loaded if one.late or one.failure}
        of_features = {one.name: found.pop(one.name) for one in self.features if one.name in found}
        of_campus = await campus_findings(self.plan, self.core.databases, self.core.storage, of_features)
        if (folder := self.layout.templates) is not None:
            pages = {"": self.layout.own} | {name: site.pages for name, site in self.sites.items() if site.pages}
            of_campus["[server]"] = [*of_campus.get("[server]", ()), *mistakes_in(folder, pages)]
        return of_campus | found


async def open_servers(config: Config, installed: Sequence[Installed] | None = None) -> Plan:
    """The plan of the buildings in campus.toml; opens no database."""
    return await make_plan(config, installed or installed_buildings())


@asynccontextmanager
async def assemble(
    config: Config,
    *,
    exclusive: bool,
    reading: bool = False,
    clock: Callable[[], datetime] = utc_now,
    elapsed: Callable[[], float] = monotonic,
    installed: Sequence[Installed] | None = None,
    feeds: httpx.AsyncClient | None = None,
    web: GuardedClient | None = None,
    plan: Plan | None = None,
    made: bool = False,
    metrics: Metrics | None = None,
    job_command: Callable[[str], Sequence[str]] | None = None,
    closes_failed: bool = False,
) -> AsyncIterator[Campus]:
    """Open a campus; `exclusive` claims embedded data for this process, as serving does. `plan` is used if it was made before.

    Every mistake in campus.toml is found before anything is written. See open_core for `reading` and `made`. `job_command` returns
    the command that runs a job in a process of its own; without it, every job runs in this one. See make_plan for `closes_failed`.
    """
    with ThreadPoolExecutor(max_workers=1) as threads:
        trust_made = threads.submit(certificate_authorities)
        plan = plan or await make_plan(config, installed or installed_buildings(), closes_failed=closes_failed)
    trust = trust_made.result()
    tables = {one.name: one.loaded.building.tables for one in plan.opened if one.loaded.building.tables}
    async with AsyncExitStack() as stack:
        opened = open_core(config, exclusive=exclusive, reading=reading, now=clock, elapsed=elapsed, tables=tables, made=made)
        core = await stack.enter_async_context(opened)
        paywall = Paywall(core.keys.tokens, plan.products, guide=plan.directory.guide())
        shared = SharedServices(
            plan,
            core,
            feeds=await stack.enter_async_context(feeds or feeds_client(trust)),
            web=await stack.enter_async_context(web or guarded_client(config.url, allowed_hosts=config.web.allowed_hosts, trust=trust)),
            clock=clock,
            elapsed=elapsed,
            metrics=metrics or Metrics(),
            layout=Layout(
                config.server.name,
                config.url,
                Kept(core.storage, now=clock),
                title=config.server.title,
                tagline=config.server.tagline,
                logo=config.logo,
                accent=config.server.colour or ACCENT,
                templates=config.templates,
                seller=plan.sold_by,
                product_titles={name: table.title for name, table in config.products.items()},
            ),
            paywall=paywall,
            serving=exclusive,
        )
        features = config.features()
        wanted: list[OpenFeature | LoadedBuilding] = [*features, *plan.loaded]
        sites = {one.name: await stack.enter_async_context(shared.site(one)) for one in wanted}
        parts: list[OpenFeature | OpenBuilding] = [*(one for one in features if one.runs), *plan.opened]
        open_parts: list[OpenFeature | OpenBuilding] = [*features, *plan.opened]
        in_turn = in_order(step for one in open_parts for step in _steps_of(one.loaded, sites[one.name]))
        paywall.unlocks = asked(in_turn, "unlocks")
        own = OwnProcess(job_command, config.server.job_niceness, shared.metrics) if job_command else None
        tasks = [Task("campus.flush_last_used", core.keys.tokens.flush_last_used, every=LAST_USE_FLUSH, on="each")]
        tasks += tasks_of(parts, sites, own_process=own)
        jobs = Scheduler(tasks, core.storage, now=clock)
        services = ServiceRunner(services_of(parts, sites, core.keys))
        health = Health(readiness(plan, parts, sites, core.storage, jobs, services), needed=["storage"])
        stack.push_async_callback(health.finish)
        yield Campus(
            plan,
            core,
            shared.metrics,
            sites,
            jobs,
            services,
            health,
            shared.layout,
            shared.web,
            paywall,
            in_turn,
            features,
            SignInLimit(clock),
            shared.stopping,
        )
        await core.keys.tokens.flush_last_used()


@dataclass(frozen=True)
class SharedServices:
    plan: Plan
    core: Core
    feeds: httpx.AsyncClient
    web: GuardedClient
    clock: Callable[[], datetime]
    elapsed: Callable[[], float]
    metrics: Metrics
    layout: Layout
    paywall: Paywall
    stopping: anyio.Event = field(default_factory=anyio.Event)
    serving: bool = False
    states: dict[str, Any] = field(default_factory=dict)
    given: dict[str, dict[str, Given]] = field(default_factory=lambda: defaultdict(dict))

    @asynccontextmanager
    async def site(self, loaded: LoadedBuilding | OpenFeature) -> AsyncIterator[Site[Any, Any]]:
        building = loaded.building
        given: dict[str, Any] = {
            "name": loaded.name,
            "url": self.plan.config.url,
            "settings": loaded.settings,
            "state": None,
            "storage": await self._storage(loaded),
            "feeds": self.feeds,
            "web": self.web,
            "keys": BuildingKeys(self.core.keys, building=loaded.name, may_sell="keys" in loaded.grants),
            "directory": self.plan.directory,
            "log": logging.getLogger(f"campus.{loaded.name}"),
            "clock": self.clock,
            "elapsed": self.elapsed,
            "metrics": self.metrics,
            "stopping": self.stopping,
            "features": self.states,
            "pages": self.layout.pages_of(template_folders(building.rendering_functions), building.templates, name=loaded.name),
            "shares": not self.core.databases.is_single_process,
            "alone": self.serving and self.core.databases.is_single_process and not self.plan.config.is_locked,
        }
        site: Site[Any, Any] = (
            FeatureSite(
                **given, config=self.plan.config, core=self.core, paywall=self.paywall, parts=self.plan.parts, given=self.given[loaded.name]
            )
            if isinstance(loaded, OpenFeature)
            else Site(**given)
        )
        async with AsyncExitStack() as stack:
            site = replace(site, state=await _state_of(loaded, site, stack))
            if isinstance(loaded, OpenFeature):
                self.states[loaded.name] = site.state
            for feature, what in building.gives.items():
                self.given[feature][loaded.name] = Given(what, site)
            yield site

    async def _storage(self, loaded: LoadedBuilding | OpenFeature) -> Storage:
        """A feature's is campus's own, where its tables are."""
        if isinstance(loaded, OpenFeature):
            base = loaded.feature.table_base
            if self.serving and base and (missing := await missing_from(self.core.storage, base)):
                raise LoadError(f"the feature {loaded.name} cannot be served: in its database {missing}; {how_to_migrate(loaded.name)}")
            return self.core.storage
        if (tables := loaded.building.tables) is None:
            return NoStorage(loaded.name)
        await self._report_lost_database(loaded.name)
        storage = await self.core.databases.storage_of(loaded.name, tables)
        if self.serving and (missing := await missing_from(storage, tables)):
            raise LoadError(f"building {loaded.name!r} cannot be served: in its database {missing}; {how_to_migrate(loaded.name)}")
        return storage

    async def _report_lost_database(self, name: str) -> None:
        """Log an error if a building's database has no tables although its jobs have run: it was lost, and is created again."""
        if await self.core.databases.is_empty(name):
            records = await SharedJobStore(self.core.storage).records()
            if known := [job for job in records if job.startswith(f"{name}.")]:
                advice = "stop this campus and restore all of its data from one backup, unless you deleted this database on purpose"
                where = self.core.databases.place_of(name)
                log.error("database was lost", extra={"building": name, "missing": where, "jobs_have_run": known, "advice": advice})


def _steps_of(loaded: LoadedBuilding | OpenFeature, site: Site[Any, Any]) -> Sequence[Step]:
    """What a building's steps() returns, made a list."""
    try:
        return list(loaded.building.steps(site)) if loaded.building.steps else []
    except Exception as error:  # as in _state_of
        raise LoadError(f"{loaded.name!r} cannot make its steps: {error_with_place(error)}; steps= returns a list of them") from error


async def _state_of(loaded: LoadedBuilding | OpenFeature, site: Site[Any, Any], stack: AsyncExitStack) -> object:
    make = loaded.building.state
    try:
        made = make(site) if make else None
        return await stack.enter_async_context(made) if isinstance(made, AbstractAsyncContextManager) else made
    except CampusError:
        raise
    except Exception as error:  # an author's code may raise anything; the error names the building
        kind = "feature" if isinstance(loaded, OpenFeature) else "building"
        raise LoadError(f"{kind} {loaded.name!r} cannot make its state: {error_with_place(error)}") from error


@dataclass(frozen=True)
class OwnProcess:
    command: Callable[[str], Sequence[str]]
    niceness: int
    metrics: Metrics

    async def run(self, name: str) -> None:
        """Run a job to its end; JobFailed says why it failed."""
        report = await run_in_process(self.command(name), niceness=self.niceness)
        for building, event, labels, times in report.counted:
            self.metrics.add(building, event, labels, times=times)
        if report.error is not None:
            raise JobFailed(report.error)


def tasks_of(
    parts: Sequence[OpenFeature | OpenBuilding], sites: Mapping[str, Site[Any, Any]], *, own_process: OwnProcess | None = None
) -> list[Task]:
    return [
        Task(
            name := f"{one.name}.{job.name}",
            partial(own_process.run, name) if own_process and job.own_process else partial(job.run, sites[one.name]),
            every=job.every,
            daily_at=job.time_of_day(one.loaded.settings),
            on=job.on,
        )
        for one in parts
        for job in one.loaded.building.jobs
        if sites[one.name].shares or not job.shared
    ]


def services_of(parts: Sequence[OpenFeature | OpenBuilding], sites: Mapping[str, Site[Any, Any]], keys: KeyRing) -> list[ServiceTask]:
    return [
        ServiceTask("campus", "follow_keys", keys.tokens.follow),
        *(
            ServiceTask(one.name, service.name, partial(service.run, sites[one.name]))
            for one in parts
            for service in one.loaded.building.services
            if sites[one.name].shares or not service.shared
        ),
    ]
