"""The ASGI app of a campus: every building's MCP endpoint, its tools' HTTP routes, the pages, and buildings that join later."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import AsyncExitStack, asynccontextmanager
from copy import copy
from dataclasses import replace
from functools import partial
from typing import TypeVar

import anyio
import anyio.to_thread
from anyio.abc import TaskStatus
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from campus.addresses import Listen
from campus.app import Campus
from campus.backoff import RECONNECTS
from campus.catalog.absent import absent_paths, absent_server
from campus.catalog.authors import seal_request_states
from campus.catalog.loader import LoadedBuilding, RemoteServer, error_with_place
from campus.catalog.plan import Plan
from campus.catalog.server import OpenBuilding, custom_routes, mcp_path_of, open_server, put_first
from campus.config import DirectMode
from campus.connect.routes import Connect
from campus.discovery.routes import LINKS, discovery_entries
from campus.errors import LoadError, Unreachable, unwrapped_errors
from campus.http.edge import Edge
from campus.http.elsewhere import elsewhere, mcp_entry, unreachable
from campus.http.mcp_sessions import IDLE_SECONDS, McpSessions
from campus.http.service_routes import FIVE_MINUTES, Document, admin_app, exposed_app, own_routes, page_entry
from campus.jobs.scheduler import process_name
from campus.keys.request_states import RequestStateKeys
from campus.layout.renderer import Link, Pages
from campus.pages.keys import PATH as KEYS
from campus.pages.keys import SignInLimit
from campus.pages.pricing import PATH as PRICING
from campus.pages.pricing import PricingPages
from campus.pages.routes import API, own_entries
from campus.pages.visitors import Visitors
from campus.payments.receipts import receipts_of
from campus.paywall.admission import Paywall
from campus.paywall.gate import Gate
from campus.paywall.http import http_gate
from campus.paywall.mcp import AsTask, McpPaywall, PaywallMiddleware
from campus.paywall.principal import Principals
from campus.paywall.selling import Selling
from campus.paywall.tasks import BackgroundTasks
from campus.problems import EXPLAINED_AT
from campus.tasks.runner import TaskRunner, open_tasks
from campus.tasks.store import TaskStore
from twins import THREADS, ArgumentChecker, DirectMcp, McpBodies, Operation, RouteEntry, RouteTable, ToolOnServer, Twins, serve_schemas

LOOPBACK = Listen("localhost", 0)
START = "/"
LATE_SECONDS = 60.0
"""The timeout of each attempt to reach a server that was down at start: a command may have to download itself first."""
log = logging.getLogger(__name__)
T = TypeVar("T")


@asynccontextmanager
async def open_app(campus: Campus) -> AsyncIterator[ASGIApp]:
    """The app of a campus: both frames of every building and the pages, inside the HTTP edge."""
    plan = campus.plan
    server = plan.config.server
    with unwrapped_errors():
        async with AsyncExitStack() as stack:
            # also for functions that FastMCP runs, which take a place of their building's as well
            anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS * (1 + len(plan.config.buildings))
            store = TaskStore(campus.core.storage, process=process_name(), now=campus.core.now)
            endpoints = Endpoints(campus, await stack.enter_async_context(open_tasks(store, campus.keys.makers)))
            for opened in plan.opened:
                await endpoints.begin(opened, stack)
            for closed in plan.closed:
                await stack.enter_async_context(endpoints.closed(closed))
            endpoints.route()
            async with anyio.create_task_group() as tasks:
                for one in plan.loaded:
                    if one.remote is not None:
                        tasks.start_soon(endpoints.follow, one, one.remote)
                own_url = plan.config.connect.url if plan.config.connect else None
                yield Edge(
                    endpoints.connect.around(endpoints) if endpoints.connect else endpoints,
                    public_url=plan.config.url,
                    more_urls=[own_url] if own_url else (),
                    port=server.port,
                    probes=campus.health.probes,
                    problem_page=campus.layout.problem_page,
                    trusted_proxies=server.trusted_proxies,
                    requests=campus.metrics.requests,
                )
                tasks.cancel_scope.cancel()


def open_admin(campus: Campus) -> ASGIApp:
    """The ASGI app of the operator's listener: metrics, readiness, and with CAMPUS_OPERATOR_PASSWORD the operator's pages."""
    server = campus.plan.config.server
    password = campus.plan.config.operator_password
    proxies = campus.plan.config.operators_proxies
    served = partial(admin_app, campus.metrics_page, campus.health, listen=server.admin or LOOPBACK, trusted_proxies=proxies)
    if password is None:
        return served()
    from campus.operator.routes import operators_pages  # 50 ms, spared where nobody can sign in

    layout, pages = operators_pages(campus, password)
    return served(pages=pages, problem_page=layout.problem_page)


class Endpoints:
    """The endpoints of all buildings and the table of their routes, as an ASGI app; a building can be added while serving."""

    def __init__(self, campus: Campus, runner: TaskRunner) -> None:
        self._campus = campus
        self._runner = runner
        self._task_routes: dict[str, RouteEntry] = {}
        plan = campus.plan
        self._paywall = Paywall(campus.keys.tokens, plan.products, per_call=plan.pricing is not None, guide=plan.directory.guide())
        self._visitors = Visitors(
            self._paywall, campus.keys, campus.core.sessions, campus.layout.cookies, {}, campus.sites, lambda: self._table
        )
        self._sign_ins = SignInLimit(campus.core.now)
        self.connect = Connect(campus, self._sign_ins) if plan.config.connect else None
        self._request_states = RequestStateKeys(campus.core.storage, now=campus.core.now)
        self._mcp_sessions = McpSessions()
        self._servers: dict[str, ASGIApp] = {}
        self._twins: dict[str, Twins] = {}
        self._table = RouteTable()
        self._tool_pages: Mapping[str, str] = {}
        self._growing = anyio.Lock()

    @asynccontextmanager
    async def opened(self, opened: OpenBuilding) -> AsyncIterator[None]:
        """Serve both frames of an open building."""
        campus = self._campus
        threads = anyio.CapacityLimiter(THREADS)  # of its own: slow functions of one building delay no other
        made = partial(ArgumentChecker, opened.server, threads=threads, reveals=campus.plan.config.is_authors)
        checkers = {name: made(operation) for name, operation in opened.operations.items()}
        core = campus.core
        site = campus.sites[opened.name]
        gate = Gate(site, opened.offers, self._paywall, campus.limits, core.usage, selling_of(campus), core.audit_log)
        tasks, as_mcp_task = self._tasks_of(opened, gate, checkers) if opened.has_tasks else (None, None)
        mcp_gate = McpPaywall(gate, checkers, opened.synthetic, as_mcp_task)
        put_first(opened.server, PaywallMiddleware(mcp_gate))
        states = self._request_states
        seal_request_states(opened.server, states, opened.name)

        def around(app: ASGIApp) -> ASGIApp:
            kept = self._mcp_sessions.around(app) if opened.loaded.table.sessions else app
            return states.kept_current(Principals(kept, self._paywall, gate.scopes))

        async with open_mcp(opened, mcp_gate, around, direct_mcp=campus.plan.config.server.direct_mcp) as app:
            before = (
                self._servers.get(opened.mcp_path),
                self._twins.get(opened.name),
                self._visitors.buildings.get(opened.name),
                self._task_routes.get(opened.name),
            )
            self._twins[opened.name] = Twins.of(
                opened.server,
                opened.operations.values(),
                gate=http_gate(gate, tasks.over_http if tasks else None),
                checkers=checkers,
                is_link=lambda operation: is_shared_link(opened, operation),
                problem_types=EXPLAINED_AT,
            )
            self._servers[opened.mcp_path] = app
            self._visitors.buildings[opened.name] = opened
            if tasks:
                self._task_routes[opened.name] = tasks.route
            try:
                yield
            finally:
                if self._servers.get(opened.mcp_path) is app:  # not replaced by a later version of the building
                    put_back(self._servers, opened.mcp_path, before[0])
                    put_back(self._twins, opened.name, before[1])
                    put_back(self._visitors.buildings, opened.name, before[2])
                    put_back(self._task_routes, opened.name, before[3])

    async def begin(self, opened: OpenBuilding, stack: AsyncExitStack) -> None:
        """Serve both frames of a building from the start. One of another server is closed if its tools cannot be served."""
        async with AsyncExitStack() as attempt:
            try:
                await attempt.enter_async_context(self.opened(opened))
                stack.push_async_exit(attempt.pop_all())
                return
            except Exception as error:  # another server's tools must not end this one
                if opened.loaded.remote is None:
                    raise
                opened.loaded.remote.reject(error)
        before = self._campus.plan
        plan = before.without(opened.loaded)
        self._campus.plan = replace(plan, directory=before.directory)
        before.directory.take(plan.directory)  # the sites hold this object
        await stack.enter_async_context(self.closed(opened.loaded))

    def _tasks_of(self, opened: OpenBuilding, gate: Gate, checkers: Mapping[str, ArgumentChecker]) -> tuple[BackgroundTasks, AsTask]:
        """The background tasks of a building, and how they begin over MCP."""
        from campus.paywall.task_extension import StoredTasks  # with fastmcp-tasks, which is installed only where authors use it

        tools = {name: ToolOnServer(opened.server, checkers[name]) for name in opened.task_tools}
        tasks = BackgroundTasks(gate, self._paywall, self._runner, tools)
        extension = StoredTasks(tasks)
        opened.server.add_extension(extension)
        return tasks, extension.begin

    @asynccontextmanager
    async def closed(self, loaded: LoadedBuilding) -> AsyncIterator[None]:
        """Serve the MCP endpoint of a building whose server cannot be reached."""
        path = mcp_path_of(loaded)
        app = absent_server(loaded.name).http_app(path=path, stateless_http=True)
        async with app.router.lifespan_context(app):
            self._servers[path] = McpBodies(app, ())
            yield

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Answer by the routes of now; running requests are finished by those that they found. Not a coroutine: that saves one per call."""
        return self._table(scope, receive, send)

    def route(self) -> None:
        """Make the table of routes of everything that is served now."""
        campus = self._campus
        plan = campus.plan
        layout = campus.layout
        pages = [(one.name, page) for one in plan.opened for page in one.loaded.building.pages]
        labelled = [Link(page.path, page.label) for _, page in pages if page.label]
        pricing = [Link(PRICING, "Pricing")] if plan.config.products else []
        layout.lead(LINKS, [Link(API, "Tools"), *labelled, *pricing, Link(KEYS, "Sign in", "Your key")], self._tool_page)
        self._tool_pages = {each.path: f"/tools/{one.name}/{each.name}" for one in plan.opened for each in one.operations.values()}
        entries = [
            *(entry for one in plan.opened for entry in self._twins[one.name].table.entries),
            *self._task_routes.values(),
            *(mcp_entry(path, server) for path, server in self._servers.items()),
            *(page_entry(page, campus.sites[name], layout, self._visitors) for name, page in pages),
            *(Document.json(document, cache=FIVE_MINUTES).route(path) for path, document in plan.documents.items()),
            *discovery_entries(plan, now=campus.core.now),
            *self._own_entries(has_start=any(page.path == START for _, page in pages)),
            *(self.connect.routes(plan, self._servers) if self.connect else ()),
        ]
        absent = absent_paths(plan.closed, documents=plan.config.server.openapi, taken=[entry.path for entry in entries])
        rest = exposed_app(exposed(plan), plan.directory)
        self._table = RouteTable(
            [*entries, *map(unreachable, absent)],
            problem_types=EXPLAINED_AT,
            missing=elsewhere(lambda: self._table, closed={one.name for one in plan.closed}, rest=rest),
        )

    def _own_entries(self, *, has_start: bool) -> list[RouteEntry]:
        """Campus's own pages."""
        campus = self._campus
        plan = campus.plan
        return [
            *own_routes(plan.directory, plan.problems, campus.layout),
            *own_entries(
                plan.directory,
                self._visitors,
                campus.layout,
                start=None if has_start else START,
                now=campus.core.now,
                clients=campus.core.clients,
                usage=campus.core.usage,
                sign_ins=self._sign_ins,
                pricing=self._pricing,
            ),
        ]

    def _pricing(self, pages: Pages) -> PricingPages:
        config, receipts = self._campus.plan.config, partial(receipts_of, self._campus.core.storage)
        return PricingPages(pages, self._campus.plan.directory, self._visitors, config.products, receipts)

    def _tool_page(self, path: str) -> str | None:
        """The page of the tool whose HTTP route has this path."""
        found = self._table.find(path)
        return self._tool_pages.get(found[0].path) if found else None

    async def follow(self, loaded: LoadedBuilding, remote: RemoteServer) -> None:
        """Open a closed building as soon as its server answers, and open it anew whenever its tools change, until cancelled."""
        is_open = loaded not in self._campus.plan.closed
        async with anyio.create_task_group() as tasks:
            replaced, current = anyio.Event(), anyio.Event()
            while True:
                if is_open:
                    await remote.changed()
                late = await self._awaited(loaded, remote)
                ended = anyio.Event()
                failure = await tasks.start(self._serve, late, ended)
                is_open = True
                if failure is not None:
                    remote.reject(failure)
                else:
                    remote.rejection = None
                    replaced.set()  # calls that ran when it was replaced had until now to end
                    replaced, current = current, ended

    async def _serve(self, late: OpenBuilding, ended: anyio.Event, *, task_status: TaskStatus[Exception | None]) -> None:
        """Serve the building from now on, in a task of its own, until `ended`; starts with the error if it cannot be served."""
        async with AsyncExitStack() as stack:
            async with self._growing:
                failure = await self._add(late, stack)
            task_status.started(failure)
            if failure is None:
                await ended.wait()

    async def _awaited(self, loaded: LoadedBuilding, remote: RemoteServer) -> OpenBuilding:
        failures = 0
        while True:
            failures += 1
            await RECONNECTS.sleep(failures)
            try:
                plan = self._campus.plan
                per_call, config = plan.pricing is not None, plan.config
                return await open_server(loaded, per_call=per_call, url=config.url, seconds=LATE_SECONDS, is_local=config.is_local)
            except Unreachable:
                remote.rejection = None
            except Exception as error:  # the server answers, but its tools cannot be served
                remote.reject(error)

    async def _add(self, late: OpenBuilding, stack: AsyncExitStack) -> Exception | None:
        """Serve the building from now on, until the stack closes; returns the error if it cannot be served, and leaves nothing of it."""
        campus = self._campus
        before = campus.plan
        entries = copy(before.directory)
        async with AsyncExitStack() as attempt:
            try:
                plan = before.with_opened(late)
                campus.plan = replace(plan, directory=before.directory)
                await attempt.enter_async_context(self.opened(late))
                before.directory.take(plan.directory)  # the sites hold this object
                self.route()
                stack.push_async_exit(attempt.pop_all())
                log.info("building opened", extra={"building": late.name})
                return None
            except Exception as error:  # another server's tools must not end this one
                failure = error
        campus.plan = before
        before.directory.take(entries)
        self.route()
        return failure


