"""Every private name of FastMCP and mcp that twins touches, each with its reason.

What is here was read in FastMCP 4.1.2 and mcp 2.3. Tests hold it: an upgrade that changes one of these names fails
there, not in front of a caller.
"""

import weakref
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
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
from starlette.routing import BaseRoute
from starlette.types import Scope
from uncalled_for import SharedContext

CALL_HOOKS = ("__call__", "_dispatch_handler", "on_message", "on_request", "on_call_tool")


async def every_tool(server: FastMCP[Any]) -> Sequence[Tool]:
    """The tools that a client would be shown, in their newest version, and those with `auth=` as well.

    FastMCP leaves a tool out of a list when its `auth=` refuses the caller, and at start there is no caller. On
    stdio it asks nobody, so the list is taken as if on stdio: twins must see such a tool to refuse it aloud.
    The author's own middleware has its say in what is listed; the tools themselves are taken unchanged by it. Where there
    is none, FastMCP's own is left out too: it resolves references in copies, and loads some fifty modules for that.
    """
    middleware = bool(author_middleware(server))
    token = set_transport("stdio")
    try:
        names = dict.fromkeys(tool.name for tool in await server.list_tools(run_middleware=middleware))
        found = [await server.get_tool(name) for name in names]
    finally:
        reset_transport(token)
    return [tool for tool in found if tool is not None]


async def serve_schemas(server: FastMCP[Any]) -> None:
    """Give mcp the tools' input schemas, so that it stops listing all tools before each call.

    `_mcp_server.get_tool_input_schema`: for every `tools/call` with arguments of the 2026-07-28 revision, mcp looks
    the schema up to check `Mcp-Param-*` headers; FastMCP sets no look-up, and then mcp runs a whole `tools/list`,
    middleware included. With 30 tools that costs 13-17 times the call.
    """
    schemas: dict[str, Mapping[str, Any]] = {tool.name: tool.parameters for tool in await server.list_tools(run_middleware=False)}
    server._mcp_server.get_tool_input_schema = schemas.get


def allows_direct_calls(server: FastMCP[Any]) -> bool:
    """Whether a tool may be called without the server: nothing of its author's stands around a call.

    `_extensions` may intercept calls. Of middleware, what overrides a hook that runs around a call counts, unless its
    class says `twin_safe = True`: the MCP side of a gate, whose other side the twins' gate is.
    """
    return not server._extensions and not any(_wraps_calls(each) for each in server.middleware)


def _wraps_calls(middleware: Middleware) -> bool:
    kind = type(middleware)
    if getattr(kind, "twin_safe", False):
        return False
    overridden = (getattr(kind, hook, None) is not getattr(Middleware, hook) for hook in CALL_HOOKS)
    return any(overridden) or not vars(middleware).keys().isdisjoint(CALL_HOOKS)


def is_proxied(tool: Tool) -> bool:
    """Whether a tool is another server's, reached by a proxy. To import its class would take a quarter of a second."""
    return any(kind.__module__ == "fastmcp.server.providers.proxy" for kind in type(tool).__mro__)


class DirectCallGuard:
    """Whether a tool still stands as it stood when its twin was opened.

    Disabling, renaming and adding middleware all lengthen one of these lists; `_components` holds a tool until it
    is removed or replaced. Asking the server itself (`get_tool`) would cost 43 µs a call.
    """

    def __init__(self, server: FastMCP[Any], tool: Tool) -> None:
        self._server = server
        self._key = tool.key
        local = [provider for provider in server.providers if isinstance(provider, LocalProvider) and tool.key in provider._components]
        self._holder = local[0] if local else None
        self._held = self._holder._components[tool.key] if self._holder else None
        self._then = self._lengths()

    def holds(self) -> bool:
        return self._lengths() == self._then and (self._holder is None or self._holder._components.get(self._key) is self._held)

    def _lengths(self) -> tuple[int, int, int, int]:
        server, holder = self._server, self._holder
        return len(server._transforms), len(server.middleware), len(server._extensions), len(holder._transforms) if holder else 0


class _Nobody:
    """The back-channel to a caller over plain HTTP: what is told is dropped, what is asked is refused."""

    can_send_request = False
    message_metadata = None
    request_id = None
    transport = None

    async def send_raw_request(self, method: str, params: Mapping[str, Any] | None, opts: Any = None) -> dict[str, Any]:
        raise NoBackChannelError(method)

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: Any = None) -> None:
        """Nobody listens."""

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Nobody listens."""


class _SilentSession(ServerSession):
    """A session with nobody at its other end. mcp's own would drop log messages too, with a warning each."""

    async def send_log_message(self, *_: Any, **__: Any) -> None:
        """Nobody listens."""


class TwinRequestContext(FastMCPRequestContext):
    """What FastMCP knows of a request, for one that came by a twin: most of it is made only when a tool asks for it.

    Without it `ctx.info`, `ctx.request_id`, `ctx.get_state` and `get_http_request()` raise. The revision without
    back-channel is named, so that `ctx.elicit` and its like refuse with FastMCP's own sentence.
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
    """What a tool's function finds around it in a call that did not come by MCP.

    `entered = surroundings.enter(scope)`, and `reset(entered)` whatever comes of the call. The context variables are set
    directly: `async with Context(…)` does the same in several times the time, opens a new scope for `Shared()` in each call,
    and knows no request.
    """

    def __init__(self, server: FastMCP[Any]) -> None:
        self._server = server
        self._reference = weakref.ref(server)

    def enter(self, scope: Scope, *, shares: bool = True) -> list[Token[Any]]:
        """`shares` is for functions that have something resolved by FastMCP.

        `_shared_context_snapshot` is the server's own scope for `Shared()`, kept for this very purpose: FastMCP's MCP side
        applies it likewise.
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
    """Give the context variables back what they held before."""
    for token in reversed(entered):
        token.var.reset(token)


@asynccontextmanager
async def shared_scope() -> AsyncIterator[None]:
    """A scope for `Shared()` where the server's lifespan, which would have opened one, is not running."""
    try:
        SharedContext.resolved.get()
    except LookupError:
        async with SharedContext():
            yield
    else:
        yield


def is_crash(error: ToolError) -> bool:
    """Whether a ToolError out of `server.call_tool` wraps a fault of the tool, as opposed to one that the tool raised.

    FastMCP wraps every other exception in a ToolError whose text repeats it, with the exception as its cause.
    """
    wrapped = ("Error calling tool ", "Upstream request timed out", "Rate limited by upstream API")
    return type(error) is ToolError and error.__cause__ is not None and str(error).startswith(wrapped)


def author_lifespan(server: FastMCP[Any]) -> AbstractAsyncContextManager[Any]:
    """The lifespan that a server's author gave it, for another server that is opened over the same providers."""
    return server._lifespan(server)


def author_middleware(server: FastMCP[Any]) -> list[Middleware]:
    """The middleware that a server's author gave it; the one that every FastMCP server carries is left out."""
    return [each for each in server.middleware if type(each) is not DereferenceRefsMiddleware]


def author_routes(server: FastMCP[Any]) -> list[BaseRoute]:
    """The custom routes that a server's author gave it (`_additional_http_routes`: FastMCP offers no way to list them)."""
    return list(server._additional_http_routes)
