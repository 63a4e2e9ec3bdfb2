"""The gate's reader and writer over MCP: payments and receipts in `_meta`, refusals as results, and the middleware that asks the gate."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, cast

import mcp_types
from fastmcp.exceptions import NotFoundError, PromptError, ResourceError, ToolError, ValidationError
from fastmcp.server.dependencies import get_http_request
from fastmcp.server.middleware import CallNext, Middleware, MiddlewareContext
from fastmcp.tools import Tool
from fastmcp.tools.base import InputRequiredToolResult, ToolResult
from mcp.shared.exceptions import NoBackChannelError
from pydantic import BaseModel
from starlette.types import Scope

from campus.caller import Frame
from campus.context import CONTEXT, context_of
from campus.payments.payment import PaidAnswer, Payment
from campus.payments.wire import RECEIPT_META, idempotency_key_in, payment_in_meta
from campus.paywall.gate import Gate
from campus.paywall.listing import as_listed
from campus.paywall.results import body_of, refusal, result_of
from campus.pricing import Offer
from twins import (
    ArgumentChecker,
    McpCall,
    McpResult,
    Problem,
    ServerAnswers,
    is_crash,
    kept_alive,
    problem_of,
    requested_with,
    require_storable,
    runs_as_task,
    unstorable_reason,
    with_meta,
)

NO_SESSION = (
    "this tool asks its caller in an MCP session (ctx.elicit and the like), and this service keeps no sessions; its author can have it"
    " return InputRequiredResult instead, or its operator let the building keep them (sessions = true)"
)
RECEIPTS = "campus.receipts"
"""In the scope of a request that calls a tool of tool search or code mode: the receipts of the calls which that tool made."""


class GatedMcpCall:
    """One call over MCP, for the gate. `checker` is that of its tool, `server` the name of its building."""

    frame: Frame = "mcp"

    __slots__ = ("_call", "_checker", "route", "scope", "tool")

    def __init__(self, call: McpCall, checker: ArgumentChecker, server: str) -> None:
        """See GatedCall for the attributes and for what follows."""
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
        return body_of(result)

    def noted(self, result: McpResult, key_ignored: str) -> McpResult:
        return with_meta(result, {"key_ignored": key_ignored})

    def payment(self) -> Payment | None:
        return payment_in_meta(self._call.meta)

    async def sent(self) -> dict[str, Any] | None:
        arguments = dict(self._call.arguments)
        return None if unstorable_reason(arguments) else arguments

    async def canonical(self) -> dict[str, Any]:
        arguments = dict(self._call.arguments)
        require_storable(arguments)
        return self._checker.canonical(arguments)

    def is_quoted(self, offer: Offer) -> bool:
        """The arguments are read already."""
        return True

    def idempotency_key(self, sent: Mapping[str, Any] | None) -> str | None:
        return idempotency_key_in(self.scope, self._call.meta, sent)

    def waiting(self) -> AbstractContextManager[None]:
        return kept_alive(self.scope)

    def delivered(self, sold: PaidAnswer, made: McpResult | None) -> McpResult:
        """The tool's own result, or the stored one."""
        result = made or result_of(sold.answer, self._call.operation.tool)
        return with_meta(result, {RECEIPT_META: dict(sold.receipt)})


AsTask = Callable[[GatedMcpCall], Awaitable[ToolResult | BaseModel]]
"""Begins the task of a call, and returns it as MCP sends it; or the result of a call that was paid for before."""


class McpPaywall:
    """The gate of one building's tools over MCP: every refusal and failure is a problem as the tool's result, never an HTTP status."""

    def __init__(
        self, gate: Gate, checkers: Mapping[str, ArgumentChecker], synthetic: frozenset[str] = frozenset(), as_task: AsTask | None = None
    ) -> None:
        """`synthetic` are the names of the tools of tool search and code mode, which call the others. `as_task` begins tasks."""
        self.offers = gate.offers
        self.synthetic = synthetic
        self.name = gate.site.name
        self.checkers = checkers
        self._gate = gate
        self._as_task = as_task

    async def __call__(self, call: McpCall, *, is_task: bool = False) -> McpResult:
        """The result of the call, or its task."""
        scope = call.scope
        checker = self.checkers[call.operation.name]
        gated = GatedMcpCall(call, checker, self._gate.site.name)
        try:
            return await (self._as_task(gated) if is_task and self._as_task else self._gate.passed(gated))
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


