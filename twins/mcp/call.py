"""A call of a tool over MCP as its gate sees it: the same whether the server runs the tool or twins does."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from fastmcp import FastMCP
from fastmcp.exceptions import FastMCPError, ToolError
from fastmcp.server.telemetry import server_span
from fastmcp.tools.base import ToolResult
from mcp import MCPError
from mcp_types import MISSING_REQUIRED_CLIENT_CAPABILITY, Result, TextContent
from pydantic import BaseModel, ValidationError
from starlette.types import Scope

from twins.fastmcp import CrashError, has_wire_form, with_wire_meta
from twins.mcp.exchange import EXCHANGE
from twins.mcp.messages import ServerAnswers
from twins.mcp.results import AsksForInputError, EncodedResult, McpResultEncoder
from twins.problems import Problem
from twins.tool.arguments import ArgumentChecker
from twins.tool.context import ToolContext, reset
from twins.tool.direct_call import DirectTool
from twins.tool.errors import ToolTimeoutProblem, log_failure
from twins.tool.hang_up import ClientDisconnectedError, Interruptible
from twins.tool.operation import Operation

McpResult = ToolResult | EncodedResult | BaseModel
"""A tool's result, in a direct call perhaps as bytes; or what an extension of the server answered in a form of its own."""
logger = logging.getLogger(__name__)


class McpCall(NamedTuple):
    """One call over MCP. A gate may refuse it, let it run, and change the `_meta` of its result.

    `arguments` are as they were sent, `meta` is the request's `_meta`. `run` calls the tool: it raises what `server.call_tool`
    raises. In a direct call it may also raise ServerAnswers: the server's own app then receives the request as if nothing had
    happened, and the gate is asked again. A gate that waits for something else than the tool does so in `kept_alive(scope)`.
    When the caller of a direct call hangs up, the tool is cancelled, and `run` raises an exception that nobody needs to handle.
    """

    operation: Operation
    scope: Scope
    arguments: Mapping[str, Any]
    meta: Mapping[str, Any]
    run: Callable[[], Awaitable[McpResult]]
    is_direct: bool


McpGate = Callable[[McpCall], Awaitable[McpResult]]
"""Runs around every call over MCP. An exception that is no ToolError fails the request."""


def with_meta(result: McpResult, more: Mapping[str, Any]) -> McpResult:
    """The result with more members in its `_meta`."""
    if not isinstance(result, (ToolResult, EncodedResult, Result)):
        return result  # it has no `_meta`
    meta = {**(result.meta or {}), **more}
    if isinstance(result, EncodedResult):
        return EncodedResult(result.members, meta, result.structured)
    if isinstance(result, ToolResult) and has_wire_form(result):
        return with_wire_meta(result, meta)
    return result.model_copy(update={"meta": meta})  # the tool may return the same object to everyone


async def without_gate(call: McpCall) -> McpResult:
    """The gate of a server without one: errors become results, in FastMCP's words."""
    try:
        return await call.run()
    except FastMCPError as error:
        return ToolResult(content=[TextContent(type="text", text=str(error))], is_error=True)


class DirectMcpTool:
    """One tool of a server, called over MCP without the server."""

    def __init__(self, server: FastMCP[Any], checker: ArgumentChecker, direct: DirectTool, *, refuses: bool) -> None:
        """With `refuses`, arguments that are not valid are a Problem; else the server says so in FastMCP's words."""
        self._refuses = refuses
        self.operation = checker.operation
        self._server = server
        self._checker = checker
        self._direct = direct
        self._encoder = McpResultEncoder(checker.operation, checker.results, refuses=refuses)
        self._context = ToolContext(server)
        self._calls = Interruptible()

    async def run(self, arguments: dict[str, Any], scope: Scope) -> McpResult:
        """The tool's result. Raises as `server.call_tool`; ServerAnswers for arguments that only the server may judge."""
        tool = self.operation.tool
        validated = self._validated(arguments)
        try:
            return self._encoder.encode(await self._calls.run(self._direct.run(validated, scope), scope[EXCHANGE]))
        except ToolTimeoutProblem as error:
            cause = error.as_raised_by_fastmcp(tool.name)
            raise CrashError(self._server, tool, cause) from cause
        except FastMCPError as error:
            logger.log(error.log_level, "a tool refused or failed: %r", tool.name)
            raise
        except (AsksForInputError, ClientDisconnectedError, ServerAnswers):
            raise
        except Exception as error:
            if isinstance(error, MCPError) and error.error.code == MISSING_REQUIRED_CLIENT_CAPABILITY:
                raise
            log_failure(error, self.operation, scope)
            raise CrashError(self._server, tool, error) from error

    async def run_traced(self, arguments: dict[str, Any], scope: Scope) -> McpResult:
        """As `run`, in the telemetry span that FastMCP opens around a tool."""
        name = self.operation.name
        entered = self._context.enter(scope)
        try:
            with server_span(f"tools/call {name}", "tools/call", self._server.name, "tool", name, tool_name=name) as span:
                span.set_attributes(self.operation.tool.get_span_attributes())
                return await self.run(arguments, scope)
        finally:
            reset(entered)

    def _validated(self, arguments: dict[str, Any]) -> dict[str, Any]:
        try:
            if self._refuses:
                return self._checker.check(arguments)
            if self._checker.has_false_numbers(arguments):
                raise ServerAnswers("what is sent as a number is none")
            return self._direct.validate(arguments)
        except ServerAnswers:
            raise
        except (ValidationError, ToolError) as error:
            if self._refuses and isinstance(error, Problem):
                raise
            raise ServerAnswers("the arguments are not valid") from None
        except Exception:  # a validator of the author's failed: the server says so
            raise ServerAnswers("the arguments cannot be validated") from None
