"""A call of a tool over MCP as its gate sees it, whoever runs the tool; and its result as bytes, as mcp would send them."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

import orjson
from fastmcp import FastMCP
from fastmcp.exceptions import FastMCPError, ToolError
from fastmcp.server.telemetry import server_span
from fastmcp.tools.base import InputRequiredToolResult, ToolResult
from mcp import MCPError
from mcp_types import MISSING_REQUIRED_CLIENT_CAPABILITY, InputRequiredResult, Result, TextContent
from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError
from starlette.types import Scope

from twins.fastmcp import CrashError, has_wire_form, result_on_wire, server_stamp, with_wire_meta
from twins.mcp.exchange import EXCHANGE
from twins.mcp.messages import MODERN, ServerAnswers
from twins.problems import Problem
from twins.tool.arguments import ArgumentChecker
from twins.tool.context import ToolContext, reset
from twins.tool.direct_call import DirectTool
from twins.tool.errors import ToolTimeoutProblem, log_failure
from twins.tool.hang_up import ClientDisconnectedError, Interruptible
from twins.tool.operation import Operation
from twins.tool.results import InvalidResultProblem, KeptLast, ResultWriter, json_of

WRAPPED: Mapping[str, Any] = {"fastmcp": {"wrap_result": True}}
"""The `_meta` that FastMCP adds to a result which it wrapped into an object."""

TOOL_NAMES = b'"toolNames"'
"""A member by which an interface names tools: FastMCP writes the names under which this server lists them."""


class AsksForInputError(Exception):
    """The tool asks its caller for input first, which only the server's own app can seal and send."""


class EncodedResult:
    """A result as the beginning of a JSON object, without the closing brace, and its `_meta`, which a gate may replace.

    `structured` is its structured content, which is in `members` too, as HTTP sends it.
    """

    __slots__ = ("members", "meta", "structured")

    def __init__(self, members: bytes, meta: Mapping[str, Any] | None, structured: bytes) -> None:
        self.members = members
        self.meta = meta
        self.structured = structured


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


class McpResultEncoder:
    """Writes the results of one operation, and keeps the bytes of the last one. What is no data becomes a ToolResult, as in FastMCP."""

    def __init__(self, operation: Operation, writer: ResultWriter, *, refuses: bool) -> None:
        """With `refuses`, what is not as published is a Problem; else FastMCP sends it, or refuses it in its own words."""
        self._refuses = refuses
        self._tool = operation.tool
        self._writer = writer
        self._kept = KeptLast(self._encode, is_plain=self._writer.is_plain)

    def encode(self, value: Any) -> EncodedResult | ToolResult:
        """The result for the return value of the tool's function. Raises as FastMCP's own conversion, or AsksForInputError."""
        made = self._kept.of(value)
        return EncodedResult(*made) if isinstance(made, tuple) else made

    def _encode(self, value: Any) -> tuple[bytes, Mapping[str, Any] | None, bytes] | ToolResult:
        writer = self._writer
        if writer.is_data(value):
            try:
                body = writer.write(value)
            except PydanticSerializationError:
                body = b""
            except InvalidResultProblem:
                if self._refuses:
                    raise
                body = b""
            if writer.wraps and body:
                # a text is sent as it is; an empty list and null have no content, but NaN, which becomes null, has
                text = body if body.startswith(b'"') else orjson.dumps(body.decode())
                is_empty = body == b"[]" or (body == b"null" and not isinstance(value, float))
                blocks = b"" if is_empty else b'{"type":"text","text":%b}' % text
                structured = b'{"result":%b}' % body
                return b'{"content":[%b],"structuredContent":%b,"isError":false' % (blocks, structured), WRAPPED, structured
            if body.startswith(b"{") and TOOL_NAMES not in body:
                return members_of(body, orjson.dumps(body.decode())), None, body
        elif isinstance(value, InputRequiredResult | InputRequiredToolResult):
            raise AsksForInputError
        result = self._tool.convert_result(value)
        if self._refuses:
            writer.contract.check_result(result)
        return result


def members_of(structured: bytes, text: bytes, *, is_error: bool = False) -> bytes:
    flag = b"true" if is_error else b"false"
    return b'{"content":[{"type":"text","text":%b}],"structuredContent":%b,"isError":%b' % (text, structured, flag)


class ResultFinisher:
    def __init__(self, server: FastMCP[Any]) -> None:
        self._server = server
        self._stamp = server_stamp(server)
        self._modern_end = b',"resultType":"complete","_meta":%b}' % orjson.dumps(self._stamp)

    async def finish(self, result: EncodedResult | ToolResult, version: str) -> Sequence[bytes]:
        members = result.members if isinstance(result, EncodedResult) else plain_members(result)
        meta = result.meta
        if members is None:
            assert isinstance(result, ToolResult)
            return (await self._converted(result, version),)
        if version != MODERN:
            return (members, b',"_meta":', json_of(meta), b"}") if meta is not None else (members, b"}")
        if not meta:
            return members, self._modern_end
        return members, b',"resultType":"complete","_meta":', json_of({**meta, **self._stamp}), b"}"

    async def _converted(self, result: ToolResult, version: str) -> bytes:
        dumped = await result_on_wire(self._server, result, version)
        if version == MODERN:
            dumped["_meta"] = {**self._stamp, **(dumped.get("_meta") or {})}
        return json_of(dumped)


def plain_members(result: ToolResult) -> bytes | None:
    """The members of a refusal: an error with one text and structured content. None for any other result, which mcp's models write."""
    match result:
        case ToolResult(content=[TextContent(annotations=None, meta=None) as block], structured_content=dict(body), is_error=True):
            return None if has_wire_form(result) else members_of(json_of(body), json_of(block.text), is_error=True)
    return None
