"""Refusals over MCP: every error as a problem, and a problem as the tool's result."""

import json

import mcp_types
from fastmcp.exceptions import ToolError
from fastmcp.tools import Tool
from fastmcp.tools.base import ToolResult
from starlette.types import Scope

from campus.errors import EXPLAINED_AT, StorageUnavailable
from campus.payments.terms import PaymentRequired
from campus.problems import storage_unavailable
from twins import Problem, problem_of_failure


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

    The text of payment terms is the whole object: x402's clients read either.
    """
    body = problem.body(types=EXPLAINED_AT, request_id=scope.get("request_id"))
    text = json.dumps(body) if isinstance(problem, PaymentRequired) else problem.detail
    return ToolResult(content=[mcp_types.TextContent(type="text", text=text)], structured_content=body, is_error=True)
