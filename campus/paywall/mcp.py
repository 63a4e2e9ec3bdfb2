"""The paywall over MCP: the gate of every call, paid calls, the middleware that asks it, and refusals as results."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import mcp_types
from fastmcp.exceptions import NotFoundError, ToolError, ValidationError
from fastmcp.server.dependencies import get_http_request
from fastmcp.server.middleware import CallNext, Middleware, MiddlewareContext
from fastmcp.tools import Tool
from fastmcp.tools.base import InputRequiredToolResult, ToolResult
from pydantic import TypeAdapter
from pydantic_core import from_json, to_json
from starlette.types import Scope

from campus.errors import StorageUnavailable
from campus.payments.payment import PaidAnswer, Payment, StoredAnswer
from campus.payments.terms import PaymentRequired
from campus.payments.wire import PAYMENT_IDENTIFIER, RECEIPT_META, TERMS_META, idempotency_key_in, payment_in_meta, purchase_key
from campus.paywall.admission import ADMISSION, CONNECTED, Paywall, refuse_failure
from campus.paywall.listing import as_listed
from campus.paywall.payment_gate import PaidRequest, PaymentGate
from campus.pricing import Offer
from campus.problems import EXPLAINED_AT, storage_unavailable
from campus.site import ROUTE, SITE, STATUS, Site
from twins import (
    ArgumentChecker,
    McpCall,
    McpResult,
    Problem,
    is_crash,
    kept_alive,
    log_failure,
    problem_of_failure,
    require_storable,
    unstorable_reason,
    with_meta,
)

CONTENT: TypeAdapter[list[mcp_types.ContentBlock]] = TypeAdapter(list[mcp_types.ContentBlock])


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
        payment_gate: PaymentGate | None = None,
    ) -> None:
        self.offers = offers
        self.checkers = checkers
        self._site = site
        self._routes = {name: f"{site.name}:{name}" for name in offers}
        self._paywall = paywall
        self._paid = PaidCalls(payment_gate, checkers) if payment_gate else None

    async def __call__(self, call: McpCall) -> McpResult:
        """The result of the call, bought if no key opens the tool and the caller sends a payment."""
        scope = call.scope
        name = call.operation.name
        offer = self.offers[name]
        checker = self.checkers[name]
        scope[SITE] = self._site
        scope[ROUTE] = self._routes[name]
        try:
            try:
                admission = await self._paywall.admit(offer, scope, frame="mcp")
            except Problem as refused:
                if self._paid is None or CONNECTED in scope:
                    raise
                return await self._paid.answer(offer, refused, call)
            result = await answered(call, offer)
        except StorageUnavailable:  # while the key was looked up or a payment was stored
            return refusal(storage_unavailable(), scope)
        except ToolError as error:
            if not call.is_direct and is_crash(error):
                log_failure(error.__cause__ or error, checker.operation, scope)
            return refusal(as_problem(error, checker.operation.tool), scope)
        except ValidationError as error:
            return refusal(checker.rejected(error.__cause__, call.arguments), scope)
        return result if admission.key_ignored is None else with_meta(result, {"key_ignored": admission.key_ignored})


async def answered(call: McpCall, offer: Offer) -> McpResult:
    """The tool's result. Raises a Problem for one that reports a failure, which is not charged."""
    result = await call.run()
    if offer.access.fails_if is None:
        return result
    if not isinstance(result, ToolResult):
        refuse_failure(offer, from_json(result.structured))
    elif not result.is_error:
        refuse_failure(offer, from_json(stored_answer_of(result).body))
    return result


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
        payment = payment_in_meta(call.meta)
        with kept_alive(call.scope):
            if payment is None:
                return self._delivered(await self._bought_before(offer, refused, call), offer)
            return await self._bought(offer, payment, call)

    async def _bought_before(self, offer: Offer, refused: Problem, call: McpCall) -> PaidAnswer:
        """What the same call bought before, by its Idempotency-Key. Raises the refusal with its terms if it bought nothing."""
        arguments = dict(call.arguments)
        readable = None if unstorable_reason(arguments) else arguments
        said = None if readable is None else self._as_far_as_valid(offer.tool, readable)
        request = self._request(offer, call, idempotency_key_in(call.scope, call.meta, readable))
        return await self._payment_gate.unpaid(refused, offer, said, request, shown=said)

    async def _bought(self, offer: Offer, payment: Payment, call: McpCall) -> McpResult:
        """Run the call for its payment."""
        arguments = dict(call.arguments)
        require_storable(arguments)
        request = self._request(offer, call, purchase_key(payment, idempotency_key_in(call.scope, call.meta, arguments)))
        sale = self._payment_gate.sale(offer, self._checkers[offer.tool].canonical(arguments), request)
        made: list[McpResult] = []

        async def run() -> StoredAnswer:
            result = await answered(call, offer)
            if isinstance(result, ToolResult) and (result.is_error or isinstance(result, InputRequiredToolResult)):
                raise Unanswered(result)
            made.append(result)
            return stored_answer_of(result)

        try:
            sold = await self._payment_gate.sell(payment, sale, request, run)
        except Unanswered as failed:
            return failed.result
        return self._delivered(sold, offer, *made)

    def _request(self, offer: Offer, call: McpCall, idempotency_key: str | None) -> PaidRequest:
        return PaidRequest(call.scope, "mcp", self._checkers[offer.tool].operation.methods[0], idempotency_key)

    def _delivered(self, sold: PaidAnswer, offer: Offer, made: McpResult | None = None) -> McpResult:
        """A bought answer with its receipt: the tool's own result, or the stored one."""
        result = made or result_of(sold.answer, self._checkers[offer.tool].operation.tool)
        return with_meta(result, {RECEIPT_META: dict(sold.receipt)})

    def _as_far_as_valid(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        try:
            return self._checkers[tool].canonical(arguments)
        except Problem:
            return arguments


def stored_answer_of(result: McpResult) -> StoredAnswer:
    """A result as HTTP would send it: its structured content, or its content blocks if there is none."""
    if not isinstance(result, ToolResult):
        return StoredAnswer(result.structured)
    if result.structured_content is not None:
        return StoredAnswer(to_json(result.structured_content, inf_nan_mode="null"))
    return StoredAnswer(to_json({"content": [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in result.content]}))


def result_of(answer: StoredAnswer, tool: Tool) -> ToolResult:
    """A stored answer as the tool's result, with its content blocks restored."""
    body = from_json(answer.body)
    if tool.output_schema is None and body.keys() == {"content"}:
        return ToolResult(content=CONTENT.validate_python(body["content"]))
    return ToolResult(content=[mcp_types.TextContent(type="text", text=answer.body.decode())], structured_content=body)


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
        if name not in self._gate.offers:
            raise NotFoundError(f"Unknown tool: {name!r}")
        scope = current_scope()
        if ADMISSION in scope:  # a call inside an admitted one: its failures belong to the outer call
            return await call_next(context)
        checker = self._gate.checkers[name]
        arguments = context.message.arguments or {}

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

    For payment terms the text is the whole object, because x402's clients read either; others read the terms in `_meta`.
    """
    scope[STATUS] = problem.status
    body = problem.body(types=EXPLAINED_AT, request_id=scope.get("request_id"))
    has_terms = isinstance(problem, PaymentRequired)
    text = json.dumps(body) if has_terms else problem.detail
    content = [mcp_types.TextContent(type="text", text=text)]
    return ToolResult(content=content, structured_content=body, meta={TERMS_META: terms_in(body)} if has_terms else None, is_error=True)


def terms_in(body: Mapping[str, Any]) -> dict[str, Any]:
    """What a client needs to pay, without what only crawlers read."""
    identifier = {name: value for name, value in body["extensions"].items() if name == PAYMENT_IDENTIFIER}
    return {name: body[name] for name in ("x402Version", "error", "resource", "accepts")} | {"extensions": identifier}
