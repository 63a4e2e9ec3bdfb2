"""The gate's reader and writer over MCP: calls from messages, refusals and stored answers as results."""

from collections.abc import Awaitable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import mcp_types
from fastmcp import FastMCP
from fastmcp.exceptions import NotFoundError, PromptError, ResourceError, ToolError, ValidationError
from fastmcp.server.dependencies import get_http_request
from fastmcp.server.middleware import CallNext, MiddlewareContext
from fastmcp.tools import Tool
from fastmcp.tools.base import InputRequiredToolResult, ToolResult
from mcp.server.request_state import RequestStateCodec
from mcp.shared.exceptions import NoBackChannelError
from pydantic import BaseModel
from starlette.types import ASGIApp, Receive, Scope, Send

from campus.caller import Frame
from campus.context import context_of
from campus.paywall.gate import Gate
from campus.paywall.results import body_of, refusal, result_of
from campus.pricing import Offer
from campus.steps import Answered, Entry
from twins import (
    ArgumentChecker,
    McpCall,
    McpResult,
    Operation,
    Problem,
    ServerAnswers,
    is_crash,
    kept_alive,
    problem_of,
    require_storable,
    unstorable_reason,
    with_meta,
)

NO_SESSION = (
    "this tool asks its caller in an MCP session (ctx.elicit and the like), and this service keeps no sessions; its author can have it"
    " return InputRequiredResult instead, or its operator let the building keep them (sessions = true)"
)
MCP_GATE = "campus.mcp_gate"
"""In the scope of a request that an author's server answers: the gate of the campus that received it."""


class GatedMcpCall:
    frame: Frame = "mcp"

    __slots__ = ("_call", "_checker", "route", "scope", "tool")

    def __init__(self, call: McpCall, checker: ArgumentChecker, server: str) -> None:
        self._call = call
        self._checker = checker
        self.scope = call.scope
        self.tool = call.operation.name
        self.route = f"{server}:{self.tool}"

    @property
    def method(self) -> str:
        return self._call.operation.methods[0]

    def run(self) -> Awaitable[McpResult]:
        return self._call.run()

    def body_of(self, result: McpResult) -> bytes | None:
        """Its structured content; its content blocks if there is none. None for an error and for a question to the caller."""
        if not isinstance(result, BaseModel):
            return result.structured
        if isinstance(result, mcp_types.InputRequiredResult | InputRequiredToolResult):
            return None
        if not isinstance(result, ToolResult):
            return result.model_dump_json(by_alias=True, exclude_none=True).encode()
        return body_of(result, self._call.operation)

    def noted(self, result: McpResult, key_ignored: str) -> McpResult:
        return with_meta(result, {"key_ignored": key_ignored})

    def with_meta(self, result: McpResult, meta: Mapping[str, Any]) -> McpResult:
        context_of(self.scope).added = meta
        return with_meta(result, meta)

    @property
    def meta(self) -> Mapping[str, Any]:
        return self._call.meta or {}

    async def sent(self) -> dict[str, Any] | None:
        arguments = dict(self._call.arguments)
        return None if unstorable_reason(arguments) else arguments

    async def canonical(self) -> dict[str, Any]:
        arguments = dict(self._call.arguments)
        require_storable(arguments)
        return self._checker.canonical(arguments)

    def waiting(self) -> AbstractContextManager[None]:
        return kept_alive(self.scope)

    def answered(self, answer: Answered, made: McpResult | None) -> McpResult:
        result = made or result_of(answer.body, self._call.operation)
        context_of(self.scope).added = answer.meta
        return with_meta(result, answer.meta)


class ServedTools(Protocol):
    @property
    def server(self) -> FastMCP[Any]: ...

    def listed(self, tools: Iterable[Tool]) -> list[Tool]: ...

    def found(self, tool: Tool) -> tuple[Operation, Offer] | None:
        """The operation and the offer of a tool that only some callers are shown."""
        ...


