"""What twins uses of FastMCP, mcp and OpenTelemetry that they do not document, each with its reason.

FastMCP 4.1.2 and 4.2.3 have all of it. tests/twins/test_fastmcp_internals.py fails if an upgrade changes something, and tool.context
tries at start what a direct call needs. What is imported is looked for once: a name that a release has no more is in `MISSING`, and
something without effect stands for it here. Then FastMCP's own servers answer; tests/service/test_private_names.py takes the names away.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar, Token
from importlib import import_module
from traceback import walk_tb
from typing import Any, TypeVar

from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.server.extensions import ServerExtension
from fastmcp.server.middleware import Middleware
from fastmcp.server.middleware.dereference import DereferenceRefsMiddleware
from fastmcp.server.providers import Provider
from fastmcp.server.transforms.catalog import CatalogTransform
from fastmcp.tools import Tool
from fastmcp.tools import base as results
from fastmcp.tools.base import ToolResult
from fastmcp.utilities.exceptions import get_http_status_code, is_timeout_error
from fastmcp.utilities.tasks import TASKS_EXTENSION_ID
from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp_types import MISSING_REQUIRED_CLIENT_CAPABILITY, SERVER_INFO_META_KEY, CallToolResult, Implementation, TextContent
from mcp_types.methods import serialize_server_result
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from opentelemetry import trace
from opentelemetry.environment_variables import OTEL_PYTHON_TRACER_PROVIDER
from pydantic_core import PydanticSerializationError, to_json
from starlette.requests import Request

MISSING: list[str] = []
try:
    from fastmcp.server.dependencies import FastMCPRequestContext as FastMCPRequestContext
except ImportError:
    FastMCPRequestContext = object  # type: ignore[assignment,misc]  # a class with none of its attributes
    MISSING.append("FastMCPRequestContext")
try:  # which members of a result have the names of their aliases, model by model; direct calls do without
    from fastmcp.tools.function_parsing import _ToolOutputSchemaGenerator
except ImportError:
    from pydantic.json_schema import GenerateJsonSchema as _ToolOutputSchemaGenerator  # type: ignore[assignment]
OutputSchemas = _ToolOutputSchemaGenerator
FoundT = TypeVar("FoundT")
AskT = TypeVar("AskT")
Bind = Callable[[AskT], AbstractContextManager[Any]]
_NOTHING: ContextVar[Any] = ContextVar("nothing that FastMCP reads", default=None)


def _found(module: str, name: str, instead: FoundT) -> FoundT:
    try:
        found: FoundT = getattr(import_module(module), name)
    except (ImportError, AttributeError):
        MISSING.append(name)
        return instead
    return found


CONTEXT, DEPENDENCIES = "fastmcp.server.context", "fastmcp.server.dependencies"
current_context: ContextVar[Any] = _found(CONTEXT, "_current_context", _NOTHING)
current_server: ContextVar[Any] = _found(DEPENDENCIES, "_current_server", _NOTHING)
current_request: ContextVar[Any] = _found(DEPENDENCIES, "fastmcp_request_ctx", _NOTHING)
set_transport: Callable[[str], Token[Any]] = _found(CONTEXT, "set_transport", _NOTHING.set)
bind_request_context: Bind[ServerRequestContext] = _found(DEPENDENCIES, "bind_request_context", nullcontext)
set_http_request: Bind[Request] = _found("fastmcp.server.http", "set_http_request", nullcontext)
is_client_tool_call: Callable[[], bool] = _found(DEPENDENCIES, "_is_client_tool_call", lambda: True)

NAMES_TRACER = OTEL_PYTHON_TRACER_PROVIDER in os.environ
OPENAPI, PROXY, TOOLS = "fastmcp.server.providers.openapi", "fastmcp.server.providers.proxy", "fastmcp.tools"
"""FastMCP's code for the tools of an API, for those of another server, and around every tool."""
AS_TOOLS = ("fastmcp.server.transforms.prompts_as_tools", "fastmcp.server.transforms.resources_as_tools")
"""FastMCP's code for tools by which prompts and resources are asked for: a caller may name one that there is not."""


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
    if not any(isinstance(each, CatalogTransform) for each in server.transforms):
        return frozenset()
    with _trusted():
        listed = {tool.name for tool in await server.list_tools(run_middleware=False)}
        with _whole_catalog(server):
            return frozenset(listed - {tool.name for tool in await server.list_tools(run_middleware=False)})


