"""Paid calls over MCP: the terms as the tool's result, the payment and its receipt in `_meta`."""

from collections.abc import Mapping
from typing import Any

import mcp_types
from fastmcp.tools import Tool
from fastmcp.tools.base import InputRequiredToolResult, ToolResult
from pydantic import TypeAdapter
from pydantic_core import from_json, to_json

from campus.payments.payment import PaidAnswer, StoredAnswer
from campus.payments.wire import RECEIPT_META, idempotency_key_in, payment_in_meta, purchase_key
from campus.paywall.payment_gate import PaymentGate
from campus.pricing import Offer
from twins import ArgumentChecker, McpCall, McpResult, Problem, require_storable, unstorable_reason, with_meta

CONTENT: TypeAdapter[list[mcp_types.ContentBlock]] = TypeAdapter(list[mcp_types.ContentBlock])


class Unanswered(Exception):
    """The tool returned nothing that can be charged: an error, or a request for input."""

    def __init__(self, result: ToolResult) -> None:
        super().__init__("the tool returned no answer")
        self.result = result


class PaidCalls:
    """The paid calls of one building. `checkers` check the arguments before anything is reserved."""

    def __init__(self, payment_gate: PaymentGate, checkers: Mapping[str, ArgumentChecker]) -> None:
        self._payment_gate = payment_gate
        self._checkers = checkers

    async def answer(self, offer: Offer, refused: Problem, call: McpCall) -> McpResult:
        """The answer that the payment in the request's `_meta` buys. Raises the refusal with its terms if there is no payment."""
        if not self._payment_gate.pricing.sells(offer):
            raise refused
        scope, meta, arguments = call.scope, call.meta, dict(call.arguments)
        method = self._checkers[offer.tool].operation.methods[0]
        payment = payment_in_meta(meta)
        if payment is None:
            readable = None if unstorable_reason(arguments) else arguments
            key = idempotency_key_in(scope, meta, readable)
            said = None if readable is None else self._as_far_as_valid(offer.tool, readable)
            again = await self._payment_gate.unpaid(
                refused, offer, said, shown=said, scope=scope, frame="mcp", method=method, idempotency_key=key
            )
            return self._delivered(again, offer)
        require_storable(arguments)
        key = purchase_key(payment, idempotency_key_in(scope, meta, arguments))
        sale = self._payment_gate.sale(
            offer, self._checkers[offer.tool].canonical(arguments), scope=scope, frame="mcp", method=method, idempotency_key=key
        )
        made: list[ToolResult] = []

        async def run() -> StoredAnswer:
            result = await call.run()
            assert isinstance(result, ToolResult)
            if result.is_error or isinstance(result, InputRequiredToolResult):
                raise Unanswered(result)
            made.append(result)
            return stored_answer_of(result)

        try:
            sold = await self._payment_gate.sell(payment, sale, run, scope=scope, frame="mcp")
        except Unanswered as failed:
            return failed.result
        return self._delivered(sold, offer, *made)

    def _delivered(self, sold: PaidAnswer, offer: Offer, made: ToolResult | None = None) -> McpResult:
        """A bought answer with its receipt: the tool's own result, or the stored one."""
        result = made or result_of(sold.answer, self._checkers[offer.tool].operation.tool)
        return with_meta(result, {RECEIPT_META: dict(sold.receipt)})

    def _as_far_as_valid(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        try:
            return self._checkers[tool].canonical(arguments)
        except Problem:
            return arguments


def stored_answer_of(result: ToolResult) -> StoredAnswer:
    """A result as HTTP would send it: its structured content, or its content blocks if there is none."""
    if result.structured_content is not None:
        return StoredAnswer(to_json(result.structured_content, inf_nan_mode="null"))
    return StoredAnswer(to_json({"content": [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in result.content]}))


def result_of(answer: StoredAnswer, tool: Tool) -> ToolResult:
    """A stored answer as the tool's result, with its content blocks restored."""
    body = from_json(answer.body)
    if tool.output_schema is None and body.keys() == {"content"}:
        return ToolResult(content=CONTENT.validate_python(body["content"]))
    return ToolResult(content=[mcp_types.TextContent(type="text", text=answer.body.decode())], structured_content=body)
