"""Every private name of FastMCP, mcp and OpenTelemetry that twins uses, each with its reason; tool.context has those about a running tool.

Written against FastMCP 4.1.2 and mcp 2.3. tests/twins/test_fastmcp_internals.py fails if an upgrade changes one of them.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from traceback import walk_tb
from typing import Any

from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.server.context import reset_transport, set_transport
from fastmcp.server.dependencies import _is_client_tool_call
from fastmcp.server.middleware import Middleware
from fastmcp.server.middleware.dereference import DereferenceRefsMiddleware
from fastmcp.server.mixins.mcp_operations import _normalize_call_tool_result
from fastmcp.server.providers import LocalProvider, Provider
from fastmcp.server.transforms import Transform
from fastmcp.server.transforms.catalog import CatalogTransform
from fastmcp.tools import Tool
from fastmcp.tools.base import ToolResult
from fastmcp.utilities.exceptions import get_http_status_code, is_timeout_error
from fastmcp.utilities.tasks import TASKS_EXTENSION_ID
from mcp import MCPError
from mcp_types import MISSING_REQUIRED_CLIENT_CAPABILITY, SERVER_INFO_META_KEY
from mcp_types.methods import serialize_server_result
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from opentelemetry import trace
from opentelemetry.environment_variables import OTEL_PYTHON_TRACER_PROVIDER

NAMES_TRACER = OTEL_PYTHON_TRACER_PROVIDER in os.environ
OPENAPI, PROXY, TOOLS = "fastmcp.server.providers.openapi", "fastmcp.server.providers.proxy", "fastmcp.tools"
"""FastMCP's code for the tools of an API, for those of another server, and around every tool."""
CALL_HOOKS = ("__call__", "_dispatch_handler", "on_message", "on_request", "on_call_tool")


async def every_tool(server: FastMCP[Any]) -> Sequence[Tool]:
    """The tools that a client would be shown, in their newest version, and those with `auth=` too.

    FastMCP leaves a tool out of a list when its `auth=` rejects the caller, and at start there is no caller. On
    stdio it checks nobody, so the list is made as if on stdio: twins must see such a tool to reject it with a reason.
    The author's own middleware decides what is listed; the tools are taken without its changes. If there is no such
    middleware, FastMCP's own is skipped too: it resolves references in copies, and loads some fifty modules for that.
    Tool search and code mode list tools of their own in place of the server's, which are those that have twins.
    """
    middleware = not all(map(_only_dereferences, server.middleware))
    with _trusted():
        with _whole_catalog(server) if await synthetic_tools(server) else nullcontext():
            names = dict.fromkeys(tool.name for tool in await server.list_tools(run_middleware=middleware))
        found = [await server.get_tool(name) for name in names]
    return [tool for tool in found if tool is not None]


async def synthetic_tools(server: FastMCP[Any]) -> frozenset[str]:
    """The names of the tools by which tool search and code mode find and call the server's own; of a transform that only hides, none."""
    if not any(isinstance(each, CatalogTransform) for each in server._transforms):
        return frozenset()
    with _trusted():
        listed = {tool.name for tool in await server.list_tools(run_middleware=False)}
        with _whole_catalog(server):
            return frozenset(listed - {tool.name for tool in await server.list_tools(run_middleware=False)})


def hides_tools(provider: Provider) -> bool:
    """True if a mounted server, or another provider, lists tools of tool search or code mode in place of its own."""
    inner = getattr(provider, "server", None) or getattr(provider, "_inner", None)
    below = [*getattr(provider, "providers", ()), *([inner] if isinstance(inner, Provider) else [])]
    return any(isinstance(each, CatalogTransform) for each in provider._transforms) or any(map(hides_tools, below))


@contextmanager
def _trusted() -> Iterator[None]:
    """As if on stdio, where FastMCP asks no `auth=`."""
    token = set_transport("stdio")
    try:
        yield
    finally:
        reset_transport(token)


@contextmanager
def _whole_catalog(server: FastMCP[Any]) -> Iterator[None]:
    """Lists are those from which tool search and code mode choose (`_bypass`: they offer no other way outside of a call)."""
    entered = [each._bypass.set(True) for each in server._transforms if isinstance(each, CatalogTransform)]
    try:
        yield
    finally:
        for token in entered:
            token.var.reset(token)


def _only_dereferences(middleware: Middleware) -> bool:
    """True for FastMCP's own middleware that resolves references, and for one derived from it that says that it lists the same tools."""
    kind = type(middleware)
    return kind is DereferenceRefsMiddleware or (isinstance(middleware, DereferenceRefsMiddleware) and getattr(kind, "twin_safe", False))


