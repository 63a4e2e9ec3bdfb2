"""A building whose server cannot be reached, or whose code cannot be loaded: an MCP server that says so, and its addresses."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import mcp_types
from fastmcp import FastMCP
from fastmcp.server.middleware import CallNext, Middleware, MiddlewareContext
from fastmcp.tools import Tool
from fastmcp.tools.base import ToolResult
from mcp import MCPError

from campus.catalog.loader import LoadedBuilding
from campus.catalog.server import document_paths
from campus.paywall.mcp import current_scope
from campus.paywall.results import refusal
from campus.problems import fixed_problem


class AbsentFrame(Middleware):
    """Middleware of such a building: an error for lists (an empty one would mean no tools), 503 for calls."""

    async def on_list_tools(
        self, context: MiddlewareContext[mcp_types.ListToolsRequest], call_next: CallNext[mcp_types.ListToolsRequest, Sequence[Tool]]
    ) -> Sequence[Tool]:
        """Raises an MCP error."""
        raise MCPError(
            code=mcp_types.INTERNAL_ERROR,
            message="the server behind this building cannot be reached or started at the moment; try again later",
        )

    async def on_call_tool(
        self, context: MiddlewareContext[mcp_types.CallToolRequestParams], call_next: CallNext[mcp_types.CallToolRequestParams, ToolResult]
    ) -> ToolResult:
        return refusal(fixed_problem("upstream_unavailable"), current_scope())


def absent_server(name: str) -> FastMCP[Any]:
    return FastMCP(name, middleware=[AbsentFrame()])


def absent_paths(closed: Iterable[LoadedBuilding], *, documents: str, taken: Iterable[str]) -> Sequence[str]:
    """The addresses of such buildings: their descriptions, and the routes that campus.toml sets for their tools.

    `documents` is the building whose OpenAPI document is at /openapi.json. What is `taken` by others stays theirs.
    """
    paths: list[str] = []
    for one in closed:
        overridden = [table.route.rpartition(" ")[2] for table in one.table.tools.values() if table.route]
        paths += [*document_paths(one), *overridden, *(["/openapi.json"] if documents == one.name else [])]
    used = {_shape(path) for path in taken}
    return [path for shape, path in {_shape(path): path for path in paths}.items() if shape not in used]


def _shape(path: str) -> str:
    return re.sub(r"\{\w+\}", "{}", path)