def hides_tools(provider: Provider) -> bool:
    """True if a mounted server, or another provider, lists tools of tool search or code mode in place of its own."""
    inner = getattr(provider, "server", None) or getattr(provider, "_inner", None)
    below = [*getattr(provider, "providers", ()), *([inner] if isinstance(inner, Provider) else [])]
    return any(isinstance(each, CatalogTransform) for each in provider.transforms) or any(map(hides_tools, below))


@contextmanager
def _trusted() -> Iterator[None]:
    """As if on stdio, where FastMCP asks no `auth=`."""
    token = set_transport("stdio")
    try:
        yield
    finally:
        token.var.reset(token)


@contextmanager
def _whole_catalog(server: FastMCP[Any]) -> Iterator[None]:
    """Lists are those from which tool search and code mode choose (`_bypass`: they offer no other way outside of a call)."""
    entered = [each._bypass.set(True) for each in server.transforms if isinstance(each, CatalogTransform)]
    try:
        yield
    finally:
        for token in entered:
            token.var.reset(token)


def _only_dereferences(middleware: Middleware) -> bool:
    kind = type(middleware)
    return kind is DereferenceRefsMiddleware or (isinstance(middleware, DereferenceRefsMiddleware) and getattr(kind, "twin_safe", False))


async def serve_schemas(server: FastMCP[Any]) -> None:
    """Give mcp the tools' input schemas, so that it does not list all tools before each call.

    `_mcp_server.get_tool_input_schema`: for every `tools/call` of the 2026-07-28 revision, mcp needs the schema to check
    `Mcp-Param-*` headers. FastMCP before 4.2 does not set it, and then mcp runs a whole `tools/list`, middleware included. With 30
    tools that costs 13-17 times the call.
    """
    low = getattr(server, "_mcp_server", None)
    known = getattr(low, "get_tool_input_schema", None)
    if low is None or (known is not None and not isinstance(getattr(known, "__self__", None), _Schemas)):
        return  # FastMCP's own, or nothing is known of it
    with _trusted():
        listed = await server.list_tools(run_middleware=False)
        with _whole_catalog(server):
            listed = [*listed, *await server.list_tools(run_middleware=False)]
    low.get_tool_input_schema = _Schemas((tool.name, tool.parameters) for tool in listed).get


class _Schemas(dict[str, Mapping[str, Any]]):
    """Input schemas by name, which `serve_schemas` set and may set anew."""


def extensions_of(server: FastMCP[Any]) -> Sequence[ServerExtension] | None:
    """The server's extensions (`_extensions`: FastMCP offers no other way to read them); None if that cannot be known."""
    found = getattr(server, "_extensions", None)
    return None if found is None else list(found.values())


def page_size_of(server: FastMCP[Any]) -> int | None:
    """How many tools one page of the server's list has (`_list_page_size`); None if it has no pages, 0 if that cannot be known."""
    size: int | None = getattr(server, "_list_page_size", 0)
    return size


def is_proxied(tool: Tool) -> bool:
    """True if a tool belongs to another server that is reached by a proxy."""
    return _is_of(PROXY, tool)


def _is_of(module: str, tool: Tool) -> bool:
    """True if the tool's class is of this module, which importing the class would load: that of proxies takes a quarter of a second."""
    return any(kind.__module__ == module for kind in type(tool).__mro__)


def server_info(server: FastMCP[Any]) -> Implementation:
    """What a server says of itself; FastMCP offers neither its title nor its description, which mcp's server has."""
    info = getattr(getattr(server, "_mcp_server", None), "server_info", None)
    return info or Implementation(
        name=server.name, version=server.version or "", website_url=server.website_url, icons=server.icons or None
    )


def server_stamp(server: FastMCP[Any]) -> dict[str, Any]:
    """The `_meta` that mcp adds to every result of the current version."""
    return {SERVER_INFO_META_KEY: getattr(server._mcp_server, "server_info_stamp", None)}


