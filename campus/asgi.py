"""Both frames of every building beside campus's own pages; a building whose server was away is added when it answers."""

import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import replace

import anyio
from starlette.types import ASGIApp

from campus.absence import absent_routes, absent_server
from campus.app import Campus
from campus.catalog.loader import LoadedBuilding, RemoteServer
from campus.catalog.server import OpenBuilding, mcp_path_of, open_server, put_first
from campus.errors import EXPLAINED_AT, CampusError, Unreachable
from campus.http.edge import Edge
from campus.http.pages import own_routes, page_entry, pages_app
from campus.http.router import Router
from campus.paywall.admission import Paywall
from campus.paywall.http import gate
from campus.paywall.mcp import PaywallMiddleware
from campus.paywall.mcp_payments import PaidCalls
from campus.paywall.payment_gate import PaymentGate
from twins import Operation, RouteTable, Twins, serve_schemas
from twins.argument_checks import ArgumentChecker
from twins.fastmcp_internals import author_routes

FIRST_WAIT, LONGEST_WAIT = 1.0, 30.0
LATE_SECONDS = 60.0
"""How long a server that was away at start is waited for at each try: a command may have to fetch itself first."""
log = logging.getLogger(__name__)


@asynccontextmanager
async def open_app(campus: Campus) -> AsyncIterator[ASGIApp]:
    """The app of a campus: both frames around every building's tools, the pages beside them, the edge around all."""
    plan, server = campus.plan, campus.plan.config.server
    with errors_as_raised():
        async with AsyncExitStack() as stack:
            endpoints = Endpoints(campus)
            for opened in plan.opened:
                await stack.enter_async_context(endpoints.opened(opened))
            for closed in plan.closed:
                await stack.enter_async_context(endpoints.closed(closed))
            router = endpoints.routed()
            async with anyio.create_task_group() as tasks:
                for one in plan.loaded:
                    if one.remote is not None:
                        tasks.start_soon(endpoints.follow, one, one.remote)
                yield Edge(
                    router,
                    public_url=plan.config.url,
                    port=server.port,
                    probes=campus.health.probes,
                    trusted_proxies=server.trusted_proxies,
                )
                tasks.cancel_scope.cancel()


class Endpoints:
    """What is served of every building, and the router over all of it."""

    def __init__(self, campus: Campus) -> None:
        self._campus = campus
        plan = campus.plan
        self._paywall = Paywall(campus.keys, plan.products, per_call=plan.pricing is not None, guide=plan.directory.guide())
        self._servers: dict[str, ASGIApp] = {}
        self._twins: dict[str, Twins] = {}
        self._router: Router | None = None
        self._growing = anyio.Lock()

    @asynccontextmanager
    async def opened(self, opened: OpenBuilding) -> AsyncIterator[None]:
        """Both frames of an open building."""
        campus, payment_gate = self._campus, door_of(self._campus)
        async with open_mcp(campus, opened, self._paywall, payment_gate) as app:
            self._twins[opened.name] = await open_twins(campus, opened, self._paywall, payment_gate)
            self._servers[opened.mcp_path] = app
            yield

    @asynccontextmanager
    async def closed(self, loaded: LoadedBuilding) -> AsyncIterator[None]:
        """The MCP endpoint of a building whose server is away."""
        path = mcp_path_of(loaded)
        app = absent_server(loaded.name).http_app(path=path, stateless_http=True)
        async with app.router.lifespan_context(app):
            self._servers[path] = app
            yield

    def routed(self) -> Router:
        """The router over what is served now; the same object each time."""
        plan = self._campus.plan
        pages = RouteTable(page_entry(page, self._campus.sites[one.name]) for one in plan.opened for page in one.loaded.building.pages)
        table = RouteTable.merged([*(self._twins[one.name].table for one in plan.opened), pages])
        absent = [route for one in plan.closed for route in absent_routes(one, documents=plan.config.server.openapi)]
        exposed = [route for one in plan.opened if "routes" in one.loaded.table.expose for route in author_routes(one.loaded.server)]
        own = pages_app([*absent, *own_routes(plan.directory, plan.documents, plan.problems), *exposed], plan.directory)
        if self._router is None:
            self._router = Router(table, dict(self._servers), own)
        self._router.replace(table, dict(self._servers), own)
        return self._router

    async def follow(self, loaded: LoadedBuilding, remote: RemoteServer) -> None:
        """Open a building when its server answers, if it is closed; then watch the server, until cancelled."""
        async with AsyncExitStack() as stack:
            if loaded in self._campus.plan.closed:
                late = await self._awaited(loaded, remote)
                async with self._growing:
                    remote.refusal = await self._add(late, stack)
            await remote.watch()

    async def _awaited(self, loaded: LoadedBuilding, remote: RemoteServer) -> OpenBuilding:
        wait = FIRST_WAIT
        while True:
            await anyio.sleep(wait)
            wait = min(2 * wait, LONGEST_WAIT)
            try:
                return await open_server(loaded, per_call=self._campus.plan.pricing is not None, seconds=LATE_SECONDS)
            except Unreachable:
                remote.refusal = None
            except Exception as error:  # the border: it answers, and what it offers cannot be served
                remote.refusal = _logged(loaded.name, error)

    async def _add(self, late: OpenBuilding, stack: AsyncExitStack) -> str | None:
        """Serve it from now on; why not, where its tools do not fit in with the others."""
        before = self._campus
        try:
            plan = before.plan.with_opened(late)
            self._campus = replace(before, plan=replace(plan, directory=before.plan.directory))
            await stack.enter_async_context(self.opened(late))
            before.plan.directory.take(plan.directory)  # the sites have it
            self.routed()
        except Exception as error:  # the border: what another server lists must not end this one
            self._campus = before
            return _logged(late.name, error)
        log.info("building opened", extra={"building": late.name})
        return None


