"""The names of FastMCP that it does not document and that a tool needs which is called directly; each is looked for once.

One that a release has no more is in `MISSING`, and something without effect stands for it here: then twins.quick_way has FastMCP's own
servers answer. tests/service/test_private_names.py takes them away.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar, Token
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from mcp.server.context import ServerRequestContext
from starlette.requests import Request

FoundT = TypeVar("FoundT")
MISSING: list[str] = []
_NOTHING: ContextVar[Any] = ContextVar("nothing that FastMCP reads", default=None)


def _found(module: str, name: str, instead: FoundT) -> FoundT:
    try:
        found: FoundT = getattr(import_module(module), name)
    except (ImportError, AttributeError):
        MISSING.append(name)
        return instead
    return found


def _set_nothing(transport: str) -> Token[Any]:
    return _NOTHING.set(transport)


def _is_always() -> bool:
    return True


Binding = AbstractContextManager[Any]
CONTEXT, DEPENDENCIES = "fastmcp.server.context", "fastmcp.server.dependencies"
current_context: ContextVar[Any] = _found(CONTEXT, "_current_context", _NOTHING)
current_server: ContextVar[Any] = _found(DEPENDENCIES, "_current_server", _NOTHING)
current_request: ContextVar[Any] = _found(DEPENDENCIES, "fastmcp_request_ctx", _NOTHING)
set_transport: Callable[[str], Token[Any]] = _found(CONTEXT, "set_transport", _set_nothing)
bind_request_context: Callable[[ServerRequestContext], Binding] = _found(DEPENDENCIES, "bind_request_context", nullcontext)
set_http_request: Callable[[Request], Binding] = _found("fastmcp.server.http", "set_http_request", nullcontext)
is_client_tool_call: Callable[[], bool] = _found(DEPENDENCIES, "_is_client_tool_call", _is_always)
if TYPE_CHECKING:
    from fastmcp.server.dependencies import FastMCPRequestContext as FastMCPRequestContext
else:
    FastMCPRequestContext = _found(DEPENDENCIES, "FastMCPRequestContext", object)