def has_wire_form(result: ToolResult) -> bool:
    """True for a result that a tool made in the protocol's own form, which FastMCP sends unchanged."""
    return getattr(result, "_raw_mcp_result", None) is not None


def with_wire_meta(result: ToolResult, meta: dict[str, Any]) -> ToolResult:
    """A result in the protocol's own form, with another `_meta`: FastMCP sends that form, whatever else the result says."""
    assert result._raw_mcp_result is not None
    return ToolResult.from_mcp_result(result._raw_mcp_result.model_copy(update={"meta": meta}))


async def result_on_wire(server: FastMCP[Any], result: ToolResult, version: str) -> dict[str, Any]:
    """A tool's result as mcp sends it, without the server's stamp; it ends as `server.call_tool` and the handler above it would."""
    finished = await server._rebind_prefab_tool_names(result)
    dumped = _in_protocol(finished).model_dump(by_alias=True, mode="json", exclude_none=True)
    return serialize_server_result("tools/call", version, dumped)


def result_as_json(result: ToolResult) -> bytes:
    """A tool's result as the JSON of MCP's CallToolResult."""
    return _in_protocol(result).model_dump_json(by_alias=True, exclude_none=True).encode()


def _in_protocol(result: ToolResult) -> CallToolResult:
    made = result.to_mcp_result()
    if isinstance(made, CallToolResult):
        return made
    content, structured = made if isinstance(made, tuple) else (made, None)
    return CallToolResult(content=content, structured_content=structured)


RAW_RESULT: type[ToolResult] = getattr(results, "RawStructuredToolResult", ToolResult)
RAW_RESULTS = RAW_RESULT is not ToolResult
"""Whether this FastMCP has results that are no objects, as it has from 4.2 on. Before, such a tool cannot answer."""


def raw_result(value: Any) -> ToolResult:
    """A result of a tool whose output schema is no object: clients of the current version get the value, older ones get it wrapped."""
    return RAW_RESULT(content=[TextContent(type="text", text=to_json(value).decode())], structured_content=value)


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
    if is_asked and is_client_tool_call():
        return True
    if mode == "required" and is_client_tool_call():
        sentence = (
            f"Tool {tool.name!r} requires the tasks extension ({TASKS_EXTENSION_ID}); the client did not declare it for this request."
        )
        missing: dict[str, Any] = {"requiredCapabilities": {"extensions": {TASKS_EXTENSION_ID: {}}}}
        raise MCPError(code=MISSING_REQUIRED_CLIENT_CAPABILITY, message=sentence, data=missing)
    if mode == "required":
        raise ToolError(f"Tool {tool.name!r} only runs as a background task, which the client has to request by calling it directly.")
    return False


def function_of(tool: Tool) -> Callable[..., Any] | None:
    """The function that a tool runs, also one that was made from another tool; None for what another server or an API runs."""
    found: Callable[..., Any] | None = getattr(_original(tool), "fn", None)
    return found


def _original(tool: Tool) -> Tool:
    """The tool from which this one was made, and that one from it; itself if it was made of none."""
    while isinstance(parent := getattr(tool, "parent_tool", None), Tool):
        tool = parent
    return tool


def ends_in_a_function(tool: Tool) -> bool:
    """True if pydantic judges the arguments in the end: of a function, or of what is probably one, in a server that is mounted."""
    return _is_of("fastmcp.server.providers.fastmcp_provider", tool) or function_of(tool) is not None


UNSENDABLE = ("Tool result contains a non-finite float", "Could not serialize the return value", "structured_content must be a dict")


def is_unsendable(error: ToolError) -> bool:
    """True if FastMCP could not write what a tool returned: a number or a text that JSON has not, or no object where one is published."""
    cause = error.__cause__
    says_so = any(str(each).startswith(UNSENDABLE) for each in (error, cause))
    return type(error) is ToolError and (says_so or isinstance(cause, PydanticSerializationError))


def api_method(tool: Tool) -> str | None:
    tool = _original(tool)
    return getattr(getattr(tool, "_route", None), "method", None) if _is_of(f"{OPENAPI}.components", tool) else None


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
