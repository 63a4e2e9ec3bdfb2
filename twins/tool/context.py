"""FastMCP's request context, session and context variables, for a tool that is called directly and not by its server.

Only where FastMCP has, and does, what a direct call needs: that is tried once, at start.
"""

import weakref
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import Token
from dataclasses import replace
from functools import cache
from typing import Any, cast
from uuid import uuid4

from fastmcp import Context, FastMCP
from fastmcp.server.dependencies import get_context, get_http_request, get_server
from fastmcp.tools import Tool
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.shared.dispatcher import DispatchContext
from mcp.shared.exceptions import NoBackChannelError
from mcp_types.version import LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION
from starlette.requests import Request
from starlette.types import Scope
from uncalled_for import SharedContext

from twins.fastmcp import (
    MISSING,
    CrashError,
    FastMCPRequestContext,
    bind_request_context,
    current_context,
    current_request,
    current_server,
    result_on_wire,
    server_stamp,
    set_http_request,
    set_transport,
)
from twins.mcp.exchange import EXCHANGE, Exchange
from twins.problems import input_required

QUESTIONS = frozenset(("elicitation/create", "roots/list", "sampling/createMessage"))
"""The requests by which a tool asks its caller."""
SENT = {"content": [{"type": "text", "text": "[1]"}], "structuredContent": {"result": [1]}, "isError": False, "resultType": "complete"}


class _Nobody:
    """The back-channel to a caller over plain HTTP: notifications are dropped, requests raise an error, which says what a question asks."""

    can_send_request = False
    message_metadata = None
    request_id = None
    transport = None

    async def send_raw_request(self, method: str, params: Mapping[str, Any] | None, opts: Any = None) -> dict[str, Any]:
        if method in QUESTIONS:
            asked = {method: {"method": method, "params": dict(params or {})}}
            raise input_required(asked, how="it can ask only in an MCP session, and HTTP has none")
        raise NoBackChannelError(method)

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: Any = None) -> None:
        """Dropped: nobody listens."""

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Dropped: nobody listens."""


class _SilentSession(ServerSession):
    """A session without a client. mcp's own session would drop log messages too, with a warning for each."""

    async def send_log_message(self, *_: Any, **__: Any) -> None:
        """Dropped: nobody listens."""


class TwinRequestContext(FastMCPRequestContext):
    """FastMCP's request context for a call over HTTP; most of its attributes are made when a tool first reads them.

    Without it `ctx.info`, `ctx.request_id`, `ctx.get_state` and `get_http_request()` raise. Its protocol version is one with a
    back-channel, so that `ctx.elicit` and its like send what they ask, which becomes Problem 409 `input_required`.
    """

    meta = None
    protocol_version = LATEST_HANDSHAKE_VERSION
    close_sse_stream = None

    def __init__(self, server: FastMCP[Any], scope: Scope) -> None:
        self._server = server
        self._scope = scope

    def __getattr__(self, name: str) -> Any:
        match name:
            case "request":
                value: Any = Request(self._scope)
            case "request_id":
                value = self._scope.get("request_id") or uuid4().hex
            case "session":
                nobody = cast(DispatchContext[Any], _Nobody())
                connection = Connection.from_envelope(LATEST_HANDSHAKE_VERSION, None, None, outbound=nobody)
                value = _SilentSession(nobody, connection)
            case "lifespan_context":
                value = getattr(self._server, "_lifespan_result", None) or {}
            case "_srctx":
                value = ServerRequestContext(
                    session=self.session,
                    lifespan_context=self.lifespan_context,
                    protocol_version=self.protocol_version,
                    method="tools/call",
                    request=self.request,
                    **self._of_message(),
                )
            case _:
                raise AttributeError(name)
        setattr(self, name, value)
        return value

    def _of_message(self) -> dict[str, Any]:
        """What mcp's own context of the request has of its message."""
        return {"request_id": self.request_id}


class McpRequestContext(TwinRequestContext):
    """FastMCP's request context for a call over MCP that runs without its server. Its session can notify the caller."""

    def __init__(self, server: FastMCP[Any], scope: Scope) -> None:
        super().__init__(server, scope)
        self._exchange: Exchange = scope[EXCHANGE]
        self.protocol_version = self._exchange.message.version
        self.meta = self._exchange.message.params.get("_meta")

    def __getattr__(self, name: str) -> Any:
        match name:
            case "request_id":
                value: Any = str(self._exchange.message.id)
            case "session":
                value = self._exchange.session
            case _:
                return super().__getattr__(name)
        setattr(self, name, value)
        return value

    def _of_message(self) -> dict[str, Any]:
        message = self._exchange.message
        return {"params": message.params, "request_id": message.id, "meta": self._exchange.request_meta}


