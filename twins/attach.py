"""Makes the HTTP routes (twins) of a server's tools, and serves them with its MCP endpoint in one ASGI app."""

import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

import fastmcp
from fastmcp import FastMCP
from fastmcp.server.http import StarletteWithLifespan
from fastmcp.tools import Tool
from pydantic_core import to_json
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Receive, Scope, Send

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
    tools = await every_tool(server)
    for tool in tools:
        _check(tool, gated=gated)
    return tuple(operation_of(tool, server=name, default_prefix=default_prefix or f"/v1/{name}") for tool in tools)


def is_cached(operation: Operation) -> bool:
    """True if others may store the operation's answers."""
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
        is_link: Callable[[Operation], bool] = is_cached,
        problem_types: str = NO_TYPE,
        body_limit: int = BODY_LIMIT,
    ) -> "Twins":
        """The twins of these operations. The server's middleware must be complete: later changes make calls slower.

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
        entries = []
        for operation in operations:
            checker = checkers[operation.name] if checkers is not None else ArgumentChecker(server, operation)
            link = is_link(operation)
            limit = operation.body_limit(body_limit)
            twin = Twin(server, checker, gate=gate, body_limit=limit, is_link=link, problem_types=problem_types)
            entries.append(RouteEntry(operation.served_methods, operation.path, twin, f"the tool {operation.name} ({operation.server})"))
        return cls(operations, RouteTable(entries, problem_types=problem_types))


def slug(text: str) -> str:
    """A name as a part of a path: lower case, with a dash for every other character."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "server"


def _check(tool: Tool, *, gated: bool) -> None:
    if tool.auth is not None and not gated:
        raise ValueError(f"tool {tool.name!r} has auth=, which hides it from callers without a reason; use a gate instead")
    if tool.task_config.mode == "required" and not gated:
        raise ValueError(f"tool {tool.name!r} runs only as a background task, which cannot be called over HTTP without a gate")


@dataclass
class _Attached:
    """What an attached app serves besides its server: nothing before its lifespan begins. `mcp` makes the MCP endpoint."""

    mcp_path: str
    table: RouteTable = field(default_factory=RouteTable)
    mcp: Callable[[ASGIApp], ASGIApp] | None = None


class _TwinsFirst:
    """ASGI middleware: the twins and the document at their paths, the MCP endpoint at its own, the rest of the app at all others.

    Paths are those below the app's own: it may be mounted in another app.
    """

    def __init__(self, app: ASGIApp, attached: _Attached) -> None:
        self._app = app
        self._attached = attached
        self._mcp: tuple[Any, ASGIApp] = None, app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        attached = self._attached
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if (found := attached.table.find(path)) is not None:
            endpoint, scope["path_params"] = found
            await endpoint(scope, receive, send)
        elif attached.mcp is not None and path == attached.mcp_path:
            if self._mcp[0] is not attached.mcp:  # once for each lifespan
                self._mcp = attached.mcp, attached.mcp(self._app)
            await self._mcp[1](scope, receive, send)
        else:
            await self._app(scope, receive, send)


def attach(
    server: FastMCP[Any],
    *,
    name: str | None = None,
    mcp_path: str = "/mcp",
    stateless: bool | None = None,
    direct_mcp: Literal["on", "off", "explain"] = "on",
    body_limit: int = BODY_LIMIT,
) -> StarletteWithLifespan:
    """An ASGI app of any FastMCP server: its MCP endpoint, a twin of every tool, and /openapi.json.

    `uvicorn.run(attach(mcp))`; in another app: `Starlette(routes=[Mount("/tools", app)], lifespan=app.lifespan)`. The tools are
    listed when the app starts: then it raises ValueError if one cannot be served, as `operations_of` and `Twins.of` do. `name` is
    the server's name in routes (default: its own, as a slug), `mcp_path` the path of its MCP endpoint.

    Plain MCP requests are answered without the server's own app, unless `direct_mcp` is off or FastMCP's setting json_response
    is on; with `explain` a header of each answer says which way it took. `stateless` serves the versions with a handshake
    without sessions, which makes them as quick as the current version (default: FastMCP's setting stateless_http). `body_limit` is
    the bytes that the body of a request may have, over HTTP and MCP, where a tool declares nothing else.
    """
    stateless = fastmcp.settings.stateless_http if stateless is None else stateless
    is_direct = direct_mcp != "off" and not fastmcp.settings.json_response
    attached = _Attached(mcp_path)
    app = server.http_app(path=mcp_path, stateless_http=stateless, middleware=[Middleware(_TwinsFirst, attached)])
    start = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[Any]:
        async with start(app) as state:
            await serve_schemas(server)
            operations = await operations_of(server, name=name)
            checkers = {operation.name: ArgumentChecker(server, operation) for operation in operations}
            twins = Twins.of(server, operations, checkers=checkers, body_limit=body_limit)
            attached.table = RouteTable.merged([twins.table, RouteTable([_document(server, twins)])])
            if hiding := attached.table.find(mcp_path):
                raise ValueError(f"the route {hiding[0].path} hides the MCP endpoint; give its tool another one, or attach() an mcp_path=")

            def endpoint(own: ASGIApp) -> ASGIApp:
                explains = direct_mcp == "explain"
                app = DirectMcp(own, server, checkers.values(), stateless=stateless, explains=explains) if is_direct else own
                return McpBodies(app, operations, body_limit=body_limit)

            attached.mcp = endpoint
            yield state

    app.router.lifespan_context = lifespan
    return app


def _document(server: FastMCP[Any], twins: Twins) -> RouteEntry:
    version = "0" if server.version in (None, fastmcp.__version__) else server.version  # an author who names none has FastMCP's
    about = server.instructions or ""

    @cache
    def answer_at(root: str) -> Answer:
        document = openapi(twins.operations, title=server.name, version=version, description=about, servers=[root] if root else ())
        return json_answer(to_json(document), cache="no-cache")  # may be stored, and is revalidated each time

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        answer = answer_at(scope.get("root_path", ""))  # where the app is mounted, which no caller decides
        await send_answer(send, or_not_modified(answer, scope), with_body=scope["method"] != "HEAD")

    answer_at("")  # a mistake in a schema is told at start

    return RouteEntry(("GET", "HEAD"), DOCUMENT, serve, "the OpenAPI document")
