"""Refusals over MCP: every error as a problem, and a problem as the tool's result."""

import json
from collections.abc import Mapping
from typing import Any

import mcp_types
import pydantic
from fastmcp.exceptions import ToolError, ValidationError
from fastmcp.tools import Tool
from fastmcp.tools.base import ToolResult
from starlette.types import Scope

from campus.errors import EXPLAINED_AT, StorageUnavailable
from campus.payments.terms import PaymentRequired
from campus.problems import storage_unavailable
from twins import Operation, Problem, storable, unstorable_reason
from twins.fastmcp_internals import is_proxied
from twins.field_errors import MOST_ERRORS, pointer_to, subject_of
from twins.validation_errors import invalid_arguments, timeout_problem, upstream_failed


def refuse_hostile(arguments: Any) -> None:
    """Refuse values that the HTTP frame's JSON reader refuses too: lone surrogates, NUL, infinite numbers."""
    if unstorable_reason(arguments) is None:
        return
    members = arguments.items() if isinstance(arguments, Mapping) else ()
    reasons = [
        f"{subject_of(pointer_to('arguments', name))}: {reason}" for name, value in members if (reason := unstorable_reason({name: value}))
    ]
    raise Problem(400, "invalid_json", "; ".join(reasons[:MOST_ERRORS]) or "the arguments cannot be accepted")


def without_hostile(message: mcp_types.CallToolRequestParams, operation: Operation) -> mcp_types.CallToolRequestParams:
    """The message with such values marked as unstorable if the tool's route is lenient. Raises Problem 400 otherwise."""
    lenient = operation.route.lenient
    refuse_hostile({name: value for name, value in (message.arguments or {}).items() if name not in lenient})
    return message.model_copy(update={"arguments": storable(message.arguments, lenient)})


def as_problem(error: ToolError, tool: Tool) -> Problem:
    """A Problem unchanged; a plain ToolError with its sentence; any other failure without its text."""
    if isinstance(error, Problem):
        return error
    if isinstance(error.__cause__, StorageUnavailable):
        return storage_unavailable()
    if error.__cause__ is None:
        return Problem(400, "tool_error", str(error))
    if late := timeout_problem(error.__cause__, tool):
        return late
    if is_proxied(tool):
        return upstream_failed()
    return Problem(500, "internal_error", f"{tool.name} failed; the cause is in the server's log.")


def as_invalid(error: ValidationError, operation: Operation, arguments: Mapping[str, Any]) -> Problem:
    """Arguments that the tool does not accept, each by name and without its value."""
    if isinstance(cause := error.__cause__, pydantic.ValidationError):
        return invalid_arguments(cause, operation, None, arguments)
    return Problem(422, "invalid_request", "The arguments do not match the tool's input schema.")


def refusal(problem: Problem, scope: Scope) -> ToolResult:
    """A problem as the tool's result: one sentence, and the same object that HTTP answers.

    The text of payment terms is the whole object: x402's clients read either.
    """
    body = problem.body(types=EXPLAINED_AT, request_id=scope.get("request_id"))
    text = json.dumps(body) if isinstance(problem, PaymentRequired) else problem.detail
    return ToolResult(content=[mcp_types.TextContent(type="text", text=text)], structured_content=body, is_error=True)
