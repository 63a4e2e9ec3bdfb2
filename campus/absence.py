"""What callers are told at the addresses of a building whose server is away and whose tools are not known yet."""

from collections.abc import Sequence
from typing import Any

import mcp_types
from fastmcp import FastMCP
from fastmcp.server.middleware import CallNext, Middleware, MiddlewareContext
from fastmcp.tools import Tool
from fastmcp.tools.base import ToolResult
from mcp import MCPError
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from campus.catalog.loader import LoadedBuilding
from campus.paywall.mcp import current_scope
from campus.paywall.mcp_problems import refusal
from campus.problems import upstream_unavailable


class AbsentFrame(Middleware):
    """No empty list, which would read as a server without tools, and 503 for every call."""

    async def on_list_tools(
        self, context: MiddlewareContext[mcp_types.ListToolsRequest], call_next: CallNext[mcp_types.ListToolsRequest, Sequence[Tool]]
    ) -> Sequence[Tool]:
        """An error of the protocol."""
        raise MCPError(code=mcp_types.INTERNAL_ERROR, message="the server behind this building cannot be reached just now; try again later")

    async def on_call_tool(
        self, context: MiddlewareContext[mcp_types.CallToolRequestParams], call_next: CallNext[mcp_types.CallToolRequestParams, ToolResult]
    ) -> ToolResult:
        """The problem as the tool's result."""
        return refusal(upstream_unavailable(), current_scope())


def absent_server(name: str) -> FastMCP[Any]:
    """An MCP server in the place of one that is away."""
    return FastMCP(name, middleware=[AbsentFrame()])


def absent_routes(loaded: LoadedBuilding, *, documents: str) -> list[Route]:
    """The HTTP addresses that are surely the building's: its own prefix, and the routes that campus.toml gives its tools.

    `documents` names the building whose document /openapi.json is.
    """
    name = loaded.name
    said = [word.route.rpartition(" ")[2] for word in loaded.table.tools.values() if word.route]
    paths = [f"/v1/{name}", f"/v1/{name}/{{rest:path}}", f"/{name}/openapi.json", *said]
    return [Route(path, _Absent()) for path in dict.fromkeys([*paths, *(["/openapi.json"] if documents == name else [])])]


class _Absent:
    """Answers 503 to every method."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raise upstream_unavailable()
