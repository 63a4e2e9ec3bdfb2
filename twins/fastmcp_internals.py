"""Every private name of FastMCP and mcp that twins uses, each with its reason.

Written against FastMCP 4.1.2 and mcp 2.3. tests/twins/test_fastmcp_internals.py fails if an upgrade changes one of them.
"""

import weakref
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import Token
from typing import Any, cast
from uuid import uuid4

from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.server.context import _current_context, reset_transport, set_transport
from fastmcp.server.dependencies import FastMCPRequestContext, _current_server, fastmcp_request_ctx
from fastmcp.server.middleware import Middleware
from fastmcp.server.middleware.dereference import DereferenceRefsMiddleware
from fastmcp.server.providers import LocalProvider
from fastmcp.tools import Tool
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.shared.dispatcher import DispatchContext
from mcp.shared.exceptions import NoBackChannelError
from mcp_types.version import LATEST_MODERN_VERSION
from starlette.requests import Request
from starlette.types import Scope
from uncalled_for import SharedContext

CALL_HOOKS = ("__call__", "_dispatch_handler", "on_message", "on_request", "on_call_tool")


async def every_tool(server: FastMCP[Any]) -> Sequence[Tool]:
    """The tools that a client would be shown, in their newest version, and those with `auth=` too.

    FastMCP leaves a tool out of a list when its `auth=` rejects the caller, and at start there is no caller. On
    stdio it checks nobody, so the list is made as if on stdio: twins must see such a tool to reject it with a reason.
    The author's own middleware decides what is listed; the tools are taken without its changes. If there is no such
    middleware, FastMCP's own is skipped too: it resolves references in copies, and loads some fifty modules for that.
    """
    middleware = any(type(each) is not DereferenceRefsMiddleware for each in server.middleware)
    token = set_transport("stdio")
    try:
        names = dict.fromkeys(tool.name for tool in await server.list_tools(run_middleware=middleware))
        found = [await server.get_tool(name) for name in names]
    finally:
        reset_transport(token)
    return [tool for tool in found if tool is not None]


async def serve_schemas(server: FastMCP[Any]) -> None:
    """Give mcp the tools' input schemas, so that it does not list all tools before each call.

    `_mcp_server.get_tool_input_schema`: for every `tools/call` of the 2026-07-28 revision, mcp needs the schema to check
    `Mcp-Param-*` headers. FastMCP does not set it, and then mcp runs a whole `tools/list`, middleware included. With 30
    tools that costs 13-17 times the call.
    """
    schemas: dict[str, Mapping[str, Any]] = {tool.name: tool.parameters for tool in await server.list_tools(run_middleware=False)}
    server._mcp_server.get_tool_input_schema = schemas.get


def allows_direct_calls(server: FastMCP[Any]) -> bool:
    """True if a tool may be called without the server: no code of its author runs around a call.

    `_extensions` may intercept calls, and so may middleware that overrides one of the hooks around a call. Middleware
    whose class has `twin_safe = True` is excepted: it is the MCP side of a gate, and the twins' gate is the HTTP side.
    """
    return not server._extensions and not any(_wraps_calls(each) for each in server.middleware)


def _wraps_calls(middleware: Middleware) -> bool:
    kind = type(middleware)
    if getattr(kind, "twin_safe", False):
        return False
    overridden = (getattr(kind, hook, None) is not getattr(Middleware, hook) for hook in CALL_HOOKS)
    return any(overridden) or not vars(middleware).keys().isdisjoint(CALL_HOOKS)


def is_proxied(tool: Tool) -> bool:
    """True if a tool belongs to another server that is reached by a proxy. Importing its class would take a quarter of a second."""
    return any(kind.__module__ == "fastmcp.server.providers.proxy" for kind in type(tool).__mro__)


class DirectCallGuard:
    """Allows direct calls of a tool while its server is as it was when the twin was opened.

    Disabling, renaming and adding middleware all lengthen one of these lists; `_components` contains a tool until it
    is removed or replaced. `server.get_tool` would cost 43 µs a call.
    """

    def __init__(self, server: FastMCP[Any], tool: Tool) -> None:
        self._server = server
        self._key = tool.key
        local = [provider for provider in server.providers if isinstance(provider, LocalProvider) and tool.key in provider._components]
        self._holder = local[0] if local else None
        self._held = self._holder._components[tool.key] if self._holder else None
        self._then = self._lengths()

    def holds(self) -> bool:
        """True if neither the tool nor what runs around it has changed."""
        return self._lengths() == self._then and (self._holder is None or self._holder._components.get(self._key) is self._held)

    def _lengths(self) -> tuple[int, int, int, int]:
        server, holder = self._server, self._holder
        return len(server._transforms), len(server.middleware), len(server._extensions), len(holder._transforms) if holder else 0


class _Nobody:
    """The back-channel to a caller over plain HTTP: notifications are dropped, requests raise an error."""

    can_send_request = False
    message_metadata = None
    request_id = None
    transport = None

    async def send_raw_request(self, method: str, params: Mapping[str, Any] | None, opts: Any = None) -> dict[str, Any]:
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

    Without it `ctx.info`, `ctx.request_id`, `ctx.get_state` and `get_http_request()` raise. Its protocol version is the
    one without a back-channel, so that `ctx.elicit` and its like raise FastMCP's own error.
    """

    meta = None
    protocol_version = LATEST_MODERN_VERSION
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
                connection = Connection.from_envelope(LATEST_MODERN_VERSION, None, None)
                value = _SilentSession(cast(DispatchContext[Any], _Nobody()), connection)
            case "lifespan_context":
                value = self._server._lifespan_result or {}
            case "_srctx":
                value = ServerRequestContext(
                    session=self.session,
                    lifespan_context=self.lifespan_context,
                    protocol_version=self.protocol_version,
                    method="tools/call",
                    request_id=self.request_id,
                    request=self.request,
                )
            case _:
                raise AttributeError(name)
        setattr(self, name, value)
        return value


class ToolContext:
    """Sets FastMCP's context variables for a call that did not come over MCP.

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
        entered: list[Token[Any]] = [
            fastmcp_request_ctx.set(TwinRequestContext(server, scope)),
            _current_context.set(Context(server)),
            _current_server.set(self._reference),
        ]
        if shares and server._shared_context_snapshot:
            entered += [variable.set(value) for variable, value in server._shared_context_snapshot.items()]
        return entered


def reset(entered: Sequence[Token[Any]]) -> None:
    """Give the context variables their previous values."""
    for token in reversed(entered):
        token.var.reset(token)


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


def is_crash(error: ToolError) -> bool:
    """True if a ToolError from `server.call_tool` wraps another exception of the tool; False if the tool raised it itself.

    FastMCP wraps every other exception in a ToolError whose text repeats it, with the exception as its cause.
    """
    wrapped = ("Error calling tool ", "Upstream request timed out", "Rate limited by upstream API")
    return type(error) is ToolError and error.__cause__ is not None and str(error).startswith(wrapped)
