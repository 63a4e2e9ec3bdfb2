"""The ASGI app of a campus: every building's MCP endpoint, its tools' HTTP routes, the pages, and buildings that join later."""

import logging
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from copy import copy
from dataclasses import replace
from functools import reduce
from typing import cast

import anyio
import anyio.to_thread
from anyio.abc import TaskStatus
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from campus.addresses import Listen
from campus.app import Campus
from campus.backoff import RECONNECTS
from campus.catalog.absent import absent_paths, absent_server
from campus.catalog.loader import LateServer, LoadedBuilding, error_with_place
from campus.catalog.plan import Plan
from campus.catalog.server import OpenBuilding, custom_routes, mcp_path_of, open_server
from campus.errors import CampusError, Unreachable, unwrapped_errors
from campus.frames import FrameMaker, Frames
from campus.http.edge import Edge
from campus.http.elsewhere import TOOLS, elsewhere, mcp_entry, unreachable
from campus.http.response import send_problem
from campus.http.service_routes import FIVE_MINUTES, Document, admin_app, exposed_app, own_routes, page_entry
from campus.http_parts import HttpPart, http_parts
from campus.jobs import ServiceRunner, ServiceTask
from campus.layout.renderer import Link
from campus.problems import EXPLAINED_AT
from campus.visitors import Visitors
from twins import THREADS, Catalog, McpBodies, MethodTable, Problem, RouteEntry, RouteTable

LOOPBACK = Listen("localhost", 0)
WATCH_SECONDS = 1.0
"""Between two looks at the buildings for changes that no request asked for."""
LIST_SECONDS = 5.0
"""How long an author's server may take to list its tools once it has changed."""
LATE_SECONDS = 60.0
"""The timeout of each attempt to reach a server that was down at start: a command may have to download itself first."""
log = logging.getLogger(__name__)


@asynccontextmanager
async def open_app(campus: Campus) -> AsyncIterator[ASGIApp]:
    """The app of a campus: both frames of every building and the pages, inside the HTTP edge."""
    plan = campus.plan
    server = plan.config.server
    with unwrapped_errors():
        async with AsyncExitStack() as stack:
            # also for functions that FastMCP runs, which take a place of their building's as well
            anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS * (1 + len(plan.config.buildings))
            endpoints = Endpoints(campus)
            for opened in plan.opened:
                await endpoints.begin(opened, stack)
            for closed in plan.closed:
                await stack.enter_async_context(endpoints.closed(closed))
            endpoints.route()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(endpoints.watch)
                tasks.start_soon(ServiceRunner(works_of(endpoints.features)).run)
                for one in plan.loaded:
                    if one.late is not None:
                        tasks.start_soon(endpoints.follow, one, one.late)
                edge: ASGIApp = Edge(
                    reduce(lambda app, feature: feature.around(app), endpoints.features, cast(ASGIApp, endpoints)),
                    public_url=plan.config.url,
                    more_urls=[url for feature in endpoints.features for url in feature.more_urls],
                    port=server.port,
                    whole_bodies=[
                        operation.path
                        for opened in plan.opened
                        for operation in opened.operations.values()
                        if operation.route.whole_limit is not None
                    ],
                    any_bodies=_any_bodies(plan),
                    probes=campus.health.probes,
                    problem_page=campus.layout.problem_page,
                    trusted_proxies=server.trusted_proxies,
                    requests=campus.metrics.requests,
                )
                with ExitStack() as layers:
                    for feature in endpoints.features:
                        edge = layers.enter_context(feature.outermost(edge))
                    yield edge
                tasks.cancel_scope.cancel()


def open_admin(campus: Campus) -> ASGIApp:
    """The ASGI app of the operator's listener: metrics, readiness, and with CAMPUS_OPERATOR_PASSWORD the operator's pages."""
    server = campus.plan.config.server
    added = {name: value for feature in http_parts(campus) for name, value in feature.operators().items()}
    proxies = campus.plan.config.operators_proxies
    return admin_app(campus.metrics_page, campus.health, listen=server.admin or LOOPBACK, trusted_proxies=proxies, **added)


def works_of(parts: Sequence[HttpPart]) -> list[ServiceTask]:
    """What parts do while they serve: a fault of one is logged, and it is begun again."""
    return [ServiceTask(one.site.name, "http", one.run) for one in parts if type(one).run is not HttpPart.run]


