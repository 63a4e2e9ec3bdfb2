"""Whether tools may be called without their server: only where FastMCP has, and does, what a direct call needs. Tried once, at start."""

from collections.abc import Coroutine
from functools import cache
from typing import Any

from fastmcp import FastMCP
from fastmcp.server.dependencies import get_context, get_http_request, get_server
from fastmcp.tools import Tool
from mcp_types.version import LATEST_MODERN_VERSION

from twins.fastmcp import MISSING, CrashError, result_on_wire, server_stamp
from twins.tool.context import ToolContext


def why_slow() -> str | None:
    """Why nothing is called directly with this FastMCP: a name that it lacks, or what one of them does now; None where all is well."""
    return f"it has no {', '.join(MISSING)}" if MISSING else _fault()


@cache
def _fault() -> str | None:
    try:
        return _tried()
    except Exception as error:  # the border to a release that nobody knows: it may raise anything
        return f"{type(error).__name__}: {error}"


def _tried() -> str | None:
    """A call that sees its request, a result as it is sent, and a crash as it is told: each as the server would."""
    server: FastMCP[Any] = FastMCP("probe", mask_error_details=True)
    with ToolContext(server).entered({"type": "http", "method": "GET", "path": "/", "headers": [], "request_id": "r"}):
        seen = get_server(), get_context().request_id, get_http_request().scope["request_id"], get_context().lifespan_context
    if seen != (server, "r", "r", {}):
        return "a tool that is called directly does not see its request"
    tool = Tool.from_function(_numbers)
    sent = _value_of(result_on_wire(server, tool.convert_result([1]), LATEST_MODERN_VERSION))
    if not sent.items() >= SENT.items() or "x-fastmcp-wrap-result" not in (tool.output_schema or {}):
        return "a result is sent in another form"
    if not all(server_stamp(server).values()) or str(CrashError(server, tool, KeyError())) != "Error calling tool '_numbers'":
        return "a server tells its name or its crashes in another way"
    return None


def _numbers() -> list[int]:
    return [1]


SENT = {"content": [{"type": "text", "text": "[1]"}], "structuredContent": {"result": [1]}, "isError": False, "resultType": "complete"}


def _value_of(coroutine: Coroutine[Any, Any, dict[str, Any]]) -> dict[str, Any]:
    """What a coroutine returns that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as finished:
        return dict(finished.value)
    raise RuntimeError("a result is not sent at once")
