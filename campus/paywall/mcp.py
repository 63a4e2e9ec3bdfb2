"""The paywall over MCP: every building's outermost middleware, refusals as results, and the output schemas that allow for them."""

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
from campus.paywall.admission import ADMISSION, Paywall
from campus.paywall.mcp_payments import PaidCalls
from campus.site import ROUTE, SITE, Site
from campus.tool_access import Offer
from twins import ArgumentChecker, Problem, problem_of_failure, unstorable_reason

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


class PaywallMiddleware(Middleware):
    """Admits a call, then runs the tool. A refusal is the tool's result, never an HTTP status."""

    twin_safe = True

    def __init__(
        self,
        site: Site[Any, Any],
        offers: Mapping[str, Offer],
        checkers: Mapping[str, ArgumentChecker],
        paywall: Paywall,
        paid: PaidCalls | None = None,
    ) -> None:
        self._site = site
        self._offers = offers
        self._checkers = checkers
        self._paywall = paywall
        self._paid = paid

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
        """Admit the call, run it, deliver its result. Every refusal and failure is a problem."""
        name = context.message.name
        offer = self._offers.get(name)
        if offer is None:
            raise NotFoundError(f"Unknown tool: {name!r}")
        scope = current_scope()
        if ADMISSION in scope:  # a call inside an admitted one: its failures belong to the outer call
            return await call_next(context)
        scope[SITE], scope[ROUTE] = self._site, f"{self._site.name}:{name}"
        try:
            try:
                admission = await self._paywall.admit(offer, scope, frame="mcp")
            except Problem as refused:
                if self._paid is None:
                    raise
                return await self._paid.answer(offer, refused, context, call_next, scope)
            if unstorable_reason(context.message.arguments) is not None:
                storable = self._checkers[name].storable(context.message.arguments or {})
                context = context.copy(message=context.message.model_copy(update={"arguments": storable}))
            result = await self._checked(context, call_next)
        except StorageUnavailable:  # while the key was looked up or a payment was stored
            return refusal(storage_unavailable(), scope)
        except ToolError as error:
            return refusal(as_problem(error, self._checkers[name].operation.tool), scope)
        except ValidationError as error:
            return refusal(self._checkers[name].rejected(error.__cause__, context.message.arguments or {}), scope)
        if admission.key_ignored is not None:
            result.meta = {**(result.meta or {}), "key_ignored": admission.key_ignored}
        return result

    async def _checked(
        self, context: MiddlewareContext[mcp_types.CallToolRequestParams], call_next: CallNext[mcp_types.CallToolRequestParams, ToolResult]
    ) -> ToolResult:
        """The tool's result. Raises a Problem that names everything that is wrong with the arguments, as far as campus can check them."""
        checker, arguments = self._checkers[context.message.name], context.message.arguments or {}
        checker.precheck(arguments)
        try:
            return await call_next(context)
        except Problem as problem:
            raise checker.with_wrong_names(problem, arguments) from None


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