class ToolContext:
    """Sets FastMCP's context variables for a call that runs without its server.

    `entered = context.enter(scope)`, and `reset(entered)` after the call, also after an exception. The variables are set
    directly: `async with Context(…)` takes several times as long, opens a new scope for `Shared()` in each call, and has
    no request.
    """

    def __init__(self, server: FastMCP[Any]) -> None:
        self._server = server
        self._reference = weakref.ref(server)

    def enter(self, scope: Scope, *, shares: bool = True) -> list[Token[Any]]:
        """Set the variables; returns what `reset` needs. `shares` is for functions with dependencies that FastMCP resolves.

        `_shared_context_snapshot` is the server's own scope for `Shared()`; FastMCP's MCP side applies it in the same way.
        """
        server = self._server
        is_mcp = EXCHANGE in scope
        entered: list[Token[Any]] = [
            current_request.set((McpRequestContext if is_mcp else TwinRequestContext)(server, scope)),
            current_context.set(Context(server)),
            current_server.set(self._reference),
        ]
        if is_mcp:
            entered.append(set_transport("streamable-http"))
        if shares and (shared := getattr(server, "_shared_context_snapshot", None)):
            entered += [variable.set(value) for variable, value in shared.items()]
        return entered

    @contextmanager
    def entered(self, scope: Scope) -> Iterator[None]:
        entered = self.enter(scope)
        try:
            yield
        finally:
            reset(entered)

    @contextmanager
    def bound(self, scope: Scope) -> Iterator[None]:
        """For a call through the server of a FastMCP that is not known: during the block it has a request context of its own making."""
        around = TwinRequestContext(self._server, scope)
        with set_http_request(around.request or Request(scope)), bind_request_context(around._srctx):
            yield

    def enter_request(self, scope: Scope) -> list[Token[Any]]:
        """Set the request's variable alone, as FastMCP does before a server is asked; returns what `reset` needs."""
        return [current_request.set(McpRequestContext(self._server, scope))]


def reset(entered: Sequence[Token[Any]]) -> None:
    for token in reversed(entered):
        token.var.reset(token)


@contextmanager
def requested_with(scope: Scope) -> Iterator[None]:
    """During the block, the HTTP request that carries the current MCP message has this scope."""
    around = getattr(current_request.get(), "_srctx", None)
    request = Request(scope)
    with bind_request_context(replace(around, request=request)) if around else set_http_request(request):
        yield


@asynccontextmanager
async def shared_scope() -> AsyncIterator[None]:
    """A scope for `Shared()` when the server's lifespan, which opens one, is not running."""
    try:
        SharedContext.resolved.get()
    except LookupError:
        async with SharedContext():
            yield
    else:
        yield


def why_slow() -> str | None:
    """Why nothing is called directly with this FastMCP: a name that it lacks, or what one of them does now; None where all is well."""
    return f"it has no {', '.join(MISSING)}" if MISSING else _fault()


@cache
def _fault() -> str | None:
    try:
        return _tried()
    except Exception as error:  # the border to a release that nobody knows: it may raise anything
        return f"{type(error).__name__}: {error}"


def _tried() -> str | None:
    server: FastMCP[Any] = FastMCP("probe", mask_error_details=True)
    with ToolContext(server).entered({"type": "http", "method": "GET", "path": "/", "headers": [], "request_id": "r"}):
        seen = get_server(), get_context().request_id, get_http_request().scope["request_id"], get_context().lifespan_context
    if seen != (server, "r", "r", {}):
        return "a tool that is called directly does not see its request"
    tool = Tool.from_function(_numbers)
    sent = _value_of(result_on_wire(server, tool.convert_result([1]), LATEST_MODERN_VERSION))
    if not sent.items() >= SENT.items() or "x-fastmcp-wrap-result" not in (tool.output_schema or {}):
        return "a result is sent in another form"
    if not all(server_stamp(server).values()) or str(CrashError(server, tool, KeyError())) != "Error calling tool '_numbers'":
        return "a server tells its name or its crashes in another way"
    return None


def _numbers() -> list[int]:
    return [1]


def _value_of(coroutine: Coroutine[Any, Any, dict[str, Any]]) -> dict[str, Any]:
    try:
        coroutine.send(None)
    except StopIteration as finished:
        return dict(finished.value)
    raise RuntimeError("a result is not sent at once")
