"""Opening a server's twins, and the one line that puts them beside its MCP endpoint: the only module that does I/O."""

import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from fastmcp import FastMCP
from fastmcp.tools import Tool
from pydantic_core import to_json
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Receive, Scope, Send

from twins.call import Gate, Way
from twins.endpoint import Twin
from twins.fastmcp_internals import every_tool, serve_schemas
from twins.openapi import openapi
from twins.operation import Operation, operation_of
from twins.problems import NO_TYPE
from twins.responses import json_answer, or_not_modified, send_answer
from twins.routes import RouteEntry, RouteTable

ONE_MEBIBYTE = 1 << 20
DOCUMENT = "/openapi.json"


@dataclass(frozen=True)
class Twins:
    """The HTTP twins of one server's tools."""

    operations: tuple[Operation, ...] = ()
    table: RouteTable = field(default_factory=RouteTable)

    @classmethod
    async def open(
        cls,
        server: FastMCP[Any],
        *,
        gate: Gate | None = None,
        listed: Sequence[Tool] | None = None,
        tools: Callable[[Tool], Tool | None] = lambda tool: tool,
        links: Callable[[Operation], bool] = lambda operation: operation.cache is not None,
        name: str | None = None,
        default_prefix: str | None = None,
        problem_types: str = NO_TYPE,
        body_limit: int = ONE_MEBIBYTE,
    ) -> "Twins":
        """Make the twins of a server's tools, of those that are `listed` or else of all.

        `gate` stands before every call. `tools` sees each tool first: it gives the tool to serve (a copy with other
        meta, say) or None to leave it out. `links` says whose addresses are shared as links: query parameters that
        advertising and mailing services add (utm_source, fbclid and the like) are ignored there, and refused elsewhere like
        any unknown name (default: where answers may be cached). `name` stands for the server in routes and documents (default: its own, as
        a slug); a tool that says no route is served at `{default_prefix}/<tool>` (default: /v1/<name>).
        `problem_types` is the address under which codes are explained, such as "/errors/". `body_limit` is in bytes.

        Raises ValueError, in a sentence that names the tool, where one cannot be served.
        """
        if server.auth is not None and gate is None:
            raise ValueError(f"the server {server.name!r} requires a login (auth=), which its HTTP routes would bypass; pass gate=")
        name = name or slug(server.name)
        operations, entries = [], []
        for registered in listed if listed is not None else await every_tool(server):
            tool = tools(registered)
            if tool is None:
                continue
            _check(registered)
            operation = operation_of(tool, server=name, default_prefix=default_prefix or f"/v1/{name}")
            way = Way(server, operation, registered=registered, body_limit=body_limit, is_link=links(operation))
            twin = Twin(way, gate=gate, problem_types=problem_types)
            operations.append(operation)
            entries.append(RouteEntry(operation.served, operation.path, twin, f"the tool {tool.name!r} of {name!r}"))
        return cls(tuple(operations), RouteTable(entries, problem_types=problem_types))


def slug(text: str) -> str:
    """A name as a part of a path: lower case, a dash for everything else."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "server"


def _check(tool: Tool) -> None:
    if tool.auth is not None:
        raise ValueError(f"tool {tool.name!r} has auth=, which hides it from callers instead of telling them; use a gate")
    if tool.task_config.mode == "required":
        raise ValueError(f"tool {tool.name!r} runs as a background task only, which HTTP has no twin of")


class _TwinsFirst:
    """ASGI middleware: twins and the document where a path is theirs, the rest of the app otherwise."""

    def __init__(self, app: ASGIApp, served: "_Served") -> None:
        self._app = app
        self._served = served

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = self._served.table.find(scope["path"]) if scope["type"] == "http" else None
        if found is None:
            await self._app(scope, receive, send)
        else:
            endpoint, scope["path_params"] = found
            await endpoint(scope, receive, send)


@dataclass
class _Served:
    """What an attached app serves: nothing before its lifespan begins."""

    table: RouteTable = field(default_factory=RouteTable)


def attach(server: FastMCP[Any], *, name: str | None = None, mcp_path: str = "/mcp") -> Starlette:
    """An ASGI app of any FastMCP server: its MCP endpoint, a twin of every tool, and /openapi.json.

    `uvicorn.run(attach(mcp))`. The tools are listed when the app starts.
    """
    served = _Served()
    app = server.http_app(path=mcp_path, middleware=[Middleware(_TwinsFirst, served)])
    start = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[Any]:
        async with start(app) as state:
            await serve_schemas(server)
            twins = await Twins.open(server, name=name)
            served.table = RouteTable.merged([twins.table, RouteTable([_document(server, twins)])])
            yield state

    app.router.lifespan_context = lifespan
    return app


def _document(server: FastMCP[Any], twins: Twins) -> RouteEntry:
    document = openapi(twins.operations, title=server.name, version=server.version or "0", description=server.instructions or "")
    answer = json_answer(to_json(document), cache="no-cache")  # kept, and asked for again each time

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        await send_answer(send, or_not_modified(answer, scope), with_body=scope["method"] != "HEAD")

    return RouteEntry(("GET", "HEAD"), DOCUMENT, serve, "the OpenAPI document")
