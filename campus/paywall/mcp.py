"""The paywall over MCP: the gate of every call, the middleware that asks it, refusals as results, and output schemas that allow them."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import mcp_types
from fastmcp.exceptions import NotFoundError, ToolError, ValidationError
from fastmcp.server.dependencies import get_http_request
from fastmcp.server.middleware import CallNext, Middleware, MiddlewareContext
from fastmcp.tools import Tool
from fastmcp.tools.base import ToolResult
from starlette.types import Scope

from campus.errors import EXPLAINED_AT, StorageUnavailable, storage_unavailable
from campus.payments.terms import PaymentRequired
from campus.paywall.admission import ADMISSION, CONNECTED, Paywall
from campus.paywall.mcp_payments import PaidCalls
from campus.pricing import Offer
from campus.site import ROUTE, SITE, Site
from twins import ArgumentChecker, McpCall, McpResult, Problem, ServerAnswers, problem_of_failure, unstorable_reason, with_meta

PROBLEM_FIELDS: Mapping[str, dict[str, Any]] = {
    "type": {"type": "string"},
    "title": {"type": "string"},
    "status": {"type": "integer"},
    "detail": {"type": "string"},
    "code": {"type": "string"},
    "request_id": {"type": "string"},
    "errors": {"type": "array"},
    "unlock": {"type": "array"},
    "x402Version": {"type": "integer"},
    "error": {"type": "string"},
    "resource": {"type": "object"},
    "accepts": {"type": "array"},
    "extensions": {"type": "object"},
}
"""The members of a problem, then those of x402's terms, which a 402 has too."""
REFUSAL = {"required": ["code", "status", "detail"]}
STRICT = ("required", "additionalProperties", "minProperties", "anyOf", "oneOf", "allOf", "not", "if", "then", "else")
"""The keywords of a schema that a result must satisfy and a problem need not."""


class McpPaywall:
    """The gate of one building's tools over MCP: it admits a call, runs the tool and delivers the result.

    Every refusal and failure is a problem as the tool's result, never an HTTP status.
    """

    def __init__(
        self,
        site: Site[Any, Any],
        offers: Mapping[str, Offer],
        checkers: Mapping[str, ArgumentChecker],
        paywall: Paywall,
        paid: PaidCalls | None = None,
    ) -> None:
        self.offers = offers
        self.checkers = checkers
        self._site = site
        self._routes = {name: f"{site.name}:{name}" for name in offers}
        self._paywall = paywall
        self._paid = paid

    async def __call__(self, call: McpCall) -> McpResult:
        """The result of the call. Raises ServerAnswers if a direct call could be paid for: that is left to the server's own way."""
        scope, name = call.scope, call.operation.name
        offer, checker = self.offers[name], self.checkers[name]
        scope[SITE], scope[ROUTE] = self._site, self._routes[name]
        try:
            try:
                admission = await self._paywall.admit(offer, scope, frame="mcp")
            except Problem as refused:
                if self._paid is None or CONNECTED in scope:
                    raise
                if call.is_direct:
                    raise ServerAnswers("the call has to be paid for") from None
                return await self._paid.answer(offer, refused, call)
            result = await call.run()
        except StorageUnavailable:  # while the key was looked up or a payment was stored
            return refusal(storage_unavailable(), scope)
        except ToolError as error:
            return refusal(as_problem(error, checker.operation.tool), scope)
        except ValidationError as error:
            return refusal(checker.rejected(error.__cause__, call.arguments), scope)
        return result if admission.key_ignored is None else with_meta(result, {"key_ignored": admission.key_ignored})


class PaywallMiddleware(Middleware):
    """Asks the gate around each call that goes through the server, and lists every tool with its refusals."""

    twin_safe = True

    def __init__(self, gate: McpPaywall) -> None:
        self._gate = gate

    async def on_list_tools(
        self, context: MiddlewareContext[mcp_types.ListToolsRequest], call_next: CallNext[mcp_types.ListToolsRequest, Sequence[Tool]]
    ) -> Sequence[Tool]:
        """Every tool, its output schema widened by the refusals that a caller may receive."""
        return [
            tool if tool.output_schema is None else tool.model_copy(update={"output_schema": with_refusals(tool.output_schema)})
            for tool in await call_next(context)
        ]

    async def on_call_tool(
        self, context: MiddlewareContext[mcp_types.CallToolRequestParams], call_next: CallNext[mcp_types.CallToolRequestParams, ToolResult]
    ) -> ToolResult:
        """The gate's result for the call."""
        name = context.message.name
        if name not in self._gate.offers:
            raise NotFoundError(f"Unknown tool: {name!r}")
        scope = current_scope()
        if ADMISSION in scope:  # a call inside an admitted one: its failures belong to the outer call
            return await call_next(context)
        checker, arguments = self._gate.checkers[name], context.message.arguments or {}

        async def run() -> ToolResult:
            return await checked(context, call_next, checker)

        call = McpCall(checker.operation, scope, arguments, _meta_of(context), run, is_direct=False)
        result = await self._gate(call)
        assert isinstance(result, ToolResult)
        return result


async def checked(
    context: MiddlewareContext[mcp_types.CallToolRequestParams],
    call_next: CallNext[mcp_types.CallToolRequestParams, ToolResult],
    checker: ArgumentChecker,
) -> ToolResult:
    """The tool's result. Raises a Problem that names everything that is wrong with the arguments, as far as campus can check them."""
    arguments = context.message.arguments or {}
    if unstorable_reason(arguments) is not None:
        arguments = checker.storable(arguments)
        context = context.copy(message=context.message.model_copy(update={"arguments": arguments}))
    checker.precheck(arguments)
    try:
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


def as_problem(error: ToolError, tool: Tool) -> Problem:
    """A Problem unchanged; a plain ToolError with its sentence; any other failure without its text."""
    if isinstance(error, Problem):
        return error
    if isinstance(error.__cause__, StorageUnavailable):
        return storage_unavailable()
    if error.__cause__ is None:
        return Problem(400, "tool_error", str(error))
    return problem_of_failure(error.__cause__, tool)


def refusal(problem: Problem, scope: Scope) -> ToolResult:
    """A problem as the tool's result: one sentence, and the same object that HTTP answers.

    For payment terms the text is the whole object, because x402's clients read either.
    """
    body = problem.body(types=EXPLAINED_AT, request_id=scope.get("request_id"))
    text = json.dumps(body) if isinstance(problem, PaymentRequired) else problem.detail
    return ToolResult(content=[mcp_types.TextContent(type="text", text=text)], structured_content=body, is_error=True)


def with_refusals(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema, extended so that a problem matches it too, with or without payment terms.

    Some clients check a refusal's structured content against the tool's output schema and throw away what does not fit.
    So what a result must satisfy moves into one arm of an anyOf and the problem's members into the other, and a member
    that has another type in a problem may be of either type. Results themselves stay as strict as they are.
    """
    properties = {
        name: {"anyOf": [field, PROBLEM_FIELDS[name]]} if name in PROBLEM_FIELDS else field
        for name, field in schema.get("properties", {}).items()
    }
    widened = {key: value for key, value in schema.items() if key not in STRICT}
    result = {key: schema[key] for key in STRICT if key in schema and key != "additionalProperties"}
    return {**widened, "properties": properties, "anyOf": [result, REFUSAL]}
