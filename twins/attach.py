"""Makes the HTTP routes (twins) of a server's tools, and serves them with its MCP endpoint in one ASGI app."""

import logging
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

import anyio
import fastmcp
from fastmcp import FastMCP
from fastmcp.server.http import StarletteWithLifespan
from fastmcp.tools import Tool
from pydantic_core import to_json
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Receive, Scope, Send

from twins.catalog import Catalog
from twins.documents.openapi import openapi
from twins.fastmcp import every_tool, serve_schemas
from twins.http.call import Gate, Twin
from twins.http.responses import Answer, json_answer, or_not_modified, send_answer
from twins.http.routes import RouteEntry, RouteTable
from twins.mcp.bodies import McpBodies
from twins.mcp.endpoint import DirectMcp
from twins.problems import NO_TYPE
from twins.tool.annotation import BODY_LIMIT
from twins.tool.arguments import ArgumentChecker
from twins.tool.operation import Operation, operation_of

DOCUMENT = "/openapi.json"
DirectMode = Literal["on", "off", "explain"]
logger = logging.getLogger(__name__)


async def operations_of(
    server: FastMCP[Any], *, name: str | None = None, default_prefix: str | None = None, gated: bool = False
) -> tuple[Operation, ...]:
    """The operations of all tools that a server lists.

    `name` is the server's name in routes and documents (default: its own, as a slug). A tool without a route is served
    at `{default_prefix}/<tool>` (default: /v1/<name>). With `gated`, tools may have `auth=`: a gate says who calls them, in
    `scope["user"]`, and what `auth=` then refuses is a Problem 403. Then they may also run as background tasks only, which the
    gate has to begin.

    Raises ValueError, with a sentence that names the tool, if one cannot be served.
    """
    name = name or slug(server.name)
    return tuple(operation_from(tool, name=name, default_prefix=default_prefix, gated=gated) for tool in await every_tool(server))


def operation_from(tool: Tool, *, name: str, default_prefix: str | None = None, gated: bool = False) -> Operation:
    """The operation of one tool of the server that has this name; see `operations_of`."""
    if tool.auth is not None and not gated:
        raise ValueError(f"tool {tool.name!r} has auth=, which hides it from callers without a reason; use a gate instead")
    if tool.task_config.mode == "required" and not gated:
        raise ValueError(f"tool {tool.name!r} runs only as a background task, which cannot be called over HTTP without a gate")
    return operation_of(tool, server=name, default_prefix=default_prefix or f"/v1/{name}")


def is_cached(operation: Operation) -> bool:
    return operation.cache is not None


@dataclass(frozen=True)
class Twins:
    """The HTTP twins of one server's tools: their operations, and the table of their routes."""

    operations: tuple[Operation, ...] = ()
    table: RouteTable = field(default_factory=RouteTable)

    @classmethod
    async def open(
        cls,
        server: FastMCP[Any],
        *,
        name: str | None = None,
        default_prefix: str | None = None,
        gate: Gate | None = None,
        is_link: Callable[[Operation], bool] = is_cached,
        problem_types: str = NO_TYPE,
        body_limit: int = BODY_LIMIT,
    ) -> "Twins":
        """The twins of all tools that a server lists: `operations_of` and `Twins.of` in one step."""
        operations = await operations_of(server, name=name, default_prefix=default_prefix)
        return cls.of(server, operations, gate=gate, is_link=is_link, problem_types=problem_types, body_limit=body_limit)

    @classmethod
    def of(
        cls,
        server: FastMCP[Any],
        operations: Iterable[Operation],
        *,
        gate: Gate | None = None,
        checkers: Mapping[str, ArgumentChecker] | None = None,
        is_watched: bool = False,
        is_link: Callable[[Operation], bool] = is_cached,
        problem_types: str = NO_TYPE,
        body_limit: int = BODY_LIMIT,
    ) -> "Twins":
        """The twins of these operations. Once the server has changed, it is asked for each call, unless the caller looks (`is_watched`).

        `gate` runs before every call. `checkers` are the operations' argument checkers by tool name, if the MCP side uses
        them too. `is_link` decides which addresses are shared as links: query parameters that advertising and mailing
        services add (utm_source, fbclid and the like) are ignored there, and rejected elsewhere like any unknown name
        (default: where answers may be cached). `problem_types` is the address under which problem codes are explained, such
        as "/errors/". `body_limit` is the bytes that
        the body of a request may have, where a tool declares nothing else.

        Raises ValueError if the server requires a login and there is no gate, or if two operations use one route.
        """
        if server.auth is not None and gate is None:
            raise ValueError(
                f"the server {server.name!r} requires a login (auth=), which its HTTP routes would bypass; use Twins.open(server, gate=…)"
            )
        operations = tuple(operations)
        catalog = Catalog(server, gated=gate is not None)
        entries = []
        for operation in operations:
            checker = checkers[operation.name] if checkers is not None else ArgumentChecker(server, operation, catalog=catalog)
            link = is_link(operation)
            limit = operation.body_limit(body_limit)
            seen = None if is_watched else catalog
            twin = Twin(server, checker, gate=gate, catalog=seen, body_limit=limit, is_link=link, problem_types=problem_types)
            name = f"the tool {operation.name} ({operation.server})"
            entries += [RouteEntry(methods, path, twin, name) for methods, path in operation.routes]
        return cls(operations, RouteTable(entries, problem_types=problem_types))


def slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "server"


@dataclass(kw_only=True)
class _LiveTwins:
    server: FastMCP[Any]
    name: str
    mcp_path: str
    stateless: bool
    direct_mcp: DirectMode
    body_limit: int
    _table: RouteTable = field(default_factory=RouteTable)
    _checkers: Sequence[ArgumentChecker] = ()
    _catalog: Catalog | None = None
    _mcp: tuple[Catalog | None, ASGIApp] | None = None
    _lock: anyio.Lock = field(default_factory=anyio.Lock)

    async def open(self) -> None:
        await self._take(await Catalog.of(self.server), at_start=True)

    async def renew_if_changed(self, *, below: bool = False) -> None:
        """List the tools anew if the server has changed; with `below`, also what is mounted in it."""
        catalog = self._catalog
        if catalog is None or await (catalog.holds_below() if below else catalog.holds()):
            return
        async with self._lock:
            if self._catalog is catalog:
                await self._take(await Catalog.of(self.server), at_start=False)

    async def _take(self, catalog: Catalog, *, at_start: bool) -> None:
        checkers: list[ArgumentChecker] = []
        entries: list[RouteEntry] = []
        for tool in catalog.tools:
            try:
                operation = operation_from(tool, name=self.name)
                checker = ArgumentChecker(self.server, operation, catalog=catalog)
                twins = Twins.of(self.server, [operation], checkers={tool.name: checker}, is_watched=True, body_limit=self.body_limit)
                own = twins.table.entries
                if RouteTable(own).find(self.mcp_path):
                    hint = "give its tool another one, or attach() an mcp_path="
                    raise ValueError(f"the route {operation.path} hides the MCP endpoint; {hint}")
                slashes = {entry.path.count("/") for entry in own}
                RouteTable([*(each for each in entries if each.path.count("/") in slashes), *own])  # raises if one is taken
            except ValueError as error:
                if at_start:
                    raise
                logger.error("a tool that was added is not served over HTTP: %s", error)
                continue
            checkers.append(checker)
            entries += own
        await serve_schemas(self.server)
        document = _document(self.server, [each.operation for each in checkers])
        self._table, self._checkers, self._catalog = RouteTable([*entries, document]), checkers, catalog

    def mcp(self, own: ASGIApp) -> ASGIApp:
        if self._mcp is None or self._mcp[0] is not self._catalog:  # once for each catalog
            explains = self.direct_mcp == "explain"
            app = own
            if self.direct_mcp != "off":
                app = DirectMcp(own, self.server, self._checkers, catalog=self._catalog, stateless=self.stateless, explains=explains)
            operations = [each.operation for each in self._checkers]
            self._mcp = self._catalog, McpBodies(app, operations, body_limit=self.body_limit)
        return self._mcp[1]

    def around(self, app: ASGIApp) -> ASGIApp:
        """The twins and the document at their paths, the MCP endpoint at its own, the rest of the app at all others.

        Paths are those below the app's own: it may be mounted in another app.
        """

        async def twins_first(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            await self.renew_if_changed()
            path = scope["path"].removeprefix(scope.get("root_path", ""))
            if path == self.mcp_path:
                await self.mcp(app)(scope, receive, send)
            elif (found := await self._found(scope, path)) is not None:
                endpoint, scope["path_params"] = found
                await endpoint(scope, receive, send)
            else:
                await app(scope, receive, send)

        return twins_first

    async def _found(self, scope: Scope, path: str) -> tuple[ASGIApp, dict[str, str]] | None:
        if (found := self._table.find(path)) is not None or self._catalog is None:
            return found
        await self.renew_if_changed(below=True)
        if (found := self._table.find(path)) is not None:
            return found
        operations = [operation_from(tool, name=self.name, gated=True) for tool in await self._catalog.only_for(scope)]
        return Twins.of(self.server, operations, body_limit=self.body_limit).table.find(path)


def attach(
    server: FastMCP[Any],
    *,
    name: str | None = None,
    mcp_path: str = "/mcp",
    stateless: bool | None = None,
    direct_mcp: DirectMode = "on",
    body_limit: int = BODY_LIMIT,
) -> StarletteWithLifespan:
    """An ASGI app of any FastMCP server: its MCP endpoint, a twin of every tool, and /openapi.json.

    `uvicorn.run(attach(mcp))`; in another app: `Starlette(routes=[Mount("/tools", app)], lifespan=app.lifespan)`. The tools are
    listed when the app starts: then it raises ValueError if one cannot be served, as `operations_of` and `Twins.of` do. Later changes of
    the server are seen by the next request; a tool that cannot be served then is left out, and logged. `name` is the server's name in
    routes (default: its own, as a slug), `mcp_path` the path of its MCP endpoint.

    Plain MCP requests are answered without the server's own app, unless `direct_mcp` is off or FastMCP's setting json_response
    is on; with `explain` a header of each answer says which way it took. `stateless` serves the versions with a handshake
    without sessions, which makes them as quick as the current version (default: FastMCP's setting stateless_http). `body_limit` is
    the bytes that the body of a request may have, over HTTP and MCP, where a tool declares nothing else.
    """
    stateless = fastmcp.settings.stateless_http if stateless is None else stateless
    if fastmcp.settings.json_response:
        direct_mcp = "off"
    live = _LiveTwins(
        server=server,
        name=name or slug(server.name),
        mcp_path=mcp_path,
        stateless=stateless,
        direct_mcp=direct_mcp,
        body_limit=body_limit,
    )
    app = server.http_app(path=mcp_path, stateless_http=stateless, middleware=[Middleware(live.around)])
    start = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[Any]:
        async with start(app) as state:
            await live.open()
            yield state

    app.router.lifespan_context = lifespan
    return app


def _document(server: FastMCP[Any], operations: Sequence[Operation]) -> RouteEntry:
    version = "0" if server.version in (None, fastmcp.__version__) else server.version  # an author who names none has FastMCP's
    about = server.instructions or ""

    @cache
    def answer_at(root: str) -> Answer:
        document = openapi(operations, title=server.name, version=version, description=about, servers=[root] if root else ())
        return json_answer(to_json(document), cache="no-cache")  # may be stored, and is revalidated each time

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        answer = answer_at(scope.get("root_path", ""))  # where the app is mounted, which no caller decides
        await send_answer(send, or_not_modified(answer, scope), with_body=scope["method"] != "HEAD")

    answer_at("")  # a mistake in a schema is told at start

    return RouteEntry(("GET", "HEAD"), DOCUMENT, serve, "the OpenAPI document")