def _any_bodies(plan: Plan) -> tuple[str, ...]:
    """How the paths begin that are answered whatever the size of the body: of tools that read it themselves, and of such pages."""
    tools = [each.path for one in plan.opened for each in one.operations.values() if each.route.reads is not None]
    pages = [page.path for one in plan.opened for page in one.loaded.building.pages if page.any_body]
    return tuple({path.partition("{")[0] for path in (*tools, *pages)})


class Endpoints:
    """The endpoints of all buildings and the table of their routes, as an ASGI app; a building can be added while serving."""

    def __init__(self, campus: Campus) -> None:
        self._campus = campus
        self._visitors = Visitors(
            campus.paywall, campus.keys, campus.core.sessions, campus.layout.cookies, {}, campus.sites, lambda: self._table
        )
        self.features = http_parts(campus, self._visitors)
        self._maker = FrameMaker(campus, self.features)
        self._frames: dict[str, Frames] = {}
        self._absent: dict[str, ASGIApp] = {}
        self._table = RouteTable()
        self._tool_pages: Mapping[str, str] = {}
        self._growing = anyio.Lock()

    @asynccontextmanager
    async def opened(self, opened: OpenBuilding) -> AsyncIterator[None]:
        """Serve both frames of an open building. Its tools are those that its server has once its lifespan has begun."""
        async with self._maker.started(opened) as app:
            if not await opened.catalog.holds_below(at_once=True):
                opened = await opened.renewed()
                opened.check_names()
                self._plan(self._campus.plan.with_opened(opened))
            frames = await self._maker.of(opened, app, changed=self._changed(opened))
            before = self._frames.get(opened.name)
            self._show(frames)
            try:
                yield
            finally:
                if (now := self._frames.get(opened.name)) is not None and now.server_app is app:  # else a later version has replaced it
                    self._frames.pop(opened.name)
                    self._visitors.buildings.pop(opened.name)
                    if before is not None:
                        self._show(before)

    def _show(self, frames: Frames) -> None:
        name = frames.opened.name
        self._frames[name] = frames
        self._visitors.buildings[name] = frames.opened

    def _plan(self, plan: Plan) -> None:
        """Take another plan; the directory and the features' parts stay the same objects, which the sites hold."""
        directory, parts = self._campus.plan.directory, self._campus.plan.parts
        self._campus.plan = replace(plan, directory=directory, parts=parts)
        directory.take(plan.directory)
        parts.update(plan.parts)

    def _changed(self, opened: OpenBuilding) -> ASGIApp:
        """Answers a request by what a building's server is now."""

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            await self._renew(opened)
            await self._table(scope, receive, send)

        return answer

    async def _renew(self, was: OpenBuilding) -> None:
        """Serve a building as its server is now, which is another one than it was."""
        building = was.name
        async with self._growing:
            frames = self._frames.get(building)
            if frames is None or frames.opened is not was:  # another request was quicker
                return
            try:
                with anyio.fail_after(LIST_SECONDS):
                    opened = await was.renewed()
            except Exception as error:  # an author's server may raise anything when it is listed
                log.exception("changed tools cannot be listed; its server is asked for every call", extra={"building": building})
                opened = replace(was, catalog=Catalog.unlisted(was.catalog, f"its tools cannot be listed: {error_with_place(error)}"))
            try:
                await self._take(self._campus.plan.with_opened(opened), opened, frames)
            except (CampusError, ValueError) as error:  # ValueError: a route is that of a page of campus
                log.error("changed tools cannot be served over HTTP", extra={"building": building, "reason": str(error)})
                plan, opened = self._without_new(frames.opened, opened)
                await self._take(plan, opened, frames)
            log.info("tools changed", extra={"building": building, "tools": sorted(opened.operations)})

    async def _take(self, plan: Plan, opened: OpenBuilding, before: Frames) -> None:
        self._plan(plan)
        self._show(await self._maker.of(opened, before.server_app, changed=self._changed(opened), threads=before.threads))
        self.route()

    def _without_new(self, before: OpenBuilding, opened: OpenBuilding) -> tuple[Plan, OpenBuilding]:
        """The plan with those tools alone that had been served at the same routes; with none of the building's if these conflict too."""
        routes = {name: each.route for name, each in before.operations.items()}
        kept = opened.without([name for name, each in opened.operations.items() if routes.get(name) != each.route])
        for fewer in (kept, opened.without(opened.operations)):
            with suppress(CampusError):
                return self._campus.plan.with_opened(fewer), fewer
        return self._campus.plan, before

    async def notice(self, path: str) -> None:
        """Renew every building whose server has changed, also below it, for a request of this path."""
        for frames in self._concerned(path):
            await self._look(frames)

    def _concerned(self, path: str) -> list[Frames]:
        """The buildings that are asked on behalf of a request: a slow one only at addresses of its own."""
        return [each for each in self._frames.values() if not each.opened.catalog.is_slow or path.startswith(f"{TOOLS}{each.opened.name}/")]

    async def _look(self, frames: Frames) -> None:
        opened = frames.opened
        try:
            with anyio.fail_after(LIST_SECONDS):
                holds = await opened.catalog.holds_below()
        except Exception as error:  # as above; a list that fails once is no change
            log.warning("tools cannot be listed", extra={"building": opened.name, "reason": error_with_place(error)})
            return
        if not holds:
            await self._renew(opened)

    async def watch(self) -> None:
        """Notice changes that no request asks for, until cancelled: pages and the directory show them, and the log says so."""
        while True:
            await anyio.sleep(WATCH_SECONDS)
            async with anyio.create_task_group() as looks:  # a slow server delays none of the others
                for frames in self._frames.values():
                    looks.start_soon(self._look, frames)

    def _noticing(self, entry: RouteEntry) -> RouteEntry:
        """The entry of an address that shows tools, such as a page or a document."""

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            if "campus.noticed" not in scope:
                scope["campus.noticed"] = True
                table = self._table
                await self.notice(scope["path"])
                if self._table is not table:
                    await self._table(scope, receive, send)
                    return
            await entry.app(scope, receive, send)

        return replace(entry, app=answer)

    def _missing(self, nothing: ASGIApp) -> ASGIApp:
        """The app for a path that no route has: perhaps a tool was added, or this caller is shown one that others are not."""

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            path = scope["path"]
            if path.startswith(TOOLS) or any(not frames.opened.catalog.is_constant for frames in self._frames.values()):
                await self.notice(path)
                try:
                    found = self._table.find(path) or await self._only_for(scope)
                except Problem as problem:
                    await send_problem(send, problem, scope.get("request_id"))
                    return
                if found is not None:
                    endpoint, scope["path_params"] = found
                    await endpoint(scope, receive, send)
                    return
            await nothing(scope, receive, send)

        return answer

    async def _only_for(self, scope: Scope) -> tuple[MethodTable, dict[str, str]] | None:
        for frames in self._concerned(scope["path"]):
            with suppress(TimeoutError), anyio.fail_after(LIST_SECONDS):
                if (found := await self._maker.only_for(scope, frames)) is not None:
                    return found
        return None

    async def begin(self, opened: OpenBuilding, stack: AsyncExitStack) -> None:
        """Serve both frames of a building from the start. One of another server is closed if its tools cannot be served."""
        async with AsyncExitStack() as attempt:
            try:
                await attempt.enter_async_context(self.opened(opened))
                stack.push_async_exit(attempt.pop_all())
                return
            except Exception as error:  # another server's tools must not end this one
                if opened.loaded.late is None:
                    raise
                opened.loaded.late.reject(error)
        self._plan(self._campus.plan.without(opened.loaded))
        await stack.enter_async_context(self.closed(opened.loaded))

    @asynccontextmanager
    async def closed(self, loaded: LoadedBuilding) -> AsyncIterator[None]:
        """Serve the MCP endpoint of a building whose server cannot be reached."""
        path = mcp_path_of(loaded)
        app = absent_server(loaded.name).http_app(path=path, stateless_http=True)
        async with app.router.lifespan_context(app):
            self._absent[path] = McpBodies(app, ())
            yield

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Answer by the routes of now; running requests are finished by those that they found. Not a coroutine: that saves one per call."""
        return self._table(scope, receive, send)

    def route(self) -> None:
        """Make the table of routes of everything that is served now."""
        campus = self._campus
        plan = campus.plan
        layout = campus.layout
        pages = [(one.name, page) for one in campus.parts for page in one.loaded.building.pages]
        labelled = [Link(page.path, page.label, place=page.place) for _, page in pages if page.label]
        layout.lead(
            ", ".join(feature.links for feature in self.features if feature.links),
            {name: path for feature in self.features for name, path in feature.places.items()},
            sorted([*labelled, *(link for feature in self.features for link in feature.navigation)], key=lambda link: link.place),
            self._tool_page,
        )
        self._tool_pages = {
            each.path: layout.place("tool", building=one.name, tool=each.name) for one in plan.opened for each in one.operations.values()
        }
        frames = [self._frames[one.name] for one in plan.opened]
        servers = self._absent | {each.opened.mcp_path: each.mcp for each in frames}
        entries = [
            *(entry for each in frames for entry in each.routes),
            *(mcp_entry(path, server) for path, server in servers.items()),
            *(page_entry(page, campus.sites[name], layout, self._visitors) for name, page in pages),
            *(self._noticing(Document.json(make, cache=FIVE_MINUTES).route(path)) for path, make in plan.documents.items()),
            *map(self._noticing, own_routes(plan.directory, plan.own_problems, plan.problems, layout)),
            *(asset.route for asset in layout.assets.values()),
            *(self._noticing(entry) if feature.notices else entry for feature in self.features for entry in feature.routes(plan, servers)),
        ]
        absent = absent_paths(plan.closed, documents=plan.config.server.openapi, taken=[entry.path for entry in entries])
        rest = exposed_app(exposed(plan), plan.directory)
        self._table = RouteTable(
            [*entries, *map(unreachable, absent)],
            problem_types=EXPLAINED_AT,
            missing=self._missing(elsewhere(lambda: self._table, closed={one.name for one in plan.closed}, rest=rest)),
        )

    def _tool_page(self, path: str) -> str | None:
        """The page of the tool whose HTTP route has this path."""
        found = self._table.find(path)
        return self._tool_pages.get(found[0].path) or None if found else None

    async def follow(self, loaded: LoadedBuilding, server: LateServer) -> None:
        """Open a closed building as soon as its server answers, and open it anew whenever its tools change, until cancelled."""
        is_open = loaded not in self._campus.plan.closed
        async with anyio.create_task_group() as tasks:
            replaced, current = anyio.Event(), anyio.Event()
            while True:
                if is_open:
                    await server.changed()
                late = await self._awaited(loaded, server)
                ended = anyio.Event()
                failure = await tasks.start(self._serve, late, ended)
                is_open = True
                if failure is not None:
                    server.reject(failure)
                else:
                    server.rejection = None
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

    async def _awaited(self, loaded: LoadedBuilding, server: LateServer) -> OpenBuilding:
        failures = 0
        while True:
            failures += 1
            await RECONNECTS.sleep(failures)
            try:
                plan = self._campus.plan
                config = plan.config
                sold = {"per_call": config.sells_calls, "has_credits": config.has_credits}
                return await open_server(loaded, **sold, seconds=LATE_SECONDS, is_local=config.is_local)
            except Unreachable:
                server.rejection = None
            except Exception as error:  # the server answers, but its tools cannot be served
                server.reject(error)

    async def _add(self, late: OpenBuilding, stack: AsyncExitStack) -> Exception | None:
        """Serve the building from now on, until the stack closes; returns the error if it cannot be served, and leaves nothing of it."""
        campus = self._campus
        before = campus.plan
        entries, parts = copy(before.directory), dict(before.parts)
        async with AsyncExitStack() as attempt:
            try:
                self._plan(before.with_opened(late))
                await attempt.enter_async_context(self.opened(late))
                self.route()
                stack.push_async_exit(attempt.pop_all())
                log.info("building opened", extra={"building": late.name})
                return None
            except Exception as error:  # another server's tools must not end this one
                failure = error
        campus.plan = before
        before.directory.take(entries)
        before.parts.update(parts)
        self.route()
        return failure


def exposed(plan: Plan) -> list[BaseRoute]:
    """The custom routes of authors' servers that campus.toml exposes."""
    return [route for one in plan.opened if "routes" in one.loaded.table.expose for route in custom_routes(one.loaded.server)]
