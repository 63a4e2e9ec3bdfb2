"""Tools' results over MCP: stored answers made results again, problems as results, and the JSON that is sold of a result."""

import mcp_types
from fastmcp.tools.base import ToolResult
from pydantic import TypeAdapter
from pydantic_core import from_json, to_json
from starlette.types import Scope

from campus.context import context_of
from campus.problems import EXPLAINED_AT
from campus.steps import Explained
from twins import CONTENT_MEMBER, Operation, Problem, body_of_result, raw_result

CONTENT: TypeAdapter[list[mcp_types.ContentBlock]] = TypeAdapter(list[mcp_types.ContentBlock])


def body_of(result: ToolResult, operation: Operation) -> bytes | None:
    """A result as HTTP answers it: see twins.body_of_result. None for an error."""
    return None if result.is_error else body_of_result(result, wraps=operation.wraps_result)


def result_of(stored: bytes, operation: Operation) -> ToolResult:
    body = from_json(stored)
    if operation.tool.output_schema is None and body.keys() == {"content"}:
        return ToolResult(content=CONTENT.validate_python(body["content"]))
    blocks = CONTENT.validate_python(body.pop(CONTENT_MEMBER, ()))
    if operation.wraps_result and body.keys() == {"result"}:
        result = raw_result(body["result"])
        return result.model_copy(update={"content": [*result.content, *blocks]}) if blocks else result
    text = to_json(body).decode() if blocks else stored.decode()
    return ToolResult(content=[mcp_types.TextContent(type="text", text=text), *blocks], structured_content=body)


def refusal(problem: Problem, scope: Scope) -> ToolResult:
    context_of(scope).status = problem.status
    body = problem.body(types=EXPLAINED_AT, request_id=scope.get("request_id"))
    content = [mcp_types.TextContent(type="text", text=problem.detail)]
    meta = problem.meta(body) if isinstance(problem, Explained) else None
    return ToolResult(content=content, structured_content=body, meta=None if meta is None else dict(meta), is_error=True)