def _logged(building: str, error: Exception) -> str:
    is_foreseen = isinstance(error, CampusError)
    log.error("building cannot be opened", exc_info=None if is_foreseen else error, extra={"building": building, "reason": str(error)})
    return (
        str(error) if is_foreseen else f"building {building!r}: its tools cannot be served ({type(error).__name__}); the log has the cause"
    )


def door_of(campus: Campus) -> PaymentGate | None:
    """The second way in, where campus.toml opens it."""
    pricing, payments = campus.plan.pricing, campus.payments
    return PaymentGate(pricing, payments.processor, payments.ledger.offered) if pricing and payments else None


@asynccontextmanager
async def open_mcp(campus: Campus, opened: OpenBuilding, paywall: Paywall, payment_gate: PaymentGate | None) -> AsyncIterator[ASGIApp]:
    """A building's MCP endpoint, the paywall before everything else that its server does."""
    operations = {each.name: each for each in campus.plan.operations[opened.name]}
    inputs = {name: ArgumentChecker(opened.server, operation) for name, operation in operations.items()}
    paid = PaidCalls(payment_gate, operations, inputs) if payment_gate else None
    put_first(opened.server, PaywallMiddleware(campus.sites[opened.name], opened.offers, operations, inputs, paywall, paid))
    await serve_schemas(opened.server)
    app = opened.server.http_app(path=opened.mcp_path, stateless_http=True)
    async with app.router.lifespan_context(app):
        yield app


async def open_twins(campus: Campus, opened: OpenBuilding, paywall: Paywall, payment_gate: PaymentGate | None) -> Twins:
    """A building's HTTP twins, the paywall before every call."""
    offers, listed = opened.offers, tuple(opened.tools.values())
    guarded = gate(campus.sites[opened.name], offers, paywall, payment_gate)

    def is_link(operation: Operation) -> bool:
        return operation.cache is not None and offers[operation.name].access.is_free

    return await Twins.open(opened.server, name=opened.name, gate=guarded, listed=listed, links=is_link, problem_types=EXPLAINED_AT)


@contextmanager
def errors_as_raised() -> Iterator[None]:
    """An error of the body as it is: the task groups of the MCP servers wrap it into groups of one."""
    try:
        yield
    except BaseExceptionGroup as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        raise error from None