class McpPaywall:
    """The gate of one building's tools over MCP: every refusal and failure is a problem as the tool's result, never an HTTP status."""

    def __init__(
        self,
        gate: Gate,
        tools: ServedTools,
        checkers: Mapping[str, ArgumentChecker],
        *,
        synthetic: frozenset[str] = frozenset(),
        exposed: Collection[str] = (),
        states: RequestStateCodec | None = None,
        entry: Entry | None = None,
        title: str | None = None,
        website: str | None = None,
        icons: Sequence[mcp_types.Icon] = (),
    ) -> None:
        """`synthetic` are the names of the tools of tool search and code mode, which call the others. `entry` takes the calls of tasks.

        `title` is that of campus.toml; `website` and `icons` are those of the service, for a server without its own.
        """
        self.tools = tools
        self.server = tools.server
        self.synthetic = synthetic
        self.exposed = exposed
        self.states = states
        self.entry = entry
        self.title = title
        self.website = website
        self.icons = icons
        self.name = gate.site.name
        self.checkers = checkers
        self._gate = gate

    async def __call__(self, call: McpCall, *, checker: ArgumentChecker | None = None, is_task: bool = False) -> McpResult:
        """The result of the call, or its task. `checker` is that of a tool which only some callers are shown."""
        scope = call.scope
        checker = checker or self.checkers[call.operation.name]
        gated = GatedMcpCall(call, checker, self._gate.site.name)
        try:
            return await (self.entry.over_mcp(gated) if is_task and self.entry else self._gate.passed(gated))
        except ServerAnswers:
            context_of(scope).caller = None  # the server receives the request as if nothing had happened
            raise
        except (ToolError, ResourceError, PromptError) as error:  # the last two of a tool that reads a resource or a prompt
            if isinstance(error.__cause__, NoBackChannelError):
                return refusal(Problem(409, "input_required", NO_SESSION), scope)
            return refusal(problem_of(error, checker.operation, scope, is_logged=call.is_direct and is_crash(error)), scope)
        except ValidationError as error:
            is_tools_own = call.is_direct or error.__cause__ is None  # before a direct call the arguments were checked
            problem = problem_of(error, checker.operation, scope) if is_tools_own else checker.rejected(error.__cause__, call.arguments)
            return refusal(problem, scope)

    async def checker_of(self, name: str) -> ArgumentChecker:
        """The checker of a tool that the server shows this caller. Raises NotFoundError for any other."""
        if (known := self.checkers.get(name)) is not None:
            return known
        tool = await self.server.get_tool(name)
        if tool is None or (found := self.tools.found(tool)) is None:
            raise NotFoundError(f"Unknown tool: {name!r}")
        operation, offer = found
        self._gate.offer(offer)
        return ArgumentChecker(self.server, operation)

    def within(self, app: ASGIApp) -> ASGIApp:
        def asked(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
            scope[MCP_GATE] = self
            return app(scope, receive, send)

        return asked


async def checked(
    context: MiddlewareContext[mcp_types.CallToolRequestParams],
    call_next: CallNext[mcp_types.CallToolRequestParams, ToolResult],
    checker: ArgumentChecker,
) -> ToolResult:
    """The tool's result. Raises a Problem that names everything that is wrong with the arguments, as far as campus can check them."""
    arguments = context.message.arguments or {}
    checker.require_storable(arguments)
    checker.precheck(arguments)
    try:
        async with checker.thread():
            result = await call_next(context)
    except Problem as problem:
        raise checker.with_wrong_names(problem, arguments) from None
    except ToolError as error:
        if (unsendable := checker.unsendable(error)) is not None:
            raise unsendable from error
        raise  # its cause says whose fault it was
    checker.check_result(result)
    return result


def current_scope() -> Scope:
    try:
        return get_http_request().scope
    except RuntimeError:
        return {"type": "http", "headers": []}
