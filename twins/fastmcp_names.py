"""The names of FastMCP that it does not document and that a tool needs which is called directly; each is looked for once.

One that a release has no more is in `MISSING`, and something without effect stands for it here: then twins.quick_way has FastMCP's own
servers answer. tests/service/test_private_names.py takes them away.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar, Token
from importlib import import_module
from typing import Any, TypeVar

from mcp.server.context import ServerRequestContext
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