def put_back(table: MutableMapping[str, T], name: str, before: T | None) -> None:
    """Have the table as it was before the name was set."""
    table.pop(name, None)
    if before is not None:
        table[name] = before


def exposed(plan: Plan) -> list[BaseRoute]:
    """The custom routes of authors' servers that campus.toml exposes."""
    return [route for one in plan.opened if "routes" in one.loaded.table.expose for route in custom_routes(one.loaded.server)]


def selling_of(campus: Campus) -> Selling | None:
    """Payments per call; None when campus.toml has no [payments]."""
    pricing = campus.plan.pricing
    payments = campus.payments
    return Selling(pricing, payments.processor, payments.ledger.offered) if pricing and payments else None


@asynccontextmanager
async def open_mcp(
    opened: OpenBuilding, gate: McpPaywall, around: Callable[[ASGIApp], ASGIApp], *, direct_mcp: DirectMode
) -> AsyncIterator[ASGIApp]:
    """A building's MCP endpoint, with its lifespan. Plain requests are answered directly, unless the configuration turns that off.

    The others pass through `around` to the MCP server.
    """
    await serve_schemas(opened.server)
    stateless = not opened.loaded.table.sessions
    app = opened.server.http_app(
        path=opened.mcp_path,
        stateless_http=stateless,
        json_response=False,
        host_origin_protection=False,
        session_idle_timeout=IDLE_SECONDS,
    )
    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(app.router.lifespan_context(app))
        except Exception as error:  # an author's lifespan may raise anything
            raise LoadError(f"the server of building {opened.name!r} cannot start: {error_with_place(error)}") from error
        endpoint: ASGIApp = around(app)
        if direct_mcp != "off":
            checkers = gate.checkers.values()
            endpoint = DirectMcp(endpoint, opened.server, checkers, gate=gate, stateless=stateless, explains=direct_mcp == "explain")
        yield McpBodies(endpoint, opened.operations.values())


def is_shared_link(opened: OpenBuilding, operation: Operation) -> bool:
    """True for addresses that people share: free tools whose answers may be cached."""
    return operation.cache is not None and opened.offers[operation.name].access.is_free