async def serve_schemas(server: FastMCP[Any]) -> None:
    """Give mcp the tools' input schemas, so that it does not list all tools before each call.

    `_mcp_server.get_tool_input_schema`: for every `tools/call` of the 2026-07-28 revision, mcp needs the schema to check
    `Mcp-Param-*` headers. FastMCP does not set it, and then mcp runs a whole `tools/list`, middleware included. With 30
    tools that costs 13-17 times the call.
    """
    with _trusted():
        listed = await server.list_tools(run_middleware=False)
        with _whole_catalog(server):
            listed = [*listed, *await server.list_tools(run_middleware=False)]
    schemas: dict[str, Mapping[str, Any]] = {tool.name: tool.parameters for tool in listed}
    server._mcp_server.get_tool_input_schema = schemas.get


def allows_direct_calls(server: FastMCP[Any]) -> bool:
    """True if a tool may be called without the server: no code of its author runs around a call.

    `_extensions` may intercept calls, and so may middleware that overrides one of the hooks around a call. Those whose
    class has `twin_safe = True` are excepted: they are the MCP side of a gate, and the twins' gate is the HTTP side.
    """
    return not _has_authors_extensions(server) and not any(_wraps_calls(each) for each in server.middleware)


def _has_authors_extensions(server: FastMCP[Any]) -> bool:
    return any(not getattr(type(each), "twin_safe", False) for each in server._extensions.values())


def _wraps_calls(middleware: Middleware) -> bool:
    return not getattr(type(middleware), "twin_safe", False) and _overrides(middleware, CALL_HOOKS)


def _overrides(middleware: Middleware, hooks: Iterable[str]) -> bool:
    kind = type(middleware)
    if kind is DereferenceRefsMiddleware and "on_list_tools" in hooks:  # FastMCP's own, the same for every caller
        return False
    overridden = (getattr(kind, hook, None) is not getattr(Middleware, hook) for hook in hooks)
    return any(overridden) or not vars(middleware).keys().isdisjoint(hooks)


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

    @property
    def is_local(self) -> bool:
        """True if the tool is one of the server's own, not of a provider that may decide at each call."""
        return self._holder is not None

    def _lengths(self) -> tuple[int, ...]:
        """A new version of the tool, or one that hides it, is one more component."""
        server = self._server
        holder = self._holder
        own = len(server._transforms), len(server.middleware), len(server._extensions), len(server.providers)
        return (*own, len(holder._transforms), len(holder._components)) if holder else own


def is_as_shipped(server: FastMCP[Any]) -> bool:
    """True if mcp's and FastMCP's own code alone handles the server's messages, up to the tools.

    `_mcp_server` is mcp's server: its middleware, its cache hints and its handler of `tools/call` may be replaced. An author's
    transform may treat callers differently.
    """
    low = server._mcp_server
    kinds = [type(each).__name__ for each in low.middleware]
    entry = low.get_request_handler("tools/call")
    return (
        kinds == ["FastMCPServerMiddleware", "RequestStateBoundary"]
        and not low.cache_hints.keys() & {"tools/call"}
        and entry is not None
        and entry.handler == server._on_call_tool
        and all(_treats_all_alike(each) for each in server._transforms)
        and "call_tool" not in vars(server)
        and type(server).call_tool is FastMCP.call_tool
    )


def runs_no_code_around_calls(server: FastMCP[Any]) -> bool:
    """True if no middleware at all takes part in a call, not even one with `twin_safe`, which may be the server's only gate."""
    return not server._extensions and not any(_overrides(each, CALL_HOOKS) for each in server.middleware)


def lists_the_same_to_all(server: FastMCP[Any], *, gated: bool) -> bool:
    """True if a list or a handshake depends on nothing but the server's components: every caller receives the same.

    With a gate, middleware that has `twin_safe` belongs to the gate, and what it lists is the same for every caller.
    """
    hooks = (*CALL_HOOKS, "on_list_tools", "on_initialize", "on_discover")
    authors = [each for each in server.middleware if not (gated and getattr(type(each), "twin_safe", False))]
    local = [provider for provider in server.providers if type(provider) is LocalProvider]
    return (
        is_as_shipped(server)
        and len(local) == len(server.providers)
        and not any(_overrides(each, hooks) for each in authors)
        and not _has_authors_extensions(server)
        and server._list_page_size is None
        and type(server).list_tools is FastMCP.list_tools
        and not any(getattr(each, "auth", None) for provider in local for each in provider._components.values())
        and all(_treats_all_alike(each) for provider in local for each in provider._transforms)
    )


def _treats_all_alike(transform: Transform) -> bool:
    """True for FastMCP's own transforms, and for those whose class has `twin_safe = True`: every caller gets the same tools."""
    return getattr(type(transform), "twin_safe", False) or type(transform).__module__.startswith("fastmcp.")


def shown_state(server: FastMCP[Any]) -> list[object]:
    """What lists and handshakes are made of, to be compared with ==. Components are compared by identity first, so 30 cost 1 µs."""
    low = server._mcp_server
    state: list[object] = [low.name, low.version, low.instructions, len(low._request_handlers), len(server._transforms)]
    state += (len(server.middleware), len(server._extensions), len(server.providers))
    for provider in server.providers:
        if isinstance(provider, LocalProvider):
            state += (len(provider._transforms), *provider._components.values())
    return state


