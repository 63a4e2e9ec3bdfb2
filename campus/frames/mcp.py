"""The MCP frame: the middleware that stands outermost on every building's server."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import mcp_types
import pydantic
from fastmcp.exceptions import NotFoundError, ToolError, ValidationError
from fastmcp.server.dependencies import get_http_request
from fastmcp.server.middleware import CallNext, Middleware, MiddlewareContext
from fastmcp.tools import Tool
from fastmcp.tools.base import ToolResult
from starlette.types import Scope

from campus.access import Offer
from campus.errors import EXPLAINED_AT, StorageUnavailable
from campus.paywall import ADMISSION, Paywall
from campus.problems import storage_unavailable
from campus.schemas import with_refusals
from campus.site import ROUTE, SITE, Site
from twins import Operation, Problem, hostile
from twins.refusals import refusal_of

log = logging.getLogger(__name__)


class PaywallFrame(Middleware):
    """Admits, then lets the tool run; a refusal is the tool's result, never an HTTP status."""

    twin_safe = True

    def __init__(self, site: Site[Any, Any], offers: Mapping[str, Offer], operations: Mapping[str, Operation], paywall: Paywall) -> None:
        self._site = site
        self._offers = offers
        self._operations = operations
        self._paywall = paywall

    async def on_list_tools(
        self, context: MiddlewareContext[mcp_types.ListToolsRequest], call_next: CallNext[mcp_types.ListToolsRequest, Sequence[Tool]]
    ) -> Sequence[Tool]:
        """Every tool, its output schema widened by the refusals that a caller may get instead."""
        return [
            tool if tool.output_schema is None else tool.model_copy(update={"output_schema": with_refusals(tool.output_schema)})
            for tool in await call_next(context)
        ]

    async def on_call_tool(
        self, context: MiddlewareContext[mcp_types.CallToolRequestParams], call_next: CallNext[mcp_types.CallToolRequestParams, ToolResult]
    ) -> ToolResult:
        """Admit, run, deliver; every refusal and failure as a problem."""
        name = context.message.name
        offer = self._offers.get(name)
        if offer is None:
            raise NotFoundError(f"Unknown tool: {name!r}")
        scope = current_scope()
        if ADMISSION in scope:  # a call inside one that was admitted: its failures belong to the outer call
            return await call_next(context)
        scope[SITE], scope[ROUTE] = self._site, f"{self._site.name}:{name}"
        try:
            admission = await self._paywall.admit(offer, scope, frame="mcp")
            refuse_hostile(context.message.arguments)
            result = await call_next(context)
        except StorageUnavailable:  # while the caller's key was looked up
            return refusal(storage_unavailable(), scope)
        except ToolError as error:
            return refusal(as_problem(error, name), scope)
        except ValidationError as error:
            return refusal(as_invalid(error, self._operations[name], context.message.arguments or {}), scope)
        if admission.key_ignored is not None:
            result.meta = {**(result.meta or {}), "key_ignored": admission.key_ignored}
        return result


def current_scope() -> Scope:
    """The scope of the HTTP request that carries this message; an empty one when there is none."""
    try:
        return get_http_request().scope
    except RuntimeError:
        return {"type": "http", "headers": []}


def refuse_hostile(arguments: Any) -> None:
    """Refuse values that no JSON reader of the HTTP frame would let through: lone surrogates, NUL, endless numbers."""
    if (reason := hostile(arguments)) is not None:
        raise Problem(400, "invalid_json", reason)


def as_problem(error: ToolError, tool: str) -> Problem:
    """A deliberate refusal as it is; a plain ToolError with its sentence; a crash without its text."""
    if isinstance(error, Problem):
        return error
    if isinstance(error.__cause__, StorageUnavailable):
        return storage_unavailable()
    if error.__cause__ is None:
        return Problem(400, "tool_error", str(error))
    return Problem(500, "internal_error", f"{tool} failed; the cause is in the server's log.")


def as_invalid(error: ValidationError, operation: Operation, arguments: Mapping[str, Any]) -> Problem:
    """Arguments that the tool does not take, in the words of its HTTP twin; their values are not repeated."""
    if isinstance(cause := error.__cause__, pydantic.ValidationError):
        return refusal_of(cause, operation, operation.methods[0], arguments)
    return Problem(422, "invalid_request", "The arguments do not fit the tool's input schema.")


def refusal(problem: Problem, scope: Scope) -> ToolResult:
    """A problem as the tool's result: one sentence, and the same object that HTTP answers."""
    body = problem.body(types=EXPLAINED_AT, request_id=scope.get("request_id"))
    return ToolResult(content=[mcp_types.TextContent(type="text", text=problem.detail)], structured_content=body, is_error=True)
