"""The direct MCP endpoint: an ASGI app before a server's own MCP app, which answers plain requests itself, many times as fast.

It reads a request once. A `tools/call` of a plain tool runs the tool's function; `tools/list`, `server/discover`, `initialize`
and `ping` are answered with the bytes of the server's own last answer. Every other request goes on unread, and every error
of the protocol is the server's own. For the caller there is no difference but time: tests/twins/test_mcp_oracle.py compares
the answers to thousands of requests with those of the server's own app.
"""

import logging
from collections.abc import Iterable
from functools import partial
from typing import Any

import orjson
from fastmcp import FastMCP
from fastmcp.server.telemetry import seam_span
from fastmcp.tools.base import ToolResult
from mcp import MCPError
from mcp.shared.inbound import ERROR_CODE_HTTP_STATUS
from mcp_types import INTERNAL_ERROR
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from twins.catalog import Catalog
from twins.fastmcp import has_tracer
from twins.http.arguments import read_body
from twins.mcp.bodies import replayed
from twins.mcp.call import AsksForInputError, DirectMcpTool, EncodedResult, McpCall, McpGate, ResultFinisher, without_gate
from twins.mcp.exchange import ERROR, EXCHANGE, PING_SECONDS, RESULT, Exchange
from twins.mcp.messages import LARGEST_BODY, McpRequest, RequestReader, ServerAnswers, called_tool, negotiated
from twins.tool.arguments import ArgumentChecker
from twins.tool.context import ToolContext, reset
from twins.tool.hang_up import ClientDisconnectedError

ANSWERED_BY = b"x-mcp-answered-by"  # A header that says which way a request took, and why, if the endpoint explains itself.
TRACE_CONTEXT = "traceparent"
"""A key of `_meta`. FastMCP's spans can be seen if somebody collects them, or if the caller brings a trace of its own."""
logger = logging.getLogger(__name__)