def server_stamp(server: FastMCP[Any]) -> dict[str, Any]:
    """The `_meta` that mcp adds to every result of the current version."""
    return {SERVER_INFO_META_KEY: server._mcp_server.server_info_stamp}


def has_wire_form(result: ToolResult) -> bool:
    """True for a result that a tool made in the protocol's own form, which FastMCP sends unchanged."""
    return result._raw_mcp_result is not None


def with_wire_meta(result: ToolResult, meta: dict[str, Any]) -> ToolResult:
    """A result in the protocol's own form, with another `_meta`: FastMCP sends that form, whatever else the result says."""
    assert result._raw_mcp_result is not None
    return ToolResult.from_mcp_result(result._raw_mcp_result.model_copy(update={"meta": meta}))


async def result_on_wire(server: FastMCP[Any], result: ToolResult, version: str) -> dict[str, Any]:
    """A tool's result as mcp sends it, without the server's stamp; it ends as `server.call_tool` and the handler above it would."""
    finished = await server._rebind_prefab_tool_names(result)
    dumped = _normalize_call_tool_result(finished.to_mcp_result()).model_dump(by_alias=True, mode="json", exclude_none=True)
    return serialize_server_result("tools/call", version, dumped)


def result_as_json(result: ToolResult) -> bytes:
    """A tool's result as the JSON of MCP's CallToolResult."""
    return _normalize_call_tool_result(result.to_mcp_result()).model_dump_json(by_alias=True, exclude_none=True).encode()


def runs_as_task(tool: Tool, context: Context) -> bool:
    """Whether a call over MCP runs as a background task: if its tool may, and the client asks for it, decided as fastmcp-tasks decides.

    Raises MCP's error for a tool that runs only so and a client that does not ask; ToolError if another tool calls it.
    """
    mode = tool.task_config.mode
    if mode == "forbidden":
        return False
    request = context.request_context
    is_modern = request is not None and request.protocol_version in MODERN_PROTOCOL_VERSIONS
    is_asked = is_modern and context.client_extension_settings(TASKS_EXTENSION_ID) is not None
    if is_asked and _is_client_tool_call():
        return True
    if mode == "required" and _is_client_tool_call():
        sentence = (
            f"Tool {tool.name!r} requires the tasks extension ({TASKS_EXTENSION_ID}); the client did not declare it for this request."
        )
        missing: dict[str, Any] = {"requiredCapabilities": {"extensions": {TASKS_EXTENSION_ID: {}}}}
        raise MCPError(code=MISSING_REQUIRED_CLIENT_CAPABILITY, message=sentence, data=missing)
    if mode == "required":
        raise ToolError(f"Tool {tool.name!r} only runs as a background task, which the client has to request by calling it directly.")
    return False


def api_method(tool: Tool) -> str | None:
    """The method of the API's operation of which FastMCP made the tool; None for any other tool."""
    while (inner := getattr(tool, "parent_tool", None)) is not None:
        tool = inner
    is_operation = any(kind.__module__ == f"{OPENAPI}.components" for kind in type(tool).__mro__)
    return getattr(getattr(tool, "_route", None), "method", None) if is_operation else None


class CrashError(ToolError):
    """What `server.call_tool` raises for an exception of a tool, with that exception as its cause, in a call without the server."""

    def __init__(self, server: FastMCP[Any], tool: Tool, error: Exception) -> None:
        text = f"Error calling tool {tool.name!r}" + ("" if server._mask_error_details else f": {error}")
        if get_http_status_code(error) == 429:
            text = "Rate limited by upstream API, please retry later"
        elif is_timeout_error(error):
            text = "Upstream request timed out, please retry"
        super().__init__(text)
        self.__cause__ = error


def is_crash(error: BaseException) -> bool:
    """True if a ToolError wraps another exception of the tool; False if the tool raised it itself, also `from` another exception.

    FastMCP wraps every other exception in a ToolError, with the exception as its cause: which of the two it is, the place says.
    """
    if type(error) is not ToolError or error.__cause__ is None:
        return isinstance(error, CrashError)
    places = [frame.f_globals.get("__name__", "") for frame, _ in walk_tb(error.__traceback__)]
    return bool(places) and places[-1].startswith("fastmcp.server.")


def came_through(error: BaseException, *parts: str) -> bool:
    """True if the exception was raised in one of these modules or packages, or below a call that they made."""
    return any(frame.f_globals.get("__name__", "").startswith(parts) for frame, _ in walk_tb(error.__traceback__))


def has_tracer() -> bool:
    """True if somebody collects spans: a provider with an attribute `records` says of itself whether it does now.

    `trace._TRACER_PROVIDER`: while there is none, `get_tracer_provider()` searches the environment each time, for a 25th of a
    direct call.
    """
    provider = trace._TRACER_PROVIDER
    return NAMES_TRACER if provider is None else getattr(provider, "records", True)
