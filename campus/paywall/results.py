"""Tools' results over MCP: bought answers made results again, problems as results, and the JSON that is sold of a result."""

from collections.abc import Mapping
from typing import Any

import mcp_types
from fastmcp.tools.base import ToolResult
from pydantic import TypeAdapter
from pydantic_core import from_json, to_json
from starlette.types import Scope

from campus.context import context_of
from campus.payments.payment import StoredAnswer
from campus.payments.terms import PaymentRequired
from campus.payments.wire import TERMS_META
from campus.problems import EXPLAINED_AT
from twins import CONTENT_MEMBER, Operation, Problem, body_of_result, raw_result

CONTENT: TypeAdapter[list[mcp_types.ContentBlock]] = TypeAdapter(list[mcp_types.ContentBlock])


def body_of(result: ToolResult, operation: Operation) -> bytes | None:
    """A result as HTTP answers it: see twins.body_of_result. None for an error."""
    return None if result.is_error else body_of_result(result, wraps=operation.wraps_result)


def result_of(answer: StoredAnswer, operation: Operation) -> ToolResult:
    """A stored answer as the tool's result, with its content blocks restored."""
    body = from_json(answer.body)
    if operation.tool.output_schema is None and body.keys() == {"content"}:
        return ToolResult(content=CONTENT.validate_python(body["content"]))
    blocks = CONTENT.validate_python(body.pop(CONTENT_MEMBER, ()))
    if operation.wraps_result and body.keys() == {"result"}:
        result = raw_result(body["result"])
        return result.model_copy(update={"content": [*result.content, *blocks]}) if blocks else result
    text = to_json(body).decode() if blocks else answer.body.decode()
    return ToolResult(content=[mcp_types.TextContent(type="text", text=text), *blocks], structured_content=body)


def refusal(problem: Problem, scope: Scope) -> ToolResult:
    """A problem as the tool's result: one sentence, and the same object that HTTP answers.

    x402's clients read payment terms there; Cloudflare's reads only `_meta`, which has what it signs and no more.
    """
    context_of(scope).status = problem.status
    body = problem.body(types=EXPLAINED_AT, request_id=scope.get("request_id"))
    content = [mcp_types.TextContent(type="text", text=problem.detail)]
    has_terms = isinstance(problem, PaymentRequired) and "resource" in body  # those for HTTP, of a task begun there, have none
    meta = {TERMS_META: signed_terms(body)} if has_terms else None
    return ToolResult(content=content, structured_content=body, meta=meta, is_error=True)


def signed_terms(body: Mapping[str, Any]) -> dict[str, Any]:
    """What a client needs to sign a payment."""
    return {"x402Version": body["x402Version"], "resource": {"url": body["resource"]["url"]}, "accepts": body["accepts"]}