class PaywallMiddleware(Middleware):
    """Asks the gate around each call that goes through the server, and lists every tool with its refusals."""

    twin_safe = True

    def __init__(self, gate: McpPaywall) -> None:
        self._gate = gate

    async def on_list_tools(
        self, context: MiddlewareContext[mcp_types.ListToolsRequest], call_next: CallNext[mcp_types.ListToolsRequest, Sequence[Tool]]
    ) -> Sequence[Tool]:
        """Every tool as callers see it."""
        return as_listed(await call_next(context))

    async def on_call_tool(
        self, context: MiddlewareContext[mcp_types.CallToolRequestParams], call_next: CallNext[mcp_types.CallToolRequestParams, ToolResult]
    ) -> ToolResult:
        """The gate's result for the call."""
        name = context.message.name
        if name not in self._gate.offers and name not in self._gate.synthetic:
            raise NotFoundError(f"Unknown tool: {name!r}")
        scope = current_scope()
        if context_of(scope).caller is not None:  # a call inside an admitted one: its failures belong to the outer call
            return await call_next(context)
        if name in self._gate.synthetic:
            return await self._searching(context, call_next, scope)
        if RECEIPTS in scope:
            return await self._found(context, call_next, scope)
        return await self._gated(context, call_next, scope)

    async def _searching(self, context: MiddlewareContext[Any], call_next: CallNext[Any, ToolResult], scope: Scope) -> ToolResult:
        """The result of a tool of tool search or code mode, which is open to all; the calls that it makes come back here."""
        context_of(scope).route = f"{self._gate.name}:{context.message.name}"
        receipts: list[Any] = scope.setdefault(RECEIPTS, [])
        result = await call_next(context)
        if not receipts or not isinstance(result, ToolResult) or RECEIPT_META in (result.meta or {}):
            return result
        return cast(ToolResult, with_meta(result, {RECEIPT_META: receipts[-1]}))

    async def _found(self, context: MiddlewareContext[Any], call_next: CallNext[Any, ToolResult], scope: Scope) -> ToolResult:
        """The result of a call that such a tool makes: admitted, and paid, as if the caller had made it, apart from all others."""
        around = context_of(scope)
        apart = {name: value for name, value in scope.items() if name != RECEIPTS}
        apart[CONTEXT] = replace(around, caller=None, is_counted=False, used_up=None, paid=None)
        with requested_with(apart):
            result = await self._gated(context, call_next, apart)
        around.status = context_of(apart).status
        around.limits = context_of(apart).limits
        if isinstance(result, ToolResult) and RECEIPT_META in (result.meta or {}):
            scope[RECEIPTS].append((result.meta or {})[RECEIPT_META])
        return result

    async def _gated(self, context: MiddlewareContext[Any], call_next: CallNext[Any, ToolResult], scope: Scope) -> ToolResult:
        name = context.message.name
        checker = self._gate.checkers[name]
        arguments = context.message.arguments or {}

        async def run() -> McpResult:
            return await checked(context, call_next, checker)

        call = McpCall(checker.operation, scope, arguments, _meta_of(context), run, is_direct=False)
        is_task = context.fastmcp_context is not None and runs_as_task(checker.operation.tool, context.fastmcp_context)
        # FastMCP passes on results of extensions too, without declaring it
        return cast(ToolResult, await self._gate(call, is_task=is_task))


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
            return await call_next(context)
    except Problem as problem:
        raise checker.with_wrong_names(problem, arguments) from None


def _meta_of(context: MiddlewareContext[Any]) -> Mapping[str, Any]:
    """The request's `_meta`, from the session: FastMCP's message keeps known members only."""
    around = context.fastmcp_context
    request = around.request_context if around else None
    return (request.meta or {}) if request else {}


def current_scope() -> Scope:
    """The scope of the HTTP request that carries this message; an empty one if there is none."""
    try:
        return get_http_request().scope
    except RuntimeError:
        return {"type": "http", "headers": []}
