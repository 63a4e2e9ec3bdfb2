"""A building whose tools belong to a server that cannot be reached: an MCP server and HTTP routes that say so."""

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
from campus.catalog.server import document_paths
from campus.paywall.mcp import current_scope, refusal
from campus.problems import upstream_unavailable


class AbsentFrame(Middleware):
    """Middleware of a building whose server cannot be reached: an error for lists (an empty one would mean no tools), 503 for calls."""

    async def on_list_tools(
        self, context: MiddlewareContext[mcp_types.ListToolsRequest], call_next: CallNext[mcp_types.ListToolsRequest, Sequence[Tool]]
    ) -> Sequence[Tool]:
        """Raises an MCP error."""
        raise MCPError(
            code=mcp_types.INTERNAL_ERROR, message="the server behind this building cannot be reached at the moment; try again later"
        )

    async def on_call_tool(
        self, context: MiddlewareContext[mcp_types.CallToolRequestParams], call_next: CallNext[mcp_types.CallToolRequestParams, ToolResult]
    ) -> ToolResult:
        """The problem as the tool's result."""
        return refusal(upstream_unavailable(), current_scope())


def absent_server(name: str) -> FastMCP[Any]:
    """An MCP server in place of one that cannot be reached."""
    return FastMCP(name, middleware=[AbsentFrame()])


def absent_routes(loaded: LoadedBuilding, *, documents: str) -> list[Route]:
    """Routes that answer 503: the building's own prefix, and the routes that campus.toml sets for its tools.

    `documents` is the building whose OpenAPI document is at /openapi.json.
    """
    name = loaded.name
    overridden = [table.route.rpartition(" ")[2] for table in loaded.table.tools.values() if table.route]
    paths = [*document_paths(loaded), f"/v1/{name}/{{rest:path}}", *overridden]
    return [Route(path, _Absent()) for path in dict.fromkeys([*paths, *(["/openapi.json"] if documents == name else [])])]


class _Absent:
    """Answers 503 to every method."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raise upstream_unavailable()
