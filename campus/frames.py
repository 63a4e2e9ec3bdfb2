"""Both frames of one building, over MCP and HTTP, made of what its author's server is now; and what it shows to some callers only."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace

import anyio
from starlette.types import ASGIApp, Scope

from campus.app import Campus
from campus.catalog.authors import own_icons
from campus.catalog.loader import error_with_place
from campus.catalog.server import OpenBuilding
from campus.errors import LoadError, StorageUnavailable
from campus.http.mcp_sessions import IDLE_SECONDS, McpSessions
from campus.http_parts import HttpPart
from campus.keys.request_states import RequestStateKeys
from campus.paywall.gate import Gate
from campus.paywall.http import http_gate
from campus.paywall.mcp import McpPaywall
from campus.paywall.principal import Principals, enter, leave
from campus.problems import EXPLAINED_AT
from campus.steps import Entry
from twins import (
    THREADS,
    ArgumentChecker,
    DirectMcp,
    McpBodies,
    MethodTable,
    Operation,
    RouteEntry,
    Twins,
    WhileItHolds,
    serve_schemas,
)


@dataclass(frozen=True)
class Frames:
    opened: OpenBuilding
    gate: Gate
    server_app: ASGIApp
    mcp: ASGIApp
    routes: Sequence[RouteEntry]
    threads: anyio.CapacityLimiter


class FrameMaker:
    def __init__(self, campus: Campus, parts: Sequence[HttpPart]) -> None:
        self._campus = campus
        self._paywall = campus.paywall
        self._parts = parts
        self._request_states = RequestStateKeys(campus.core.storage, now=campus.core.now)
        self._mcp_sessions = McpSessions()

    @asynccontextmanager
    async def started(self, opened: OpenBuilding) -> AsyncIterator[ASGIApp]:
        for part in self._parts:
            part.prepare(opened)
        app = opened.server.http_app(
            path=opened.mcp_path,
            stateless_http=not opened.loaded.table.sessions,
            json_response=False,
            host_origin_protection=False,
            session_idle_timeout=IDLE_SECONDS,
        )
        async with AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(app.router.lifespan_context(app))
            except Exception as error:  # an author's lifespan may raise anything
                raise LoadError(f"the server of building {opened.name!r} cannot start: {error_with_place(error)}") from error
            yield app

    async def of(
        self, opened: OpenBuilding, server_app: ASGIApp, *, changed: ASGIApp, threads: anyio.CapacityLimiter | None = None
    ) -> Frames:
        """The frames of a building whose server is as in `opened`. `changed` answers once it is another one.

        Plain MCP requests are answered directly, unless the configuration turns that off; the others pass on to `server_app`.
        """
        await serve_schemas(opened.server)
        campus, table = self._campus, opened.loaded.table
        threads = threads or anyio.CapacityLimiter(THREADS)  # of its own: slow functions of one building delay no other
        checkers = self._checkers(opened, opened.operations, threads)
        gate = Gate(campus.sites[opened.name], opened.offers, self._paywall, campus.steps)
        entry = next((found for part in self._parts if (found := part.entry(opened, gate, checkers)) is not None), None)
        states, is_elsewhere = self._request_states, opened.loaded.late is not None
        mcp_gate = McpPaywall(
            gate,
            opened,
            checkers,
            synthetic=opened.synthetic,
            exposed=table.expose,
            states=states,
            entry=entry,
            title=table.title,
            website=None if is_elsewhere else campus.plan.config.url,
            icons=() if is_elsewhere else own_icons(campus.plan.config)[:1],
        )
        kept = mcp_gate.within(server_app)
        endpoint: ASGIApp = states.kept_current(
            Principals(self._mcp_sessions.around(kept) if table.sessions else kept, self._paywall, gate.scopes)
        )
        if (mode := campus.plan.config.server.direct_mcp) != "off":
            endpoint = DirectMcp(
                endpoint,
                opened.server,
                checkers.values(),
                catalog=opened.catalog,
                gate=mcp_gate,
                stateless=not table.sessions,
                explains=mode == "explain",
            )
        twins = self._twins(opened, opened.operations, checkers, gate, entry)
        routes = [replace(entry, app=WhileItHolds(entry.app, opened.catalog, changed)) for entry in twins.table.entries]
        mcp = WhileItHolds(McpBodies(endpoint, opened.operations.values()), opened.catalog, changed)
        return Frames(opened, gate, server_app, mcp, [*routes, *(entry.routes if entry else ())], threads)

    async def only_for(self, scope: Scope, frames: Frames) -> tuple[MethodTable, dict[str, str]] | None:
        opened = frames.opened
        if opened.catalog.is_constant:
            return None
        frames.gate.looked_up(scope)
        try:
            credential = self._paywall.peek(scope) or await self._paywall.find(scope)
        except StorageUnavailable:
            credential = None
        entered = enter(credential, scope, frames.gate.scopes)
        try:
            found = [made for tool in await opened.catalog.only_for(scope) if (made := opened.found(tool)) is not None]
        finally:
            leave(entered)
        for _, offer in found:
            frames.gate.offer(offer)
        operations = {operation.name: operation for operation, _ in found}
        checkers = self._checkers(opened, operations, frames.threads)
        return self._twins(opened, operations, checkers, frames.gate, None).table.find(scope["path"])

    def _checkers(
        self, opened: OpenBuilding, operations: Mapping[str, Operation], threads: anyio.CapacityLimiter
    ) -> dict[str, ArgumentChecker]:
        reveals = self._campus.plan.config.is_authors
        return {
            name: ArgumentChecker(opened.server, each, catalog=opened.catalog, threads=threads, reveals=reveals)
            for name, each in operations.items()
        }

    def _twins(
        self,
        opened: OpenBuilding,
        operations: Mapping[str, Operation],
        checkers: Mapping[str, ArgumentChecker],
        gate: Gate,
        entry: Entry | None,
    ) -> Twins:
        return Twins.of(
            opened.server,
            operations.values(),
            gate=http_gate(gate, entry.over_http if entry else None),
            checkers=checkers,
            is_watched=True,
            is_link=lambda operation: is_shared_link(gate, operation),
            problem_types=EXPLAINED_AT,
        )


def is_shared_link(gate: Gate, operation: Operation) -> bool:
    """True for addresses that people share: free tools whose answers may be cached."""
    return operation.cache is not None and gate.offers[operation.name].access.is_free