class DirectMcp:
    """An ASGI app that answers plain MCP requests of one server, and hands all others to `app`, the server's own.

    Without a `gate`, nothing is called directly on a server whose middleware takes part in calls. With one, middleware whose
    class has `twin_safe = True` is not run in a direct call: it does for calls through the server what the gate does here.

    `app` must serve event streams (FastMCP's default) at one path. What is answered directly does not reach it, so a check of
    its own, such as a login, must come before this app or be the gate's. `checkers` are those of the tools' operations, made of the
    `catalog`: once that holds no longer, make a new app, or every request goes on to the server if there is none.
    `stateless` is true if `app` keeps no sessions: then versions with a handshake are answered directly too. With `explains`,
    each answer has a header `X-MCP-Answered-By`. A tool that is silent for `ping_seconds` turns its answer into a stream with a
    comment as often.
    """

    def __init__(
        self,
        app: ASGIApp,
        server: FastMCP[Any],
        checkers: Iterable[ArgumentChecker],
        *,
        catalog: Catalog | None = None,
        gate: McpGate = without_gate,
        stateless: bool = False,
        explains: bool = False,
        ping_seconds: float = PING_SECONDS,
    ) -> None:
        """Raises ValueError if the server requires a login and there is no gate."""
        if server.auth is not None and gate is without_gate:
            raise ValueError(f"the server {server.name!r} requires a login (auth=), which direct answers would bypass; pass gate=")
        self._app = app
        self._server = server
        self._gate = gate
        self._stateless = stateless
        self._explains = explains
        self._headers = ((ANSWERED_BY, b"twins"),) if explains else ()
        self._ping_seconds = ping_seconds
        self._reader = RequestReader()
        self._finisher = ResultFinisher(server)
        gated = gate is not without_gate
        self._unwatched = Catalog(server, gated=gated) if catalog is None else None
        self._constants = ConstantAnswers(catalog or Catalog(server, gated=gated))
        self._context = ToolContext(server)
        self._tools = {
            each.operation.name: DirectMcpTool(server, each, each.direct, refuses=gated) for each in checkers if each.direct is not None
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        received: list[Message] = []
        before = dict(scope)
        exchange: Exchange | None = None
        try:
            headers, version = self._reader.headers(scope)
            body = await read_body(receive, received, limit=LARGEST_BODY)
            if body is None:
                raise ServerAnswers("the body is longer than its header says")
            message = self._reader.message(body, headers, version)
            if not (message.is_modern or self._stateless):
                raise ServerAnswers("the server keeps sessions")
            exchange = Exchange(message, scope, receive, send, headers=self._headers, ping_seconds=self._ping_seconds)
            if self._unwatched is not None and not await self._unwatched.holds():
                raise ServerAnswers("the server has changed since its tools were listed")
            if message.method == "tools/call":
                await self._call(message, headers, exchange)
            else:
                await self._answer_constant(message, exchange)
        except ClientDisconnectedError:
            return
        except ServerAnswers as reason:
            scope.clear()
            scope.update(before)
            await self._hand_on(reason, scope, replayed(received, receive), exchange.continued() if exchange else send)

    async def _hand_on(self, reason: ServerAnswers, scope: Scope, receive: Receive, send: Send) -> None:
        if isinstance(reason, UnknownAnswer):
            send = self._constants.learning(reason.key, send)
        await self._app(scope, receive, _explained(send, str(reason)) if self._explains else send)

    async def _answer_constant(self, message: McpRequest, exchange: Exchange) -> None:
        if has_tracer() or TRACE_CONTEXT in message.meta:
            raise ServerAnswers("the request is traced, and not a call")
        await exchange.finish(RESULT, (self._constants.answer(message),))

    async def _call(self, message: McpRequest, headers: dict[bytes, bytes], exchange: Exchange) -> None:
        name, arguments = called_tool(message, headers)
        tool = self._tools.get(name)
        if tool is None:
            raise ServerAnswers("the tool is not known, or not a plain function of this server")
        scope = exchange.scope
        scope[EXCHANGE] = exchange
        traced = has_tracer() or TRACE_CONTEXT in message.meta
        run = partial(tool.run_traced if traced else tool.run, arguments, scope)
        call = McpCall(tool.operation, scope, arguments, message.meta, run, is_direct=True)
        try:
            found = await (self._traced(call) if traced else self._gate(call))
            assert isinstance(found, ToolResult | EncodedResult), "extensions take no part in a direct call"
            value = await self._finisher.finish(found, message.version)
            member = RESULT
            status = 200
        except ClientDisconnectedError:
            return
        except AsksForInputError:
            del self._tools[name]
            raise ServerAnswers("the tool asks for input") from None
        except ServerAnswers:
            raise
        except Exception as error:  # the border: a gate's fault becomes mcp's internal error, without its text
            fault = error if isinstance(error, MCPError) else _internal_error(name, error)
            member = ERROR
            value = (fault.error.model_dump_json(by_alias=True, exclude_none=True).encode(),)
            status = ERROR_CODE_HTTP_STATUS.get(fault.error.code, 200)
        finally:
            del scope[EXCHANGE]  # the two would refer to each other until the garbage collector runs
        await exchange.finish(member, value, status=status)

    async def _traced(self, call: McpCall) -> Any:
        entered = self._context.enter_request(call.scope)
        try:
            with seam_span("tools/call", self._server.name):
                return await self._gate(call)
        finally:
            reset(entered)


class UnknownAnswer(ServerAnswers):
    """The server has not yet given the answer that this key stands for."""

    def __init__(self, key: tuple[str, str]) -> None:
        super().__init__("the answer is not known yet")
        self.key = key


class ConstantAnswers:
    """The server's own answers to requests whose answer depends on nothing but its components, as bytes.

    They are learnt from the server's first answer of each kind, and are those of one catalog. A tool whose attributes are assigned
    anew is not noticed: looking at 30 tools takes 18 µs.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._answers: dict[tuple[str, str], bytes] = {}

    def answer(self, message: McpRequest) -> bytes:
        """The result for the request. Raises ServerAnswers; UnknownAnswer if the server's answer may be learnt."""
        key = message.method, negotiated(message) if message.method == "initialize" else message.version
        found = self._answers.get(key)
        if found is not None:
            return found
        if not self._catalog.is_constant:
            raise ServerAnswers("the answer may depend on the caller")
        raise UnknownAnswer(key)

    def learning(self, key: tuple[str, str], send: Send) -> Send:
        parts: list[bytes] = []

        async def heard(message: Message) -> None:
            if message["type"] == "http.response.body":
                parts.append(message.get("body", b""))
                if not message.get("more_body") and (result := _result_in(b"".join(parts))) is not None and await self._catalog.holds():
                    self._answers[key] = result
            await send(message)

        return heard


def _internal_error(tool: str, cause: Exception) -> MCPError:
    logger.error("the gate of a call failed: %r", tool, exc_info=cause)
    return MCPError(code=INTERNAL_ERROR, message="Internal server error")


def _explained(send: Send, reason: str) -> Send:
    async def explain(message: Message) -> None:
        if message["type"] == "http.response.start":
            header = (ANSWERED_BY, f"server; {reason}".encode())
            message = {**message, "headers": [*message.get("headers", ()), header]}
        await send(message)

    return explain


def _result_in(answer: bytes) -> bytes | None:
    if answer.startswith(b"event:"):
        lines = [line for line in answer.splitlines() if line.startswith(b"data:")]
        if len(lines) != 1:
            return None
        answer = lines[0].removeprefix(b"data:")
    try:
        result = orjson.loads(answer)["result"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return None
    return orjson.dumps(result)
